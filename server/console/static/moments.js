// Which revision was current at which time, and how much happened when. The changes of the API have both; of a long history, a few are read.

import { at, follow, list, quiet, revisionOf, timeOf } from './history.js';

const page = 500, samples = 96, atOnce = 6;

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
  async sample() {
    if (this.complete || this.known.length === 0) return;
    const [first] = (await list({ order: 'oldest' }, { ...this.#options, limit: 1 })).items.map(moment);
    const from = first.revision, to = this.known[0].revision;
    const wanted = Array.from({ length: samples }, (_, i) => Math.round(from + (i * (to - from)) / samples)).filter((r, i, all) => r !== all[i - 1]);
    const found = new Map([[from, first]]);
    const next = async () => {
      for (let r = wanted.shift(); r !== undefined; r = wanted.shift()) {
        const change = await at(r, this.#options);
        if (change) found.set(revisionOf(change), moment(change));
      }
    };
    await Promise.all(Array.from({ length: atOnce }, next));
    const older = [...found.values()].sort((a, b) => a.revision - b.revision).filter((m) => m.revision < to);
    older.forEach((m, i) => { m.count = i === 0 ? 1 : m.revision - older[i - 1].revision; });
    this.known = [...older, ...this.known];
  }

  /** live adds changes as they happen. */
  async live(changed) {
    for (;;) {
      try {
        for await (const change of follow({}, { ...this.#options, from: this.revision })) {
          this.revision = Math.max(this.revision, revisionOf(change));
          this.known.push(moment(change));
          changed();
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
      const m = change && moment(change);
      if (!m || m.revision <= a.revision) {
        b.count = 1; // there is nothing between them
      } else {
        m.count = m.revision - a.revision;
        b.count = b.revision - m.revision;
        this.known.splice(i + 1, 0, m);
      }
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
