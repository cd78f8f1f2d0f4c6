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

// The place of a part of a path in a value: a field, or an item of a list by its number or by a field of its own.
function indexOf(value, part) {
  if (part.startsWith('.')) return part.slice(1);
  const [, key, text] = /^\[(?:(\w+)=)?(.*)\]$/.exec(part);
  if (key === undefined) return text.startsWith('"') ? JSON.parse(text) : Number(text);
  const wanted = text.startsWith('"') ? JSON.parse(text) : text, i = value.findIndex((item) => String(item?.[key]) === wanted);
  return i < 0 ? value.length : i;
}

// Returns a value with a part of it replaced, or removed if it is undefined.
function withPart(value, [part, ...rest], v) {
  if (part === undefined) return v;
  if (value === null || typeof value !== 'object') return value;
  const copy = Array.isArray(value) ? [...value] : { ...value }, i = indexOf(value, part);
  const now = rest.length > 0 ? withPart(copy[i], rest, v) : v;
  if (now !== undefined) copy[i] = now;
  else if (Array.isArray(copy)) copy.splice(i, 1);
  else delete copy[i];
  return copy;
}

// The parts of a path below a parent, or null if it is not below.
function below(path, parent) {
  const parts = split(path), above = split(parent);
  return above.length < parts.length && above.every((p, i) => p === parts[i]) ? parts.slice(above.length) : null;
}

/** fold joins changes of one object, oldest first, into what has changed from the first to the last. Of hidden values, only sizes are known. */
export function fold(changes) {
  const fields = new Map();
  for (const f of changes.flatMap((c) => c.changed ?? [])) {
    const parent = [...fields.values()].find((p) => p.hidden === f.hidden && below(f.path, p.path));
    if (parent) {
      if (!f.hidden) parent.new = withPart(parent.new, below(f.path, parent.path), f.new);
      continue;
    }
    let { old, oldBytes } = fields.get(f.path) ?? f;
    for (const child of [...fields.values()]) {
      const parts = child.hidden === f.hidden && below(child.path, f.path);
      if (!parts) continue;
      if (!f.hidden) old = withPart(old, parts, child.old);
      fields.delete(child.path);
    }
    fields.set(f.path, f.hidden ? { path: f.path, hidden: true, oldBytes, newBytes: f.newBytes } : { path: f.path, old, new: f.new });
  }
  return [...fields.values()].filter((f) => f.hidden || JSON.stringify(f.old) !== JSON.stringify(f.new)).sort((a, b) => (a.path < b.path ? -1 : 1));
}
