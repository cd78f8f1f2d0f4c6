// The page of a trial: it runs on a copy, its result can be shared, and the change be made.

import { request } from './api.js';
import { apply, forget, namespaceOf, takeFiles, tried, tryOut } from './changing.js';
import { empty, failure, fill, h, icon, skeleton, toast } from './dom.js';
import { readable } from './format.js';
import { share } from './share.js';
import { report } from './trialresult.js';
import { followTime } from './trialtime.js';

const spans = [['10 minutes', '10m'], ['1 hour', '1h'], ['1 day', '24h']];
const again = 2000; // until a trial is asked for again, while another one runs

/** TrialView shows the change that is tried. */
export class TrialView {
  #abort = new AbortController();
  #onTrial = () => this.#begin();

  constructor(app) {
    this.app = app;
    this.title = h('span', {}, 'Try');
    this.for = h('select', { 'aria-label': 'How long the copy is watched', onchange: () => this.#run() }, spans.map(([name, value]) => h('option', { value }, `for ${name}`)));
    this.share = h('button', { class: 'button', hidden: true, title: 'A file that shows this result without a server', onclick: () => this.#share() }, icon('share'), 'Download');
    this.apply = h('button', { class: 'button primary', hidden: true, onclick: () => this.#apply() }, 'Apply');
    this.close_ = h('button', { class: 'button', onclick: () => { location.hash = tried()?.from ?? '#/overview'; } }, 'Back');
    this.content = h('div', { class: 'trial-page' });
    this.element = h('div', { class: 'page' }, app.head(this.title, h('div', { class: 'spacer' }), h('div', { class: 'actions' }, this.close_, this.for, this.share, this.apply)), this.content);
    addEventListener('trial', this.#onTrial);
    this.#begin();
  }

  close() {
    removeEventListener('trial', this.#onTrial);
    this.#abort.abort(); // which ends the trial
  }

  #begin() {
    const change = tried();
    this.for.hidden = !change;
    this.close_.hidden = !change;
    if (!change) {
      this.#choose();
      return;
    }
    this.title.textContent = `Try: ${change.title}`;
    if (change.result) this.#show(change.result);
    else this.#run();
  }

  #choose() {
    const { trials } = this.app;
    const input = h('input', { type: 'file', multiple: true, accept: '.yaml,.yml,.json', 'aria-label': 'Files to try', onchange: () => takeFiles(this.app)(input.files) });
    fill(this.content, trials?.refused || !trials ? empty('Nothing can be tried here', trials?.refused || 'This server tries nothing, or you may not ask it to. sqube try and sqube console do it on your own machine.')
      : empty('Try a change', 'Drop YAML files here, or choose them. They are applied to a copy of the cluster, and you see what follows. Nothing happens in the cluster.', h('p', { class: 'choose' }, input)));
  }

  async #run() {
    const change = tried();
    this.#abort.abort();
    const { signal } = this.#abort = new AbortController();
    this.share.hidden = this.apply.hidden = true;
    const note = h('p', { class: 'muted', role: 'status' }, 'A copy of the cluster is made, and the change in it. Nothing happens in the cluster.');
    fill(this.content, note, skeleton(10));
    try {
      for (;;) {
        try {
          change.result = await request('trials', { method: 'POST', body: { spec: { operations: change.operations }, for: this.for.value, namespace: this.app.allNamespaces ? '' : namespaceOf(change) }, signal });
          break;
        } catch (error) {
          if (error.code !== 429) throw error;
          note.textContent = 'Another trial is running. This one begins when it has ended.';
          await new Promise((resolve) => setTimeout(resolve, again));
          signal.throwIfAborted();
        }
      }
      this.#show(change.result);
    } catch (error) {
      if (error.name !== 'AbortError') fill(this.content, failure(error, () => this.#run()));
    }
  }

  #show(result) {
    const change = tried(), root = report(result, change.title);
    const force = result.refused?.some((f) => f.reason === 'Conflict') && change.operations.some((o) => o.verb === 'apply' && !o.force);
    fill(this.content, change.note && h('p', { class: 'note' }, change.note), force && h('p', { class: 'note' }, 'Others own fields that the files set. ', h('button', {
      class: 'link-button', onclick: () => tryOut({ ...change, operations: change.operations.map((o) => (o.verb === 'apply' ? { ...o, force: true } : o)) }),
    }, 'Try with these taken over')), root);
    followTime(root);
    this.share.hidden = false;
    this.apply.hidden = result.verdict === 'Refused';
  }

  async #share() {
    const { result, title } = tried();
    await share(report(result, title), title);
  }

  async #apply() {
    const change = tried();
    this.apply.disabled = true;
    try {
      await (change.apply ? change.apply() : apply(change));
      toast(`Done: ${change.title}`);
      forget();
      location.hash = change.done ?? change.from;
    } catch (error) {
      this.content.prepend(h('div', { class: 'warning', role: 'alert' }, error.code === 409 ? `Something has changed since, so what was tried does not hold any more: ${readable(error.message)} ` : `${readable(error.message)} `,
        h('button', { class: 'link-button', onclick: () => this.#run() }, 'Try again')));
    }
    this.apply.disabled = false;
  }
}
