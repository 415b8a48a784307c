// The frame around every screen: tabs, search, connection, theme; and which screen the address means.
import { html, render, useEffect, useErrorBoundary, useRef, useState, useStore } from './parts/view.js';
import { prefer, prefs } from './parts/prefs.js';
import { go, link, route, useRoute, useScreen } from './parts/route.js';
import { calm, calmDown, connection, giveToken, tokenAsked, useAsk, useChangesSoon } from './parts/api.js';
import { known, useKeys } from './parts/keys.js';
import { endWaiting } from './parts/waiting.js';
import { Blank, Dialog, Icon, Mark, copy, toast } from './parts/pieces.js';
import { Palette } from './parts/palette.js';
import * as f from './parts/format.js';
import { asked as askedOf } from './parts/filter.js';
import { askRowsEarly } from './parts/rows.js';
import { COLUMNS } from './parts/columns.js';
import { MORE } from './parts/morecolumns.js';
import { List } from './screens/list.js';

Object.assign(COLUMNS, MORE);
// The lists are there from the start.
const LISTS = {
  sessions: () => html`<${List} noun="sessions" key="sessions" />`,
  traces: () => html`<${List} noun="traces" key="traces" />`,
  spans: () => html`<${List} noun="spans" key="spans" />`,
};
// Any other screen is fetched when it is first gone to; its name in the address is the key.
const SCREENS = {
  session: () => import('./screens/session.js'),
  trace: () => import('./screens/trace.js'),
  overview: () => import('./screens/overview.js'),
  search: () => import('./screens/search.js'),
  find: () => import('./screens/find.js'),
  compare: () => import('./screens/compare.js'),
  tapes: () => import('./screens/tapes.js'),
  tape: () => import('./screens/tape.js'),
  miss: () => import('./screens/miss.js'),
  services: () => import('./screens/services.js'),
  service: () => import('./screens/services.js'),
  start: () => import('./screens/start.js'),
};
const TABS = [['overview', 'Overview'], ['sessions', 'Sessions'], ['traces', 'Traces'], ['spans', 'Spans'], ['tapes', 'Tapes'], ['services', 'Services']];
const UNDER = { session: 'sessions', compare: 'sessions', trace: 'traces', tape: 'tapes', miss: 'tapes', service: 'services' };
const THEMES = { system: ['screen', 'light', 'Theme: as the system'], light: ['sun', 'dark', 'Theme: light'], dark: ['moon', 'system', 'Theme: dark'] };

function App() {
  const { path } = useRoute();
  const name = path[0] || 'sessions';
  const [dialog, setDialog] = useState('');
  const asked = useStore(tokenAsked);
  useKeys([
    { key: '/', label: 'search', run: () => document.querySelector('[data-search]')?.focus() },
    { key: 'Ctrl K', label: 'go to', run: () => setDialog((now) => (now === 'palette' ? '' : 'palette')) },
    { key: 'c', label: 'copy link', hidden: true, run: () => copy(location.href, 'Link copied') },
    { key: '?', label: 'all keys', run: () => setDialog('keys') },
  ]);
  const close = () => setDialog('');
  useEffect(endWaiting, []);
  // What had the focus may be gone with the screen before: keys go on in the new one.
  const place = path.join('/');
  const before = useRef(place);
  useEffect(() => {
    if (before.current === place) return;
    before.current = place;
    if (document.activeElement === document.body) document.querySelector('main')?.focus({ preventScroll: true });
  }, [place]);
  return html`
    <a class="skip button first" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector('main').focus(); }}>To the content</a>
    <${Bar} current=${UNDER[name] || name} onKeys=${() => setDialog('keys')} />
    <main id="main" tabindex="-1"><${Shown} name=${name} /></main>
    <${Foot} />
    ${dialog === 'palette' && html`<${Palette} onClose=${close} />`}
    ${dialog === 'keys' && html`<${AllKeys} onClose=${close} />`}
    ${asked && html`<${Token} why=${asked.why} />`}
    <${Toast} />`;
}

function Shown({ name }) {
  const [loaded, set] = useState({});
  const [error] = useErrorBoundary((e) => console.error(e));
  useEffect(() => {
    let current = true;
    const load = SCREENS[name];
    if (LISTS[name]) return undefined;
    if (!load) {
      set({ name, failed: null, unknown: true });
      return undefined;
    }
    load().then(
      (module) => current && set({ name, Screen: module.Screen }),
      (failed) => { console.error(failed); if (current) set({ name, failed }); },
    );
    return () => { current = false; };
  }, [name]);
  useScreen(name);
  if (error) {
    return html`<${Blank} title="This view failed"><p>${String(error.message)}</p>
      <button class="button first" onClick=${() => location.reload()}>Load the page again</button></${Blank}>`;
  }
  if (LISTS[name]) return html`<${LISTS[name]} key=${name} />`;
  if (loaded.name !== name) return html`<div class="page" role="status" aria-label="Loading" />`;
  if (loaded.failed) {
    return html`<${Blank} title="The server is gone"><p>This part of the page was not loaded yet. Is the server still running? It is started with <code>tapes serve</code>.</p>
      <button class="button first" onClick=${() => location.reload()}>Try again</button></${Blank}>`;
  }
  if (loaded.unknown) {
    return html`<${Blank} title="There is no such page"><p>The address names a page that does not exist.</p><a class="button first" href="#/sessions">To the sessions</a></${Blank}>`;
  }
  return html`<${loaded.Screen} key=${name} />`;
}

