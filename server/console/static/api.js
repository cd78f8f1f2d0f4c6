// The API, as the user who signed in. The token stays in this tab.

const key = 'sqube-token', place = 'sqube-place';

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

export const signIn = (token) => sessionStorage.setItem(key, token);
export const signOut = () => sessionStorage.removeItem(key);
/** toIssuer goes to the identity provider. What the URL shows is kept for when it returns. */
export function toIssuer() {
  sessionStorage.setItem(place, location.hash);
  location.assign('oidc/login');
}

/** savedPlace returns what was kept, once. */
export function savedPlace() {
  const hash = sessionStorage.getItem(place) ?? '';
  sessionStorage.removeItem(place);
  return hash.startsWith('#') ? hash : '';
}

/** issuer returns the host at which users sign in, or '' if tokens are the only way. */
export async function issuer() {
  try {
    return (await (await fetch('oidc/issuer')).json()).host;
  } catch {
    return '';
  }
}

export const hasToken = () => sessionStorage.getItem(key) !== null;

async function send(path, { method = 'GET', body, type = 'application/json', accept = 'application/json', signal, asking = false, cache = 'no-store' } = {}) {
  const headers = { Accept: accept };
  const token = sessionStorage.getItem(key);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers['Content-Type'] = type;
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body && (typeof body === 'string' ? body : JSON.stringify(body)), cache });
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
