// Everything that a link should keep is in the URL's fragment: #/VIEW?r=apps/v1/deployments&ns=shop&name=web&at=123.

/** current is what the URL says: the view and its parameters; at is the revision that is shown, none for live. */
export function current() {
  const [path, query] = location.hash.slice(1).split('?');
  return { ...Object.fromEntries(new URLSearchParams(query)), view: path.replace(/^\//, '') || 'overview' };
}

// What stays when another view opens.
const kept = ['ns', 'at'];

/** link returns the URL of a view. Namespace and moment stay unless the parameters have them; '' removes them. */
export function link(view, params = {}) {
  const now = current();
  const all = { ...Object.fromEntries(kept.map((name) => [name, now[name]])), ...params };
  const query = new URLSearchParams(Object.entries(all).filter(([, v]) => v !== undefined && v !== null && v !== ''));
  // These are readable in a fragment as they are.
  const text = query.toString().replaceAll('%2F', '/').replaceAll('%3A', ':');
  return `#/${view}${text ? `?${text}` : ''}`;
}

/** go opens a view. */
export function go(view, params) {
  location.hash = link(view, params);
}

/** change changes parameters of the view that is open; with replace, without an entry in the browser's history. */
export function change(params, replace = false) {
  const { view, ...rest } = current();
  const url = link(view, { ...rest, ...params });
  if (url === location.hash) return;
  if (!replace) {
    location.hash = url;
    return;
  }
  history.replaceState(null, '', url);
  dispatchEvent(new HashChangeEvent('hashchange'));
}
