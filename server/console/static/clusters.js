// The clusters that a server hosts: a page with all of them, and what can be done with one.

import { Failure, host, hosted, idOf, onHost, pathOf, request } from './api.js';
import { fill, h, icon, toast } from './dom.js';
import { ago, count, health } from './format.js';
import { dialog } from './help.js';
import { ListView } from './list.js';
import { change, current, go, link } from './route.js';
import { undoDialog } from './undo.js';

const group = 'fleet.sqube.io', minute = 60, hour = 60 * minute, day = 24 * hour;

/** isCluster is whether a kind is that of hosted clusters. */
export const isCluster = (kind) => kind.group === group && kind.resource === 'clusters';

const kind = { group, version: 'v1alpha1', resource: 'clusters', namespaced: true };
const consoleOf = (namespace, name) => `${host}/clusters/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/console/`;

/** ClustersView is the page of all clusters. */
export class ClustersView extends ListView {
  constructor(app) {
    super(app, app.kinds.find(isCluster));
  }

  get tools() {
    return h('button', { class: 'button primary', onclick: () => createDialog(this.app) }, 'New cluster…');
  }

  // Beside what the API's Table shows of each kind, when it ends, and what it began as.
  shows(column) { return super.shows(column) || column.name === 'Expires' || column.name === 'From'; }

  cellOf(column, row, text) {
    switch (column.name) {
      case 'Phase': return text && h('span', { class: `state ${health(text) || 'asleep'}` }, text);
      case 'Expires': return text ? h('span', { class: Date.parse(text) - this.app.time.now < hour * 1000 ? 'state busy' : '' }, `in ${ago(Date.parse(text) - this.app.time.now)}`) : h('span', { class: 'muted' }, '–');
      case 'From': return text || h('span', { class: 'muted' }, '–');
      case 'Message': return h('span', { class: 'muted', title: text }, text);
      default: return super.cellOf(column, row, text);
    }
  }

  columns() {
    const filled = (name) => /^(From|Message|Expires)$/.test(name) === false || this.someOf(name);
    const columns = super.columns().filter((c) => filled(c.name)).map((c) => ({ ...c, name: c.name.replace('-', ' '), ...(c.name === 'Expires' && { width: 'minmax(5rem, 8fr)' }) }));
    if (!current().at) {
      columns.push({
        name: '\u00a0', width: '4rem', cell: (row) => h('a', { class: 'button small', href: consoleOf(row.namespace, row.name), onclick: (e) => e.stopPropagation() }, 'Open'),
      });
    }
    return columns;
  }

  // Whether any has a value in a column.
  someOf(name) {
    const i = this.definitions.findIndex((d) => d.name === name);
    return this.rows.some(({ cells }) => cells[i]);
  }

  // How many do what.
  summary(rows) {
    const at = (name) => this.definitions.findIndex((d) => d.name === name);
    const phases = new Map(), [phase, objects] = [at('Phase'), at('Objects')];
    for (const { cells } of rows) phases.set(cells[phase] || 'New', (phases.get(cells[phase] || 'New') ?? 0) + 1);
    const total = rows.reduce((sum, { cells }) => sum + (Number(cells[objects]) || 0), 0);
    return h('p', { class: 'muted small' }, [...phases].sort((a, b) => b[1] - a[1]).map(([name, n]) => `${count(n)} ${name.toLowerCase()}`).concat(`${count(total)} objects`).join(' · '));
  }

  get nothing() {
    return ['No clusters', this.app.route.at ? 'There were none at this moment.' : 'Each is a Kubernetes API of its own, which sleeps while nobody asks.'];
  }
}

const subresource = (o, name, body = {}) => request(`${pathOf(kind, o.metadata.namespace, o.metadata.name)}/${name}`, { method: 'POST', body });

const forkButton = (app, { namespace, name }) => h('button', { class: 'button', onclick: () => createDialog(app, { namespace, name }) }, 'Fork…');

/** pastActions are what can be done with a cluster at a moment of the past. */
export const pastActions = (app, o) => forkButton(app, o.metadata);

/** clusterActions are what can be done with a cluster. */
export function clusterActions(app, o) {
  const { namespace, name } = o.metadata, awake = o.status?.phase === 'Awake';
  const act = (what, done) => async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    try {
      await subresource(o, what);
      toast(`${name} ${done}`);
    } catch (error) {
      toast(error.message);
    }
    button.disabled = false;
  };
  return [
    h('a', { class: 'button primary', href: consoleOf(namespace, name) }, 'Open'),
    forkButton(app, o.metadata),
    awake ? h('button', { class: 'button', onclick: act('sleep', 'sleeps') }, 'Sleep') : h('button', { class: 'button', onclick: act('wake', 'is awake') }, 'Wake'),
    h('button', { class: 'button', onclick: () => deleteDialog(app, o) }, 'Delete…'),
  ];
}

function deleteDialog(app, { metadata: { namespace, name }, spec }) {
  const kept = spec?.keepDeleted ?? '24h';
  const problem = h('p', { class: 'warning', role: 'alert', hidden: true });
  const run = h('button', { class: 'button primary', autofocus: true, onclick: async () => {
    run.disabled = true;
    try {
      await request(pathOf(kind, namespace, name), { method: 'DELETE' });
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = run.disabled = false;
      return;
    }
    d.close();
    go('clusters', { r: '', name: '', at: '' });
    toast(`${name} is deleted`, ['Undo', () => undoDialog(app, `Bring back ${name}`, { object: { group, resource: kind.resource, namespace, name } })]);
  } }, 'Delete');
  const d = dialog(`Delete cluster ${name}`, h('p', {}, `Its clients get errors at once. The database is kept for ${kept}: until then, Trash brings the cluster back as it was.`), problem,
    h('footer', {}, h('span', { class: 'spacer' }), h('button', { class: 'button', onclick: () => d.close() }, 'Cancel'), run));
}

