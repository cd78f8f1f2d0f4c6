// Undo: the plan first, then what became of it.

import { failure, fill, h, icon, skeleton, toast } from './dom.js';
import { fields } from './fields.js';
import { ago, author } from './format.js';
import { dialog } from './help.js';
import { tryOut } from './changing.js';
import { undo } from './history.js';

const verbs = { create: 'bring back', update: 'change back', delete: 'delete', leave: 'leave as it is' };
const results = { done: 'done', failed: 'failed', notTried: 'not tried' };

/** undoDialog shows the plan of an undo and applies it if the user wants. */
export function undoDialog(app, title, spec) {
  const body = h('div', { class: 'undo' }, skeleton(5));
  const force = h('input', { type: 'checkbox', onchange: plan });
  const forceLabel = h('label', { class: 'check', hidden: true }, force, 'Overwrite later changes by others');
  const apply = h('button', { class: 'button primary', disabled: true, onclick: run }, icon('undo'), 'Apply');
  const attempt = h('button', { class: 'button', disabled: true, hidden: !app.trials, title: app.trials?.refused || 'On a copy of the cluster', onclick: tryPlan }, icon('try'), 'Try');
  const close = h('button', { class: 'button', onclick: () => d.close() }, 'Cancel');
  const d = dialog(title, h('p', { class: 'muted' }, 'This is the plan. Nothing has happened yet.'), body, h('footer', {}, forceLabel, h('span', { class: 'spacer' }), close, attempt, apply));
  let partial = false;
  plan();

  async function plan() {
    apply.disabled = true;
    try {
      const { status } = await undo({ ...spec, force: force.checked });
      const todo = status.plan.filter((s) => s.action !== 'leave').length;
      if (status.plan.some((s) => s.conflicts?.length > 0)) forceLabel.hidden = false;
      show(status);
      apply.disabled = todo === 0;
      attempt.disabled = todo === 0 || Boolean(app.trials?.refused);
      apply.lastChild.textContent = todo > 1 ? `Apply to ${todo} objects` : 'Apply';
      if (todo > 0) apply.focus();
    } catch (error) {
      fill(body, failure(error, plan));
    }
  }

  // What is tried is the plan as it is now; it is applied only while it is the same.
  async function tryPlan() {
    attempt.disabled = true;
    try {
      const whole = { ...spec, force: force.checked };
      const { status: { plan: steps } } = await undo({ ...whole, operations: true });
      const todo = steps.filter((s) => s.action !== 'leave'), secret = todo.filter((s) => !s.operation);
      if (secret.length === todo.length) throw new Error('This can’t be tried: all of it is of objects that have secret values.');
      d.close();
      tryOut({
        title, operations: todo.map((s) => s.operation).filter(Boolean),
        note: secret.length > 0 && `Not tried, since they have secret values: ${secret.map((s) => `${s.object.kind} ${s.object.name}`).join(', ')}.`,
        apply: async () => {
          const now = await undo({ ...whole, operations: true });
          if (JSON.stringify(now.status.plan) !== JSON.stringify(steps)) throw new Error('Something has changed since, and the plan is another one now. Look at it again.');
          const { status } = await undo({ ...whole, apply: true });
          const failed = status.plan.find((s) => s.result === 'failed' || s.result === 'notTried');
          if (failed) throw new Error(`${failed.object.kind} ${failed.object.name}: ${failed.message}`);
        },
      });
    } catch (error) {
      toast(error.message);
      attempt.disabled = false;
    }
  }

  async function run() {
    apply.disabled = true;
    attempt.hidden = true;
    apply.lastChild.textContent = 'Applying…';
    try {
      const { status } = await undo({ ...spec, force: force.checked, apply: true, partial });
      show(status);
      const failed = status.plan.filter((s) => s.result === 'failed' || s.result === 'notTried').length;
      if (failed && !status.applied && !partial) {
        d.querySelector('.dialog > p').textContent = 'Nothing has been changed, since not everything could be.';
        partial = true;
        apply.disabled = false;
        apply.lastChild.textContent = 'Apply what can be applied';
        return;
      }
      apply.remove();
      forceLabel.remove();
      close.textContent = 'Close';
      close.focus();
      d.querySelector('.dialog > p').textContent = failed ? `${failed} of ${status.plan.length} steps did not work. Try again when their reasons are gone.` : 'Done. This undo is in the history too, and can be undone.';
      if (!failed) toast('Undone');
    } catch (error) {
      fill(body, failure(error, run));
    }
  }

  function show({ plan: steps, notes = [] }) {
    fill(body, notes.map((n) => h('p', { class: 'note' }, n)),
      steps.length === 0 ? h('p', { class: 'muted' }, 'There is nothing to undo.') : steps.map(stepOf));
  }

  function stepOf(s) {
    const o = s.object;
    return h('section', { class: `step ${s.action}` },
      h('header', {}, h('span', { class: `chip ${s.action}` }, s.result ? results[s.result] : verbs[s.action]),
        h('span', {}, h('span', { class: 'muted' }, `${o.kind} ${o.namespace ? `${o.namespace}/` : ''}`), h('strong', {}, o.name))),
      s.reason && h('p', { class: 'muted' }, s.reason), s.message && h('p', { class: 'warning' }, s.message),
      (s.warnings ?? []).map((w) => h('p', { class: 'warning' }, w)),
      (s.conflicts ?? []).map((c) => h('p', { class: 'warning' }, `${c.path || 'The object'} was changed later by ${author(c.change)}, ${ago(Date.now() - Date.parse(c.change.time))} ago${c.forced ? '; this is overwritten' : ''}.`)),
      s.diff?.length > 0 && fields(s.diff.map((f) => ({ path: f.path, old: parse(f.from), new: parse(f.to) }))));
  }
}

// Values are JSON, or a text such as the size of a secret's.
function parse(text) {
  if (!text) return undefined;
  try { return JSON.parse(text); } catch { return text; }
}
