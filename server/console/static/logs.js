// The log of a Pod: what its containers have written, live, and up to the moment of the slider.

import { lines, pathOf, withQuery } from './api.js';
import { empty, failure, fill, h } from './dom.js';
import { clock } from './format.js';
import { current } from './route.js';

const tail = 1000, most = 5000;

/** LogView is the log of a container of a Pod. */
export class LogView {
  #abort = null;
  #follows = true; // whether the end stays in view

  constructor(app, resource, pod) {
    this.app = app;
    this.path = `${pathOf(resource, pod.metadata.namespace, pod.metadata.name)}/log`;
    const { containers = [], initContainers = [], ephemeralContainers = [] } = pod.spec, names = [...containers, ...initContainers, ...ephemeralContainers].map((c) => c.name);
    const wanted = pod.metadata.annotations?.['kubectl.kubernetes.io/default-container'];
    this.container = h('select', { 'aria-label': 'Container', onchange: () => this.#read() }, names.map((n) => h('option', { value: n }, n)));
    this.container.value = names.includes(wanted) ? wanted : names[0];
    this.container.hidden = names.length < 2;
    this.previous = h('input', { type: 'checkbox', onchange: () => this.#read() });
    this.times = h('input', { type: 'checkbox', onchange: () => this.list.classList.toggle('with-times', this.times.checked) });
    this.controls = [this.container, h('label', { class: 'check' }, this.times, 'Times'), h('label', { class: 'check', title: 'The log of the run before the last restart' }, this.previous, 'Previous run')];
    this.note = h('p', { class: 'muted small', role: 'status' });
    this.list = h('div', { class: 'log', tabindex: 0, role: 'log', 'aria-label': 'Log', 'aria-live': 'off', onscroll: () => {
      const { scrollTop, clientHeight, scrollHeight } = this.list;
      this.#follows = scrollTop + clientHeight > scrollHeight - 24;
    } });
    this.element = h('div', { class: 'log-view' }, this.list, this.note);
    this.#read();
  }

  close() { this.#abort?.abort(); }

  /** moved hides what was written after the moment that is shown. */
  moved() {
    const now = current().at ? this.app.time.now : Infinity;
    let later = 0;
    for (const line of this.list.children) {
      line.hidden = Number(line.dataset.time) > now;
      later += line.hidden;
    }
    if (later > 0) this.#say(`${later} later ${later === 1 ? 'line' : 'lines'} not shown`);
    else this.#say(this.ended ? 'The log has ended.' : this.list.children.length === 0 ? 'Nothing has been written yet.' : '');
    this.#toEnd();
  }

  #say(text) { if (this.note.textContent !== text) this.note.textContent = text; }

  #toEnd() { if (this.#follows) this.list.scrollTop = this.list.scrollHeight; }

  async #read() {
    this.#abort?.abort();
    const { signal } = this.#abort = new AbortController(), previous = this.previous.checked;
    const query = { container: this.container.value, timestamps: true, tailLines: tail, ...(previous ? { previous } : { follow: true }) };
    fill(this.list);
    this.ended = false;
    this.#say('Nothing has been written yet.');
    let waiting = [], frame = 0;
    const show = () => {
      frame = 0;
      this.list.append(...waiting);
      waiting = [];
      while (this.list.children.length > most) this.list.firstChild.remove();
      this.moved();
    };
    try {
      for await (const text of lines(withQuery(this.path, query), { signal })) {
        const [, time, rest] = /^(\S+) ?(.*)$/s.exec(text) ?? [text, '', text];
        waiting.push(h('div', { class: 'log-line', dataset: { time: Date.parse(time) || 0 } }, h('time', { datetime: time }, clock(time)), h('span', {}, rest)));
        frame ||= requestAnimationFrame(show);
      }
      cancelAnimationFrame(frame);
      this.ended = true;
      show();
      if (this.list.children.length === 0) fill(this.list, empty('Nothing', 'The container has written nothing.'));
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (this.list.children.length > 0) this.#say('The connection ended.');
      else if (error.code === 404) fill(this.list, empty('There is no log', 'It went with the Pod, or is not a part of this copy.'));
      else fill(this.list, failure(error, () => this.#read()));
    }
  }
}
