// Elements are built here only. All text becomes text nodes, so nothing that comes from the cluster is ever parsed as markup.

const svgTags = new Set(['svg', 'path', 'circle', 'line', 'rect', 'g']);

/** h builds an element. Props are attributes, on… listeners, style (an object), dataset; null, undefined and false are left out. */
export function h(tag, props, ...children) {
  const element = svgTags.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [property, v] of Object.entries(value)) element.style.setProperty(property, v);
    else if (name === 'dataset') Object.assign(element.dataset, value);
    else if (name === 'value' || name === 'checked' || name === 'disabled') element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
}

/** fill replaces an element's children. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

const icons = {
  overview: 'M3 3h7v7H3zM14 3h7v4h-7zM14 11h7v10h-7zM3 14h7v7H3z',
  changes: 'M4 6h16M4 12h10M4 18h13',
  trash: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v6M14 11v6',
  clusters: 'M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z',
  fork: 'M7 3v6M17 3v3a6 6 0 01-6 6 4 4 0 00-4 4v5M4 18l3 3 3-3',
  compare: 'M8 4v16M8 4L4 8M8 4l4 4M16 20V4M16 20l-4-4M16 20l4-4',
  tree: 'M5 4v14h5M5 10h5M13 7h6v6h-6zM13 15h6v6h-6z',
  sql: 'M4 6h16v12H4zM7.5 10l2.5 2-2.5 2M12 14.5h4',
  search: 'M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5',
  menu: 'M4 7h16M4 12h16M4 17h16',
  previous: 'M15 5l-7 7 7 7',
  next: 'M9 5l7 7-7 7',
  try: 'M9 3h6M10 3v6l-5 9a2 2 0 001.8 3h10.4a2 2 0 001.8-3l-5-9V3M7.5 15h9',
  edit: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  share: 'M12 4v11M8 11l4 4 4-4M5 20h14',
  undo: 'M9 14L4 9l5-5M4 9h10a6 6 0 010 12h-3',
  close: 'M6 6l12 12M18 6L6 18',
  clock: 'M12 3a9 9 0 100 18 9 9 0 000-18zM12 7v5l3.5 2',
  exit: 'M14 4H6v16h8M11 12h10M17 8l4 4-4 4',
  help: 'M12 3a9 9 0 100 18 9 9 0 000-18zM9.5 9.5a2.5 2.5 0 115 0c0 1.7-2.5 2-2.5 3.7M12 16.8v.2',
};

/** icon draws one of the icons. */
export function icon(name) {
  return h('svg', { class: 'icon', viewBox: '0 0 24 24', 'aria-hidden': 'true' }, h('path', { d: icons[name] }));
}

/** logo draws sqube's mark. */
export function logo() {
  return h('img', { class: 'logo', src: 'icon.svg', alt: '', width: 24, height: 24 });
}

/** empty says that there is nothing, and why that may be. */
export function empty(title, ...hint) {
  return h('div', { class: 'empty' }, h('p', { class: 'empty-title' }, title), hint.length > 0 && h('p', { class: 'muted' }, hint));
}

/** failure shows an error. */
export function failure(error, retry) {
  return h('div', { class: 'failure', role: 'alert' },
    h('p', { class: 'empty-title' }, error.title ?? 'That did not work'), h('p', {}, error.message),
    retry && h('button', { class: 'button', onclick: retry }, 'Try again'));
}

/** skeleton holds the place of what is being loaded. */
export function skeleton(lines = 8) {
  return h('div', { class: 'skeleton', role: 'status', 'aria-label': 'Loading' }, Array.from({ length: lines }, () => h('div', {})));
}

let toastTimer;

/** toast says something for a few seconds, with a button, [text, what it does], if there is one. */
export function toast(text, button) {
  document.querySelector('.toast')?.remove();
  document.body.append(h('div', { class: 'toast', role: 'status' }, text, button && h('button', { onclick: button[1] }, button[0])));
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => document.querySelector('.toast')?.remove(), button ? 10000 : 4000);
}
