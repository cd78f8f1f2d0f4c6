// The views by their names in URLs.

import { empty, h } from './dom.js';

/** views make a view for the app. */
export const views = {
  overview: (app) => ({ element: h('div', { class: 'page' }, app.menuButton(), empty('Overview')) }),
};
