// The objects of a kind, as the API's Table: live by a watch, in the past at a revision.

import { asTable, exact, idOf, pathOf, watch, withQuery } from './api.js';
import { empty, failure, fill, h, skeleton } from './dom.js';
import { ago, count, health, plural, span } from './format.js';
import { of } from './history.js';
import { change, go } from './route.js';
import { VirtualTable } from './table.js';
import { table } from './tables.js';

/** ListView is the view of a kind in a namespace. */
export class ListView {
  #abort = null;
  #objects = new Map(); // rows of the API by uid
  #missing = 0; // how many rows have not come yet
  definitions = [];
  #sorted = { name: '', down: false };
  #frame = 0;
  #shown = ''; // the names of the columns

  constructor(app, resource) {
    this.app = app;
    this.resource = resource;
    this.table = new VirtualTable({
      label: resource.kind, open: (row) => go('object', { r: idOf(resource), ns: row.namespace ?? '', name: row.name, of: app.route.ns }),
      onsort: (name) => this.#sort(name),
    });
    this.total = h('span', { class: 'count' });
    this.about = h('span', {});
    this.filter = h('input', {
      type: 'search', class: 'filter', placeholder: 'Filter  /', 'aria-label': 'Filter', 'aria-keyshortcuts': '/', value: app.route.q ?? '',
      oninput: () => change({ q: this.filter.value }, true),
      onkeydown: (e) => { if (e.key === 'Enter' || e.key === 'ArrowDown') { e.preventDefault(); this.table.scroller.focus(); this.table.move(this.table.selected < 0 ? 1 : 0); } },
    });
    this.content = h('div', { class: 'fill' }, skeleton(12));
    this.element = h('div', { class: 'page page-list' },
      app.head(plural(resource.kind), this.total, this.about, h('div', { class: 'spacer' }), app.namespaces(resource.namespaced), this.filter, this.tools),
      this.content);
    this.load();
  }

  /** update follows the URL. */
  update(route, before) {
    if (route.at !== before.at) this.load();
    else if (route.q !== before.q) this.#render();
  }

