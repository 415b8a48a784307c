// Small pieces: icons, badges, moments, copying, dialogs, and the states that every screen has.
import { h, html, makeStore, useEffect, useLayoutEffect, useRef, useState, useStore } from './view.js';
import { prefs } from './prefs.js';
import * as f from './format.js';

const ICONS = {
  search: 'M10.5 10.5 14 14M11.5 6.5a5 5 0 1 1-10 0 5 5 0 0 1 10 0Z',
  sun: 'M8 1.5V3M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1M11 8a3 3 0 1 1-6 0 3 3 0 0 1 6 0Z',
  moon: 'M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1Z',
  screen: 'M2 3h12v8H2zM5.5 13.5h5',
  copy: 'M5.5 5.5h8v8h-8zM3 10.5H2.5v-8h8V3',
  done: 'M3 8.5 6.5 12 13 4.5',
  close: 'M4 4l8 8M12 4l-8 8',
  warn: 'M8 2 1.5 13.5h13L8 2ZM8 6.5v3.2M8 11.6v.2',
  error: 'M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM8 4.5v4.2M8 11v.2',
  pin: 'M5.5 1.5h5l-.5 5 2.5 2.5h-9L6 6.5zM8 9v5.5',
  open: 'M6 3h7v7M13 3 5 11',
  play: 'M4 2.5v11l9-5.5z',
  right: 'M6 3.5 10.5 8 6 12.5',
  left: 'M10 3.5 5.5 8 10 12.5',
  down: 'M3.5 6 8 10.5 12.5 6',
  tool: 'M9.5 2.2a3.6 3.6 0 0 0-3.3 5L2 11.4 4.6 14l4.2-4.2a3.6 3.6 0 0 0 5-3.3l-2.2 2-2.6-.6-.6-2.6z',
  llm: 'M2.5 3h11v8h-6l-3 2.5V11h-2z',
  agent: 'M8 7a2.6 2.6 0 1 0 0-5.2A2.6 2.6 0 0 0 8 7ZM2.8 14a5.2 5.2 0 0 1 10.4 0',
  event: 'M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6Z',
  columns: 'M2 3h12v10H2zM6 3v10M10 3v10',
  facets: 'M2 3.5h12M4.5 8h7M6.5 12.5h3',
  more: 'M3.5 8h.1M8 8h.1M12.5 8h.1',
  bin: 'M3 4.5h10M6 4V2.5h4V4M4 4.5l.7 9h6.6l.7-9',
  down2: 'M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11',
  snow: 'M8 1.5v13M2.4 4.8l11.2 6.4M13.6 4.8 2.4 11.2',
  compare: 'M2 3h5v10H2zM9 3h5v10H9z',
  picture: 'M2 3h12v10H2zM2 11l3.5-3.5 3 3 2-2L14 12M10.5 6.5h.1',
  fork: 'M4 2v12M4 9c5 0 7-1.5 7-5.5M8.5 5.5 11 3l2.5 2.5',
};

// What stands in the rows of long lists is made without a template: there are many, and they come first.
const DRAWN = { viewBox: '0 0 16 16', fill: 'none', stroke: 'currentColor', 'stroke-width': '1.5', 'stroke-linecap': 'round', 'stroke-linejoin': 'round', 'aria-hidden': 'true' };
export const Icon = ({ name }) => h('svg', DRAWN, h('path', { d: ICONS[name] }));

export const Mark = () => html`<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.7" aria-hidden="true">
  <rect x="1.5" y="4" width="21" height="16" rx="3" /><circle cx="8" cy="11" r="2.5" /><circle cx="16" cy="11" r="2.5" />
  <path d="M6.5 20l1.6-3.4h7.8l1.6 3.4" /></svg>`;

// --- values

export function When({ at, relative }) {
  const { utc } = useStore(prefs);
  if (!at) return html`<span>${f.NONE}</span>`;
  return html`<time datetime=${at} title=${f.exactly(at)}>${relative ? f.ago(at) : f.moment(at, utc)}</time>`;
}

export const Duration = ({ ns }) => html`<span title=${ns == null ? 'unknown' : `${f.count(ns)} ns`}>${f.duration(ns)}</span>`;