function Bar({ current, onKeys }) {
  const { theme, utc } = useStore(prefs);
  const [icon, next, label] = THEMES[theme] || THEMES.system;
  const { state } = useStore(connection);
  const search = (event) => {
    event.preventDefault();
    const text = new FormData(event.currentTarget).get('q').trim();
    if (text) go(/^[\w:.-]{8,}$/.test(text) && /\d/.test(text) ? ['find'] : ['search'], { q: text });
  };
  return html`<header class="bar">
    <a class="brand" href="#/sessions" aria-label="Tapes"><${Mark} /><span>Tapes</span></a>
    <nav class="tabs" aria-label="Views">${TABS.map(([name, text]) => html`
      <a key=${name} href=${link([name])} aria-current=${current === name ? 'page' : undefined}>${text}</a>`)}</nav>
    <form class="find" role="search" onSubmit=${search}>
      <${Icon} name="search" /><label class="sr" for="find">Search all text, or paste an id</label>
      <input id="find" name="q" class="field" type="search" autocomplete="off" data-search placeholder="Search all text, or paste an id" /></form>
    <${Live} state=${state} />
    <button class="button plain icon" aria-pressed=${String(utc)} title="Times in UTC or local" onClick=${() => prefer({ utc: !utc })}>${utc ? 'UTC' : 'local'}</button>
    <button class="button plain icon" title=${label} aria-label=${label} onClick=${() => prefer({ theme: next })}><${Icon} name=${icon} /></button>
    <button class="button plain icon" title="All keys" aria-label="All keys" onClick=${onKeys}>?</button>
  </header>`;
}

const Live = ({ state }) => html`<span class=${`live ${state === 'live' ? '' : state}`} role="status">
  ${state === 'live' ? 'live' : state === 'lost' ? 'no server: reconnecting' : 'connecting'}</span>`;

function Foot() {
  const keys = useStore(known).filter((each) => !each.hidden);
  return html`<footer class="keys"><ul aria-label="Keys valid now">${keys.map((each) => html`
    <li key=${each.key + each.label}><kbd>${each.shown || each.key}</kbd><span>${each.label}</span></li>`)}</ul><${Status} /></footer>`;
}

// What capture lost or holds back, where people look.
function Status() {
  const asked = useAsk(useStore(calm) ? '/v1/status' : '');
  useChangesSoon(asked.reload, 400);
  const counts = asked.value?.counts;
  if (!counts) return null;
  const drops = Object.values(counts.drops || {}).reduce((sum, n) => sum + n, 0);
  const turns = Object.values(counts.state || {}).reduce((sum, n) => sum + n, 0);
  const { sessions: waiting = 0, failed = 0 } = counts.waiting || {};
  return html`<div class="status">
    <span title="calls, spans and lines of transcripts, each as it came">${f.plural(turns, 'record')} in the log</span>
    ${waiting > 0 && html`<span class="warn">${f.plural(waiting, 'session')} being read</span>`}
    ${failed > 0 && html`<span class="bad">${f.plural(failed, 'session')} cannot be read</span>`}
    <span class=${drops ? 'bad' : ''} title="captured calls that could not be kept whole or read">${f.plural(drops, 'drop')}</span></div>`;
}

function AllKeys({ onClose }) {
  return html`<${Dialog} title="Keys valid here" onClose=${onClose}><ul class="allkeys">${known.get().map((each) => html`
    <li key=${each.key + each.label}><span>${each.label}</span><kbd>${each.shown || each.key}</kbd></li>`)}</ul></${Dialog}>`;
}

function Token({ why }) {
  const send = (event) => {
    event.preventDefault();
    giveToken(new FormData(event.currentTarget).get('token').trim());
  };
  return html`<${Dialog} title="This server asks for a token" onClose=${() => giveToken('')}>
    <p>${why === 'wrong' ? 'The token that was given is not accepted. ' : 'What it holds is for people with a token only. '}It is the token for reading: whoever started the server has set it (TAPES_API_TOKEN), or was shown it at the first start. It is kept for this tab alone.</p>
    <form class="row" onSubmit=${send}><label class="sr" for="token">Token</label>
      <input id="token" class="field" name="token" type="password" autocomplete="off" required autofocus />
      <button class="button first">Go on</button></form></${Dialog}>`;
}

function Toast() {
  const text = useStore(toast);
  return html`<div class="toast" role="status" aria-live="polite">${text && html`<span>${text}</span>`}</div>`;
}

setTimeout(calmDown, 1500);
const begin = () => render(html`<${App} />`, document.getElementById('app'));
// The rows are asked for before there is anything to show them in. Where they come at once, nothing
// is drawn before them.
const AT_ONCE_MS = 100;
const { path: [noun = 'sessions'], params } = route.get();
if (LISTS[noun]) {
  const rows = askRowsEarly(noun, { q: askedOf(params), sort: params.sort, direction: params.dir });
  Promise.race([rows, new Promise((done) => setTimeout(done, AT_ONCE_MS))]).then(begin);
} else begin();
