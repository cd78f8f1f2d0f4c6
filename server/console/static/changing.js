// Changes that people make, as operations of a transaction with what they stand on. They can be tried, and applied.

import { Failure, asMetadata, idOf, pathOf, request } from './api.js';
import { h, icon, toast } from './dom.js';
import { readable } from './format.js';
import { dialog } from './help.js';
import { current, go, link } from './route.js';

const base = '/apis/history.sqube.io/v1alpha1';

/** manager is the field manager of what is done here. */
export const manager = 'sqube-console';

/** targetOf names an object, as operations and requirements do. */
export const targetOf = (o) => ({ apiVersion: o.apiVersion, kind: o.kind, namespace: o.metadata.namespace, name: o.metadata.name });

/** unchanged requires that an object is as it is now, apart from what controllers report. */
export function unchanged(o) {
  const { uid, generation, resourceVersion } = o.metadata;
  return { ...targetOf(o), uid, ...(generation ? { field: '.metadata.generation', value: generation } : { resourceVersion }) };
}

/** namespaceOf returns the only namespace in which a change writes, or ''. */
export function namespaceOf({ operations }) {
  const found = new Set(operations.map((o) => o.target?.namespace ?? o.object?.metadata.namespace ?? ''));
  return found.size === 1 ? [...found][0] : '';
}

/** apply makes a change, all of it or nothing. Who may not in the whole cluster may perhaps in the namespace. */
export async function apply(change) {
  const { operations, require } = change, namespace = namespaceOf(change);
  const body = { apiVersion: 'history.sqube.io/v1alpha1', kind: 'Transaction', metadata: { generateName: 'console-' }, spec: { operations, require } };
  try {
    return await request(`${base}/transactions`, { method: 'POST', body });
  } catch (error) {
    if (error.code !== 403 || !namespace) throw error;
    return request(`${base}/namespaces/${encodeURIComponent(namespace)}/transactions`, { method: 'POST', body });
  }
}

let chosen = null;

/** tried is the change that the page of trials is about. */
export const tried = () => chosen;

/** forget leaves the page of trials without a change. */
export function forget() { chosen = null; }

/** tryOut opens the page that tries a change: {title, operations, require}, with done, where one is after it was made, and draft, what is being edited. */
export function tryOut(change) {
  chosen = { ...change, from: location.hash, result: null };
  if (current().view === 'trial') dispatchEvent(new Event('trial'));
  else go('trial', { at: '', r: '', name: '' });
}

/** buttons are those with which a change is tried or applied. make returns the change; leave is called then, applied only when it was applied. */
export function buttons(app, make, { leave = () => {}, applied = () => {} }) {
  const problem = h('p', { class: 'warning', role: 'alert', hidden: true });
  const run = (act) => async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    problem.hidden = true;
    try {
      await act(await make());
      leave();
    } catch (error) {
      problem.textContent = readable(error.message);
      problem.hidden = false;
    }
    button.disabled = false;
  };
  const carryOut = async (change) => {
    await apply(change);
    toast(`Done: ${change.title}`);
    applied();
  };
  return [problem, [
    app.trials && h('button', { class: 'button', type: 'button', disabled: app.trials.refused !== '', title: app.trials.refused || 'On a copy of the cluster', onclick: run(tryOut) }, icon('try'), 'Try'),
    h('button', { class: 'button primary', type: 'button', onclick: run(carryOut) }, 'Apply'),
  ]];
}

const scaled = new Set(['deployments.apps', 'statefulsets.apps', 'replicasets.apps', 'replicationcontrollers.']);
const restarted = new Set(['deployments.apps', 'statefulsets.apps', 'daemonsets.apps']);

/** actions are what can be done with an object. */
export function actions(app, resource, object) {
  const id = `${resource.resource}.${resource.group}`;
  return [
    scaled.has(id) && h('button', { class: 'button', onclick: () => scale(app, object) }, 'Scale…'),
    restarted.has(id) && h('button', { class: 'button', onclick: () => restart(app, object) }, 'Restart…'),
    h('a', { class: 'button', href: link('edit', { r: idOf(resource), ns: object.metadata.namespace ?? '', name: object.metadata.name, of: app.route.of }) }, icon('edit'), 'Edit'),
  ];
}

function ask(app, title, content, make) {
  const close = h('button', { class: 'button', type: 'button', onclick: () => d.close() }, 'Cancel');
  const [problem, two] = buttons(app, make, { leave: () => d.close() });
  const d = dialog(title, content, problem, h('footer', {}, h('span', { class: 'spacer' }), close, two));
  return two.at(-1);
}

