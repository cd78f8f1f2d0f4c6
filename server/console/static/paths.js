// Fields of objects by their paths, as the changes of the API name them: .spec.containers[name=web].image.

// Lists whose items have one of these fields, each with another value, are compared and named by it.
const itemKeys = ['name', 'type', 'mountPath', 'containerPort', 'port', 'ip'];

const quoted = (text, plain) => (plain.test(text) ? text : JSON.stringify(text));

/** step returns the part of a path for a field of a map. */
export const step = (key) => (/^[A-Za-z_]\w*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`);

/** itemSteps returns the part of a path for each item of a list. */
export function itemSteps(list) {
  for (const key of itemKeys) {
    const values = list.map((item) => item?.[key]);
    const usable = values.every((v) => typeof v === 'string' || Number.isInteger(v)) && new Set(values).size === values.length;
    if (usable) return values.map((v) => `[${key}=${quoted(String(v), /^[A-Za-z0-9_./:-]+$/)}]`);
  }
  return list.map((_, i) => `[${i}]`);
}

/** split returns the parts of a path. */
export const split = (path) => path.match(/\.[A-Za-z_]\w*|\[(?:"(?:[^"\\]|\\.)*"|[^\]"]+(?:"(?:[^"\\]|\\.)*")?)\]/g) ?? [path];

/** isStatus reports whether a field is what controllers report. */
export const isStatus = (path) => path === '.status' || path.startsWith('.status.') || path === '.metadata.generation';

/** fold joins changes of one object, oldest first, into what has changed from the first to the last. */
export function fold(changes) {
  const fields = new Map();
  for (const { changed = [] } of changes) {
    for (const f of changed) fields.set(f.path, { path: f.path, old: fields.has(f.path) ? fields.get(f.path).old : f.old, new: f.new });
  }
  return [...fields.values()].filter((f) => JSON.stringify(f.old) !== JSON.stringify(f.new)).sort((a, b) => (a.path < b.path ? -1 : 1));
}
