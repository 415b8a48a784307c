// Text, found anywhere: in prompts, answers, thinking, arguments, results; with the words marked.
import { html, useEffect, useRef, useState } from '../parts/view.js';
import { ask, query, useAnswered, useAsk } from '../parts/api.js';
import { go, link, set, useRoute, useTitle } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Blank, Failed, Kind, Shades, State, Text, When, shown } from '../parts/pieces.js';
import { Filter } from '../parts/filter.js';
import * as f from '../parts/format.js';

// The places are counted in characters, not in the units that JavaScript counts.
function Marked({ text, places }) {
  const characters = [...text];
  const parts = [];
  let at = 0;
  for (const [from, to] of places) {
    if (from < at) continue;
    parts.push(characters.slice(at, from).join(''), html`<mark key=${from}>${shown(characters.slice(from, to).join(''))}</mark>`);
    at = to;
  }
  parts.push(characters.slice(at).join(''));
  return html`<p class="excerpt" dir="auto">${parts.map((part) => (typeof part === 'string' ? shown(part) : part))}</p>`;
}

export function Screen() {
  const { params } = useRoute();
  const q = params.q || '';
  useTitle(q);
  const first = useAsk(q.trim() ? query('/v1/search', { q, limit: 30 }) : '');
  const [more, setMore] = useState({ q, items: [], cursor: null });
  useEffect(() => setMore({ q, items: [], cursor: first.value?.next_cursor }), [first.value]);
  const hits = [...(first.value?.items || []), ...(more.q === q ? more.items : [])];
  const busy = useRef(false);
  const at = Math.min(Number(params.at ?? -1), hits.length - 1);
  const place = (hit) => [['trace', hit.span.trace_id], { span: hit.span.span_id }];
  // An answer that comes for another search, or twice, is not taken.
  const load = () => {
    if (busy.current) return;
    busy.current = true;
    const { cursor } = more;
    const add = (get) => setMore((now) => (now.q === q && now.cursor === cursor ? get(now) : now));
    ask(query('/v1/search', { q, limit: 30, cursor })).then(
      (page) => add((now) => ({ q, items: [...now.items, ...page.items], cursor: page.next_cursor })), (problem) => add((now) => ({ ...now, problem })),
    ).finally(() => { busy.current = false; });
  };
  useAnswered(more.problem, load);
  const move = (by) => {
    const next = Math.max(0, Math.min(hits.length - 1, at + by));
    set({ at: next });
    document.getElementById(`hit-${next}`)?.scrollIntoView({ block: 'nearest' });
  };
  useKeys([
    { key: 'j', also: ['ArrowDown'], label: 'next', hidden: !hits.length, run: () => move(1) },
    { key: 'k', also: ['ArrowUp'], label: 'previous', hidden: !hits.length, run: () => move(-1) },
    { key: 'Enter', label: 'open', hidden: !hits.length, run: () => hits[at] && go(...place(hits[at])) },
    { key: 'f', label: 'change', run: () => document.querySelector('[data-filter]')?.focus() },
    { key: 'Escape', shown: 'Esc', label: 'back', hidden: true, run: () => history.back() },
  ]);
  return html`<div class="page"><h1>Search</h1>
    <${Filter} noun="spans" value=${q} problem=${first.problem} onChange=${(text) => go(['search'], { q: text })} />
    ${first.value?.remarks?.length > 0 && html`<p class="notice warn">${first.value.remarks.join(' ')}</p>`}
    ${!q.trim() ? html`<${Blank} title="What are you looking for?"><p>Words in any order, “exactly so” in quotes, <code>begin*</code>, <code>one OR other</code>, <code>-not</code>, and every field of the filter.</p></${Blank}>`
      : first.problem ? html`<${Failed} problem=${first.problem} retry=${first.reload} query=${q} />`
      : !first.value ? html`<${Shades} rows=${8} />`
      : !hits.length ? html`<${Blank} title="Nothing has these words"><p>Looked for in prompts, answers, thinking, arguments and results of tools.${/^[\w:.-]{8,}$/.test(q.trim()) ? ' No session, trace, span or call has it as its id, or has an id that begins so.' : ''}</p></${Blank}>`
      : html`<p class="dim" role="status">${f.plural(hits.length, 'hit')}${more.cursor ? ' so far' : ''}; those in prompts first</p>
        <ol class="hits">${hits.map((hit, i) => html`<li key=${hit.span.trace_id + hit.span.span_id} id=${`hit-${i}`} class=${i === at ? 'at' : ''}>
          <header class="row wrap"><${Kind} kind=${hit.span.kind} /><a href=${link(...place(hit))}><${Text}>${hit.span.name}</${Text}></a>${hit.span.status === 'error' && html`<${State} state="error" />`}<span class="grow" /><span class="faint"><${When} at=${hit.span.started_at} /></span><a class="faint" href=${link(['session', hit.span.session_id], { turn: hit.span.trace_id, span: hit.span.span_id })}>session</a></header>
          ${hit.excerpts.map((excerpt, n) => html`<div key=${n}><span class="who">${excerpt.where}</span><${Marked} text=${excerpt.text} places=${excerpt.places} /></div>`)}</li>`)}</ol>
        ${more.problem && html`<${Failed} problem=${more.problem} retry=${load} />`}
        ${more.cursor && html`<div><button class="button" onClick=${load}>More hits</button></div>`}`}</div>`;
}
