// The bar at the bottom: a slider over all that is kept. Its right end is live.

import { h, icon, fill } from './dom.js';
import { ago, clock } from './format.js';
import { after, at as changeAt, before, list, quiet, timeOf, whole } from './history.js';
import { Moments } from './moments.js';
import { change, current } from './route.js';

const spans = [['15 min', 15 * 60e3], ['1 h', 3600e3], ['6 h', 6 * 3600e3], ['1 day', 86400e3], ['7 days', 7 * 86400e3], ['all', Infinity]];
const bars = 140;
const snap = 0.992; // so near the right end is live

/** TimeBar is the slider. It shows the changes of a selection as marks. */
export class TimeBar {
  moments = null;
  #told; // resolves loaded
  loaded = new Promise((resolve) => { this.#told = resolve; }); // when moments are there, or can't be read
  time = 0; // of the moment that is shown; 0 for live
  #span = Infinity;
  #marks = [];
  #selection = null;
  #dragging = false;
  #frame = 0;

  /** moved is called when the time of the moment is known, happened with each change. */
  constructor(moved, happened) {
    this.moved = moved;
    this.happened = happened;
    this.path = h('path', { class: 'bars' });
    this.ticks = h('g', { class: 'ticks' });
    this.svg = h('svg', { class: 'histogram', preserveAspectRatio: 'none', viewBox: '0 0 1000 40', 'aria-hidden': 'true' }, this.path, this.ticks);
    this.past = h('div', { class: 'past' });
    this.thumb = h('div', { class: 'thumb' });
    this.hint = h('div', { class: 'time-hint', hidden: true });
    this.track = h('div', {
      class: 'track', role: 'slider', tabindex: 0, 'aria-label': 'Time', 'aria-keyshortcuts': 't',
      onpointerdown: (e) => this.#grab(e), onpointermove: (e) => this.#move(e), onpointerup: (e) => this.#drop(e),
      onpointerleave: () => { this.hint.hidden = true; }, onkeydown: (e) => this.#key(e),
    }, this.svg, this.past, this.thumb, this.hint);
    this.label = h('div', { class: 'time-label' });
    this.from = h('span', {});
    this.choice = h('select', { 'aria-label': 'Span of the slider', onchange: (e) => { this.#span = Number(e.target.value); this.draw(); } },
      spans.map(([name, ms]) => h('option', { value: ms }, name)));
    this.choice.value = 'Infinity';
    this.back = h('button', { class: 'icon-button', title: 'Change before this moment  [', onclick: () => this.step(-1) }, icon('previous'));
    this.on = h('button', { class: 'icon-button', title: 'Change after this moment  ]', onclick: () => this.step(1) }, icon('next'));
    this.liveButton = h('button', { class: 'live', onclick: () => this.live() });
    this.element = h('section', { class: 'timebar', 'aria-label': 'Time' },
      h('div', { class: 'time-now' }, this.liveButton, this.label),
      h('div', { class: 'steps' }, this.back, this.on),
      h('div', { class: 'track-box' }, this.track, h('div', { class: 'axis' }, this.from, h('span', {}, 'now'))),
      h('div', { class: 'span' }, this.choice));
    this.ticking = setInterval(() => this.draw(), 1000);
  }

  /** start reads what happened, in a namespace if the user may not see all of it. */
  async start(namespace) {
    this.moments?.stop();
    try {
      this.moments = await new Moments(namespace).load();
    } finally {
      this.#told();
    }
    this.draw();
    this.moments.live((c) => { this.draw(); this.happened(c); });
    this.moments.sample(() => this.draw()).catch(() => {}); // without, older parts of the slider are coarse
    await this.sync();
  }

  /** stop ends what goes on in the background. */
  stop() {
    clearInterval(this.ticking);
    this.moments?.stop();
  }

  /** select sets whose changes are marked and jumped to: terms of changes, or null for all. */
  async select(selection) {
    const wanted = JSON.stringify(selection);
    if (wanted === JSON.stringify(this.#selection)) return;
    this.#selection = selection;
    this.#marks = [];
    this.draw();
    if (!selection || !this.moments) return;
    try {
      const page = await list({ order: 'newest', ...selection.terms }, { namespace: selection.namespace, limit: 300, metadata: true });
      if (JSON.stringify(this.#selection) !== wanted) return;
      this.#marks = page.items.map(timeOf);
    } catch { /* the marks are missing then; what the view itself reads says why */ }
    this.draw();
  }

  /** mark adds a mark of the selection. */
  mark(time) { this.#marks.unshift(time); }

  /** sync moves the slider to the URL's moment. */
  async sync() {
    const { at } = current(), before = this.time;
    document.body.classList.toggle('is-past', Boolean(at));
    if (!at) this.time = 0;
    else if (this.moments && !this.#dragging) {
      const landed = await whole(at, { namespace: this.#selection?.namespace });
      if (current().at === at && landed > at) { // a moment in the middle of a transaction has never been
        change({ at: landed }, true);
        return;
      }
      const known = this.moments.known.find((m) => m.revision === Number(at));
      const found = known?.time ?? timeOf(await changeAt(at, { namespace: this.#selection?.namespace }).catch(() => null) ?? { metadata: {} });
      if (current().at === at) this.time = found || this.moments.first;
    }
    if (this.time !== before) this.moved();
    this.draw();
  }

  live() { change({ at: '' }); }

  /** now is the time of what is shown. */
  get now() { return this.time || Date.now(); }

  get #window() {
    const to = Date.now();
    const first = this.moments?.first ?? to - 60e3;
    return [Math.min(Math.max(first - (to - first) * 0.01, to - this.#span), to - 60e3), to];
  }

  /** draw shows the state in the next frame. */
  draw() {
    this.#frame ||= requestAnimationFrame(() => { this.#frame = 0; this.#draw(); });
  }

  #draw() {
    const [from, to] = this.#window;
    const parts = this.moments?.histogram(from, to, bars) ?? [];
    const most = Math.max(1, ...parts), w = 1000 / bars;
    this.path.setAttribute('d', parts.map((n, i) => {
      if (n === 0) return '';
      const height = 4 + 32 * Math.sqrt(n / most), x = (i * w).toFixed(1);
      return `M${x} 40v${-height.toFixed(1)}h${(w * 0.7).toFixed(1)}v${height.toFixed(1)}z`;
    }).join(''));
    const inside = [...new Set(this.#marks.filter((t) => t >= from).map((t) => Math.round(((t - from) / (to - from)) * 1000)))];
    fill(this.ticks, inside.map((x) => h('rect', { x: x - 1, y: 0, width: 2, height: 40 })));
    const place = this.time ? Math.min(1, Math.max(0, (this.time - from) / (to - from))) : 1;
    this.thumb.style.setProperty('left', `${place * 100}%`);
    this.past.style.setProperty('left', `${place * 100}%`);
    this.from.textContent = `${ago(to - from)} ago`;
    const when = this.time ? clock(this.time) : 'Live';
    fill(this.liveButton, h('span', { class: 'dot' }), this.time || current().at ? 'Back to live' : 'Live');
    this.liveButton.disabled = !current().at;
    fill(this.label, this.time ? [h('strong', {}, when), h('span', { class: 'muted' }, ` ${ago(to - this.time)} ago`)]
      : h('span', { class: 'muted' }, clock(to)));
    const { track } = this;
    track.setAttribute('aria-valuemin', Math.round(from / 1000));
    track.setAttribute('aria-valuemax', Math.round(to / 1000));
    track.setAttribute('aria-valuenow', Math.round((this.time || to) / 1000));
    track.setAttribute('aria-valuetext', when);
  }

  #timeOf(event) {
    const box = this.track.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const [from, to] = this.#window;
    return share > snap ? 0 : from + share * (to - from);
  }

  #grab(event) {
    if (event.button !== 0 || !this.moments) return;
    this.track.setPointerCapture(event.pointerId);
    this.#dragging = true;
    this.#preview(this.#timeOf(event));
    event.preventDefault();
    this.track.focus();
  }

  #move(event) {
    const time = this.#timeOf(event);
    const box = this.track.getBoundingClientRect();
    this.hint.hidden = false;
    this.hint.textContent = time ? clock(time) : 'Live';
    this.hint.style.setProperty('left', `${event.clientX - box.left}px`);
    if (this.#dragging) this.#preview(time);
  }

  // While the slider moves, revisions that are known are enough.
  #preview(time) {
    this.time = time;
    this.draw();
    change({ at: time ? this.moments.guess(time) || this.moments.known[0]?.revision : '' }, true);
  }

  async #drop(event) {
    if (!this.#dragging) return;
    this.#dragging = false;
    const time = this.#timeOf(event);
    if (!time) return;
    const revision = await this.moments.find(time);
    if (revision) change({ at: await whole(revision, { namespace: this.#selection?.namespace }) }, true);
  }

  /** step goes to the next change of the selection, or of anything, before (-1) or after (1) the moment. */
  async step(direction) {
    const { at } = current();
    if (direction > 0 && !at) return;
    const options = { namespace: this.#selection?.namespace, more: this.#selection ? undefined : quiet, limit: 1 };
    const find = async (terms) => (await list({ ...this.#selection?.terms, ...terms }, options)).items[0];
    let next = await find(direction > 0 ? { order: 'oldest', afterRevision: at } : { order: 'newest', beforeRevision: at });
    // The newest change is what is shown live, and the last one of a transaction with those before it.
    if (direction < 0 && next && after(next) >= (at || after(next))) next = await find({ order: 'newest', beforeRevision: before(next) + 1 }) ?? next;
    if (next) change({ at: after(next) });
    else if (direction > 0) this.live();
  }

  #key(event) {
    const actions = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), ArrowDown: () => this.step(-1), ArrowUp: () => this.step(1),
      End: () => this.live(), Home: () => change({ at: this.moments?.known[0]?.revision ?? '' }),
      PageUp: () => this.#jump(0.1), PageDown: () => this.#jump(-0.1),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    Promise.resolve(action()).catch(() => {});
  }

  async #jump(share) {
    const [from, to] = this.#window;
    const time = Math.max(from, this.now + share * (to - from));
    if (time >= to) this.live();
    else change({ at: await this.moments.find(time) });
  }
}
