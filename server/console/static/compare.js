// What is different between two moments, from the changes between them.

import { avatar, objectLink } from './change.js';
import { empty, failure, fill, h, icon, skeleton } from './dom.js';
import { fields } from './fields.js';
import { ago, author, clock, count } from './format.js';
import { at as changeAt, list, quiet, revisionOf, timeOf } from './history.js';
import { fold, isStatus } from './paths.js';
import { change, current } from './route.js';
import { undoDialog } from './undo.js';

const page = 500, most = 5000;
const spans = [['10 minutes', 600e3], ['1 hour', 3600e3], ['6 hours', 6 * 3600e3], ['1 day', 86400e3], ['7 days', 7 * 86400e3]];

const local = (time) => new Date(time - new Date(time).getTimezoneOffset() * 60e3).toISOString().slice(0, 19);

/** CompareView shows how the cluster, a namespace or an object differs between two moments. */
export class CompareView {
  #abort = null;

  constructor(app) {
    this.app = app;
    this.status = h('input', { type: 'checkbox', onchange: () => this.#render() });
    this.from = h('input', { type: 'datetime-local', step: 1, 'aria-label': 'From', onchange: () => this.#pick('from', this.from.value) });
    this.to = h('input', { type: 'datetime-local', step: 1, 'aria-label': 'To', onchange: () => this.#pick('to', this.to.value) });
    this.total = h('span', { class: 'count' });
    this.content = h('div', {}, skeleton(8));
    this.element = h('div', { class: 'page' }, app.head('Compare', this.total, h('div', { class: 'spacer' }), app.namespaces()),
      h('div', { class: 'filters' },
        h('label', { class: 'check' }, 'From', this.from), h('label', { class: 'check' }, 'to', this.to),
        h('div', { class: 'segments' }, spans.map(([name, ms]) => h('button', { class: 'button small', onclick: () => this.#last(ms) }, name))),
        h('label', { class: 'check' }, this.status, 'Status and owned ones too')), this.content);
    this.load();
  }

  get selection() { return { terms: {}, namespace: this.app.route.ns || this.app.limited }; }

  // The end is the moment of the slider, or now.
  update() { this.load(); }

  close() { this.#abort?.abort(); }

  async #pick(which, text) {
    const time = text ? Date.parse(text) : Date.now();
    change({ [which]: which === 'to' && time >= Date.now() - 1000 ? '' : await this.app.time.moments.find(time) });
  }

  async #last(ms) {
    change({ from: await this.app.time.moments.find(Date.now() - ms), to: '', at: '' });
  }

  async load() {
    this.#abort?.abort();
    const { signal } = this.#abort = new AbortController();
    const { from, name } = current(), to = current().to || current().at;
    const namespace = this.app.route.ns || this.app.limited;
    try {
      if (!from) {
        const first = await list({ order: 'oldest' }, { namespace, limit: 1, metadata: true, signal });
        await this.app.time.loaded;
        const hour = await this.app.time.moments?.find(Date.now() - 3600e3);
        if (!first.items[0]) throw Object.assign(new Error('No changes are kept.'), { title: 'There is nothing to compare' });
        if (!signal.aborted) change({ from: hour || revisionOf(first.items[0]) }, true);
        return;
      }
      const [start, end] = await Promise.all([from, to].map((r) => r && changeAt(r, { namespace, metadata: true, signal })));
      this.from.value = local(start ? timeOf(start) : Date.now());
      this.to.value = local(end ? timeOf(end) : Date.now());
      const found = [];
      let continued = '';
      do {
        const terms = { afterRevision: from, beforeRevision: to ? Number(to) + 1 : undefined, name, order: 'oldest' };
        const next = await list(terms, { namespace, more: quiet, limit: page, continued, signal });
        found.push(...next.items);
        continued = next.metadata.continue;
      } while (continued && found.length < most);
      this.cut = Boolean(continued);
      this.#group(found);
      this.#render();
    } catch (error) {
      if (error.name !== 'AbortError') fill(this.content, failure(error, () => this.load()));
    }
  }

  #group(changes) {
    const objects = new Map();
    for (const c of changes.filter((one) => !one.gap)) {
      const { apiVersion = '', resource, namespace = '', name } = c.object;
      const key = [apiVersion.split('/')[0], resource, namespace, name].join('/');
      if (!objects.has(key)) objects.set(key, []);
      objects.get(key).push(c);
    }
    this.objects = [...objects.values()].flatMap((all) => {
      const first = all[0], last = all.at(-1), existed = first.operation !== 'create', exists = last.operation !== 'delete';
      if (!existed && !exists) return [];
      const what = !existed ? 'create' : !exists ? 'delete' : 'update';
      const changed = what === 'update' ? fold(all) : [];
      return [{ what, first, last, changed, authors: [...new Map(all.map((c) => [author(c), c.user]))] }];
    });
  }

  #render() {
    if (!this.objects) return;
    const withStatus = this.status.checked;
    const shown = this.objects.filter((o) => withStatus || !o.last.owners).map((o) => ({ ...o, changed: withStatus ? o.changed : o.changed.filter((f) => !isStatus(f.path)) }))
      .filter((o) => o.what !== 'update' || o.changed.length > 0 || o.first.object.uid !== o.last.object.uid);
    this.total.textContent = count(shown.length);
    const { from } = current();
    const sections = [['update', 'Changed'], ['create', 'Added'], ['delete', 'Removed']].map(([what, title]) => {
      const rows = shown.filter((o) => o.what === what);
      return rows.length > 0 && h('section', { class: 'group' }, h('h2', {}, title, ' ', h('span', { class: 'count' }, count(rows.length))), rows.map((o) => h('article', { class: `difference ${what}` },
        h('header', {}, h('span', { class: `op ${what}`, 'aria-hidden': 'true' }, { update: '~', create: '+', delete: '−' }[what]),
          objectLink(this.app, o.last.object, what === 'delete' ? revisionOf(o.last) - 1 : revisionOf(o.last)), !this.app.route.ns && h('span', { class: 'muted' }, o.last.object.namespace ?? ''),
          h('span', { class: 'spacer' }), h('span', { class: 'avatars', title: o.authors.map(([name]) => name).join(', ') }, o.authors.slice(0, 4).map(([, user]) => avatar(user))),
          h('span', { class: 'muted small nowrap', title: clock(timeOf(o.last)) }, `${ago(Date.now() - timeOf(o.last))} ago`),
          h('button', { class: 'button small', onclick: () => this.#undo(o, Number(from)) }, icon('undo'), 'Undo…')),
        o.changed.length > 0 && fields(o.changed, 6))));
    });
    fill(this.content, this.cut && h('p', { class: 'note' }, `There are more than ${count(most)} changes; these are the first. Choose a shorter time or a namespace.`),
      sections.some(Boolean) ? sections : empty('Nothing is different', 'Between these moments, nothing was changed but status.'));
  }

  #undo(o, from) {
    const { apiVersion = '', resource, namespace, name } = o.last.object;
    const object = { group: apiVersion.includes('/') ? apiVersion.split('/')[0] : '', resource, namespace, name };
    undoDialog(this.app, `Restore ${name}`, { object, to: { revision: from } });
  }
}
