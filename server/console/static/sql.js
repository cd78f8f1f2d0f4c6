// Questions in SQL about what is stored, for administrators. The API answers them and keeps the limits.

import { request } from './api.js';
import { empty, failure, fill, h, icon } from './dom.js';
import { count } from './format.js';
import { dialog } from './help.js';
import { change, current } from './route.js';
import { VirtualTable } from './table.js';

const group = 'history.sqube.io', version = `${group}/v1alpha1`;

const examples = {
  'Latest changes': "SELECT resource_version, written_at, operation, resource, namespace, name, user_name\nFROM history\nORDER BY resource_version DESC\nLIMIT 100",
  'Who writes': 'SELECT user_name, field_manager, resource, count(*) AS writes\nFROM history\nGROUP BY user_name, field_manager, resource\nORDER BY writes DESC',
  'Largest objects': 'SELECT resource, namespace, name, length(CAST(value AS text)) AS bytes\nFROM objects\nORDER BY bytes DESC\nLIMIT 50',
  'Most often changed': 'SELECT resource, namespace, name, count(*) AS versions, max(written_at) AS latest\nFROM history\nGROUP BY resource, namespace, name\nORDER BY versions DESC\nLIMIT 50',
  'Kinds': 'SELECT api_group, resource, count(*) AS objects, max(written_at) AS latest\nFROM objects\nGROUP BY api_group, resource\nORDER BY objects DESC',
};

/** mayQuery reports whether the user may use this view. */
export async function mayQuery() {
  const review = await request('/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
    method: 'POST', body: { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes: { group, resource: 'queries', verb: 'create' } } },
  });
  return review.status.allowed;
}

const text = (v) => (v === null ? 'null' : String(v));

/** pretty returns a value as it is read best: JSON in lines. */
function pretty(v) {
  if (typeof v !== 'string' || !/^[[{]/.test(v)) return text(v);
  try { return JSON.stringify(JSON.parse(v), null, 2); } catch { return v; }
}

/** SQLView has a box for a statement, and shows the rows. */
export class SQLView {
  #abort = null;
  #runs = 0;

  constructor(app) {
    this.total = h('span', { class: 'count' });
    this.note = h('span', { class: 'muted', role: 'status' });
    this.box = h('textarea', {
      class: 'filter sql', rows: 6, spellcheck: 'false', autocapitalize: 'off', 'aria-label': 'SQL', placeholder: 'SELECT … FROM objects, or FROM history', value: app.route.q ?? '',
      onkeydown: (e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); this.run(); } },
    });
    this.button = h('button', { class: 'button primary', title: 'Ctrl+Enter', onclick: () => (this.#abort ? this.#abort.abort() : this.run()) });
    this.table = new VirtualTable({ label: 'Rows', open: (row) => this.#open(row) });
    this.content = h('div', { class: 'fill' }, empty('Ask for anything that is stored',
      'objects has what exists now, history every version that is kept. A statement can only read; it ends after 10 seconds or 1 000 rows.'));
    this.element = h('div', { class: 'page page-list' }, app.head('SQL', this.total),
      h('div', { class: 'ask' }, this.box, h('div', { class: 'ask-foot' }, this.button, this.note)),
      h('div', { class: 'filters' }, Object.entries(examples).map(([name, sql]) => h('button', { class: 'button small', onclick: () => { this.box.value = sql; this.run(); } }, name))),
      this.content);
    this.#idle();
  }

  #idle() { this.#abort = null; fill(this.button, icon('sql'), 'Run'); }

  // Going back and forth brings statements back, which are not run: some take long.
  update() { if (document.activeElement !== this.box && (current().q ?? '') !== this.box.value) this.box.value = current().q ?? ''; }

  close() { this.#abort?.abort(); }

  key(event) { return this.table.key(event); }

  async run() {
    const sql = this.box.value.trim();
    if (!sql) return;
    this.#abort?.abort();
    const abort = this.#abort = new AbortController();
    change({ q: this.box.value });
    fill(this.button, icon('close'), 'Stop');
    this.note.textContent = 'Running…';
    this.total.textContent = '';
    try {
      const { status } = await request(`/apis/${version}/queries`, { method: 'POST', body: { apiVersion: version, kind: 'Query', spec: { sql } }, signal: abort.signal });
      if (this.#abort !== abort) return;
      this.#show(status);
    } catch (error) {
      if (this.#abort !== abort) return;
      this.note.textContent = error.name === 'AbortError' ? 'Stopped' : '';
      if (error.name !== 'AbortError') {
        error.title = error.code === 422 ? 'The database does not accept this' : error.title;
        error.message = error.message.replace(/^.* is invalid: (spec\.sql: )?(Invalid value: )?/s, '');
        fill(this.content, failure(error));
      }
    }
    this.#idle();
  }

  #show({ columns, rows, cut, milliseconds }) {
    this.total.textContent = count(rows.length) + (cut ? '+' : '');
    this.note.textContent = `${milliseconds} ms${cut ? ` · cut, ${cut}` : ''}`;
    this.columns = columns;
    this.table.columns(columns.map((name, i) => {
      const shown = rows.slice(0, 200).map((row) => row[i]);
      const number = shown.some((v) => v !== null) && shown.every((v) => v === null || typeof v === 'number');
      const wide = Math.min(48, Math.max(name.length, 4, ...shown.map((v) => Math.min(text(v).length, 48))) + 2);
      const cell = ({ values }) => h('span', { class: values[i] === null ? 'muted' : null }, text(values[i]).slice(0, 500));
      return { name, class: number ? 'cell-number' : null, width: `minmax(${Math.min(wide, 26) / 2}rem, ${wide}fr)`, cell };
    }));
    if (rows.length === 0) fill(this.content, empty('No rows'));
    else if (!this.table.scroller.isConnected) fill(this.content, this.table.scroller);
    this.#runs++;
    this.table.show(rows.map((values, i) => ({ key: i, version: this.#runs, values })));
    this.table.scroller.scrollTop = 0;
  }

  #open({ values }) {
    dialog('Row', h('dl', { class: 'row-values' }, this.columns.map((name, i) => [h('dt', {}, name), h('dd', {}, h('pre', {}, pretty(values[i])))])),
      h('form', { method: 'dialog' }, h('button', { class: 'button' }, 'Close')));
  }
}
