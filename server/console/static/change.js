// One change, as the views show it: who, when, and which fields.

import { h, icon } from './dom.js';
import { fields } from './fields.js';
import { ago, author, authorInFull, clock, value, who } from './format.js';
import { after, before, only, revisionOf, timeOf } from './history.js';
import { idOf } from './api.js';
import { isStatus, split } from './paths.js';
import { link } from './route.js';
import { undoDialog } from './undo.js';

const hues = [255, 200, 150, 30, 330, 95, 285, 60];

/** avatar shows a user by two letters, always in the same colour; controllers are grey. */
export function avatar(user = '') {
  const name = who(user), system = user.startsWith('system:');
  let sum = 0;
  for (const c of name) sum = (sum * 31 + c.charCodeAt(0)) >>> 0;
  const letters = name.replace(/[^A-Za-z0-9]+/g, ' ').trim().split(' ').map((w) => w[0]).slice(0, 2).join('').toUpperCase() || '?';
  return h('span', { class: system ? 'avatar system' : 'avatar', 'aria-hidden': 'true', style: { '--hue': hues[sum % hues.length] } }, letters);
}

/** verbs are the operations in the past tense. */
export const verbs = { create: 'created', update: 'changed', delete: 'deleted', purge: 'purged', gap: 'not seen' };

/** onlyStatus reports whether a change says nothing but what a controller reports. */
export const onlyStatus = (c) => c.operation === 'update' && (c.changed ?? []).length > 0 && c.changed.every((f) => isStatus(f.path));

/** meant reports whether somebody meant a change: it is more than what a controller or a node makes of other changes. */
export const meant = (c) => !onlyStatus(c) && !c.owners && (c.impersonatedUser || !/^system:(node:|kube-|apiserver$|serviceaccount:kube-system:)/.test(c.user ?? ''));

/** objectLink links to the object of a change, as it was after the change. */
export function objectLink(app, o, at) {
  const resource = app.resourceOf(o);
  const text = [h('span', { class: 'muted' }, `${o.kind ?? o.resource} `), o.name];
  return resource ? h('a', { class: 'link', href: link('object', { r: idOf(resource), ns: o.namespace ?? '', name: o.name, at, of: app.route.ns }) }, text) : h('span', {}, text);
}

/** transactionLink links to all that the transaction of a change did. */
export const transactionLink = (c) => h('a', { class: 'chip transaction', title: `All that the transaction ${c.transaction} did`, href: link('changes', { ns: '', transaction: c.transaction }), onclick: (e) => e.stopPropagation() }, c.transaction);

/** card shows a change whole. */
export function card(app, c, { object = false, actions = true } = {}) {
  const revision = revisionOf(c), time = timeOf(c);
  // What somebody meant first, then what followed from it.
  const changed = (c.changed ?? []).toSorted((a, b) => isStatus(a.path) - isStatus(b.path)), meant = changed.filter((f) => !isStatus(f.path)).length;
  return h('article', { class: `change ${c.operation}` },
    h('header', {}, avatar(c.user), h('div', { class: 'change-who' },
      h('div', {}, h('strong', { title: authorInFull(c) }, author(c)), h('span', { class: 'muted' }, ` ${verbs[c.operation]} ${object ? '' : 'it'}`), object && objectLink(app, c.object, c.operation === 'delete' ? before(c) : after(c))),
      h('div', { class: 'muted small' }, h('time', { datetime: c.metadata.creationTimestamp, title: c.metadata.creationTimestamp }, `${clock(time)} · ${ago(Date.now() - time)} ago`),
        c.fieldManager && ` · ${c.fieldManager}`, ` · ${revision}`, c.transaction && [' · in ', transactionLink(c)])),
    actions && h('button', { class: 'button small', title: 'Plan what takes this change back', onclick: (e) => { e.stopPropagation(); undoDialog(app, `Undo change ${revision}`, only(c)); } }, icon('undo'), 'Undo…')),
    changed.length > 0 && fields(changed, Math.min(12, meant || 12)), c.changedUnknown && h('p', { class: 'muted small' }, 'What changed is no longer known.'),
    c.valuesGivenUp && h('p', { class: 'muted small' }, 'The values are no longer kept, for room.'),
    c.moreChanged && h('p', { class: 'muted small' }, `${c.moreChanged} more fields are left out.`));
}

/** summary shows the first field of a change on one line. */
export function summary(c) {
  if (c.gap) return h('span', { class: 'muted' }, c.gap.lost ? `since ${c.gap.since}: only the difference is known` : `since ${c.gap.since}: told afterwards`);
  const changed = (c.changed ?? []).toSorted((a, b) => isStatus(a.path) - isStatus(b.path)), [f] = changed;
  if (!f) return h('span', { class: 'muted' }, c.changedUnknown ? 'no longer known' : '');
  const short = f.path.length > 40 ? `…${split(f.path).slice(-2).join('')}` : f.path;
  const text = (v, bytes) => (f.hidden ? bytes !== undefined && `${bytes} bytes` : v !== undefined && value(v)), old = text(f.old, f.oldBytes), now = text(f.new, f.newBytes);
  return h('span', { class: 'mono summary' }, h('span', { class: 'muted' }, `${short} `), old !== false && h('del', {}, old), old !== false && now !== false && ' → ', now !== false && h('ins', {}, now),
    changed.length > 1 && h('span', { class: 'muted' }, ` +${changed.length - 1}`));
}
