// Which revision was current at which time, and how much happened when. The changes of the API have both; of a long history, a few are read.

import { at, follow, list, quiet, revisionOf, timeOf } from './history.js';

const page = 500, samples = 64, atOnce = 4; // browsers open few connections with HTTP/1.1, and watches take some

/** Moments are known changes in order, each {revision, time, count}: how many changes there were since the one before. */
export class Moments {
  known = [];
  complete = false; // whether all changes are known
  #options;
  #abort = new AbortController();

  constructor(namespace) {
    this.#options = { namespace, more: quiet, signal: this.#abort.signal, metadata: true };
  }

  /** load reads the newest changes, and samples of older ones. */
  async load() {
    const newest = await list({ order: 'newest' }, { ...this.#options, limit: page });
    this.revision = Number(newest.metadata.resourceVersion);
    this.known = newest.items.map(moment).reverse();
    this.complete = !newest.metadata.continue;
    return this;
  }

  /** sample reads changes before those that are known, evenly by revision. */
  async sample(changed) {
    if (this.complete || this.known.length === 0) return;
    const to = this.known[0].revision, [oldest] = (await list({ order: 'oldest' }, { ...this.#options, limit: 1 })).items;
    this.#insert(moment(oldest));
    changed();
    const from = this.known[0].revision;
    const wanted = new Set(Array.from({ length: samples - 1 }, (_, i) => Math.round(from + ((i + 1) * (to - from)) / samples)));
    const next = async () => {
      for (const revision of wanted) {
        wanted.delete(revision);
        const change = await at(revision, this.#options);
        if (change) this.#insert(moment(change));
      }
      changed();
    };
    await Promise.all(Array.from({ length: atOnce }, next));
  }

  // Adds a change between others, and reports whether it was unknown.
  #insert(m) {
    let i = this.known.findIndex((k) => k.revision >= m.revision);
    if (i < 0) i = this.known.length;
    if (this.known[i]?.revision === m.revision) return false;
    if (i > 0) m.count = m.revision - this.known[i - 1].revision;
    if (i < this.known.length) this.known[i].count = this.known[i].revision - m.revision;
    this.known.splice(i, 0, m);
    return true;
  }

  /** live adds changes as they happen, and tells of each. */
  async live(changed) {
    for (;;) {
      try {
        for await (const change of follow({}, { ...this.#options, from: this.revision })) {
          this.revision = Math.max(this.revision, revisionOf(change));
          this.known.push(moment(change));
          changed(change);
        }
      } catch (error) {
        if (error.name === 'AbortError') return;
        if (error.code === 410) await this.load().catch(() => {});
        await new Promise((resolve) => setTimeout(resolve, 3000));
      }
    }
  }

  stop() { this.#abort.abort(); }

  get first() { return this.known[0]?.time; }

  /** guess returns a known revision that was current at a time, or 0. */
  guess(time) {
    return this.known[this.#before(time)]?.revision ?? 0;
  }

  // The index of the last known moment up to a time.
  #before(time) {
    let low = 0, high = this.known.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.known[middle].time <= time) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** find returns the revision that was current at a time. Between samples, it asks for the change in the middle of what is possible. */
  async find(time) {
    let i = this.#before(time);
    while (i >= 0 && i + 1 < this.known.length && this.known[i + 1].count > 1) {
      const [a, b] = [this.known[i], this.known[i + 1]];
      const share = b.time > a.time ? (time - a.time) / (b.time - a.time) : 0.5;
      const between = Math.min(b.revision - 1, Math.max(a.revision + 1, Math.round(a.revision + share * (b.revision - a.revision))));
      const change = between < b.revision && between > a.revision ? await at(between, this.#options) : null;
      if (!change || !this.#insert(moment(change))) b.count = 1; // there is nothing between them
      i = this.#before(time);
    }
    return this.known[Math.max(i, 0)]?.revision ?? 0;
  }

  /** histogram returns how many changes there were in each of n parts of a span. */
  histogram(from, to, n) {
    const parts = new Array(n).fill(0), width = (to - from) / n;
    this.known.forEach((m, i) => {
      const since = i === 0 || m.count === 1 ? m.time : this.known[i - 1].time;
      const a = Math.max(0, Math.floor((since - from) / width)), b = Math.min(n - 1, Math.floor((m.time - from) / width));
      for (let k = a; k <= b; k++) parts[k] += m.count / Math.max(1, Math.floor((m.time - since) / width) + 1);
    });
    return parts;
  }
}

const moment = (change) => ({ revision: revisionOf(change), time: timeOf(change), count: 1 });
