// Lists of the API as Tables: the first rows at once, then all.

import { asTable, request, withQuery } from './api.js';

const page = 500;

/** table yields a list as a Table, twice if it is long. */
export async function* table(path, query, signal) {
  const read = (more) => request(withQuery(path, more), { accept: asTable, signal });
  const first = await read({ ...query, limit: page });
  first.rows ??= [];
  yield first;
  if (!first.metadata.continue) return;
  const rest = await read({ continue: first.metadata.continue, fieldSelector: query.fieldSelector });
  yield { ...first, metadata: { resourceVersion: first.metadata.resourceVersion }, rows: first.rows.concat(rest.rows ?? []) };
}

/** readTables reads lists, {kind, path, query}, and calls show with the rows that are known, the first ones of all lists, then all, and whether these are all. Rows have
 * their cells by the names of the columns. What the user may not see is left out. */
export async function readTables(lists, signal, show) {
  const known = new Map();
  let left = lists.map(({ kind, path, query }) => ({ kind, pages: table(path, query, signal) }));
  while (left.length > 0) {
    const found = await Promise.all(left.map(({ pages }) => pages.next().catch((error) => {
      if (error.code === 403 || error.code === 404) return {};
      throw error;
    })));
    found.forEach(({ value }, i) => { if (value) known.set(left[i], rowsOf(left[i].kind, value)); });
    left = left.filter((_, i) => found[i].value?.metadata.continue);
    await show([...known.values()].flat(), left.length === 0);
  }
}

const rowsOf = (kind, { columnDefinitions: columns, rows }) => rows.map((row) => ({ kind, metadata: row.object.metadata, cells: Object.fromEntries(columns.map((c, i) => [c.name, row.cells[i]])) }));

/** Pace says when what is read again and again is due: at most a fiftieth of the time is spent on it. */
export class Pace {
  #due = 0;

  /** begin notes when reading begins, and returns a function that notes its end. */
  begin() {
    const began = performance.now();
    this.#due = Infinity;
    return () => { this.#due = performance.now() + 50 * (performance.now() - began); };
  }

  get isDue() { return performance.now() >= this.#due; }
}
