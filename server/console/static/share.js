// A result as a file: one page that needs no server, and that shows nothing but what was on the screen.

import { h } from './dom.js';

const source = async (name) => (await fetch(name)).text();

/** share downloads a result, to which followTime has not been applied, as a page. */
export async function share(element, title) {
  const [style, time] = await Promise.all([source('style.css'), source('trialtime.js')]);
  const script = `${time.replace(/^export /m, '')}\nfollowTime(document.querySelector('.trial'));\n`;
  const hash = btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(script)))));
  for (const input of element.querySelectorAll('input')) input.setAttribute('value', input.max);
  // What comes from the cluster is text in the elements, and is written as such; the policy lets nothing else run, whatever is in it.
  const policy = `default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'`;
  const text = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
${h('meta', { 'http-equiv': 'Content-Security-Policy', content: policy }).outerHTML}
<meta name="viewport" content="width=device-width, initial-scale=1">
${h('title', {}, title).outerHTML}
<style>
${style}</style>
</head>
<body>
${h('main', { class: 'shared' }, h('h1', {}, title), element).outerHTML}
<script>${script}</script>
</body>
</html>
`;
  const url = URL.createObjectURL(new Blob([text], { type: 'text/html' }));
  h('a', { href: url, download: `try-${title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '').slice(0, 60)}.html` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60e3);
}
