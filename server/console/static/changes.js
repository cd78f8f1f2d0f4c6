// The list of changes, newest first: who changed what. What is deleted is a part of it, the trash.

import { idOf } from './api.js';
import { avatar, card, meant, summary, transactionLink, verbs } from './change.js';
import { empty, failure, fill, h, icon, skeleton } from './dom.js';
import { ago, author, authorInFull, clock, count, who } from './format.js';
import { dialog } from './help.js';
import { after, before, follow, list, only, quiet, revisionOf, timeOf } from './history.js';
import { change, current, go } from './route.js';
import { VirtualTable } from './table.js';
import { undoDialog } from './undo.js';

const firstPage = 100, page = 500, mostUnasked = 4;
const filters = [['user', 'User'], ['fieldManager', 'Manager'], ['kind', 'Kind'], ['name', 'Name'], ['field', 'Field path'], ['transaction', 'Transaction']];

/** ChangesView is the list of changes; with trash, of deletions. */
export class ChangesView {
  #changes = [];
  #abort = null;
  #continued = '';
  #loading = false;
  #unasked = 0; // pages that were read because few changes of the first are shown
  #short = false; // the last page has fewer changes than it could: the server looks for more from there

  constructor(app, trash = false) {
    this.app = app;
    this.trash = trash;
    this.total = h('span', { class: 'count' });
    this.table = new VirtualTable({ label: trash ? 'Deleted objects' : 'Changes', open: (row) => this.#open(row.change) });
    this.table.columns(this.#columns());
    this.table.scroller.addEventListener('scroll', () => {
      const s = this.table.scroller;
      if (s.scrollTop + s.clientHeight > s.scrollHeight - 600) this.#next();
    });
    const { route } = app;
    this.inputs = (trash ? filters.slice(0, 4) : filters).map(([id, label], i) => h('input', {
      type: 'search', class: i === 0 ? 'filter' : '', placeholder: i === 0 ? `${label}  /` : label, 'aria-label': label, value: route[id] ?? '', onchange: (e) => change({ [id]: e.target.value.trim() }),
    }));
    this.byTransaction = this.inputs[filters.findIndex(([id]) => id === 'transaction')]; // which a click on one sets
    this.operation = h('select', { 'aria-label': 'Operation', onchange: (e) => change({ operation: e.target.value }) },
      h('option', { value: '' }, 'All operations'), Object.keys(verbs).map((o) => h('option', { value: o }, verbs[o])));
    this.operation.value = route.operation ?? '';
    this.all = h('input', { type: 'checkbox', checked: route.all === '1', onchange: () => change({ all: this.all.checked ? '1' : '' }) });
    this.undoAll = h('button', { class: 'button', hidden: true, onclick: () => this.#undoAll() }, icon('undo'), 'Undo all of these…');
    this.content = h('div', { class: 'fill' }, skeleton(12));
    this.element = h('div', { class: 'page page-list' },
      app.head(trash ? 'Trash' : 'Changes', this.total, h('div', { class: 'spacer' }), this.undoAll, app.namespaces()),
      h('div', { class: 'filters' }, this.inputs, !trash && this.operation, h('label', { class: 'check' }, this.all, 'What controllers do too')),
      this.content);
    this.load();
  }

  get #terms() {
    const r = current();
    const terms = Object.fromEntries([...filters.map(([id]) => id), 'operation'].map((id) => [id, r[id]]));
    terms.order = 'newest';
    if (this.trash) terms.operation = 'delete';
    if (r.at) terms.beforeRevision = Number(r.at) + 1;
    return terms;
  }

  get #options() {
    return { namespace: this.app.route.ns || this.app.limited, more: current().all === '1' ? [] : quiet, signal: this.#abort.signal };
  }

  get selection() {
    const { user, fieldManager, kind, name, field, operation, transaction } = this.#terms;
    const terms = { user, fieldManager, kind, name, field, operation, transaction };
    if (!Object.values(terms).some(Boolean)) return null; // that would mark everything
    return { terms, namespace: this.app.route.ns || this.app.limited };
  }

  update() { this.load(); }

  close() { this.#abort?.abort(); }

  tick() { this.table.redraw(); }

  key(event) { return this.table.key(event); }

  // An undo selects by user, manager, transaction, namespace and moment, so these must be all that the list is of.
  #undoAll() {
    const { user, fieldManager, transaction, ns, at } = current(), whose = [transaction, user && who(user), fieldManager].filter(Boolean).join(', ');
    undoDialog(this.app, `Undo what ${whose} did`, { changes: { user, fieldManager, transaction, namespace: ns, beforeRevision: at ? Number(at) + 1 : undefined } });
  }

  async load() {
    const { user, fieldManager, kind, name, field, operation, transaction } = this.#terms;
    if (this.byTransaction) {
      this.byTransaction.hidden = !transaction;
      this.byTransaction.value = transaction ?? '';
    }
    this.undoAll.hidden = this.trash || !(user || fieldManager || transaction) || Boolean(kind || name || field || operation);
    this.#abort?.abort();
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    try {
      const first = await list(this.#terms, { ...this.#options, limit: firstPage });
      this.#changes = first.items;
      this.#short = first.items.length < firstPage;
      this.#unasked = 0;
      this.#continued = first.metadata.continue ?? '';
      this.#render();
      if (!current().at) this.#follow(first.metadata.resourceVersion, signal);
    } catch (error) {
      if (error.name === 'AbortError') return;
      this.total.textContent = '';
      const hint = error.code === 403 && !this.app.route.ns;
      fill(this.content, hint ? empty('Choose a namespace', 'You may not see the changes of the whole cluster.') : failure(error, () => this.load()));
    }
  }

  async #next() {
    if (!this.#continued || this.#loading) return;
    this.#loading = true;
    const { signal } = this.#abort;
    try {
      const more = await list(this.#terms, { ...this.#options, limit: page, continued: this.#continued });
      this.#short = more.items.length < page;
      this.#continued = more.metadata.continue ?? '';
      this.#changes.push(...more.items);
    } catch { this.#short = false; /* scrolling tries again */ }
    this.#loading = false;
    if (!signal.aborted) this.#render();
  }

  async #follow(from, signal) {
    const { order, ...terms } = this.#terms;
    try {
      for await (const c of follow(terms, { ...this.#options, from })) {
        this.#changes.unshift(c);
        from = c.metadata.resourceVersion;
        this.#render();
      }
    } catch (error) {
      if (error.name === 'AbortError') return;
    }
    setTimeout(() => { if (!signal.aborted) this.load(); }, 2000);
  }

  // Who asks for a user, a manager or a transaction wants to see all that they did.
  get #shown() {
    const { all, user, fieldManager, transaction } = current();
    return all === '1' || user || fieldManager || transaction ? this.#changes : this.#changes.filter(meant);
  }

  #render() {
    const shown = this.#shown, together = (a, b) => Boolean(a?.transaction) && a.transaction === b?.transaction;
    const rows = shown.map((c, i) => {
      const first = !together(c, shown[i - 1]), last = !together(c, shown[i + 1]); // of what a transaction did
      return { key: c.metadata.name, version: `${first} ${last}`, class: c.transaction ? `together${last ? '' : ' joined'}` : '', first, change: c };
    });
    this.total.textContent = count(rows.length) + (this.#continued ? '+' : '');
    const hidden = this.#changes.length - rows.length;
    if (rows.length === 0 && hidden > 0) {
      fill(this.content, empty(this.trash ? 'Nobody deleted anything' : 'Nobody changed anything', `Only controllers and nodes did, ${count(hidden)}${this.#continued ? '+' : ''} times. `, h('button', { class: 'link-button', onclick: () => change({ all: '1' }) }, 'Show these too')));
    } else if (rows.length === 0 && this.#continued) {
      fill(this.content, empty('None so far', 'Looking further back…'));
    } else if (rows.length === 0) {
      fill(this.content, this.trash ? empty('Nothing was deleted', 'What is deleted stays here for as long as history is kept.') : empty('No changes', 'Nothing matches these filters in what is kept.'));
    } else if (!this.table.scroller.isConnected) fill(this.content, this.table.scroller);
    this.table.show(rows);
    if (rows.length < 100 && (this.#short || this.#unasked++ < mostUnasked)) this.#next();
  }

  #columns() {
    const object = (c) => h('span', {}, h('span', { class: 'muted' }, `${c.object.kind ?? c.object.resource} `), h('span', { class: 'cell-name' }, c.object.name));
    const columns = [
      { name: 'When', width: '4rem', cell: ({ change: c }) => h('time', { datetime: c.metadata.creationTimestamp, title: clock(timeOf(c)), class: 'muted' }, `${ago(Date.now() - timeOf(c))}`) },
      { name: 'Who', width: innerWidth < 720 ? '22px' : 'minmax(9rem, 14fr)', cell: ({ change: c }) => h('span', { class: 'with-avatar', title: `${authorInFull(c)} · ${c.fieldManager ?? ''}` }, avatar(c.user), h('span', { class: 'clip' }, author(c))) },
      { name: 'Did', width: '5rem', cell: ({ change: c }) => h('span', { class: `op ${c.operation}` }, verbs[c.operation]) },
      { name: 'Object', width: 'minmax(14rem, 26fr)', cell: ({ change: c }) => object(c) },
      { name: 'Namespace', width: 'minmax(5rem, 9fr)', cell: ({ change: c }) => h('span', { class: 'muted' }, c.object.namespace ?? '') },
    ];
    if (this.trash) {
      columns.push({
        name: '', width: '8rem', cell: ({ change: c }) => h('button', { class: 'button small', onclick: (e) => { e.stopPropagation(); this.#bringBack(c); } }, icon('undo'), 'Bring back…'),
      });
    } else columns.push({ name: 'What', width: 'minmax(14rem, 36fr)', cell: ({ change: c, first }) => [first && c.transaction && transactionLink(c), summary(c)] });
    return innerWidth < 720 ? columns.filter((c) => c.name !== 'Did' && c.name !== 'Namespace') : columns;
  }

  #bringBack(c) {
    const [group] = c.object.apiVersion.includes('/') ? c.object.apiVersion.split('/') : [''];
    const object = { group, resource: c.object.resource, namespace: c.object.namespace, name: c.object.name };
    undoDialog(this.app, `Bring back ${c.object.name}`, { object, to: { before: revisionOf(c) } });
  }

  #open(c) {
    const resource = this.app.resourceOf(c.object);
    const d = dialog(`Change ${c.metadata.name}`, card(this.app, c, { object: true, actions: false }),
      c.owners && h('p', { class: 'muted small' }, `Owned by ${c.owners.map((o) => `${o.kind} ${o.name}`).join(', of ')}`),
      h('p', { class: 'muted small' }, [c.address && `From ${c.address}`, c.auditID && `audit ID ${c.auditID}`].filter(Boolean).join(' · ')),
      h('footer', {}, resource && h('button', { class: 'button', onclick: () => { d.close(); go('object', { r: idOf(resource), ns: c.object.namespace ?? '', name: c.object.name, at: c.operation === 'delete' ? before(c) : after(c), of: this.app.route.ns }); } }, icon('clock'), 'See it then'),
        h('span', { class: 'spacer' }), h('form', { method: 'dialog' }, h('button', { class: 'button' }, 'Close')),
        c.transaction && h('button', { class: 'button', onclick: () => { d.close(); undoDialog(this.app, `Undo the transaction ${c.transaction}`, { changes: { transaction: c.transaction } }); } }, icon('undo'), 'Undo the transaction…'),
        h('button', { class: 'button primary', onclick: () => { d.close(); undoDialog(this.app, `Undo change ${c.metadata.name}`, only(c)); } }, icon('undo'), 'Undo…')));
    d.addEventListener('click', (e) => { if (e.target.closest('a')) d.close(); });
  }
}
