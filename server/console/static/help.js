// The keys.

import { h } from './dom.js';

const keys = [
  ['/', 'filter what is shown'], ['g', 'go to a kind'], ['j  k', 'next and previous row'], ['Enter', 'open'], ['Esc', 'back, or back to live'],
  ['t', 'time slider; then ← →'], ['[  ]', 'change before and after this moment'], ['l', 'live'],
  ['o  c  d', 'overview, changes, trash'], ['?', 'this help'],
];

/** dialog shows a modal dialog, which removes itself when closed. */
export function dialog(title, ...content) {
  const d = h('dialog', { 'aria-label': title, onclose: () => d.remove(), onclick: (e) => { if (e.target === d) d.close(); } },
    h('div', { class: 'dialog' }, h('h2', {}, title), content));
  document.body.append(d);
  d.showModal();
  return d;
}

/** help shows the keys. */
export function help() {
  dialog('Keys', h('dl', { class: 'keys' }, keys.map(([k, what]) => [h('dt', {}, k.split('  ').map((one) => h('kbd', {}, one))), h('dd', {}, what)])),
    h('form', { method: 'dialog' }, h('button', { class: 'button' }, 'Close')));
}
