// The views by their names in URLs.

import { ChangesView } from './changes.js';
import { ClustersView, isCluster } from './clusters.js';
import { CompareView } from './compare.js';
import { empty, h } from './dom.js';
import { openEditor } from './edit.js';
import { openObject } from './object.js';
import { Overview } from './overview.js';
import { go } from './route.js';
import { SQLView } from './sql.js';
import { TreeView } from './tree.js';
import { TrialView } from './trial.js';

/** views make a view for the app. */
export const views = {
  overview: (app) => new Overview(app),
  changes: (app) => new ChangesView(app),
  trash: (app) => new ChangesView(app, true),
  clusters: (app) => (app.kinds.some(isCluster) ? new ClustersView(app) : { element: h('div', { class: 'page' }, app.head('Clusters'), empty('This server hosts no clusters', 'It does with --clusters.')) }),
  compare: (app) => new CompareView(app),
  tree: (app) => new TreeView(app),
  sql: (app) => (app.mayQuery ? new SQLView(app) : { element: h('div', { class: 'page' }, app.head('SQL'), empty('You may not see this', 'Administrators only may read everything that is stored.')) }),
  trial: (app) => new TrialView(app),
  edit: openEditor,
  object: openObject,
  namespace: (app) => ({
    element: h('div', { class: 'page' }, app.head('Namespace'), empty('Which namespace?', 'You may not list namespaces, so please name yours. ',
      h('input', { class: 'filter', 'aria-label': 'Namespace', onchange: (e) => go('overview', { ns: e.target.value.trim() }) }))),
  }),
};