export function costTip(usd, unpriced, saved, replayed) {
  const isNothing = f.spent(usd || null, { unpriced, saved, replayed }) === 0;
  const left = unpriced ? `${f.plural(unpriced, 'call')} without a price ${unpriced === 1 ? 'is' : 'are'} not in it` : '';
  return [isNothing ? 'answered from a tape: nothing was spent' : usd == null ? 'the cost is not known' : f.exactMoney(usd), left, saved ? `not spent thanks to tapes: $${saved}` : ''].filter(Boolean).join(' · ');
}
// `whole` says beside it what was not spent.
export const Cost = ({ usd, unpriced, saved, replayed, whole }) => html`<span title=${costTip(usd, unpriced, saved, replayed)}>${f.money(f.spent(usd, { unpriced, saved, replayed }))}${unpriced && usd != null ? html`<span class="warn">+${unpriced}?</span>` : ''}${whole && saved > 0 && html`<span class="faint"> (${f.money(saved)} not spent)</span>`}</span>`;

export const tokensTip = (input, cached, output) => `tokens: input ${f.count(input)}, of it cached ${f.count(cached)} (${f.percent(cached, input)}); output ${f.count(output)}`;
export const TokensOf = (input, cached, output) => [f.brief(input), h('span', { class: 'faint' }, ` / ${f.brief(cached)} / `), f.brief(output)];
export const Tokens = ({ input, cached, output }) => html`<span class="tnum" title=${tokensTip(input, cached, output)}>${TokensOf(input, cached, output)}<span class="unit"> tokens</span></span>`;

const STATES = {
  completed: ['good', 'done'], failed: ['bad', 'error'], abandoned: ['warn', 'warn'], unknown: ['', 'more'],
  ok: ['good', 'done'], error: ['bad', 'error'], running: ['accent', 'play'], missing: ['warn', 'warn'], incomplete: ['warn', 'warn'], 'no result': ['warn', 'warn'], 'no end': ['warn', 'warn'], aborted: ['warn', 'warn'],
};
export function State({ state, live, why = '' }) {
  const name = live ? 'running' : state || 'unknown';
  const [kind, icon] = STATES[name] || ['', 'more'];
  return h('span', { class: `badge ${kind}` }, Icon({ name: icon }), live ? name : `${name}${why}`);
}
// The same as a sign alone, where there is no room for the word and something is wrong.
const WRONG = new Set(['failed', 'abandoned', 'error', 'aborted', 'missing']);
export const Wrong = ({ state }) => (WRONG.has(state) ? h('span', { class: STATES[state][0], title: state, role: 'img', 'aria-label': state }, Icon({ name: STATES[state][1] })) : null);

const OUTCOMES = { live: '', recorded: 'accent', replayed: 'good', refused: 'bad' };
export const Outcome = ({ outcome }) => (outcome ? html`<span class=${`badge ${OUTCOMES[outcome] || ''}`}>${outcome}</span>` : null);
export const Kind = ({ kind }) => html`<span class=${`badge ${kind}`}><${Icon} name=${ICONS[kind] ? kind : 'event'} />${kind}</span>`;

// Text from elsewhere: never more than text, in its own direction. What cannot be seen in it has a
// sign, which is not copied with it; where there are very many they are signs in the text.
const MOST_SIGNS = 2000;
export function shown(text, isMixed) {
  const parts = f.seen(text, isMixed);
  if (parts.length > MOST_SIGNS) return f.visible(text);
  return parts.map((part) => (typeof part === 'string' ? part : part.text ? h('span', { class: 'unseen', title: part.title, 'data-code': part.code }, part.text) : h('span', { class: 'unseen', title: part.title }, part.code)));
}
export const Text = ({ children, as = 'bdi', ...rest }) => h(as, { dir: 'auto', ...rest }, typeof children === 'string' ? shown(children) : children);

// --- copying, and saying that it was done

export const toast = makeStore(null);
let toastTimer = 0;
export function say(text) {
  toast.set(text);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => toast.set(null), 2600);
}

