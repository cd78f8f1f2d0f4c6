// Objects below their owners: Deployment → ReplicaSets → Pods.

import { exact, idOf, pathOf } from './api.js';
import { empty, failure, fill, h, skeleton } from './dom.js';
import { ago, health } from './format.js';
import { change, current, go, link } from './route.js';
import { Pace, readTables } from './tables.js';

const shown = ['deployments.apps', 'statefulsets.apps', 'daemonsets.apps', 'cronjobs.batch', 'jobs.batch', 'replicasets.apps', 'pods.', 'events.'];
const most = 2000;

/** TreeView shows the workloads of a namespace as trees. */
export class TreeView {
  #abort = null;
  #nodes = [];
  #pace = new Pace();

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

  tick() { if (!current().at && this.#pace.isDue) this.load(); }

  key(event) {
    const step = { j: 1, k: -1 }[event.key];
    if (!step) return;
    const items = [...this.content.querySelectorAll('[role=treeitem]')], i = items.indexOf(document.activeElement);
    items[Math.min(items.length - 1, Math.max(0, i + step))]?.focus();
    event.preventDefault();
  }

  async load() {
    this.#abort?.abort();
    const { signal } = this.#abort = new AbortController(), done = this.#pace.begin();
    try {
      const lists = shown.flatMap((id) => {
        const kind = this.app.kinds.find((k) => `${k.resource}.${k.group}` === id);
        return kind ? [{ kind, path: pathOf(kind, this.app.route.ns), query: { ...exact(current().at), fieldSelector: id === 'events.' ? 'type=Warning' : undefined } }] : [];
      });
      await readTables(lists, signal, (rows) => this.#grow(rows));
      done();
    } catch (error) {
      if (error.name !== 'AbortError') fill(this.content, failure(error, () => this.load()));
    }
  }

  #grow(rows) {
    const warnings = new Map(), nodes = rows.filter((row) => row.kind.resource !== 'events'), place = (namespace, object) => `${namespace}/${object}`.toLowerCase();
    for (const { metadata: m, cells } of rows.filter((row) => row.kind.resource === 'events')) warnings.set(place(m.namespace, cells.Object), cells);
    const byUID = new Map(nodes.map((row) => [row.metadata.uid, { ...row, children: [], warning: warnings.get(place(row.metadata.namespace, `${row.kind.kind}/${row.metadata.name}`)) }]));
    this.#nodes = [];
    for (const node of byUID.values()) {
      const owner = byUID.get(node.metadata.ownerReferences?.find((o) => o.controller)?.uid);
      (owner?.children ?? this.#nodes).push(node);
    }
    for (const node of this.#nodes) weigh(node);
    this.#render();
  }

  #render() {
    const wanted = (current().q ?? '').toLowerCase(), rows = [];
    const matches = (node) => `${node.metadata.namespace}/${node.metadata.name} ${node.kind.kind} ${node.cells.Status ?? ''}`.toLowerCase().includes(wanted) || node.children.some(matches);
    const add = (node, level) => {
      if (!matches(node)) return;
      if (node.kind.resource === 'replicasets' && level > 1 && node.children.length === 0 && !this.old.checked) return;
      rows.push([node, level]);
      for (const child of node.children.sort(inOrder)) add(child, level + 1);
    };
    const focused = document.activeElement?.dataset?.uid;
    for (const node of this.#nodes.sort(inOrder)) add(node, 1);
    fill(this.content, rows.length === 0 ? empty('No workloads', wanted ? 'Nothing matches.' : 'There are no Deployments, Jobs or Pods here.') : rows.slice(0, most).map(([node, level]) => this.#row(node, level)),
      rows.length > most && h('p', { class: 'muted' }, `and ${rows.length - most} more; choose a namespace`));
    if (focused) this.content.querySelector(`[data-uid="${CSS.escape(focused)}"]`)?.focus();
  }

  #row(node, level) {
    const { kind, metadata: m, children, warning } = node, params = { r: idOf(kind), ns: m.namespace, name: m.name, of: this.app.route.ns }, text = stateOf(node);
    return h('a', {
      class: 'line-row tree-row', role: 'treeitem', 'aria-level': level, 'aria-expanded': children.length > 0 ? 'true' : null, href: link('object', params), dataset: { uid: m.uid },
      style: { 'padding-left': `${8 + (level - 1) * 24}px` }, onkeydown: (e) => { if (e.key === 'Enter') { e.preventDefault(); go('object', params); } },
    }, h('span', { class: 'kind-tag' }, kind.kind), h('span', { class: 'cell-name' }, m.name), !this.app.route.ns && level === 1 && h('span', { class: 'muted' }, m.namespace),
    warning && h('span', { class: 'tree-event', title: warning.Message }, h('span', { class: 'state bad' }, warning.Reason), h('span', { class: 'muted' }, ` ${warning.Message}`)),
    h('span', { class: `end state ${healthOf(node)}` }, text), h('span', { class: 'muted age' }, ago(this.app.time.now - Date.parse(m.creationTimestamp))));
  }
}

// What an object says of itself: 2/3, or 1/1 Running.
function stateOf({ cells }) {
  if (cells.Status !== undefined && cells.Ready !== undefined) return `${cells.Ready} ${cells.Status}`;
  if (cells.Desired !== undefined) return `${cells.Ready ?? 0}/${cells.Desired}`;
  return String(cells.Status ?? cells.Ready ?? cells.Completions ?? '');
}

const healthOf = (node) => health(String(node.cells.Status ?? stateOf(node)));

const weights = { bad: 2, busy: 1 };

// Notes how bad it is with an object and what it owns.
function weigh(node) {
  node.weight = Math.max(weights[healthOf(node)] ?? 0, node.warning ? 1.5 : 0, ...node.children.map(weigh));
  return node.weight;
}

// Problems are on top.
const inOrder = (a, b) => b.weight - a.weight || (a.metadata.namespace + a.metadata.name < b.metadata.namespace + b.metadata.name ? -1 : 1);
