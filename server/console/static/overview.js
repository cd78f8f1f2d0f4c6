// The overview: what is wrong, who writes, what grows, and how far back history goes.

import { exact, idOf, pathOf, request, text, withQuery } from './api.js';
import { avatar, meant, objectLink, summary, verbs } from './change.js';
import { empty, fill, h, skeleton } from './dom.js';
import { ago, author, clock, count, health, plural, who } from './format.js';
import { list, quiet, timeOf } from './history.js';
import { current, link } from './route.js';
import { Pace, readTables } from './tables.js';
import { Unconfirmed } from './unconfirmed.js';

const sample = 500;
const counted = ['pods', 'deployments', 'statefulsets', 'jobs', 'services', 'configmaps', 'secrets', 'nodes', 'namespaces'];

// The kinds among which problems are looked for.
const watched = [['nodes', ''], ['pods', ''], ['deployments', 'apps'], ['statefulsets', 'apps'], ['daemonsets', 'apps'], ['jobs', 'batch'], ['persistentvolumeclaims', ''], ['events', '', { fieldSelector: 'type=Warning' }]];

/** Overview is the first page. */
export class Overview {
  #abort = null;
  #pace = new Pace();

  constructor(app) {
    this.app = app;
    this.numbers = h('div', { class: 'numbers' });
    this.unconfirmed = new Unconfirmed();
    this.problems = h('div', {}, skeleton(4));
    this.lately = h('div', {}, skeleton(3));
    this.writers = h('div', {}, skeleton(4));
    this.growth = h('div', {}, skeleton(4));
    this.element = h('div', { class: 'page' }, app.head('Overview', h('div', { class: 'spacer' }), app.namespaces()), this.numbers, this.unconfirmed.element,
      h('section', { class: 'group' }, h('h2', {}, 'Problems'), this.problems),
      h('section', { class: 'group' }, h('h2', {}, 'Lately'), this.lately),
      h('div', { class: 'columns even' },
        h('section', { class: 'group' }, h('h2', {}, 'Who writes'), this.writers),
        h('section', { class: 'group' }, h('h2', {}, 'What there is'), this.growth)));
    this.load();
  }

  update() { this.load(); }

