// The frame: signing in, the sidebar, keys, and which view is open.

import { enter, hasOwnToken, hasToken, hosted, idOf, kinds, pathOf, request, asMetadata, signOut, trials, whenUnauthorized, whoami } from './api.js';
import { forget, takeFiles } from './changing.js';
import { empty, failure, fill, h, icon } from './dom.js';
import { help } from './help.js';
import { ListView } from './list.js';
import { change, current, go } from './route.js';
import { Sidebar } from './sidebar.js';
import { signInPage } from './signin.js';
import { mayQuery } from './sql.js';
import { TimeBar } from './time.js';
import { views } from './views.js';

// Resources whose changes may change which kinds and namespaces there are.
const defining = new Set(['namespaces', 'customresourcedefinitions', 'apiservices']);

class App {
  kinds = [];
  mayQuery = false;
  trials = null; // whether changes can be tried
  limited = ''; // the only namespace whose changes the user may see; '' for all
  route = current();
  #view = null;
  #viewKey = '';
  #soon = null; // the timer of a refresh
  #spaces = null; // names of the namespaces, null if the user may not list them

  async start() {
    whenUnauthorized(async () => {
      if (!hasToken()) return;
      if (await enter()) location.reload(); // tokens for clusters end soon
      else this.#signedOut(true);
    });
    try {
      const user = await this.#whoami();
      if (user) await this.#signedIn(user);
      else this.#signedOut(hasToken());
    } catch (error) {
      fill(document.body, h('main', { class: 'signin' }, failure(error, () => location.reload())));
    }
  }

