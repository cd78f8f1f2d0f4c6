// Transactions that the server takes back unless somebody confirms them.

import { request } from './api.js';
import { fill, h, toast } from './dom.js';
import { ago, who } from './format.js';

const base = '/apis/history.sqube.io/v1alpha1/transactions';

/** Unconfirmed is the part of a page that lists them. It is hidden while there are none. */
export class Unconfirmed {
  constructor() {
    this.rows = h('div', { class: 'rows' });
    this.element = h('section', { class: 'group unconfirmed', hidden: true }, h('h2', {}, 'To be confirmed'), this.rows);
  }

  /** load reads them; users who may not know of any see none. */
  async load(signal) {
    let items = [];
    try {
      items = (await request(base, { signal })).items.filter((t) => ['Unconfirmed', 'Failed'].includes(t.status.state));
    } catch (error) {
      if (error.name === 'AbortError') return;
    }
    items.sort((a, b) => Date.parse(a.status.deadline) - Date.parse(b.status.deadline));
    fill(this.rows, items.map((t) => this.#row(t)));
    this.element.hidden = items.length === 0;
  }

  #row({ metadata: { name }, status }) {
    const n = status.operations?.length ?? 0, left = Date.parse(status.deadline) - Date.now();
    const failed = status.state === 'Failed';
    return h('div', { class: 'line-row' },
      h('span', { class: `state ${failed ? 'bad' : 'busy'}` }, failed ? 'Can’t be taken back' : left > 0 ? `${ago(left)} left` : 'Being taken back'),
      h('span', { class: 'cell-name' }, name),
      h('span', { class: 'muted where' }, failed ? status.message : `${n} ${n === 1 ? 'operation' : 'operations'} by ${who(status.user)}`),
      h('button', { class: 'button end', onclick: (e) => this.#confirm(name, e.currentTarget) }, 'Confirm'));
  }

  async #confirm(name, button) {
    button.disabled = true;
    try {
      await request(`${base}/${encodeURIComponent(name)}/confirm`, { method: 'POST', body: { apiVersion: 'history.sqube.io/v1alpha1', kind: 'Transaction' } });
      toast(`${name} is confirmed`);
    } catch (error) {
      toast(error.message);
    }
    await this.load();
  }
}
