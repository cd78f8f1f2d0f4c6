// A table with as many rows as there are, of which only those that can be seen are elements.

import { fill, h } from './dom.js';

const rowHeight = 36, around = 12;

/** VirtualTable shows rows: columns are {name, width, class, cell(row), sort(row)}; rows have a key, and can have a class. */
export class VirtualTable {
  rows = [];
  selected = -1;
  #columns = [];
  #elements = new Map();
  #frame = 0;

  constructor({ label, open, onsort }) {
    this.open = open;
    this.onsort = onsort;
    this.head = h('div', { class: 'thead', role: 'row' });
    this.body = h('div', { class: 'tbody', role: 'rowgroup' });
    this.scroller = h('div', {
      class: 'table', role: 'grid', tabindex: 0, 'aria-label': label, onscroll: () => this.draw(),
      onkeydown: (e) => this.key(e),
    }, this.head, this.body);
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  /** columns sets the columns and the direction in which one of them is sorted. */
  columns(columns, sorted) {
    this.#columns = columns;
    this.scroller.style.setProperty('--columns', columns.map((c) => c.width ?? '1fr').join(' '));
    fill(this.head, columns.map((c) => h('div', {
      role: 'columnheader', class: c.class, 'aria-sort': sorted?.name === c.name ? (sorted.down ? 'descending' : 'ascending') : null,
    }, this.onsort ? h('button', { onclick: () => this.onsort(c.name) }, c.name) : c.name)));
    this.#forget();
  }

  /** show replaces the rows. Those whose key and version are the same keep their elements. */
  show(rows) {
    const key = this.rows[this.selected]?.key;
    this.rows = rows;
    if (key !== undefined) this.selected = rows.findIndex((r) => r.key === key);
    this.scroller.setAttribute('aria-rowcount', rows.length + 1);
    this.body.style.setProperty('height', `${rows.length * rowHeight}px`);
    this.draw();
  }

  #forget() {
    for (const { element } of this.#elements.values()) element.remove();
    this.#elements.clear();
    this.draw();
  }

  /** redraw makes the visible rows anew, as after time has passed. */
  redraw() { this.#forget(); }

  draw() {
    this.#frame ||= requestAnimationFrame(() => { this.#frame = 0; this.#draw(); });
  }

  #draw() {
    const { scrollTop, clientHeight } = this.scroller;
    const first = Math.max(0, Math.floor(scrollTop / rowHeight) - around);
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / rowHeight) + around);
    const kept = new Map();
    for (let i = first; i < last; i++) {
      const row = this.rows[i];
      let shown = this.#elements.get(row.key);
      if (!shown || shown.version !== row.version) {
        const changed = shown && !document.body.classList.contains('is-past');
        shown?.element.remove();
        shown = { version: row.version, element: this.#row(row, changed) };
        this.body.append(shown.element);
      }
      shown.element.style.setProperty('transform', `translateY(${i * rowHeight}px)`);
      shown.element.setAttribute('aria-rowindex', i + 2);
      shown.element.setAttribute('aria-selected', i === this.selected);
      shown.element.id = `row-${i}`;
      kept.set(row.key, shown);
      this.#elements.delete(row.key);
    }
    for (const { element } of this.#elements.values()) element.remove();
    this.#elements = kept;
    if (this.selected >= 0) this.scroller.setAttribute('aria-activedescendant', `row-${this.selected}`);
    else this.scroller.removeAttribute('aria-activedescendant');
  }

  #row(row, changed) {
    const select = () => {
      this.selected = this.rows.findIndex((r) => r.key === row.key);
      this.open(row);
    };
    return h('div', { class: `row ${changed ? 'changed' : ''} ${row.class ?? ''}`, role: 'row', onclick: select },
      this.#columns.map((c) => h('div', { role: 'gridcell', class: c.class }, c.cell(row))));
  }

  /** move selects another row and scrolls to it. */
  move(by) {
    if (this.rows.length === 0) return;
    this.selected = Math.min(this.rows.length - 1, Math.max(0, this.selected + by));
    const top = this.selected * rowHeight, { scrollTop, clientHeight } = this.scroller, head = this.head.offsetHeight;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + rowHeight + head > scrollTop + clientHeight) this.scroller.scrollTop = top + rowHeight + head - clientHeight;
    this.draw();
  }

  /** key handles a key and reports whether it did. */
  key(event) {
    const page = Math.floor(this.scroller.clientHeight / rowHeight) - 1;
    const steps = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (event.key in steps) this.move(steps[event.key]);
    else if (event.key === 'Enter' && this.rows[this.selected]) this.open(this.rows[this.selected]);
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }
}