  // The user of a cluster is the one of its host, whom the host gives a token for it, or who may have rights in it.
  async #whoami() {
    if (hosted && !hasOwnToken()) await enter();
    return await whoami() ?? (await enter() ? whoami() : null);
  }

  #signedOut(refused) {
    signOut();
    this.#close();
    this.time?.stop();
    this.time = null;
    removeEventListener('hashchange', this.#onhash);
    document.onkeydown = document.body.ondrop = document.body.ondragover = null;
    forget(); // the next user may know nothing of it
    clearInterval(this.ticking);
    fill(document.body, signInPage(refused, (user) => this.#signedIn(user)));
  }

  async #signedIn(user) {
    this.user = user;
    [this.kinds, this.#spaces, this.mayQuery, this.trials] = await Promise.all([kinds(), this.#listNamespaces(), mayQuery().catch(() => false), trials()]);
    if (!this.#spaces && !current().ns) history.replaceState(null, '', current().view === 'overview' ? '#/namespace' : location.hash);
    this.route = current();
    this.time = new TimeBar(() => this.#view?.moved?.(), (c) => { if (defining.has(c.object.resource)) this.#refreshSoon(); });
    this.sidebar = new Sidebar(this, () => this.#signedOut(false));
    this.main = h('main', { id: 'main', tabindex: -1 });
    fill(document.body, h('div', { class: 'app' }, this.sidebar.element, this.main, this.time.element));
    addEventListener('hashchange', this.#onhash);
    document.onkeydown = (e) => this.#key(e);
    if (this.trials) takeFiles(this);
    this.ticking = setInterval(() => {
      if (document.hidden) return;
      this.#view?.tick?.();
      this.#refreshSoon();
    }, 10e3);
    this.#open(this.route);
    await this.#startTime();
  }

  // Discovery knows a new kind a moment after its definition has changed.
  #refreshSoon() {
    this.#soon ??= setTimeout(() => {
      this.#soon = null;
      this.#refresh().catch(() => {}); // the next time, then
    }, 500);
  }

  async #refresh() {
    const { time } = this, [found, spaces] = await Promise.all([kinds(), this.#spaces && this.#listNamespaces()]);
    if (time !== this.time) return; // somebody else has signed in
    if (JSON.stringify(found) !== JSON.stringify(this.kinds)) {
      const missed = this.route.r && !this.resource(this.route.r);
      this.kinds = found;
      this.sidebar.refresh();
      if (missed && this.resource(this.route.r)) {
        this.#viewKey = '';
        this.#open(this.route);
      }
    }
    if (spaces && spaces.join() !== this.#spaces.join()) {
      this.#spaces = spaces;
      const select = this.main.querySelector('select.namespace');
      if (select && select !== document.activeElement) select.replaceWith(this.namespaces());
    }
  }

  async #listNamespaces() {
    try {
      const list = await request(pathOf({ group: '', version: 'v1', resource: 'namespaces' }), { accept: asMetadata });
      return list.items.map((n) => n.metadata.name);
    } catch (error) {
      if (error.code === 403) return null;
      throw error;
    }
  }

  // Who may not see all changes may see those of a namespace.
  async #startTime() {
    this.limited = '';
    try {
      await this.time.start();
    } catch (error) {
      if (error.code !== 403 || !this.route.ns) return;
      this.limited = this.route.ns;
      await this.time.start(this.limited).catch(() => {});
    }
    this.time?.select(this.#view?.selection ?? null);
  }

  #onhash = () => {
    const before = this.route;
    this.route = current();
    if (!this.#spaces && this.limited !== (this.route.ns ?? '')) this.#startTime();
    this.#open(before);
    this.time.sync();
  };

  #close() {
    this.#view?.close?.();
    this.#view = null;
    this.#viewKey = '';
  }

  // Opens the view of the URL, or tells the one that is open what has changed.
  #open(before) {
    const { view, r, ns, name } = this.route;
    document.querySelector('.app')?.classList.toggle('timeless', view === 'trial' || view === 'edit'); // they are of now
    const key = [view, r, ns, name].join('\n');
    if (this.#viewKey === key) {
      this.#view.update?.(this.route, before);
    } else {
      this.#close();
      this.#viewKey = key;
      this.#view = this.#make(view);
      fill(this.main, this.#view.element);
      const kind = this.resource(r)?.kind;
      document.title = [name ?? (view === 'list' ? kind : view === 'sql' ? 'SQL' : view[0].toUpperCase() + view.slice(1)), ns, hosted?.name, 'sqube'].filter(Boolean).join(' · ');
      document.querySelector('.app')?.classList.remove('menu-open');
    }
    this.sidebar.update();
    this.time.select(this.#view.selection ?? null);
  }

  #make(view) {
    if (view === 'list') {
      const resource = this.resource(this.route.r);
      return resource ? new ListView(this, resource) : { element: h('div', { class: 'page' }, empty('There is no such kind', this.route.r)) };
    }
    const make = views[view];
    return make ? make(this) : { element: h('div', { class: 'page' }, empty('There is no such page')) };
  }

  /** allNamespaces is whether the user may list the namespaces. */
  get allNamespaces() { return this.#spaces !== null; }

  /** resource finds a kind by its id in links. */
  resource(id) { return this.kinds.find((k) => idOf(k) === id); }

  /** resourceOf finds a kind by what an object or a change says of itself. */
  resourceOf({ apiVersion = '', kind, resource }) {
    const group = apiVersion.includes('/') ? apiVersion.split('/')[0] : '';
    return this.kinds.find((k) => k.group === group && (resource ? k.resource === resource : k.kind === kind));
  }

  /** namespaces returns the choice of a namespace. */
  namespaces(useful = true) {
    if (!useful) return null;
    const { ns = '' } = this.route;
    if (!this.#spaces) {
      return h('input', { class: 'namespace', 'aria-label': 'Namespace', placeholder: 'Namespace', value: ns, onchange: (e) => change({ ns: e.target.value.trim() }) });
    }
    const names = ns && !this.#spaces.includes(ns) ? [...this.#spaces, ns] : this.#spaces;
    const select = h('select', { class: 'namespace', 'aria-label': 'Namespace', onchange: (e) => change({ ns: e.target.value }) },
      h('option', { value: '' }, 'All namespaces'), names.map((n) => h('option', { value: n }, n)));
    select.value = ns;
    return select;
  }

  /** head returns the top of a page. */
  head(title, ...more) {
    const menu = h('button', { class: 'icon-button menu', 'aria-label': 'Menu', onclick: () => document.querySelector('.app').classList.toggle('menu-open') }, icon('menu'));
    return h('header', { class: 'page-head' }, menu, h('h1', {}, title), more);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    const { target } = event, typing = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
    if (event.key === 'Escape') {
      if (typing) {
        if (target.value && target.type === 'search') { target.value = ''; target.dispatchEvent(new Event('input')); }
        target.blur();
      } else if (document.querySelector('.menu-open')) document.querySelector('.menu-open').classList.remove('menu-open');
      else if (this.route.at) this.time.live();
      else if (this.route.view === 'object') go('list', { r: this.route.r, ns: this.route.of ?? this.route.ns });
      event.preventDefault();
      return;
    }
    if (typing) return;
    const actions = {
      '/': () => (this.main.querySelector('.filter') ?? this.sidebar.search).focus(), g: () => this.sidebar.search.focus(),
      t: () => this.time.track.focus(), '[': () => this.time.step(-1), ']': () => this.time.step(1), l: () => this.time.live(), '?': help,
      o: () => go('overview'), c: () => go('changes'), d: () => go('trash'),
    };
    const action = actions[event.key];
    if (action) {
      event.preventDefault();
      Promise.resolve(action()).catch(() => {});
    } else if (/^(BODY|MAIN)$/.test(target.tagName) || !this.main.contains(target)) this.#view?.key?.(event);
  }
}

new App().start();
