// The page on which a user signs in: at the identity provider if the server trusts one, or with a token.

import { issuer, signIn, signOut, toIssuer, whoami } from './api.js';
import { fill, h, logo } from './dom.js';

/** signInPage asks until the API accepts the user, and calls done with the user's name. */
export function signInPage(refused, done) {
  const message = h('p', { class: 'signin-error', role: 'alert' }, refused ? 'The token has expired or was refused. Please sign in again.' : '');
  const input = h('textarea', { id: 'token', rows: 4, spellcheck: 'false', autocomplete: 'off', required: true, placeholder: 'eyJhbGciOi…', onkeydown: (e) => { if (e.key === 'Enter') submit(e); } });
  const button = h('button', { class: 'button primary', type: 'submit' }, 'Sign in');

  async function submit(event) {
    event.preventDefault();
    const token = input.value.trim();
    if (!token) return;
    button.disabled = true;
    message.textContent = '';
    try {
      signIn(token);
      const name = await whoami();
      if (name) {
        await done(name);
        return;
      }
      signOut();
      message.textContent = 'The server does not accept this token.';
    } catch (error) {
      signOut();
      message.textContent = error.message;
    }
    button.disabled = false;
    input.select();
  }

  const provider = h('div', { class: 'provider', hidden: true });
  issuer().then((host) => {
    if (!host) return;
    fill(provider, h('button', { class: 'button primary', type: 'button', onclick: toIssuer }, `Sign in with ${host}`), h('p', { class: 'or' }, h('span', {}, 'or')));
    provider.hidden = false;
    button.classList.remove('primary');
  });

  const page = h('main', { class: 'signin' }, h('form', { class: 'card', onsubmit: submit },
    h('div', { class: 'brand' }, logo(), 'sqube'),
    h('h1', {}, 'Sign in'), message, provider,
    h('p', { class: 'muted' }, 'With a token of a service account or of your identity provider. It stays in this tab.'),
    h('label', { for: 'token' }, 'Token'), input, button,
    h('details', {}, h('summary', {}, 'How do I get a token?'),
      h('pre', {}, 'kubectl create token NAME -n NAMESPACE'),
      h('p', { class: 'muted' }, 'You see what this service account may see. With a kubeconfig, no token is needed:'),
      h('pre', {}, 'sqube console'))));
  requestAnimationFrame(() => input.focus());
  return page;
}
