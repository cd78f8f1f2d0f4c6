// The sidebar: the pages, and all kinds of the API by what they are for.

import { hasToken, idOf } from './api.js';
import { isCluster, place } from './clusters.js';
import { fill, h, icon, logo } from './dom.js';
import { plural, who } from './format.js';
import { help } from './help.js';
import { go, link } from './route.js';

const pages = [['overview', 'Overview'], ['clusters', 'Clusters'], ['changes', 'Changes'], ['trash', 'Trash'], ['compare', 'Compare'], ['tree', 'Owners'], ['trial', 'Try'], ['sql', 'SQL']];

const sections = {
  Workloads: ['pods', 'deployments', 'statefulsets', 'daemonsets', 'jobs', 'cronjobs', 'replicasets'],
  Configuration: ['configmaps', 'secrets', 'horizontalpodautoscalers', 'resourcequotas', 'limitranges', 'poddisruptionbudgets'],
  Network: ['services', 'ingresses', 'networkpolicies', 'endpointslices'],
  Storage: ['persistentvolumeclaims', 'persistentvolumes', 'storageclasses'],
  Access: ['serviceaccounts', 'roles', 'rolebindings', 'clusterroles', 'clusterrolebindings'],
  Cluster: ['nodes', 'namespaces', 'events', 'customresourcedefinitions'],
};
const upstream = /^$|\.k8s\.io$|^(apps|batch|autoscaling|policy)$/;

/** Sidebar shows where the user is and where they can go. */
export class Sidebar {
  constructor(app, signOut) {
    this.app = app;
    this.open = new Map(Object.keys(sections).concat('Custom').map((name) => [name, true]));
    this.search = h('input', { type: 'search', placeholder: 'Go to a kind  g', 'aria-label': 'Go to a kind', oninput: () => this.#fill(), onkeydown: (e) => this.#key(e) });
    this.list = h('nav', { 'aria-label': 'Kinds', class: 'kinds' });
    this.pages = h('nav', { 'aria-label': 'Pages' });
    this.element = h('aside', { class: 'sidebar' },
      h('div', { class: 'brand' }, logo(), 'sqube'), place(app), this.pages,
      h('div', { class: 'kind-search' }, icon('search'), this.search), this.list,
      h('footer', {}, h('span', { class: 'user', title: app.user }, who(app.user)),
        h('button', { class: 'icon-button', title: 'Keys  ?', 'aria-label': 'Keys', onclick: help }, icon('help')),
        hasToken() && h('button', { class: 'icon-button', title: 'Sign out', 'aria-label': 'Sign out', onclick: signOut }, icon('exit'))));
    this.refresh();
  }

  /** refresh shows the kinds that there are now. */
  refresh() {
    const { kinds } = this.app, inSections = Object.values(sections).flat();
    const known = (k) => inSections.includes(k.resource) && upstream.test(k.group) && !(k.resource === 'events' && k.group);
    this.sections = [
      ...Object.entries(sections).map(([name, all]) => [name, all.flatMap((r) => kinds.find((k) => k.resource === r && known(k)) ?? [])]),
      ['Custom', kinds.filter((k) => !upstream.test(k.group) && k.group !== 'history.sqube.io')],
      ['More', kinds.filter((k) => upstream.test(k.group) && !known(k))],
    ];
    this.#fill();
  }

  #fill() {
    const wanted = this.search.value.trim().toLowerCase();
    const matches = (k) => !wanted || k.kind.toLowerCase().includes(wanted) || k.resource.includes(wanted) || k.shortNames.includes(wanted);
    this.found = [];
    if (!wanted) for (const d of this.list.querySelectorAll('details')) this.open.set(d.dataset.name, d.open);
    fill(this.list, this.sections.map(([name, kinds]) => {
      const shown = kinds.filter(matches);
      this.found.push(...shown);
      if (shown.length === 0) return null;
      return h('details', { open: wanted || this.open.get(name), dataset: { name } }, h('summary', {}, name), shown.map((k) => h('a', { dataset: { kind: idOf(k) }, title: `${k.resource}${k.group ? `.${k.group}` : ''}` }, plural(k.kind))));
    }), this.found.length === 0 && h('p', { class: 'muted' }, 'No kind has this name.'));
    this.found.sort((a, b) => (b.shortNames.includes(wanted) ? 1 : 0) - (a.shortNames.includes(wanted) ? 1 : 0));
    this.update();
  }

  #key(event) {
    if (event.key !== 'Enter' || !this.found[0]) return;
    go('list', { r: idOf(this.found[0]) });
    this.search.value = '';
    this.search.blur();
    this.#fill();
  }

  /** update marks where the user is; links keep namespace and moment. */
  update() {
    const { view, r } = this.app.route;
    const mark = (a, here) => (here ? a.setAttribute('aria-current', 'page') : a.removeAttribute('aria-current'));
    if (!this.pages.firstChild) fill(this.pages, pages.filter(([id]) => (id !== 'sql' || this.app.mayQuery) && (id !== 'trial' || this.app.trials) && (id !== 'clusters' || this.app.kinds.some(isCluster))).map(([id, name]) => h('a', { dataset: { page: id } }, icon(id === 'trial' ? 'try' : id), name)));
    for (const a of this.pages.children) {
      a.href = link(a.dataset.page);
      mark(a, a.dataset.page === view);
    }
    for (const a of this.list.querySelectorAll('a')) {
      a.href = link('list', { r: a.dataset.kind });
      mark(a, a.dataset.kind === r && (view === 'list' || view === 'object'));
    }
  }
}
