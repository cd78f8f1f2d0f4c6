// Changed fields with their values, as changes and plans show them.

import { h } from './dom.js';
import { value } from './format.js';
import { split } from './paths.js';

/** fieldPath shows a path, its last part stronger than how one gets there. */
function fieldPath(path) {
  const parts = split(path), last = parts.at(-1).startsWith('.') ? 1 : 2;
  return h('span', { class: 'path' }, h('span', { class: 'muted' }, parts.slice(0, -last).join('')), parts.slice(-last).join(''));
}

const valueLines = (sign, name, v, bytes, hidden) => (hidden ? bytes !== undefined : v !== undefined) && h('div', { class: `diff-line ${name}` },
  h('span', { class: 'sign', 'aria-label': name === 'old' ? 'old' : 'new' }, sign),
  hidden ? h('span', { class: 'muted', title: 'Secret values are not shown' }, `${bytes} bytes`) : h('span', {}, value(v), bytes && h('span', { class: 'muted' }, ` … ${bytes} bytes`)));

/** fields shows changed fields with their old and new values, at first so many. */
export function fields(changed, most = 12) {
  const shown = changed.slice(0, most), more = changed.length - shown.length;
  const box = h('div', { class: 'fields' }, shown.map(field));
  if (more > 0) {
    const button = h('button', { class: 'link-button', onclick: () => button.replaceWith(...changed.slice(most).map(field)) }, `${more} more ${more === 1 ? 'field' : 'fields'}`);
    box.append(button);
  }
  return box;
}

function field(f) {
  return h('div', { class: 'field' }, fieldPath(f.path), h('div', { class: 'diff' }, valueLines('−', 'old', f.old, f.oldBytes, f.hidden), valueLines('+', 'new', f.new, f.newBytes, f.hidden)));
}