  close() { this.#abort?.abort(); }

  tick() { if (!current().at && this.#pace.isDue) this.load(); }

  async load() {
    this.#abort?.abort();
    const { signal } = this.#abort = new AbortController();
    const done = this.#pace.begin();
    await this.#load(signal);
    if (!signal.aborted) done();
  }

  #kind(resource, group) { return this.app.kinds.find((k) => k.resource === resource && (group === undefined || k.group === group)); }

  async #load(signal) {
    const lists = watched.flatMap(([resource, group, query]) => {
      const kind = this.#kind(resource, group);
      return kind ? [{ kind, path: pathOf(kind, this.app.route.ns), query: { ...exact(current().at), ...query } }] : [];
    });
    if (!current().at) this.unconfirmed.load(signal);
    // What is shown first is read first.
    let countThings = await this.#showChanges(signal);
    try {
      await readTables(lists, signal, async (rows, whole) => {
        const found = rows.flatMap((row) => problem(row, this.app.time.now) ?? []);
        if (whole || found.length > 0) this.#listProblems(found);
        await countThings?.();
        countThings = null;
      });
    } catch (error) {
      if (error.name !== 'AbortError') fill(this.problems, h('p', { class: 'warning' }, error.message));
    }
  }

  #listProblems(found) {
    found.sort((a, b) => (a.state === b.state ? b.time - a.time : a.state === 'bad' ? -1 : 1));
    fill(this.problems, found.length === 0 ? h('p', { class: 'all-well' }, h('span', { class: 'state good' }, 'Everything is as it should be')) : h('div', { class: 'rows' }, found.slice(0, 12).map((p) => this.#problem(p))),
      found.length > 12 && h('p', { class: 'muted small' }, `and ${count(found.length - 12)} more`));
  }

  #problem({ kind, namespace, name, label = name, what, state, time }) {
    return h('a', { class: 'line-row', href: link('object', { r: idOf(kind), ns: namespace ?? '', name, of: this.app.route.ns }) },
      h('span', { class: `state ${state}` }, what), h('span', { class: 'cell-name' }, label), h('span', { class: 'muted where' }, `${kind.kind}${namespace ? ` in ${namespace}` : ''}`),
      h('span', { class: 'muted end' }, time ? ago(this.app.time.now - time) : ''));
  }

  // Returns a function that counts what there is.
  async #showChanges(signal) {
    const { at } = current(), namespace = this.app.route.ns || this.app.limited;
    const terms = { order: 'newest', beforeRevision: at ? Number(at) + 1 : undefined };
    try {
      const [recent, metrics] = await Promise.all([list(terms, { namespace, more: quiet, limit: sample, signal }), text('/metrics', { signal }).catch(() => '')]);
      if (signal.aborted) return null;
      const changes = recent.items;
      this.#showNumbers(changes, recent.kept, metrics, Boolean(recent.metadata.continue));
      const since = changes.length > 0 ? ago(this.app.time.now - timeOf(changes.at(-1))) : '';
      this.#showLately(changes);
      this.#showWriters(changes, since);
      return async () => this.#showGrowth(await this.#counts(signal), changes, since);
    } catch (error) {
      if (error.name === 'AbortError') return null;
      const message = error.code === 403 ? empty('Choose a namespace', 'You may not see the changes of the whole cluster.') : h('p', { class: 'warning' }, error.message);
      fill(this.lately, message);
      fill(this.writers);
      fill(this.growth);
      return null;
    }
  }

  #counts(signal) {
    const kinds = counted.map((r) => this.#kind(r)).filter((k) => k && (k.namespaced || !this.app.route.ns));
    return Promise.all(kinds.map(async (kind) => {
      try {
        const page = await request(withQuery(pathOf(kind, this.app.route.ns), { ...exact(current().at), limit: 1 }), { signal });
        return { kind, n: page.items.length + (page.metadata.remainingItemCount ?? 0) };
      } catch (error) {
        if (error.code) return null;
        throw error;
      }
    })).then((all) => all.filter(Boolean));
  }

  #showNumbers(changes, kept, metrics, more) {
    const now = this.app.time.now, metric = (name) => Number(new RegExp(`^${name} (\\S+)`, 'm').exec(metrics)?.[1] ?? NaN);
    const hour = changes.filter((c) => now - timeOf(c) < 3600e3);
    const tile = (name, v, hint) => h('div', { class: 'tile' }, h('h3', {}, name), h('div', { class: 'big' }, v), h('p', { class: 'muted small' }, hint));
    const bytes = metric('sqube_store_database_bytes'), lag = metric('sqube_store_tail_lag_seconds'), packed = metric('sqube_store_history_bytes');
    fill(this.numbers,
      kept && tile('History goes back', ago(Date.now() - Date.parse(kept.since)), `to ${clock(Date.parse(kept.since))}${Number.isFinite(packed) ? `, ${(packed / 1e6).toFixed(1)} MB packed` : ''}`),
      kept?.gaveWay && tile('Values go back', kept.valuesSince ? ago(Date.now() - Date.parse(kept.valuesSince)) : `to ${kept.valuesRevision}`, `older ones gave way for room: most were by ${kept.gaveWay.slice(0, 2).map((g) => who(g.user) + (g.namespace ? ` in ${g.namespace}` : '')).join(', ')}`),
      tile('Changes in the last hour', count(hour.length) + (more && hour.length === changes.length ? '+' : ''), `by ${new Set(hour.map((c) => c.user)).size} authors`),
      Number.isFinite(bytes) && tile('Database', `${(bytes / 1e6).toFixed(1)} MB`, `${count(metric('sqube_store_live_rows'))} objects`),
      Number.isFinite(lag) && tile('Watches lag by', lag < 0.0005 ? '0 ms' : `${Math.round(lag * 1000)} ms`, `revision ${count(metric('sqube_store_revision'))}`));
  }

