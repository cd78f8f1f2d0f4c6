// One object: its YAML with who set what, and all that happened to it on one axis, changes and events.

import { asTable, exact, idOf, pathOf, request, withQuery } from './api.js';
import { card, onlyStatus } from './change.js';
import { actions } from './changing.js';
import { clusterActions, isCluster, pastActions } from './clusters.js';
import { empty, failure, fill, h, icon, skeleton, toast } from './dom.js';
import { ago, author, authorInFull, clock, health } from './format.js';
import { follow, list, of, revisionOf, timeOf } from './history.js';
import { LogView } from './logs.js';
import { split } from './paths.js';
import { change, current, go, link } from './route.js';
import { undoDialog } from './undo.js';
import { lines, text } from './yaml.js';

const page = 200;

/** ObjectView is the view of one object at the moment of the URL. */
export class ObjectView {
  #changes = [];
  #events = [];
  #object = null;
  #table = null;
  #abort = new AbortController();
  #read = 0;
  #scrolledTo = undefined;
  #continued = undefined; // where the changes continue that are older

  constructor(app, resource) {
    this.app = app;
    this.resource = resource;
    const { ns, name } = app.route;
    this.ns = ns;
    this.name = name;
    this.facts = h('div', { class: 'facts' });
    this.blame = h('input', { type: 'checkbox', checked: true, onchange: () => this.#showYAML() });
    this.status = h('input', { type: 'checkbox', onchange: () => this.#showTimeline() });
    this.yaml = h('div', { class: 'yaml' }, skeleton(14));
    this.timeline = h('div', { class: 'timeline' }, skeleton(6));
    this.isPod = resource.group === '' && resource.resource === 'pods';
    this.tools = h('div', { class: 'tools' });
    this.main = h('div', { class: 'main-column' });
    this.actions = h('div', { class: 'actions' });
    this.element = h('div', { class: 'page page-object' },
      app.head([h('a', { class: 'crumb', href: link('list', { r: idOf(resource), ns: app.route.of ?? ns }) }, resource.kind), h('span', { class: 'crumb' }, ' / '), ns && resource.namespaced && [h('span', { class: 'crumb' }, `${ns} / `)], name],
        h('div', { class: 'spacer' }), this.actions),
      this.facts,
      h('div', { class: 'columns' },
        h('section', { class: 'column', 'aria-label': 'YAML' },
          h('div', { class: 'column-head' }, this.isPod ? this.#segments() : h('h2', {}, 'YAML'), h('div', { class: 'spacer' }), this.tools), this.main),
        h('section', { class: 'column', 'aria-label': 'What happened' },
          h('div', { class: 'column-head' }, h('h2', {}, 'What happened'), h('div', { class: 'spacer' }), h('label', { class: 'check' }, this.status, 'Status too')), this.timeline)));
    this.#showMain();
    this.#load();
    this.#loadHistory();
  }

  get selection() {
    return { terms: of(this.resource, this.ns, this.name), namespace: this.resource.namespaced ? this.ns : this.app.limited };
  }

  update(route, before) {
    if (route.at !== before.at) this.#load();
    if (route.log !== before.log) this.#showMain();
    this.log?.moved();
  }

  close() {
    this.#abort.abort();
    this.log?.close();
  }

  tick() { this.#showTimeline(); }

  moved() {
    if (this.#object) this.#facts(this.#table);
    this.#showTimeline();
    this.log?.moved();
  }

  // A Pod has its log where others have only their YAML.
  #segments() {
    const button = (name, log) => h('button', { class: 'segment', onclick: () => change({ log }) }, name);
    return h('div', { class: 'segments', role: 'group', 'aria-label': 'What is shown' }, button('YAML', ''), button('Log', '1'));
  }

  #showMain() {
    const log = this.isPod && current().log === '1';
    this.element.querySelectorAll('.segment').forEach((b, i) => b.setAttribute('aria-pressed', log === (i === 1)));
    this.log?.close();
    this.log = null;
    if (log && this.#object) {
      this.log = new LogView(this.app, this.resource, this.#object);
      fill(this.tools, this.log.controls);
      fill(this.main, this.log.element);
    } else {
      fill(this.tools, h('label', { class: 'check' }, this.blame, 'Who set it'), h('button', { class: 'button small', onclick: () => this.#copy() }, 'Copy'));
      fill(this.main, this.yaml);
    }
  }

  key(event) {
    const items = [...this.timeline.querySelectorAll('.moment')];
    const step = { j: 1, k: -1 }[event.key];
    if (!step || items.length === 0) return;
    const i = items.indexOf(document.activeElement);
    items[Math.min(items.length - 1, Math.max(0, i + step))].focus();
    event.preventDefault();
  }

  async #load() {
    const read = ++this.#read, { at } = current();
    const path = pathOf(this.resource, this.ns, this.name);
    try {
      const [object, table] = await Promise.all([request(withQuery(path, exact(at))), request(withQuery(path, exact(at)), { accept: asTable }).catch(() => null)]);
      if (read !== this.#read) return;
      this.#object = object;
      this.#table = table;
      this.#facts(table);
      this.#showYAML();
      if (current().log === '1' && !this.log) this.#showMain();
    } catch (error) {
      if (read !== this.#read) return;
      this.#object = null;
      fill(this.facts);
      if (error.code === 404) {
        fill(this.yaml, empty(at ? 'It did not exist at this moment' : 'It no longer exists', 'What happened to it is beside.'));
      } else fill(this.yaml, failure(error, () => this.#load()));
    }
    this.#showActions();
    this.#showTimeline();
  }

  async #loadHistory() {
    const { terms, namespace } = this.selection;
    try {
      const found = await list({ ...terms, order: 'newest' }, { namespace, limit: page, signal: this.#abort.signal });
      this.#changes = found.items;
      this.#continued = found.metadata.continue;
      this.#events = await this.#listEvents();
      this.#showYAML();
      this.#showTimeline();
      this.#showActions();
      for await (const c of follow(terms, { namespace, from: found.metadata.resourceVersion, signal: this.#abort.signal })) {
        this.#changes.unshift(c);
        this.app.time.mark(timeOf(c));
        if (current().at) this.#showTimeline();
        else this.#load();
      }
      setTimeout(() => { if (!this.#abort.signal.aborted) this.#loadHistory(); }, 1000); // the server ends watches after a while
    } catch (error) {
      if (error.name !== 'AbortError') fill(this.timeline, failure(error, () => this.#loadHistory()));
    }
  }

  async #older() {
    const { terms, namespace } = this.selection;
    try {
      const found = await list({ ...terms, order: 'newest' }, { namespace, limit: page, continued: this.#continued, signal: this.#abort.signal });
      this.#changes.push(...found.items);
      this.#continued = found.metadata.continue;
      this.#showYAML();
      this.#showTimeline();
    } catch (error) {
      toast(error.message);
    }
  }

  async #listEvents() {
    const events = { group: '', version: 'v1', resource: 'events', namespaced: true };
    const fieldSelector = `involvedObject.name=${this.name},involvedObject.kind=${this.resource.kind}`;
    try {
      return (await request(withQuery(pathOf(events, this.ns), { fieldSelector, limit: 100 }), { signal: this.#abort.signal })).items;
    } catch {
      return []; // who may not see events sees the changes
    }
  }

  #facts(table) {
    const row = table?.rows?.[0], m = this.#object.metadata;
    const shown = (table?.columnDefinitions ?? []).map((d, i) => [d, row?.cells[i]])
      .filter(([d, v]) => d.name !== 'Name' && d.name !== 'Age' && v !== null && v !== '' && v !== undefined && v !== '<none>' && String(v).length < 60);
    fill(this.facts, shown.slice(0, 8).map(([d, v]) => h('div', { class: 'fact' }, h('h3', {}, d.name), h('div', { class: health(String(v)) && `state ${health(String(v))}` }, String(v)))),
      h('div', { class: 'fact' }, h('h3', {}, 'Age'), h('div', {}, ago(this.app.time.now - Date.parse(m.creationTimestamp)))),
      (m.ownerReferences ?? []).map((o) => {
        const owner = this.app.resourceOf(o);
        return h('div', { class: 'fact' }, h('h3', {}, 'Owner'), owner ? h('a', { class: 'link', href: link('object', { r: idOf(owner), name: o.name }) }, `${o.kind} ${o.name}`) : o.name);
      }));
  }

  // The object without what nobody reads.
  get #shown() {
    const { apiVersion, kind, metadata: { managedFields, ...metadata }, ...rest } = this.#object;
    return { apiVersion, kind, metadata, ...rest };
  }

  #showActions() {
    const { at } = current(), newest = this.#changes[0];
    const object = { group: this.resource.group, resource: this.resource.resource, namespace: this.resource.namespaced ? this.ns : undefined, name: this.name };
    const deleted = newest?.operation === 'delete';
    fill(this.actions,
      at && h('a', { class: 'button', href: link('compare', { from: at, to: '', at: '', name: this.name, r: idOf(this.resource), ns: this.ns }) }, icon('compare'), 'Compare with now'),
      deleted && !at && h('button', { class: 'button primary', onclick: () => undoDialog(this.app, `Bring back ${this.name}`, { object }) }, icon('undo'), 'Bring back…'),
      !at && this.#object && isCluster(this.resource) && clusterActions(this.app, this.#object),
      !at && this.#object && actions(this.app, this.resource, this.#object),
      at && this.#object && isCluster(this.resource) && pastActions(this.app, this.#object),
      at && this.#object && h('button', { class: 'button primary', onclick: () => undoDialog(this.app, `Restore ${this.name} to ${clock(this.app.time.now)}`, { object, to: { revision: Number(at) } }) }, icon('undo'), 'Restore this…'));
  }

  async #copy() {
    if (!this.#object) return;
    await navigator.clipboard.writeText(text(this.#shown));
    toast('Copied');
  }

  // Whose change a line's value is of: the newest one, up to the moment, that changed its field or a parent of it.
  #blame() {
    const at = Number(current().at) || Infinity, newest = new Map();
    let created = null;
    for (const c of this.#changes) {
      if (revisionOf(c) > at) continue;
      if (c.operation !== 'update') {
        created = c.operation === 'create' ? c : null;
        break;
      }
      for (const f of c.changed ?? []) if (!newest.has(f.path)) newest.set(f.path, c);
    }
    return (path) => {
      const parts = split(path);
      let found = created;
      for (let i = parts.length; i > 0; i--) {
        const c = newest.get(parts.slice(0, i).join(''));
        if (c && (!found || revisionOf(c) > revisionOf(found))) found = c;
      }
      return found;
    };
  }

  #showYAML() {
    if (!this.#object) return;
    const blame = this.#blame(), at = Number(current().at), withBlame = this.blame.checked;
    let before = null;
    this.yaml.classList.toggle('with-blame', withBlame);
    fill(this.yaml, lines(this.#shown).map((l) => {
      const c = l.text === undefined ? null : blame(l.path);
      const named = withBlame && c && c !== before;
      before = c ?? before;
      const isNew = c && at && revisionOf(c) === at;
      return h('div', { class: isNew ? 'line fresh' : 'line' },
        withBlame && h('span', { class: 'by' }, named && [h('a', { href: link('object', { ...this.app.route, at: revisionOf(c) }), title: `${authorInFull(c)} ${c.metadata.creationTimestamp}` }, h('span', { class: 'by-who' }, author(c)), h('span', {}, ago(Date.now() - timeOf(c))))]),
        h('span', { class: 'code', style: { 'padding-left': `${(l.dash ? l.indent - 1 : l.indent) * 2}ch` } },
          l.dash && h('span', { class: 'muted' }, '- '), l.key !== undefined && [h('span', { class: 'key' }, l.key), ':'], l.key !== undefined && l.text !== undefined && ' ',
          l.text !== undefined && h('span', { class: `v-${l.type}` }, l.text)));
    }));
  }

  #showTimeline() {
    const at = Number(current().at);
    const focused = document.activeElement?.closest?.('.moment')?.dataset.key;
    const hidden = this.status.checked ? [] : this.#changes.filter(onlyStatus);
    const moments = [
      ...this.#changes.filter((c) => !hidden.includes(c)).map((c) => ({ key: c.metadata.name, time: timeOf(c), revision: revisionOf(c), element: () => card(this.app, c) })),
      ...this.#events.map((e) => ({ key: e.metadata.uid, time: Date.parse(e.lastTimestamp ?? e.eventTime ?? e.metadata.creationTimestamp), revision: 0, element: () => eventCard(e) })),
    ].sort((a, b) => b.time - a.time || b.revision - a.revision);
    if (moments.length === 0) {
      fill(this.timeline, empty('Nothing that is still kept', hidden.length ? `Only its status has changed, ${hidden.length} ×.` : 'It has not changed for as long as history goes back.'));
      return;
    }
    const shown = moments.filter((m) => m.revision && m.revision <= at)[0];
    fill(this.timeline, moments.map((m) => h('div', {
      class: `moment ${m.revision ? '' : 'is-event'} ${at && m.time > this.app.time.now && m !== shown ? 'later' : ''} ${m === shown ? 'shown' : ''}`, dataset: { key: m.key },
      tabindex: m.revision ? 0 : null, 'aria-current': m === shown ? 'true' : null,
      onclick: (e) => { if (m.revision && !e.target.closest('button, a') && !getSelection().toString()) change({ at: m.revision }); },
      onkeydown: (e) => { if (e.key === 'Enter' && e.target === e.currentTarget && m.revision) change({ at: m.revision }); },
    }, m.element())), hidden.length > 0 && h('p', { class: 'muted small' }, `${hidden.length} ${hidden.length === 1 ? 'change' : 'changes'} of only its status ${hidden.length === 1 ? 'is' : 'are'} left out.`), this.#continued && h('button', { class: 'button', onclick: () => this.#older() }, 'Show older ones'));
    if (shown?.key !== this.#scrolledTo) {
      this.#scrolledTo = shown?.key;
      this.timeline.querySelector('.shown')?.scrollIntoView({ block: 'nearest' });
    }
    if (focused) this.timeline.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }
}

function eventCard(e) {
  return h('article', { class: 'event' }, h('span', { class: `state ${e.type === 'Warning' ? 'bad' : ''}` }, e.reason), h('span', {}, e.message),
    h('span', { class: 'muted small' }, `${clock(e.lastTimestamp ?? e.metadata.creationTimestamp)}${e.count > 1 ? ` · ${e.count} ×` : ''}`));
}

/** openObject returns the view of the URL's object. */
export function openObject(app) {
  const resource = app.resource(app.route.r);
  if (resource && app.route.name) return new ObjectView(app, resource);
  return { element: h('div', { class: 'page' }, empty('There is no such kind', app.route.r ?? '', ' ', h('button', { class: 'button', onclick: () => go('overview') }, 'Overview'))) };
}
