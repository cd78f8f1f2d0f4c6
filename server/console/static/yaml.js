// Objects as YAML, line by line, each line with the path of its field.

import { itemSteps, step } from './paths.js';

const plain = /^[A-Za-z_/][\w./:@ -]*$/;
const special = /^(true|false|null|yes|no|on|off|y|n)$/i;

// A text that a block of lines does not keep: it begins or ends with space, or has characters that only quotes show.
const unfit = /^\s|\n\n$|[^\S\n]\n|[^\P{C}\n]|[\u2028\u2029]/u;

// JSON's quotes, without what YAML takes for ends of lines.
const quoted = (v) => JSON.stringify(v).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** scalar returns a value as YAML writes it on one line. */
export function scalar(v) {
  if (typeof v !== 'string') return JSON.stringify(v);
  return plain.test(v) && !special.test(v) && !/: |\s$|:$| #/.test(v) ? v : quoted(v);
}

/** lines returns the lines of an object: {indent, dash, key, text, path}, text with its type. */
export function lines(object) {
  const out = [];
  const add = (indent, line) => out.push({ indent, ...line });

  function value(v, indent, head, path) {
    if (Array.isArray(v) && v.length > 0) {
      add(indent, { ...head, path });
      const steps = itemSteps(v);
      v.forEach((item, i) => entry(item, indent, path + steps[i]));
    } else if (v !== null && typeof v === 'object' && !Array.isArray(v) && Object.keys(v).length > 0) {
      add(indent, { ...head, path });
      map(v, indent + 1, path);
    } else if (typeof v === 'string' && v.includes('\n') && !unfit.test(v)) {
      add(indent, { ...head, text: v.endsWith('\n') ? '|' : '|-', type: 'mark', path });
      for (const text of v.replace(/\n$/, '').split('\n')) add(indent + 1, { text, type: 'string', path });
    } else add(indent, { ...head, text: Array.isArray(v) ? '[]' : v !== null && typeof v === 'object' ? '{}' : scalar(v), type: v === null ? 'null' : typeof v, path });
  }

  function map(v, indent, path, dash) {
    Object.entries(v).forEach(([key, item], i) => value(item, indent, { key: scalar(key), dash: dash && i === 0 }, path + step(key)));
  }

  // An item of a list. The first field of a map is on the line of the dash.
  function entry(item, indent, path) {
    if (item !== null && typeof item === 'object' && !Array.isArray(item) && Object.keys(item).length > 0) map(item, indent + 1, path, true);
    else value(item, indent + 1, { dash: true }, path);
  }

  map(object, 0, '');
  return out;
}

/** text returns an object as YAML. */
export function text(object) {
  return lines(object).map((l) => `${'  '.repeat(l.dash ? l.indent - 1 : l.indent)}${l.dash ? '- ' : ''}${l.key === undefined ? '' : `${l.key}:`}${l.key !== undefined && l.text !== undefined ? ' ' : ''}${l.text ?? ''}\n`).join('');
}
