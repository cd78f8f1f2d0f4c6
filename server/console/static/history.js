// The changes of history.sqube.io: what happened, and which revision was current at which time.

import { asMetadata, request, watch, withQuery } from './api.js';

const base = '/apis/history.sqube.io/v1alpha1';

/** quiet leaves out heartbeats, and what follows from Pods. */
export const quiet = ['resource!=leases', 'resource!=events', 'resource!=endpoints', 'resource!=endpointslices'];

const escape = (v) => String(v).replace(/[\\,=]/g, '\\$&');

/** selector returns a field selector of the values that are set. */
export function selector(terms, more = []) {
  const set = Object.entries(terms).filter(([, v]) => v !== undefined && v !== null && v !== '');
  return [...set.map(([name, v]) => `${name}=${escape(v)}`), ...more].join(',');
}

/** of selects the changes of a resource, or of an object. */
export const of = (r, namespace, name) => ({ group: r.group || undefined, resource: r.resource, namespace: r.namespaced ? namespace : undefined, name });

const path = (namespace) => (namespace ? `${base}/namespaces/${encodeURIComponent(namespace)}/changes` : `${base}/changes`);

/** list returns a page of changes. */
export async function list(terms, { namespace, more, limit, continued, signal, metadata } = {}) {
  const query = { fieldSelector: selector(terms, more), limit, continue: continued };
  const found = await request(withQuery(path(namespace), query), { signal, accept: metadata ? asMetadata : undefined });
  found.items ??= []; // as it is in an empty list of metadata
  return found;
}

/** follow yields changes as they happen. */
export async function* follow(terms, { namespace, more, from, signal } = {}) {
  const query = { fieldSelector: selector(terms, more), watch: 1, resourceVersion: from, allowWatchBookmarks: 'true' };
  for await (const event of watch(withQuery(path(namespace), query), { signal })) {
    if (event.type === 'ADDED') yield event.object;
  }
}

/** at returns the last change up to a revision, or null. */
export async function at(revision, options) {
  const page = await list({ order: 'newest', beforeRevision: Number(revision) + 1 }, { limit: 1, metadata: true, ...options });
  return page.items[0] ?? null;
}

export const revisionOf = (change) => Number(change.metadata.name);

/** before and after return revisions without a change, and with it: of one in a transaction, without and with all that this did. */
export const before = (change) => Number(change.transactionBefore ?? revisionOf(change) - 1);
export const after = (change) => Number(change.transactionAfter ?? revisionOf(change));

/** whole returns the revision at the end of the transaction that a revision is in, if it is in one. */
export async function whole(revision, options) {
  const last = await at(revision, { ...options, metadata: false }).catch(() => null);
  return Math.max(Number(revision), last ? after(last) : 0);
}

export const timeOf = (change) => Date.parse(change.metadata.creationTimestamp);

/** only returns the spec of an undo of one change. */
export const only = (c) => ({ changes: { namespace: c.object.namespace, afterRevision: revisionOf(c) - 1, beforeRevision: revisionOf(c) + 1 } });

/** undo posts an undo and returns it with its plan. Who may not undo in the whole cluster may perhaps in the namespace. */
export async function undo(spec) {
  const post = (at) => request(`${base}${at}/undos`, { method: 'POST', body: { apiVersion: 'history.sqube.io/v1alpha1', kind: 'Undo', metadata: {}, spec } });
  const { object: o, changes } = spec;
  const namespace = o && !o.group && o.resource === 'namespaces' ? o.name : (o ?? changes).namespace;
  try {
    return await post('');
  } catch (error) {
    if (error.code !== 403 || !namespace) throw error;
    return post(`/namespaces/${encodeURIComponent(namespace)}`);
  }
}
