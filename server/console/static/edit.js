// An object's YAML, to be changed. What is sent is only what has changed in it.

import { Failure, idOf, pathOf, request } from './api.js';
import { buttons, forget, manager, parse, targetOf, tried, unchanged } from './changing.js';
import { empty, failure, fill, h, skeleton } from './dom.js';
import { link } from './route.js';
import { text } from './yaml.js';

const isMap = (v) => v !== null && typeof v === 'object' && !Array.isArray(v);

function equal(a, b) {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((v, i) => equal(v, b[i]));
  if (!isMap(a) || !isMap(b)) return a === b;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => k in b && equal(a[k], b[k]));
}

// Returns the merge patch from a value to another, undefined if they are equal.
function patchOf(from, to) {
  if (equal(from, to)) return undefined;
  if (!isMap(from) || !isMap(to)) return to;
  const patch = {};
  for (const key of new Set([...Object.keys(from), ...Object.keys(to)])) {
    if (!(key in to)) patch[key] = null;
    else if (!(key in from)) patch[key] = to[key];
    else {
      const part = patchOf(from[key], to[key]);
      if (part !== undefined) patch[key] = part;
    }
  }
  return patch;
}

/** EditView is the editor of one object. */
class EditView {
  constructor(app, resource) {
    this.app = app;
    this.resource = resource;
    const { ns, name } = app.route;
    this.name = name;
    this.done = link('object', { r: idOf(resource), ns, name, of: app.route.of, at: '' });
    this.input = h('textarea', { class: 'editor', 'aria-label': `YAML of ${resource.kind} ${name}`, spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', wrap: 'off', 'aria-description': 'Tab indents, Escape leaves the text', onkeydown: (e) => this.#indent(e) });
    const [problem, two] = buttons(app, () => this.#change(), { applied: () => this.#leave() });
    this.content = h('div', { class: 'fill editing' }, skeleton(14));
    this.element = h('div', { class: 'page page-edit' },
      app.head([h('a', { class: 'crumb', href: link('list', { r: idOf(resource), at: '' }) }, resource.kind), h('span', { class: 'crumb' }, ' / '), name], h('div', { class: 'spacer' }),
        h('div', { class: 'actions' }, h('button', { class: 'button', onclick: () => this.#leave() }, 'Cancel'), two)),
      problem, this.content);
    this.#load(ns);
  }

  // Tab stays in the text while it is indented with it; Escape leaves the text, so that Tab can go on.
  #indent(event) {
    if (event.key !== 'Tab' || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.input.setRangeText('  ', this.input.selectionStart, this.input.selectionEnd, 'end');
  }

  // Who comes back from a trial goes on where it was left.
  get #draft() { return tried()?.from === location.hash ? tried().draft : undefined; }

  #leave() {
    if (this.#draft) forget();
    location.hash = this.done;
  }

  async #load(ns) {
    try {
      const { apiVersion, kind, metadata: { managedFields, uid, resourceVersion, generation, creationTimestamp, ...metadata }, status, ...rest } = this.object = this.#draft?.object ?? await request(pathOf(this.resource, ns, this.name));
      this.shown = { apiVersion, kind, metadata, ...rest };
      this.input.value = this.#draft?.text ?? text(this.shown);
      fill(this.content, this.input);
      this.input.focus();
      this.input.setSelectionRange(0, 0);
    } catch (error) {
      fill(this.content, failure(error, () => this.#load(ns)));
    }
  }

  async #change() {
    const found = await parse(this.input.value);
    if (found.length !== 1) throw new Failure(0, '', 'There must be one object.');
    const [wanted] = found, { kind, metadata: { name, namespace } } = this.shown;
    const same = (f) => f(wanted) === f(this.shown);
    if (!same((o) => o.apiVersion) || !same((o) => o.kind) || !same((o) => o.metadata?.name) || !same((o) => o.metadata?.namespace)) throw new Failure(0, '', 'Its apiVersion, kind, name and namespace can’t be changed.');
    const patch = patchOf(this.shown, wanted);
    if (!patch) throw new Failure(0, '', 'Nothing has changed.');
    return {
      title: `Edit ${kind} ${namespace ? `${namespace}/` : ''}${name}`, require: [unchanged(this.object)], draft: { object: this.object, text: this.input.value },
      done: this.done,
      operations: [{ verb: 'patch', target: targetOf(this.object), patchType: 'merge', patch, fieldManager: manager, fieldValidation: 'Strict' }],
    };
  }
}

/** openEditor returns the editor of the URL's object. */
export function openEditor(app) {
  const resource = app.resource(app.route.r);
  if (resource && app.route.name) return new EditView(app, resource);
  return { element: h('div', { class: 'page' }, empty('There is no such kind', app.route.r ?? '')) };
}