  // What people and their tools did, without what followed from it.
  #showLately(changes) {
    const last = changes.filter(meant).slice(0, 6);
    fill(this.lately, last.length === 0 ? h('p', { class: 'muted' }, 'Only controllers and nodes have written.') : h('div', { class: 'rows' }, last.map((c) => h('div', { class: 'line-row' },
      h('span', { class: 'with-avatar author' }, avatar(c.user), h('span', { class: 'clip' }, author(c))), h('span', { class: `op ${c.operation}` }, verbs[c.operation]), h('span', {}, objectLink(this.app, c.object, c.operation === 'update' ? c.metadata.name : undefined)),
      h('span', { class: 'grow' }, summary(c)), h('span', { class: 'muted end' }, ago(this.app.time.now - timeOf(c)))))));
  }

  #showWriters(changes, since) {
    const writes = new Map();
    for (const c of changes) writes.set(c.user, (writes.get(c.user) ?? 0) + 1);
    const sorted = [...writes].sort((a, b) => b[1] - a[1]).slice(0, 8), most = sorted[0]?.[1] ?? 1;
    if (sorted.length === 0) { fill(this.writers, empty('Nobody', 'Nothing has changed.')); return; }
    fill(this.writers, h('div', { class: 'rows' }, sorted.map(([user, n]) => h('a', { class: 'line-row', href: link('changes', { user: user ?? '' }), title: user },
      avatar(user), h('span', { class: 'cell-name' }, who(user)), h('span', { class: 'meter' }, h('span', { style: { width: `${(n / most) * 100}%` } })), h('span', { class: 'end' }, count(n))))),
    h('p', { class: 'muted small' }, `The last ${count(changes.length)} changes, ${since}, without heartbeats.`));
  }

  #showGrowth(counts, changes, since) {
    const grown = (k, operation) => changes.filter((c) => c.operation === operation && c.object.resource === k.resource).length;
    fill(this.growth, h('div', { class: 'rows' }, counts.map(({ kind, n }) => {
      const more = grown(kind, 'create'), less = grown(kind, 'delete');
      return h('a', { class: 'line-row', href: link('list', { r: idOf(kind) }) }, h('span', { class: 'cell-name' }, plural(kind.kind)),
        h('span', { class: 'growth' }, more > 0 && h('ins', {}, `+${count(more)}`), less > 0 && h('del', {}, `−${count(less)}`)), h('span', { class: 'end' }, count(n)));
    })), h('p', { class: 'muted small' }, since && `Created and deleted within ${since}.`));
  }
}

// What is wrong with an object, from the cells of its table; null if nothing is.
function problem({ kind, metadata, cells }, now) {
  const time = Date.parse(metadata.creationTimestamp), status = String(cells.Status ?? ''), ready = String(cells.Ready ?? '');
  const found = (what, state = 'bad') => ({ kind, namespace: metadata.namespace, name: metadata.name, what, state, time });
  const incomplete = /^(\d+)\/(\d+)$/.exec(ready), unready = incomplete && incomplete[1] !== incomplete[2];
  switch (kind.resource) {
    case 'nodes': return /NotReady|Unknown/.test(status) ? found(status) : null;
    case 'pods':
      if (/^Completed$|^Succeeded$/.test(status)) return null;
      if (health(status) === 'bad') return found(status);
      return (unready || status === 'Pending') && now - time > 60e3 && status !== 'Terminating' ? found(status === 'Running' ? `${ready} ready` : status, 'busy') : null;
    case 'daemonsets': return cells.Ready < cells.Desired && now - time > 60e3 ? found(`${cells.Ready}/${cells.Desired} ready`, 'busy') : null;
    case 'jobs': return /Failed/.test(status) ? found(status) : null;
    case 'persistentvolumeclaims': return status === 'Lost' ? found(status) : null;
    case 'events': return now - time < 3600e3 ? { ...found(String(cells.Reason)), label: `${cells.Object}: ${cells.Message}` } : null;
    default: return unready && now - time > 60e3 ? found(`${ready} ready`, 'busy') : null;
  }
}
