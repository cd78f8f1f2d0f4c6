// The API, as the user who signed in. The token stays in this tab.

const key = 'sqube-token', place = 'sqube-place';

// The path below which the API is: that of the server, or of a cluster that it hosts.
const root = location.pathname.replace(/\/console\/.*$/s, '');
const parts = /^(.*)\/clusters\/([^/]+)\/([^/]+)$/.exec(root);

/** hosted names the cluster that the page is of; null if the page is of a server itself. */
export const hosted = parts && { namespace: decodeURIComponent(parts[2]), name: decodeURIComponent(parts[3]) };

/** host is the path of the server that hosts it, or that the page is of. */
export const host = parts ? parts[1] : root;

// A cluster has a token of its own beside the one for its host.
const own = hosted ? `${key}:${root}` : key;

/** Failure is an error that the API returned, or that kept it from answering. */
export class Failure extends Error {
  constructor(code, reason, message) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.title = { 401: 'You are not signed in', 403: 'You may not see this', 404: 'There is no such object', 410: 'This is no longer kept' }[code] ??
      (code ? 'The server refused this' : 'The server can’t be reached');
  }
}

let onUnauthorized = () => {};

/** whenUnauthorized sets what happens when a token is refused. */
export function whenUnauthorized(f) { onUnauthorized = f; }

export const signIn = (token) => sessionStorage.setItem(own, token);
export function signOut() {
  for (const one of [own, key]) sessionStorage.removeItem(one);
}

/** toIssuer goes to the identity provider. What the URL shows is kept for when it returns. */
export function toIssuer() {
  sessionStorage.setItem(place, location.pathname + location.hash);
  location.assign(`${host}/console/oidc/login`);
}

/** savedPlace returns what was kept, once. */
export function savedPlace() {
  const path = sessionStorage.getItem(place) ?? '';
  sessionStorage.removeItem(place);
  return /^\/(?!\/)/.test(path) ? path : '../';
}

/** issuer returns the host at which users sign in, or '' if tokens are the only way. */
export async function issuer() {
  try {
    return (await (await fetch(`${host}/console/oidc/issuer`)).json()).host;
  } catch {
    return '';
  }
}

const token = () => sessionStorage.getItem(own) ?? sessionStorage.getItem(key);
export const hasToken = () => token() !== null;
export const hasOwnToken = () => sessionStorage.getItem(own) !== null;

// Sends a request to the API, or to a path that is relative to the page.
async function send(path, { method = 'GET', body, type = 'application/json', accept = 'application/json', signal, asking = false, cache = 'no-store', below = root, as = token() } = {}) {
  const headers = { Accept: accept };
  if (as) headers.Authorization = `Bearer ${as}`;
  if (body) headers['Content-Type'] = type;
  let response;
  try {
    response = await fetch(path.startsWith('/') ? below + path : path, { method, headers, signal, body: body && (typeof body === 'string' ? body : JSON.stringify(body)), cache });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Failure(0, 'Unreachable', 'The connection failed. The server may be down or restarting.');
  }
  if (response.ok) return response;
  const text = await response.text();
  let status = {};
  try { status = JSON.parse(text); } catch { /* not a Status */ }
  if (response.status === 401 && !asking) onUnauthorized();
  throw new Failure(response.status, status.reason, status.message ?? (text.slice(0, 300) || response.statusText));
}

/** request returns the JSON that the API answers. */
export async function request(path, options) {
  return (await send(path, options)).json();
}

/** onHost is request to the server that hosts the cluster, as its user there; or to the server that the page is of. */
export const onHost = (path, options) => request(path, { ...options, below: host, as: sessionStorage.getItem(key), asking: hosted !== null });

/** enter gets a token for the cluster from its host, where the user must be signed in, and reports whether that worked. */
export async function enter() {
  if (!hosted) return false;
  const [namespace, name] = [hosted.namespace, hosted.name].map(encodeURIComponent);
  try {
    const { status } = await onHost(`/apis/fleet.sqube.io/v1alpha1/namespaces/${namespace}/clusters/${name}/kubeconfig`, { method: 'POST', body: {} });
    const [, found] = /^\s*token: "?([^\s"]+)"?$/m.exec(status.kubeconfig) ?? [];
    if (found) signIn(found);
    return Boolean(found);
  } catch {
    return false;
  }
}

/** text returns an answer that is not JSON. */
export async function text(path, options) {
  return (await send(path, { accept: '*/*', ...options })).text();
}

/** lines yields the lines of an answer as they come. */
export async function* lines(path, options) {
  const response = await send(path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const whole = (rest + value).split('\n');
    rest = whole.pop();
    yield* whole;
  }
  if (rest !== '') yield rest;
}

/** watch yields the events of a watch until the server ends it. */
export async function* watch(path, options) {
  for await (const line of lines(path, options)) {
    if (line === '') continue;
    const event = JSON.parse(line);
    if (event.type === 'ERROR') throw new Failure(event.object.code, event.object.reason, event.object.message);
    yield event;
  }
}

export const asTable = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
export const asMetadata = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json';

/** whoami returns the user's name, or null if nobody is signed in. */
export async function whoami() {
  try {
    const review = await request('/apis/authentication.k8s.io/v1/selfsubjectreviews', {
      method: 'POST', body: { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }, asking: true,
    });
    const name = review.status.userInfo.username;
    return name === 'system:anonymous' ? null : name;
  } catch (error) {
    if (error.code === 401 || error.code === 403) return null;
    throw error;
  }
}

/** trials returns whether changes can be tried here, and if not for now, why; null if never. */
export async function trials() {
  try {
    return await request('trials');
  } catch {
    return null;
  }
}

/** kinds returns all resources that can be listed, each in its preferred version. The browser asks only whether they have changed. */
export async function kinds() {
  const accept = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
  const lists = await Promise.all(['/api', '/apis'].map((path) => request(path, { accept, cache: 'no-cache' })));
  const found = new Map();
  for (const group of lists.flatMap((list) => list.items)) {
    for (const version of group.versions) {
      for (const r of version.resources) {
        const id = `${r.resource}.${group.metadata.name ?? ''}`;
        if (found.has(id) || !r.verbs.includes('list')) continue;
        found.set(id, {
          group: group.metadata.name ?? '', version: version.version, resource: r.resource, kind: r.responseKind.kind,
          namespaced: r.scope === 'Namespaced', watchable: r.verbs.includes('watch'), shortNames: r.shortNames ?? [],
        });
      }
    }
  }
  return [...found.values()];
}

/** idOf names a resource in links: apps/v1/deployments, or v1/pods. */
export const idOf = (r) => (r.group ? `${r.group}/` : '') + `${r.version}/${r.resource}`;

/** pathOf returns the path of a resource, a namespace of it, or an object. */
export function pathOf(r, namespace, name) {
  const parts = r.group ? ['apis', r.group, r.version] : ['api', r.version];
  if (r.namespaced && namespace) parts.push('namespaces', namespace);
  parts.push(r.resource);
  if (name) parts.push(name);
  return '/' + parts.map(encodeURIComponent).join('/').replaceAll('%3A', ':');
}

/** exact returns the parameters with which a read sees a revision; none for live. */
export const exact = (at) => (at ? { resourceVersion: at, resourceVersionMatch: 'Exact' } : {});

/** withQuery adds parameters to a path. */
export function withQuery(path, params) {
  const query = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== undefined && v !== '')).toString();
  return query ? `${path}?${query}` : path;
}
