// What a trial did, for people: in the console, and in a file that is shared. Everything that is of a time has it in data-at, for the slider, and
// places are in data-left and data-width: where elements are copied with their style, the console's policy refuses that.

import { h } from './dom.js';
import { fields } from './fields.js';
import { count, plural, readable, who } from './format.js';

const verdicts = { AtRest: ['good', 'It comes to rest'], NotAtRest: ['busy', 'It does not come to rest'], Refused: ['bad', 'The API refuses it'] };

// Results name users without the prefix of the system's own.
const by = (user) => who(user.replace(/^serviceaccount:/, 'system:$&'));

/** after returns a time of a trial, in seconds after the change: 0:42. */
export function after(seconds) {
  const s = Math.max(0, Math.round(seconds)), two = (n) => String(n).padStart(2, '0');
  return s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}` : `${Math.floor(s / 3600)}h${two(Math.floor((s % 3600) / 60))}`;
}

/** span returns how long something was, in words. */
function span(seconds) {
  const [n, unit] = seconds >= 7200 ? [seconds / 3600, 'hour'] : seconds >= 60 ? [seconds / 60, 'minute'] : [seconds, 'second'];
  return `${Math.round(n)} ${unit}${Math.round(n) === 1 ? '' : 's'}`;
}

const nameOf = (o) => (o.namespace ? `${o.namespace}/` : '') + o.name;
const same = (a, b) => (a.uid && b.uid ? a.uid === b.uid : a.kind === b.kind && a.name === b.name && (a.namespace ?? '') === (b.namespace ?? ''));
const all = (objects = []) => objects.flatMap((o) => [o, ...all(o.caused)]);
const omitted = (n) => n > 0 && h('p', { class: 'muted small' }, `${count(n)} more are left out.`);
const more = (n) => n > 0 && h('span', { class: 'muted' }, ` and ${count(n)} more`);
const times = (n) => n > 1 && h('span', { class: 'muted' }, ` ${count(n)} ×`);

/** report returns the result of a trial. words say what was tried. */
export function report(result, words) {
  const t = result.tried ?? {}, objects = [...all(result.tree), ...all(result.elsewhere)], timeline = result.timeline ?? [];
  const moments = [...objects.flatMap((o) => [o.first, o.last]), ...timeline.map((m) => m.at), ...(result.events ?? []).map((e) => e.at)].filter((s) => s > 0);
  const end = Math.max(10, Math.ceil(Math.max(0, ...moments) * 1.05)), scale = { end, timeline };
  const [state, verdict] = verdicts[result.verdict] ?? ['', result.verdict];
  return h('article', { class: 'trial', dataset: { end } },
    h('header', { class: `verdict ${state}` }, h('h2', { class: `state ${state}` }, verdict), (result.reasons ?? []).map((r) => h('p', {}, readable(r))),
      h('p', { class: 'muted small' }, about(t, words))),
    objects.length > 0 && slider(objects, end, t.for ?? 0),
    h('div', { class: 'columns' },
      h('div', { class: 'column' }, whole(result, scale)),
      h('div', { class: 'column' }, findings(result), timeline.length > 0 && part('Step by step', timeline.map((m) => h('div', { class: 'line-row', dataset: { at: m.at } },
        h('span', { class: 'at' }, after(m.at)), h('span', { class: 'grow' }, h('span', { class: 'muted' }, `${m.object.kind} ${m.object.name} `), m.text)))))),
    h('footer', { class: 'muted small' }, 'Tried on a copy of the cluster, with the real controllers and scheduler, simulated nodes, and time that passes faster. A trial does not know whether images start, how much load there is, or what systems outside of the cluster do.'));
}

function about(t, words) {
  const of = Date.parse(t.moment) > 0 ? `, as of ${new Date(t.moment).toISOString().slice(0, 16).replace('T', ' ')} UTC` : '';
  const size = [t.objects > 0 && `${count(t.objects)} objects`, t.nodes > 0 && `${count(t.nodes)} ${t.nodes === 1 ? 'node' : 'nodes'}`].filter(Boolean).join(' and ');
  return [words ?? t.change, t.user && `as ${who(t.user)}`, `on a copy${size && ` with ${size}`}${of}`, t.for > 0 && `watched for ${span(t.for)}`].filter(Boolean).join(' · ');
}

const bars = 100;

// Where a time is on the axis, from 0 to 1. Most happens early.
const place = (seconds, end) => Math.log(1 + Math.max(0, seconds)) / Math.log(1 + end);
const marks = [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 6 * 3600, 24 * 3600];

// The slider ends when the last thing happens, and says how long it was quiet then.
function slider(objects, end, whole) {
  const parts = new Array(bars).fill(0);
  for (const o of objects) parts[Math.min(bars - 1, Math.floor(place(o.first, end) * bars))] += 1 + (o.alike ?? 0);
  const most = Math.max(...parts), w = 1000 / bars;
  const shown = marks.filter((s) => place(s, end) > 0.12 && place(s, end) < 0.85).filter((s, i, list) => i === 0 || place(s, end) - place(list[i - 1], end) > 0.05);
  const d = parts.map((n, i) => (n === 0 ? '' : `M${(i * w).toFixed(1)} 40v${-(4 + 32 * Math.sqrt(n / most)).toFixed(1)}h${(w * 0.7).toFixed(1)}V40z`)).join('');
  return h('section', { class: 'trial-time', 'aria-label': 'Time' },
    h('strong', { class: 'trial-now' }, 'At the end'),
    h('div', { class: 'track-box' },
      h('div', { class: 'trial-track' }, h('svg', { class: 'histogram', preserveAspectRatio: 'none', viewBox: '0 0 1000 40', 'aria-hidden': 'true' }, h('path', { class: 'bars', d })),
        h('div', { class: 'past' }), h('div', { class: 'thumb' }),
        h('input', { type: 'range', class: 'trial-slider', 'aria-label': 'Time after the change', min: 0, max: 100, step: 1, value: 100 })),
      h('div', { class: 'axis trial-axis', 'aria-hidden': 'true' }, h('span', {}, 'the change'), shown.map((s) => h('span', { class: 'mark', dataset: { left: place(s, end) * 100 } }, after(s))),
        h('span', {}, whole > end ? `quiet until ${after(whole)}` : after(end)))));
}

function whole(result, scale) {
  const { tree = [], elsewhere = [] } = result;
  return [
    (tree.length > 0 || elsewhere.length === 0) && h('section', { class: 'group' }, h('h2', {}, 'What follows'),
      tree.length > 0 ? [branches(tree, scale, 1), omitted(result.omitted?.tree)] : h('p', { class: 'muted' }, result.verdict === 'Refused' ? 'Nothing: the change was not made.' : 'Nothing: everything is as it would be without the change.')),
    elsewhere.length > 0 && h('section', { class: 'group' }, h('h2', {}, 'Different elsewhere'), branches(elsewhere, scale, 1), omitted(result.omitted?.elsewhere)),
  ];
}

const branches = (objects, scale, level) => h('div', { class: 'branches' }, objects.map((o) => branch(o, scale, level)));

function branch(o, scale, level) {
  const changed = (o.diff ?? []).map((d) => difference(o, d)), states = scale.timeline.filter((m) => same(m.object, o)), last = states.at(-1)?.text;
  const shown = [...states.map((m) => h('span', { dataset: { at: m.at } }, m.text)), o.state && o.state !== last && h('span', { dataset: { at: scale.end } }, o.state)];
  const left = place(o.first, scale.end) * 100, width = Math.max(0, place(o.last, scale.end) * 100 - left);
  const row = [
    h('span', { class: 'kind-tag' }, o.kind), h('span', { class: 'branch-name' }, h('span', { class: 'cell-name' }, o.name), more(o.alike)),
    h('span', { class: `op ${{ created: 'create', deleted: 'delete', 'not deleted': 'create', 'not created': 'delete' }[o.operation] ?? ''}` }, o.operation),
    h('span', { class: 'trial-states muted', title: o.state ?? null }, shown),
    h('span', { class: 'branch-by muted', title: (o.by ?? []).join(', ') }, (o.by ?? []).map(by).join(', ')),
    h('span', { class: 'branch-at muted' }, after(o.first)),
    h('span', { class: 'branch-time', 'aria-hidden': 'true' }, h('span', { dataset: { left: Math.min(left, 94), width } })),
  ];
  const props = { class: 'branch-row', dataset: { at: o.first }, title: o.namespace ? nameOf(o) : null };
  return h('div', { class: 'branch' },
    changed.length > 0 ? h('details', { open: level === 1 && o.operation === 'changed' }, h('summary', props, row), fields(changed, 40), omitted(o.omitted?.diff)) : h('div', props, row),
    (o.caused ?? []).length > 0 && h('div', { class: 'caused' }, branches(o.caused, scale, level + 1), omitted(o.omitted?.caused)));
}

const parsed = (json) => {
  if (json === undefined || json === '') return undefined;
  try { return JSON.parse(json); } catch { return json; }
};

// Of the values of Secrets there are only sizes: the page can be shared.
function difference(o, { path, from, to }) {
  const bytes = (v) => (v ? v.length : undefined);
  if (o.kind === 'Secret' && !path.startsWith('.metadata') && path !== '.type') return { path, hidden: true, oldBytes: bytes(from), newBytes: bytes(to) };
  return { path, old: parsed(from), new: parsed(to) };
}

const part = (title, rows, tone) => h('section', { class: 'group finding' }, h('h2', { class: tone && `state ${tone}` }, title), h('div', { class: 'rows' }, rows));

const found = (at, title, text, ...rest) => h('div', { class: 'found', dataset: at === undefined ? null : { at } },
  h('div', { class: 'found-head' }, h('span', { class: 'found-title' }, title), rest, at !== undefined && h('span', { class: 'at muted' }, after(at))), text && h('p', { class: 'muted' }, text));

const object = (o) => [h('span', { class: 'muted' }, `${o.kind} `), h('span', { class: 'cell-name' }, nameOf(o))];
const holds = { quota: 'Quota', limit: 'Limit', policy: 'Policy', webhook: 'Webhook', budget: 'Disruption budget', access: 'Access' };

// What a person should know, the worst first.
function findings(r) {
  const events = r.events ?? [], [bad, normal] = [events.filter((e) => e.type === 'Warning'), events.filter((e) => e.type !== 'Warning')];
  const event = (e) => found(e.at, e.reason, e.message, h('span', { class: 'muted' }, ` ${e.object.kind} ${e.object.name}`), times(e.times));
  return [
    r.refused?.length > 0 && part('Refused', r.refused.map((f) => found(undefined, f.object || 'The change', readable(f.message), h('span', { class: 'muted' }, ` ${[f.code, f.reason].filter(Boolean).join(' ')}`))), 'bad'),
    r.held?.length > 0 && part('Held up', r.held.map((f) => found(f.at, object(f.object), `${[holds[f.kind], f.by].filter(Boolean).join(' ')}${holds[f.kind] || f.by ? ': ' : ''}${f.message}`, times(f.times))), 'bad'),
    r.pending?.length > 0 && part('Pods that wait', r.pending.map((f) => found(f.since, object(f.pod), f.reason, more(f.alike))), 'busy'),
    r.evicted?.length > 0 && part('Pods that had to leave', r.evicted.map((f) => found(f.at, object(f.pod), f.reason)), 'busy'),
    r.fights?.length > 0 && part('Not left alone', r.fights.map((f) => found(undefined, object(f.object), [`${f.by.map(by).join(' and ')} change `, h('code', {}, f.path), ` again and again`], times(f.times))), 'bad'),
    r.warnings?.length > 0 && part('Warnings of the API', r.warnings.map((w) => h('p', { class: 'note' }, w))),
    r.webhooks?.length > 0 && part('Webhooks', r.webhooks.map((w) => found(undefined, w.name, w.called ? 'It was called.' : 'It would be called, and was not: the trial does not know its answer.', times(w.times)))),
    r.tried?.missing?.length > 0 && h('details', { class: 'group finding' }, h('summary', {}, h('h2', {}, 'Not copied')), h('div', { class: 'rows' }, r.tried.missing.map((m) => h('p', { class: 'muted' }, m)))),
    r.notRun?.length > 0 && part('Not in the copy', r.notRun.map((n) => found(undefined, n.kind, n.why, n.objects > 0 && h('span', { class: 'muted' }, ` ${n.objects} ${n.objects === 1 ? 'object' : 'objects'}`)))),
    bad.length > 0 && part('New warnings in Events', bad.map(event)),
    normal.length > 0 && h('details', { class: 'group finding' }, h('summary', {}, h('h2', {}, `${count(normal.length)} more new ${plural('Event').slice(0, normal.length === 1 ? -1 : undefined)}`)), h('div', { class: 'rows' }, normal.map(event))),
  ];
}