const field = (label, input, hint) => h('label', { class: 'form-row' }, h('span', {}, label), input, hint && h('span', { class: 'muted small' }, hint));
const choice = (all, value) => {
  const select = h('select', {}, all.map(([name, v]) => h('option', { value: v }, name)));
  select.value = value;
  return select;
};

// The subject of the user in the cluster that they make.
function administrator(user) {
  const account = /^system:serviceaccount:(.+):(.+)$/.exec(user);
  return account ? { kind: 'ServiceAccount', namespace: account[1], name: account[2] } : { kind: 'User', apiGroup: 'rbac.authorization.k8s.io', name: user };
}

/** createDialog makes a cluster: a new one, or a fork of {namespace, name}, as it is now, at the moment of the slider, or at a resourceVersion of its own. */
export function createDialog(app, from, revision) {
  const time = !hosted && current().at ? app.time.now : 0;
  const namespace = h('input', { value: from?.namespace ?? (app.route.ns || 'default'), required: true, spellcheck: 'false' });
  const name = h('input', { value: from ? `${from.name}-fork` : '', required: true, spellcheck: 'false', autofocus: true, pattern: '[a-z0-9]([-a-z0-9]*[a-z0-9])?', placeholder: 'name' });
  const sleeps = choice([['after 1 minute', minute], ['after 5 minutes', 5 * minute], ['after an hour', hour], ['never', 0]], 5 * minute);
  const ends = choice([['never', 0], ['in an hour', hour], ['in 8 hours', 8 * hour], ['in a day', day], ['in 7 days', 7 * day]], from ? 8 * hour : 0);
  const runs = choice([['those that the API needs', 'API'], ['all, and the scheduler', 'All'], ['none', 'None']], 'API');
  const moment = h('input', { type: 'checkbox', checked: time > 0 || Boolean(revision) });
  const problem = h('p', { class: 'warning', role: 'alert', hidden: true });
  const create = h('button', { class: 'button primary', type: 'submit' }, from ? 'Fork' : 'Create');

  async function run(event) {
    event.preventDefault();
    create.disabled = true;
    problem.hidden = true;
    try {
      await onHost(pathOf(kind, namespace.value.trim()), { method: 'POST', body: object() });
      d.close();
      if (hosted) location.assign(`${host}/console/${link('clusters', { ns: namespace.value.trim(), at: '' })}`);
      else if (current().view === 'clusters') change({ ns: app.route.ns && namespace.value.trim(), at: '' });
      else go('object', { r: idOf(kind), ns: namespace.value.trim(), name: name.value.trim(), at: '' });
      toast(`${name.value} is made`);
    } catch (error) {
      problem.textContent = error instanceof Failure && error.code === 403 ? `You may not do this: ${error.message}` : error.message;
      problem.hidden = create.disabled = false;
    }
  }

  function object() {
    const spec = {
      sleep: { after: `${sleeps.value}s` }, controllers: runs.value, scheduler: runs.value === 'All', administrators: [administrator(app.user.replace(/^host:/, ''))],
      ...(Number(ends.value) > 0 && { ttl: `${ends.value}s` }),
    };
    if (from) {
      const { namespace: of, name: original } = from;
      spec.from = { cluster: { namespace: of, name: original }, ...(moment.checked && (revision ? { resourceVersion: String(revision) } : { time: new Date(time).toISOString().replace(/\.\d+Z/, 'Z') })) };
    }
    return { apiVersion: `${group}/${kind.version}`, kind: 'Cluster', metadata: { namespace: namespace.value.trim(), name: name.value.trim() }, spec };
  }

  const when = revision ? `As at resourceVersion ${revision}` : `As at ${new Date(time).toLocaleString()}`;
  const d = dialog(from ? `Fork ${from.name}` : 'New cluster',
    from && h('p', { class: 'muted' }, 'A cluster with the same objects and history, and with keys of its own. The original is not held up.'),
    h('form', { class: 'form', onsubmit: run }, field('Name', name), field('Namespace', namespace),
      from && (time > 0 || revision) && h('label', { class: 'check' }, moment, when),
      field('Sleeps', sleeps, 'When nobody asks. The next request wakes it.'), field('Ends', ends), field('Controllers', runs), problem,
      h('footer', {}, h('span', { class: 'spacer' }), h('button', { class: 'button', type: 'button', onclick: () => d.close() }, 'Cancel'), create)));
  name.select();
}

/** place says which cluster the console is of, and leads back to its host; null if the console is of a server itself. */
export function place(app) {
  if (!hosted) return null;
  const fork = h('button', { class: 'icon-button', title: 'Fork this cluster as it is shown', 'aria-label': 'Fork', onclick: () => createDialog(app, hosted, current().at) }, icon('fork'));
  return fill(h('div', { class: 'place' }), h('a', { href: `${host}/console/#/clusters`, title: 'All clusters' }, icon('previous')), h('span', { class: 'clip', title: `${hosted.namespace}/${hosted.name}` }, h('span', { class: 'muted' }, `${hosted.namespace}/`), hosted.name), fork);
}