export async function copy(text, what = 'Copied') {
  try {
    await navigator.clipboard.writeText(text);
    say(what);
  } catch {
    say('The browser does not allow copying here');
  }
}

export const CopyButton = ({ text, label = 'Copy', what }) => html`<button class="button plain" type="button"
  onClick=${() => copy(text, what)} aria-label=${label} title=${label}><${Icon} name="copy" /></button>`;

export const CopyLine = ({ text, label }) => html`<div class="copyline"><pre dir="ltr">${text}</pre><${CopyButton} text=${text} label=${label || 'Copy'} /></div>`;

export function save(name, text, type = 'application/json') {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const anchor = Object.assign(document.createElement('a'), { href: address, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 5000);
}

// --- states

export const Blank = ({ title, children }) => html`<div class="blank"><h2>${title}</h2>${children}</div>`;

export function Failed({ problem, retry, query }) {
  const at = problem.position;
  return html`<div class="notice bad" role="alert"><${Icon} name="error" /><div class="grow stack">
    <div><p><strong>${capital(problem.message)}</strong></p>
      ${query != null && at != null && query.length > at && html`<pre class="pointer">${query}${'\n'}${' '.repeat(at)}^</pre>`}
      ${problem.remedy && html`<p>${capital(problem.remedy)}</p>`}
      <p class="faint">${problem.code}${problem.status ? ` · ${problem.status}` : ''}</p></div>
    ${retry && html`<div><button class="button" onClick=${() => { problem.again?.(); retry(); }}>Try again</button></div>`}</div></div>`;
}
export const capital = (text) => (text ? text[0].toUpperCase() + text.slice(1) : '');

export const Shades = ({ rows = 6 }) => html`<div class="shades" role="status" aria-label="Loading">${Array.from({ length: rows }, (_, i) => html`<div class="shaderow" key=${i}><div class="shade" style=${{ width: `${34 + ((i * 37) % 55)}%` }} /></div>`)}</div>`;

export const Stale = ({ problem, retry }) => html`<div class="notice warn" role="status"><${Icon} name="warn" /><p class="grow">What is shown is from before: ${problem.message} ${problem.remedy}</p><button class="button" onClick=${retry}>Try again</button></div>`;

// A value that is asked for: its layout while it loads, its problem, or itself.
export function Asked({ asked, children, rows, query }) {
  if (asked.value !== undefined) {
    return html`${asked.problem && html`<${Stale} problem=${asked.problem} retry=${asked.reload} />`}${children(asked.value)}`;
  }
  if (asked.problem) return html`<${Failed} problem=${asked.problem} retry=${asked.reload} query=${query} />`;
  return html`<${Shades} rows=${rows} />`;
}

// --- dialogs

export function Dialog({ title, onClose, children, foot, wide }) {
  const box = useRef(null);
  const isLeaving = useRef(false);
  const began = useRef(null); // to select a text and to let go beside the dialog closes nothing
  useLayoutEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    // A dialog that is taken away closes too, and nobody chose that.
    return () => { isLeaving.current = true; if (dialog.open) dialog.close(); };
  }, []);
  return html`<dialog class=${`box ${wide ? 'wide' : ''}`} ref=${box} aria-label=${title} onClose=${() => isLeaving.current || onClose()}
      onPointerDown=${(event) => { began.current = event.target; }} onClick=${(event) => event.target === box.current && began.current === box.current && onClose()}>
    <header><h2>${title}</h2><button class="button plain" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>
    <div class="inside">${children}</div>${foot && html`<footer>${foot}</footer>`}</dialog>`;
}

export function Segments({ value, options, onChange, label }) {
  return html`<div class="segments" role="group" aria-label=${label}>${options.map(([name, text]) => html`
    <button key=${name} type="button" aria-pressed=${String(value === name)} onClick=${() => onChange(name)}>${text}</button>`)}</div>`;
}

export function useWidth() {
  const ref = useRef(null);
  const [width, set] = useState(0);
  useEffect(() => {
    if (!ref.current) return undefined;
    const watch = new ResizeObserver(([entry]) => set(Math.round(entry.contentRect.width)));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, [ref.current]);
  return [ref, width];
}
