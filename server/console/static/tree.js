// Objects below their owners: Deployment → ReplicaSets → Pods.

import { asTable, exact, idOf, pathOf, request, withQuery } from './api.js';
import { empty, failure, fill, h, skeleton } from './dom.js';
import { ago, health } from './format.js';
import { change, current, go, link } from './route.js';

const shown = ['deployments.apps', 'statefulsets.apps', 'daemonsets.apps', 'cronjobs.batch', 'jobs.batch', 'replicasets.apps', 'pods.'];

/** TreeView shows the workloads of a namespace as trees. */
export class TreeView {
  #abort = null;
  #nodes = [];

  constructor(app) {
    this.app = app;
    this.filter = h('input', { type: 'search', class: 'filter', placeholder: 'Filter  /', 'aria-label': 'Filter', value: app.route.q ?? '', oninput: () => change({ q: this.filter.value }, true) });
    this.old = h('input', { type: 'checkbox', onchange: () => this.#render() });
    this.content = h('div', { class: 'tree', role: 'tree', 'aria-label': 'Owners' }, skeleton(10));
    this.element = h('div', { class: 'page' }, app.head('Owners', h('div', { class: 'spacer' }), h('label', { class: 'check' }, this.old, 'Old ReplicaSets too'), app.namespaces(), this.filter), this.content);
    this.load();
  }

  update(route, before) {
    if (route.at !== before.at) this.load();
    else this.#render();
  }

  close() { this.#abort?.abort(); }

  moved() { this.#render(); }

  tick() { if (!current().at) this.load(); }

  key(event) {
    const step = { j: 1, k: -1 }[event.key];
    if (!step) return;
    const items = [...this.content.querySelectorAll('[role=treeitem]')], i = items.indexOf(document.activeElement);
    items[Math.min(items.length - 1, Math.max(0, i + step))]?.focus();
    event.preventDefault();
  }

  async load() {
    this.#abort?.abort();
    const { signal } = this.#abort = new AbortController();
    try {
      const tables = await Promise.all(shown.map(async (id) => {
        const kind = this.app.kinds.find((k) => `${k.resource}.${k.group}` === id);
        if (!kind) return [];
        const { columnDefinitions: columns, rows } = await request(withQuery(pathOf(kind, this.app.route.ns), exact(current().at)), { accept: asTable, signal });
        return (rows ?? []).map((row) => ({ kind, metadata: row.object.metadata, cells: Object.fromEntries(columns.map((c, i) => [c.name, row.cells[i]])), children: [] }));
      }));
      const byUID = new Map(tables.flat().map((node) => [node.metadata.uid, node]));
      this.#nodes = [];
      for (const node of byUID.values()) {
        const owner = byUID.get(node.metadata.ownerReferences?.find((o) => o.controller)?.uid);
        (owner?.children ?? this.#nodes).push(node);
      }
      this.#render();
    } catch (error) {
      if (error.name !== 'AbortError') fill(this.content, failure(error, () => this.load()));
    }
  }

  #render() {
    const wanted = (current().q ?? '').toLowerCase(), rows = [];
    const matches = (node) => `${node.metadata.namespace}/${node.metadata.name} ${node.kind.kind} ${node.cells.Status ?? ''}`.toLowerCase().includes(wanted) || node.children.some(matches);
    const add = (node, level) => {
      if (!matches(node)) return;
      if (node.kind.resource === 'replicasets' && level > 1 && node.children.length === 0 && !this.old.checked) return;
      rows.push([node, level]);
      for (const child of node.children) add(child, level + 1);
    };
    const focused = document.activeElement?.dataset?.uid;
    for (const node of this.#nodes.sort((a, b) => (a.metadata.namespace + a.metadata.name < b.metadata.namespace + b.metadata.name ? -1 : 1))) add(node, 1);
    fill(this.content, rows.length === 0 ? empty('No workloads', wanted ? 'Nothing matches.' : 'There are no Deployments, Jobs or Pods here.') : rows.slice(0, 2000).map(([node, level]) => this.#row(node, level)),
      rows.length > 2000 && h('p', { class: 'muted' }, `and ${rows.length - 2000} more; choose a namespace`));
    if (focused) this.content.querySelector(`[data-uid="${CSS.escape(focused)}"]`)?.focus();
  }

  #row({ kind, metadata: m, cells, children }, level) {
    const params = { r: idOf(kind), ns: m.namespace, name: m.name, of: this.app.route.ns }, state = String(cells.Status ?? cells.Ready ?? cells.Completions ?? '');
    const text = cells.Status !== undefined && cells.Ready !== undefined ? `${cells.Ready} ${cells.Status}` : kind.resource === 'replicasets' ? `${cells.Ready ?? 0}/${cells.Desired ?? 0}` : state;
    return h('a', {
      class: 'line-row tree-row', role: 'treeitem', 'aria-level': level, 'aria-expanded': children.length > 0 ? 'true' : null, href: link('object', params), dataset: { uid: m.uid },
      style: { 'padding-left': `${8 + (level - 1) * 24}px` }, onkeydown: (e) => { if (e.key === 'Enter') { e.preventDefault(); go('object', params); } },
    }, h('span', { class: 'kind-tag' }, kind.kind), h('span', { class: 'cell-name' }, m.name), !this.app.route.ns && level === 1 && h('span', { class: 'muted' }, m.namespace),
    h('span', { class: `end state ${health(kind.resource === 'replicasets' ? text : state)}` }, text), h('span', { class: 'muted age' }, ago(this.app.time.now - Date.parse(m.creationTimestamp))));
  }
}
