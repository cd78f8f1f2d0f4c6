// A result as a file: one page that needs no server, and that shows nothing but what was on the screen.

import { h } from './dom.js';

const source = async (name) => (await fetch(name)).text();

/** share downloads an element that followTime was called for, as a page. */
export async function share(element, title) {
  const [style, time] = await Promise.all([source('style.css'), source('trialtime.js')]);
  const script = `${time.replace(/^export /m, '')}\nfollowTime(document.querySelector('.trial'));\n`;
  const hash = btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(script)))));
  const page = document.implementation.createHTMLDocument(title);
  page.documentElement.lang = 'en';
  // The element is made of texts alone, so that nothing in it is a script; the policy holds even if something were.
  const policy = `default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'`;
  page.head.prepend(meta(page, { charset: 'utf-8' }), meta(page, { 'http-equiv': 'Content-Security-Policy', content: policy }), meta(page, { name: 'viewport', content: 'width=device-width, initial-scale=1' }));
  page.head.append(of(page, 'style', style));
  const main = of(page, 'main', ''), heading = of(page, 'h1', title), copy = page.importNode(element, true);
  for (const details of copy.querySelectorAll('details')) details.open ||= false;
  main.className = 'shared';
  main.append(heading, copy);
  page.body.append(main, of(page, 'script', script));
  const text = `<!doctype html>\n${page.documentElement.outerHTML}\n`;
  const url = URL.createObjectURL(new Blob([text], { type: 'text/html' }));
  h('a', { href: url, download: `try-${title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '').slice(0, 60)}.html` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60e3);
}

function of(page, tag, text) {
  const element = page.createElement(tag);
  element.textContent = text;
  return element;
}

function meta(page, attributes) {
  const element = page.createElement('meta');
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