function scale(app, object) {
  const now = object.spec?.replicas ?? 1, { kind, metadata: { name } } = object;
  const number = h('input', { type: 'number', min: 0, step: 1, value: String(now), id: 'replicas', autofocus: true, onkeydown: (e) => { if (e.key === 'Enter') primary.click(); } });
  const primary = ask(app, `Scale ${kind} ${name}`, h('p', { class: 'field-row' }, h('label', { for: 'replicas' }, 'Replicas'), number, h('span', { class: 'muted' }, `now ${now}`)), () => {
    const replicas = Number(number.value);
    if (number.value === '' || !Number.isInteger(replicas) || replicas < 0) throw new Failure(0, '', 'Replicas must be 0, 1, 2, …');
    return {
      title: `Scale ${kind} ${name} from ${now} to ${replicas}`, require: [unchanged(object)],
      operations: [{ verb: 'patch', target: targetOf(object), subresource: 'scale', patchType: 'merge', patch: { spec: { replicas } }, fieldManager: manager }],
    };
  });
}

function restart(app, object) {
  const { kind, metadata: { name } } = object;
  ask(app, `Restart ${kind} ${name}`, h('p', {}, 'New Pods replace the old ones, as in a rollout.'), () => ({
    title: `Restart ${kind} ${name}`, require: [unchanged(object)],
    operations: [{
      verb: 'patch', target: targetOf(object), patchType: 'merge', fieldManager: manager,
      patch: { spec: { template: { metadata: { annotations: { 'kubectl.kubernetes.io/restartedAt': `${new Date().toISOString().slice(0, 19)}Z` } } } } },
    }],
  }));
}

// Others need them, so they come first, in this order.
const early = ['Namespace', 'PriorityClass', 'ServiceAccount', 'ConfigMap', 'Secret', 'Role', 'ClusterRole', 'RoleBinding', 'ClusterRoleBinding'];

/** parse returns the objects in YAML. */
export const parse = async (yaml) => (await request('objects', { method: 'POST', body: yaml, type: 'application/yaml' })).objects;

/** ofFiles returns the change that applies the objects in files. */
export async function ofFiles(app, files) {
  const objects = (await Promise.all(files.map(async (f) => parse(await f.text())))).flat();
  if (objects.length === 0) throw new Failure(0, '', 'There is no object in it.');
  const rank = (o) => (early.indexOf(o.kind) + 1 || early.length + 1);
  const operations = [], require = [];
  for (const object of objects.toSorted((a, b) => rank(a) - rank(b))) {
    const name = object.metadata?.name;
    if (!object.apiVersion || !object.kind || !name) throw new Failure(0, '', `${object.kind ?? 'An object'} ${name ?? ''} needs apiVersion, kind and metadata.name.`);
    const resource = app.resourceOf(object);
    if (resource?.namespaced) object.metadata.namespace ??= app.route.ns || 'default';
    operations.push({ verb: 'apply', object, fieldManager: 'kubectl', fieldValidation: 'Strict' });
    const condition = resource && await standing(resource, object);
    if (condition) require.push(condition);
  }
  const names = files.map((f) => f.name).join(', ');
  return { title: `Apply ${names}: ${objects.length === 1 ? `${objects[0].kind} ${objects[0].metadata.name}` : `${objects.length} objects`}`, operations, require };
}

// What the object of a file stands on: how it is, or that there is none. Who may write it and not read it has no such condition.
async function standing(resource, object) {
  try {
    const now = await request(pathOf(resource, object.metadata.namespace, object.metadata.name), { accept: asMetadata.replaceAll('List', '') });
    return unchanged({ ...now, apiVersion: object.apiVersion, kind: object.kind });
  } catch (error) {
    return error.code === 404 ? { ...targetOf(object), absent: true } : null;
  }
}

/** takeFiles lets files be dropped on the console, to be tried. */
export function takeFiles(app) {
  const take = async (files) => {
    try {
      tryOut(await ofFiles(app, [...files]));
    } catch (error) {
      toast(error.message);
    }
  };
  document.body.ondragover = (e) => {
    if (!e.dataTransfer.types.includes('Files')) return;
    e.preventDefault();
    document.body.classList.add('is-dropping');
  };
  document.body.ondragleave = (e) => { if (!e.relatedTarget) document.body.classList.remove('is-dropping'); };
  document.body.ondrop = (e) => {
    document.body.classList.remove('is-dropping');
    if (e.dataTransfer.files.length === 0) return;
    e.preventDefault();
    take(e.dataTransfer.files);
  };
  return take;
}
