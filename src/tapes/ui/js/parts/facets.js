// What can be filtered by, beside the list: the values there are, most frequent first, each taken in or
// left out by a click; and views that a person keeps, as addresses, in this browser.
import { html, useState, useStore } from './view.js';
import { query, useAsk } from './api.js';
import { link, route } from './route.js';
import { partsOf, quote, without } from './filter.js';
import { prefer, prefs } from './prefs.js';
import { Failed, Icon, Text } from './pieces.js';
import * as f from './format.js';

const FACETS = [['model', 'Model'], ['tool', 'Tool'], ['agent', 'Agent'], ['outcome', 'Answered'], ['error', 'Error'], ['stop', 'Ended by'], ['provider', 'Provider'], ['tag', 'Tag']];
const FEW = 6;
const MOST = 50;
const USUAL = {
  sessions: [['With errors', { q: 'has:error OR has:tool_error' }], ['The most expensive', { sort: 'total_cost_usd' }], ['The longest', { sort: 'duration_ns' }]],
  traces: [['With errors', { q: 'has:error' }], ['The most expensive', { sort: 'total_cost_usd' }], ['The longest', { sort: 'duration_ns' }]],
  spans: [['Failed calls', { q: 'type:llm has:error' }], ['Failed tools', { q: 'type:tool has:error' }], ['The most expensive', { sort: 'cost_usd' }], ['The slowest', { sort: 'duration_ns' }]],
};

// The filter with `word` in it, or without it where it has it; what says the opposite goes.
export function turned(q, word) {
  const opposite = word.startsWith('-') ? word.slice(1) : `-${word}`;
  const find = (text, part) => partsOf(text).find((each) => each.text === part);
  const had = find(q, word);
  let left = q;
  for (const part of [word, opposite]) {
    for (let found = find(left, part); found; found = find(left, part)) left = without(left, found);
  }
  if (had) return left;
  return left.includes(' OR ') && !/^\(.*\)$/.test(left) ? `(${left}) ${word}` : `${left} ${word}`.trim();
}

export function Facets({ noun, q, version, onChange, onClose }) {
  return html`<aside class="facets" aria-label="Quick filters"><header class="row"><h2 class="grow">Filters</h2><button class="button plain" aria-label="Close the filters" onClick=${onClose}><${Icon} name="close" /></button></header>
    <${Views} noun=${noun} />
    ${FACETS.map(([name, label]) => html`<${Facet} key=${name} ...${{ name, label, q, version, onChange }} />`)}
    <p class="faint">Numbers are sessions, whatever the filter.</p></aside>`;
}

function Facet({ name, label, q, version, onChange }) {
  const [most, setMost] = useState(FEW);
  const asked = useAsk(query(`/v1/facets/${name}`, { limit: most + 1 }), { again: version });
  if (asked.problem) return html`<${Failed} problem=${asked.problem} retry=${asked.reload} />`;
  const items = asked.value?.items || [];
  if (!items.length) return null;
  const parts = new Set(partsOf(q).map(({ text }) => text));
  const rest = items.length > most;
  return html`<section><h3>${label}</h3><ul>${items.slice(0, most).map(({ value, sessions }) => {
    const word = `${name}:${quote(value)}`;
    const [isIn, isOut] = [parts.has(word), parts.has(`-${word}`)];
    return html`<li key=${value} class=${isIn ? 'in' : isOut ? 'out' : ''}><button class="value" aria-pressed=${String(isIn)} onClick=${() => onChange(turned(q, word))}><${Text} class="cut grow">${value}</${Text}><span class="faint tnum">${f.brief(sessions)}</span></button>
      <button class="not" aria-pressed=${String(isOut)} aria-label=${`Without ${f.visible(value)}`} title="Leave out" onClick=${() => onChange(turned(q, `-${word}`))}>−</button></li>`;
  })}</ul>${rest && most < MOST && html`<button class="linklike" onClick=${() => setMost(MOST)}>more</button>`}</section>`;
}

// A view is what the address says, but for what is open on it.
function Views({ noun }) {
  const { views } = useStore(prefs);
  const { params } = useStore(route);
  const [naming, setNaming] = useState(false);
  const mine = views?.[noun] || [];
  const { open, ...now } = params;
  const keep = (list) => prefer({ views: { ...prefs.get().views, [noun]: list } });
  const save = (event) => {
    event.preventDefault();
    const name = new FormData(event.currentTarget).get('name').trim();
    if (name) keep([...mine.filter((each) => each.name !== name), { name, params: now }]);
    setNaming(false);
  };
  const place = link([noun], now);
  const row = (name, its, remove) => html`<li key=${name}><a class="value" aria-current=${link([noun], its) === place ? 'true' : undefined} href=${link([noun], its)}><${Text} class="cut">${name}</${Text}></a>${remove && html`<button class="not" aria-label=${`Forget ${name}`} title="Forget" onClick=${remove}><${Icon} name="close" /></button>`}</li>`;
  return html`<section><h3>Views</h3><ul>${USUAL[noun].map(([name, its]) => row(name, its))}${mine.map((each) => row(each.name, each.params, () => keep(mine.filter((other) => other !== each))))}</ul>
    ${naming ? html`<form class="row" onSubmit=${save}><label class="sr" for="viewname">Name of this view</label><input id="viewname" class="field" name="name" maxlength="60" placeholder="Its name" autocomplete="off" autofocus ref=${(field) => field?.focus()} onKeyDown=${(event) => event.key === 'Escape' && setNaming(false)} /><button class="button">Keep</button></form>`
      : Object.keys(now).length > 0 && html`<button class="linklike" onClick=${() => setNaming(true)}>Keep this view</button>`}</section>`;
}