  close() { this.#abort?.abort(); }

  tick() { if (this.#objects.size > 0) this.table.redraw(); }

  moved() { this.tick(); }

  key(event) { return this.table.key(event); }

  // What pages of one kind show otherwise: buttons, columns, a line about all rows, and what they say if there are none.
  get tools() { return null; }

  shows(column) { return column.priority === 0; }

  // A time is as long ago as the API said, and as that was.
  cellOf(column, row, v) { return column.type === 'date' && span(v) >= 0 ? ago(span(v) + Date.now() - row.received) : cell(v); }

  summary() { return null; }

  get nothing() {
    return [`No ${plural(this.resource.kind)}`, this.app.route.at ? 'There were none at this moment.' : 'They will appear here when there are some.'];
  }

  /** rows are those of the API that have come. */
  get rows() { return [...this.#objects.values()]; }

  get selection() {
    const { resource, app } = this;
    return { terms: of(resource, app.route.ns), namespace: resource.namespaced ? app.route.ns : app.limited };
  }

  async load() {
    this.#abort?.abort();
    const abort = this.#abort = new AbortController();
    const { at, ns } = this.app.route, path = pathOf(this.resource, ns);
    try {
      let resourceVersion;
      for await (const list of table(path, exact(at), abort.signal)) {
        resourceVersion = list.metadata.resourceVersion;
        const { remainingItemCount = 0 } = list.metadata.continue ? list.metadata : {};
        this.definitions = list.columnDefinitions;
        // Until all have come, what was there before stands for them.
        const rows = byUID(list.rows), before = list.metadata.continue ? [...this.#objects] : [];
        const others = remainingItemCount > 0 ? before.filter(([uid]) => !rows.has(uid)).slice(-remainingItemCount) : [];
        this.#objects = new Map([...rows, ...others]);
        this.#missing = remainingItemCount - others.length;
        this.#shown = '';
        this.#render();
      }
      if (!at && this.resource.watchable) this.#follow(path, resourceVersion, abort.signal);
    } catch (error) {
      if (error.name !== 'AbortError') this.#fail(error);
    }
  }

  #fail(error) {
    this.total.textContent = '';
    fill(this.content, failure(error, () => this.load()));
  }

  async #follow(path, resourceVersion, signal) {
    try {
      for (;;) {
        const query = { watch: 1, resourceVersion, allowWatchBookmarks: 'true' };
        for await (const { type, object } of watch(withQuery(path, query), { accept: asTable, signal })) {
          const row = object.rows?.[0];
          resourceVersion = (row?.object ?? object).metadata.resourceVersion ?? resourceVersion;
          if (type === 'BOOKMARK' || !row) continue;
          if (type === 'DELETED') this.#objects.delete(row.object.metadata.uid);
          else this.#objects.set(row.object.metadata.uid, { ...row, received: Date.now() });
          this.app.time.mark(Date.now());
          this.#frame ||= requestAnimationFrame(() => { this.#frame = 0; this.#render(); });
        }
      }
    } catch (error) {
      if (error.name === 'AbortError') return;
      setTimeout(() => { if (!signal.aborted) this.load(); }, error.code === 410 ? 0 : 2000);
    }
  }

  columns() {
    const all = this.definitions.map((d, i) => ({ ...d, i })).filter((d) => this.shows(d));
    const widest = this.#widths();
    const columns = all.map((d) => {
      const age = d.name === 'Age';
      return {
        name: d.name, class: d.name === 'Name' ? 'cell-name' : d.type === 'integer' ? 'cell-number' : 'cell',
        width: d.name === 'Name' ? `minmax(12rem, ${widest[d.i]}fr)` : `minmax(${Math.min(widest[d.i], 12) * 0.52 + 1.5}rem, ${widest[d.i]}fr)`,
        cell: (row) => (age ? ago(this.app.time.now - row.created) : this.cellOf(d, row, row.cells[d.i])),
        sort: (row) => (age ? -row.created : d.type === 'date' ? (span(row.cells[d.i]) || Infinity) - row.received : row.cells[d.i]),
      };
    });
    if (this.resource.namespaced && !this.app.route.ns) {
      columns.splice(1, 0, { name: 'Namespace', width: 'minmax(7rem, 14fr)', class: 'cell', cell: (row) => h('span', { class: 'muted' }, row.namespace), sort: (row) => row.namespace });
    }
    return columns;
  }

  // How many characters the columns need.
  #widths() {
    const some = this.rows.slice(0, 100);
    return this.definitions.map((d, i) => Math.min(44, Math.max(d.name.length + 1, ...some.map((row) => String(row.cells[i] ?? '').length))));
  }

  #sort(name) {
    this.#sorted = { name, down: this.#sorted.name === name && !this.#sorted.down };
    this.table.columns(this.columns(), this.#sorted);
    this.#render();
  }

  #render() {
    const words = (this.app.route.q ?? '').toLowerCase().split(/\s+/).filter(Boolean);
    let rows = this.rows.map((row) => {
      const m = row.object.metadata;
      return { key: m.uid, version: m.resourceVersion, name: m.name, namespace: m.namespace, created: Date.parse(m.creationTimestamp), received: row.received, cells: row.cells };
    });
    if (words.length > 0) {
      rows = rows.filter((row) => {
        const text = `${row.namespace ?? ''} ${row.cells.join(' ')}`.toLowerCase();
        return words.every((w) => text.includes(w));
      });
    }
    const columns = this.columns(), names = columns.map((c) => c.name).join('\n');
    if (names !== this.#shown) this.table.columns(columns, this.#sorted);
    this.#shown = names;
    const column = columns.find((c) => c.name === this.#sorted.name);
    const sort = column?.sort ?? ((row) => `${row.namespace ?? ''}/${row.name}`), sign = this.#sorted.down ? -1 : 1;
    const keyed = rows.map((row) => [sort(row), row]);
    keyed.sort(([a], [b]) => sign * (typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(a, b)));
    rows = keyed.map(([, row]) => row);
    const all = this.#objects.size + this.#missing;
    fill(this.about, this.summary(rows));
    this.total.textContent = words.length === 0 ? count(all) : `${count(rows.length)} of ${count(all)}`;
    if (rows.length === 0) {
      fill(this.content, words.length > 0 ? empty('Nothing matches', `None of ${count(this.#objects.size)} has “${words.join(' ')}”.`)
        : empty(...this.nothing));
    } else if (!this.table.scroller.isConnected) fill(this.content, this.table.scroller);
    this.table.show(rows);
  }
}

const byUID = (rows) => new Map((rows ?? []).map((row) => [row.object.metadata.uid, { ...row, received: Date.now() }]));

const collator = new Intl.Collator('en', { numeric: true });

function cell(v) {
  const text = v === null || v === undefined ? '' : String(v);
  if (text === '<none>' || text === '<unset>') return h('span', { class: 'muted' }, '–');
  const state = typeof v === 'string' ? health(text) : '';
  return state ? h('span', { class: `state ${state}` }, text) : text;
}
