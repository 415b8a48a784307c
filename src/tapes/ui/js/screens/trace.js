// One trace: as a tree, as a waterfall, as a log, over one selection; and the selected span beside it.
import { html, useEffect, useMemo, useRef, useState } from '../parts/view.js';
import { at as path, ask, query, useAnswered, useAsk, useChanges } from '../parts/api.js';
import { go, link, set, useRoute, useTitle } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Blank, Cost, Duration, Failed, Icon, Kind, Outcome, Segments, Shades, Stale, State, Text, Tokens, When } from '../parts/pieces.js';
import { Virtual } from '../parts/virtual.js';
import { Panes } from '../parts/panes.js';
import { Detail } from '../parts/detail.js';
import { Blocks } from '../parts/content.js';
import { PLAIN_KEY, PlainSwitch } from '../parts/prose.js';
import { Gone } from '../parts/gone.js';
import { gistOfSpan } from '../parts/gist.js';
import { clockOf, isFault, kept, lasting, marksOf, modelOf, modelling, rowsOf } from '../parts/model.js';
import { inPieces } from '../parts/slices.js';
import * as f from '../parts/format.js';

const HEIGHT = 26;
const BEGINNING = 200; // spans
const TOLD = 1000; // spans, of which each says in its row what it was about
const VIEWS = [['waterfall', 'Waterfall'], ['tree', 'Tree'], ['log', 'Log']];
const HEATS = [['', 'No heat'], ['duration', 'Duration'], ['cost', 'Cost']];

export function Screen() {
  const { path: [, id], params } = useRoute();
  // Until a long trace is all there, its beginning is, and says how much that is: it is asked for first.
  const itself = useAsk(id ? query('/v1/traces', { q: `id:"${id}"`, limit: 1 }) : '');
  const isLong = itself.value?.items[0]?.span_count > BEGINNING;
  const first = useAsk(isLong ? query('/v1/spans', { trace_id: id, limit: BEGINNING, sort: 'seq', direction: 'asc' }) : '');
  const isReady = isLong ? first.value || first.problem : itself.value || itself.problem;
  const asked = useAsk(isReady ? query(`/v1/${path('traces', id)}`, { payload: 'none' }) : '', { long: 'spans' });
  useChanges((change) => change.session_id === asked.value?.trace.session_id && asked.reload());
  const part = useMemo(() => (first.value?.items.length && itself.value?.items.length ? { trace: itself.value.items[0], spans: first.value.items, isPart: true } : null), [first.value, itself.value]);
  const shown = useModel(id, asked.value || (asked.problem ? null : part));
  if (shown) return html`<${Whole} key=${id} ...${shown} asked=${asked} params=${params} />`;
  if (!id || asked.problem?.status === 404) return html`<${Gone} noun="trace" id=${id} />`;
  if (asked.problem) return html`<div class="page"><${Failed} problem=${asked.problem} retry=${asked.reload} /></div>`;
  return html`<div class="whole"><div class="wholehead"><div class="shade" /></div><${Shades} rows=${14} /></div>`;
}

// What is found, as a model. That of a long trace is made in pieces; until it is there, the one
// before is shown.
const LONG = 2000;
function useModel(id, found) {
  const isShort = found?.spans.length <= LONG;
  const short = useMemo(() => (isShort ? { id, found, model: modelOf(found.spans) } : null), [id, found]);
  const [last, setLast] = useState(null);
  useEffect(() => {
    if (!found) return undefined;
    if (isShort) { setLast(short); return undefined; }
    const stop = new AbortController();
    inPieces(modelling(found.spans), stop.signal).then((model) => setLast({ id, found, model }), (error) => { if (!stop.signal.aborted) throw error; });
    return () => stop.abort();
  }, [id, found]);
  return short || (last?.id === id ? last : null);
}

const NONE_CLOSED = new Set();

// All traces of the session in their order: a page of them first, the rest where there are more.
function useSiblings(id) {
  const first = useAsk(query('/v1/traces', { session_id: id, limit: 200, direction: 'asc', sort: 'started_at' })).value;
  const all = useAsk(first?.next_cursor ? query('/v1/traces', { session_id: id }) : '').value;
  return (all || first)?.items || [];
}

// What the spans of a trace that is not very long were about, once it is there.
function useGists(trace, isPart) {
  const asked = useAsk(!isPart && trace.span_count <= TOLD ? query(`/v1/${path('traces', trace.trace_id)}`, { payload: 'preview' }) : '', { again: trace.span_count });
  return useMemo(() => new Map((asked.value?.spans || []).map((span) => [span.span_id, gistOfSpan(span)])), [asked.value]);
}

function Whole({ found, model, asked, params }) {
  const { trace, spans, links = [], isPart } = found;
  const { before, sum } = model;
  const gists = useGists(trace, isPart);
  const [folding, setFolding] = useState(true);
  const clock = useMemo(() => (folding ? model.clock : clockOf(model.all, { fold: false })), [model, folding]);
  const [closed, setClosed] = useState(NONE_CLOSED);
  const [zoom, setZoom] = useState([0, 1]);
  const view = VIEWS.some(([name]) => name === params.view) ? params.view : 'waterfall';
  const text = params.filter || '';
  const found_ = useMemo(() => (text ? kept(model, fits(text, gists)) : null), [model, text, gists]);
  const rows = useMemo(() => (closed.size || found_ ? rowsOf(model, closed, found_?.keep) : model.rows), [model, closed, found_]);
  const first = rows[0]?.span.span_id;
  const chosen = params.span && (model.byId.has(params.span) || isPart) ? params.span : first;
  const index = useMemo(() => rows.findIndex((row) => row.span.span_id === chosen), [rows, chosen]);
  const span = model.byId.get(chosen);
  const isLost = Boolean(params.span) && !isPart && !model.byId.has(params.span);
  const choose = (id) => set({ span: id });
  const move = (by) => rows.length && choose(rows[Math.max(0, Math.min(rows.length - 1, index + by))].span.span_id);
  const flip = (id, open) => setClosed((now) => { const next = new Set(now); if (open ?? next.has(id)) next.delete(id); else next.add(id); return next; });
  const siblings = useSiblings(trace.session_id);
  const place = siblings.findIndex((each) => each.trace_id === trace.trace_id);
  const beside = (by) => siblings[place + by] && go(['trace', siblings[place + by].trace_id], { view: params.view });
  const errors = useMemo(() => model.all.filter(isFault).length, [model]);
  const nextError = () => {
    const bad = [...rows.slice(index + 1), ...rows.slice(0, index + 1)].find((row) => isFault(row.span));
    if (bad) choose(bad.span.span_id);
  };
  const scale = (factor) => setZoom(([a, b]) => {
    const middle = span ? clock.at((span.begin + span.end) / 2) : (a + b) / 2;
    const half = Math.min(1, (b - a) * factor) / 2;
    const from = Math.max(0, Math.min(1 - 2 * half, middle - half));
    return [from, Math.min(1, from + 2 * half)];
  });
  useKeys([
    { key: 'j', also: ['ArrowDown'], label: 'next', run: () => move(1) },
    { key: 'k', also: ['ArrowUp'], label: 'previous', run: () => move(-1) },
    { key: 'ArrowLeft', shown: '←', label: 'close', run: () => (span?.children.length && !closed.has(chosen) ? flip(chosen, false) : span?.parent_span_id && model.byId.has(span.parent_span_id) && choose(span.parent_span_id)) },
    { key: 'ArrowRight', shown: '→', label: 'open', run: () => (closed.has(chosen) ? flip(chosen, true) : span?.children[0] && choose(span.children[0].span_id)) },
    { key: 'e', label: 'next error', run: () => nextError() },
    { key: 'v', label: 'view', run: () => set({ view: VIEWS[(VIEWS.findIndex(([name]) => name === view) + 1) % 3][0] }) },
    { key: '+', also: ['='], label: 'zoom', hidden: view !== 'waterfall', run: () => scale(0.5) },
    { key: '-', label: 'out', hidden: view !== 'waterfall', run: () => scale(2) },
    { key: '0', label: 'whole', hidden: true, run: () => setZoom([0, 1]) },
    { key: '[', label: 'trace before', hidden: place < 1, run: () => beside(-1) },
    { key: ']', label: 'trace after', hidden: place < 0 || place >= siblings.length - 1, run: () => beside(1) },
    PLAIN_KEY,
    { key: 'f', label: 'filter', run: () => document.querySelector('[data-filter]')?.focus() },
    { key: 'Escape', shown: 'Esc', label: 'to the session', run: () => (text ? set({ filter: '' }) : go(['session', trace.session_id], { turn: trace.trace_id })) },
  ]);
  const left = html`<div class="spans">
    <div class="tools">
      <${Segments} label="View" value=${view} options=${VIEWS} onChange=${(name) => set({ view: name })} />
      <input class="field grow" type="search" value=${text} data-filter placeholder="Filter spans: a name, a kind, error, model…" aria-label="Filter spans" onInput=${(e) => set({ filter: e.target.value })} />
      ${view !== 'log' && html`<label class="row"><span class="sr">Heat</span><select class="field" value=${params.heat || ''} onChange=${(e) => set({ heat: e.target.value })}>${HEATS.map(([name, label]) => html`<option key=${name} value=${name}>${label}</option>`)}</select></label>`}
      ${view === 'waterfall' && clock.gaps.length + (folding ? 0 : 1) > 0 && html`<button class="button plain" aria-pressed=${String(folding)} onClick=${() => setFolding(!folding)}>Fold idle time</button>`}
      ${zoom[1] - zoom[0] < 1 && html`<button class="button plain" onClick=${() => setZoom([0, 1])}>Whole time</button>`}
    </div>
    ${text && html`<p class="found" role="status">${f.plural(found_.found.size, 'span')} of ${f.count(model.byId.size)} fit${found_.found.size === 1 ? 's' : ''}</p>`}
    ${view === 'log' ? html`<${Log} trace=${trace} chosen=${chosen} onChoose=${choose} keep=${found_?.found} />`
      : html`<${Rows} ...${{ rows, index, chosen, choose, flip, closed, view, clock, zoom, setZoom, gists, heat: params.heat, found: found_?.found }} />`}</div>`;
  const name = trace.user_prompt || trace.name || trace.synthetic || model.roots[0]?.name || trace.trace_id;
  useTitle(name);
  return html`<div class="whole">
    <header class="wholehead">
      <nav class="crumbs" aria-label="Where this is"><a href="#/sessions">Sessions</a> / <a href=${link(['session', trace.session_id], { turn: trace.trace_id })}>Session</a> / <span>Trace ${place >= 0 ? `${place + 1} of ${siblings.length}` : ''}</span></nav>
      <div class="row"><h1 class="cut grow"><${Text}>${name}</${Text}></h1>
        <${PlainSwitch} /><button class="button plain" disabled=${place < 1} onClick=${() => beside(-1)} aria-label="The trace before" title="The trace before ([)"><${Icon} name="left" /></button><button class="button plain" disabled=${place < 0 || place >= siblings.length - 1} onClick=${() => beside(1)} aria-label="The trace after" title="The trace after (])"><${Icon} name="right" /></button></div>
      <div class="row wrap totals"><${State} state=${trace.status} live=${!trace.ended_at && trace.status !== 'error'} /><span><${When} at=${trace.started_at} /></span><span><${Duration} ns=${trace.duration_ns} /></span>
        <span>${isPart ? html`<span role="status" class="warn">${f.count(spans.length)} of ${f.plural(trace.span_count, 'span')}: the rest is coming</span>` : f.plural(model.received, 'span')}${!isPart && model.missing > 0 && html`, <span class="warn">${model.missing} missing</span>`}</span>
        <span>${f.plural(trace.tool_calls, 'tool call')}</span>${errors > 0 && html`<span><button class="linklike bad" onClick=${nextError}>${f.plural(errors, 'error')}</button></span>`}<span><${Tokens} input=${sum.input} cached=${sum.cached} output=${sum.output} /></span><span><${Cost} usd=${trace.usage.cost_usd} unpriced=${trace.unpriced_calls} saved=${trace.usage.saved_cost_usd} replayed=${model.replayed} whole /></span></div>
      ${asked.problem && html`<${Stale} problem=${asked.problem} retry=${asked.reload} />`}
      ${isLost && html`<div class="notice warn" role="status"><${Icon} name="warn" /><p>The link names the span <${Text} as="code">${params.span}</${Text}>, which is not in this trace. The first span is selected instead.</p></div>`}
    </header>
    <${Panes} name="trace" usual=${58} left=${left} rightLabel="The selected span" right=${!span && isPart ? html`<${Shades} rows=${6} />` : span ? html`<${Detail} span=${span} before=${before.get(span.span_id)} links=${links} byId=${model.byId} tab=${params.tab} onTab=${(tab) => set({ tab })} />` : html`<${Blank} title="No span is selected" />`} /></div>`;
}

const fits = (text, gists) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return (span) => {
    const said = `${span.name} ${span.kind} ${span.status} ${span.model || ''} ${span.error_type || ''} ${span.agent || ''} ${span.thread_id || ''} ${span.outcome || ''} ${span.span_id} ${gists.get(span.span_id) || ''}`.toLowerCase();
    return words.every((word) => said.includes(word));
  };
};

function heatOf(rows, heat) {
  if (!heat) return () => 0;
  const value = (span) => (span.kind === 'agent' ? 0 : heat === 'cost' ? f.spentOn(span) || 0 : span.duration_ns || 0);
  let most = 0;
  for (const { span } of rows) most = Math.max(most, value(span));
  return (span) => (most ? Math.sqrt(value(span) / most) : 0);
}

function Rows({ rows, index, chosen, choose, flip, closed, view, clock, zoom, setZoom, gists, heat, found }) {
  const warmth = useMemo(() => heatOf(rows, heat), [rows, heat]);
  const [from, to] = zoom;
  const left = (t) => (100 * (clock.at(t) - from)) / (to - from);
  const box = useRef(null);
  // Ctrl and the wheel zoom about the pointer; shift and the wheel move along.
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const turn = (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const bars = element.querySelector('.axis')?.getBoundingClientRect();
      if (!bars) return;
      const share = Math.max(0, Math.min(1, (event.clientX - bars.left) / bars.width));
      setZoom(([a, b]) => {
        if (!event.ctrlKey) {
          const by = Math.max(-a, Math.min(1 - b, ((b - a) * (event.deltaY || event.deltaX)) / 800));
          return [a + by, b + by];
        }
        const wide = Math.max(1e-6, Math.min(1, (b - a) * (event.deltaY > 0 ? 1.25 : 0.8)));
        const begin = Math.max(0, Math.min(1 - wide, a + share * (b - a) - share * wide));
        return [begin, begin + wide];
      });
    };
    element.addEventListener('wheel', turn, { passive: false });
    return () => element.removeEventListener('wheel', turn);
  }, []);
  const row = (i, top) => {
    const { span, depth } = rows[i];
    const isOpen = !closed.has(span.span_id);
    const a = left(span.begin);
    const b = left(span.end);
    const warm = warmth(span);
    const glow = warm ? { '--warm': `${Math.round(warm * 50)}%` } : undefined;
    const isDear = heat === 'cost';
    return html`<div key=${span.span_id} id=${`span-${i}`} role="treeitem" aria-level=${depth + 1} aria-selected=${String(span.span_id === chosen)} aria-expanded=${span.children.length ? String(isOpen) : undefined}
        class=${`sr-row ${view} ${span.span_id === chosen ? 'at' : ''} ${span.status === 'error' ? 'bad-row' : ''} ${found && !found.has(span.span_id) ? 'around' : ''}`} style=${{ top: `${top}px`, height: `${HEIGHT}px` }} onClick=${() => choose(span.span_id)}>
      <span class="name" style=${{ '--depth': depth }}>
        ${span.children.length ? html`<button class="twist" tabindex="-1" aria-label=${isOpen ? 'Close' : 'Open'} onClick=${(e) => { e.stopPropagation(); flip(span.span_id); }}><${Icon} name=${isOpen ? 'down' : 'right'} /></button>` : html`<span class="twist" />`}
        <span class=${`dot ${span.kind}`}><${Icon} name=${span.isMissing ? 'warn' : span.status === 'error' ? 'error' : ['llm', 'tool', 'agent'].includes(span.kind) ? span.kind : 'event'} /></span>
        <${Text} class="cut spanname">${span.name}</${Text}>${gists.get(span.span_id) && html`<${Text} class="cut faint gist">${gists.get(span.span_id)}</${Text}>`}${span.isMissing && html`<span class="warn">not received</span>`}${span.anchor === 'unanchored' && html`<span class="warn">unanchored</span>`}
        ${view === 'tree' && span.children.length > 0 && !isOpen && html`<span class="faint">+${span.children.length}</span>`}</span>
      ${view === 'tree' ? html`
        <span class="num dim">${span.kind === 'llm' ? f.brief(span.usage?.prompt_tokens) : ''}</span><span class=${`num ${isDear ? 'heat' : 'dim'}`} style=${isDear ? glow : undefined}>${span.kind === 'llm' ? f.money(f.spentOn(span)) : ''}</span>
        <span class="num heat" style=${isDear ? undefined : glow}>${lasting(span)}</span>`
      : html`<span class="lane">${clock.gaps.map((gap) => html`<i key=${gap.place} class="gap" style=${{ left: `${(100 * (gap.left - from)) / (to - from)}%`, width: `${(100 * gap.share) / (to - from)}%` }} />`)}
          ${b >= 0 && a <= 100 && html`<i class=${`bar2 ${span.kind} ${span.status === 'error' ? 'failed' : ''} ${span.isRunning ? 'running' : ''} ${span.hasNoEnd ? 'endless' : ''} ${heat ? 'heated' : ''}`} title=${`${f.duration(span.duration_ns)}${span.first_chunk_ns != null ? `, first token after ${f.duration(span.first_chunk_ns)}` : ''}`}
            style=${{ left: `min(${a}%, 100% - 3px)`, width: `max(3px, ${b - a}%)`, ...(warm ? { '--warm': `${Math.round(warm * 100)}%` } : {}) }}>
            ${span.first != null && b > a && html`<i class="waited" style=${{ width: `${(100 * (left(span.first) - a)) / (b - a)}%` }} />`}</i>`}
          <span class=${`length ${b > 78 && a < 14 ? 'over' : ''}`} style=${b <= 78 ? { left: `${Math.max(0, b)}%` } : a < 14 ? { right: '0' } : { right: `${100 - a}%` }}>${lasting(span)}</span></span>`}</div>`;
  };
  const head = html`<div class=${`sr-row sr-head ${view}`} data-head="yes"><span class="name">${f.count(rows.length)} rows</span>${view === 'tree'
    ? html`<span class="num">Input</span><span class="num">Cost</span><span class="num">Duration</span>` : html`<${Axis} clock=${clock} zoom=${zoom} />`}</div>`;
  if (!rows.length) return html`<${Blank} title="No span fits"><p>Nothing in this trace has these words.</p></${Blank}>`;
  return html`<div class="rowsbox" ref=${box}>
    <${Virtual} count=${rows.length} height=${HEIGHT} row=${row} at=${index} role="presentation" head=${head} outer=${{ role: 'tree', 'aria-label': 'Spans', 'aria-activedescendant': index >= 0 ? `span-${index}` : undefined }} /></div>`;
}

function Axis({ clock, zoom: [from, to] }) {
  const marks = useMemo(() => marksOf(clock, [from, to]), [clock, from, to]);
  return html`<span class="axis lane">${marks.map(({ at, t, step }) => html`<span key=${t} class="tick" style=${{ left: `${at * 100}%` }}>${f.mark(t, step)}</span>`)}
    ${clock.gaps.map((gap) => {
      const a = (100 * (gap.left - from)) / (to - from);
      return a >= 0 && a <= 96 && html`<span key=${gap.place} class="gaptext" style=${a > 80 ? { right: `max(0px, ${100 - a}% - 5rem)` } : { left: `${a}%` }} title=${`idle for ${f.duration(gap.idle * 1000)}, folded`}>⋯ ${f.duration(gap.idle * 1000)}</span>`;
    })}</span>`;
}

// The same spans as one readable transcript, in pages.
function Log({ trace, chosen, onChoose, keep }) {
  const [state, setState] = useState({ items: [], cursor: '' });
  const stop = useRef(null);
  // From the beginning, where it grew, as many as there were: nothing that is read goes.
  const load = async (cursor, least = 0) => {
    stop.current?.abort();
    stop.current = new AbortController();
    const { signal } = stop.current;
    let items = cursor ? state.items : [];
    try {
      do {
        const page = await ask(query('/v1/spans', { trace_id: trace.trace_id, payload: 'preview', sort: 'seq', direction: 'asc', limit: 200, cursor }), { signal });
        if (signal.aborted) return;
        items = [...items, ...page.items];
        cursor = page.next_cursor;
      } while (cursor && items.length < least);
      setState({ items, cursor });
    } catch (problem) {
      if (!signal.aborted) setState((now) => ({ ...now, problem }));
    }
  };
  useEffect(() => { load('', state.items.length); }, [trace.trace_id, trace.span_count]);
  useEffect(() => () => stop.current?.abort(), []);
  useAnswered(state.problem, () => load(state.cursor));
  const at = useRef(null);
  useEffect(() => { at.current?.scrollIntoView({ block: 'nearest' }); }, [chosen, state.items.length > 0]);
  const shown = keep ? state.items.filter((span) => keep.has(span.span_id)) : state.items;
  return html`<div class="log" tabindex="0" role="log" aria-live="off" aria-label="Transcript">
    ${state.problem && html`<${Failed} problem=${state.problem} retry=${() => load(state.cursor)} />`}
    ${shown.filter((span) => span.kind !== 'agent' || span.thread_id).map((span) => html`<article key=${span.span_id} ref=${span.span_id === chosen ? at : null} class=${`entry ${span.span_id === chosen ? 'at' : ''} ${span.thread_id ? 'sub' : ''}`} onClick=${() => onChoose(span.span_id)}>
      <header class="row"><${Kind} kind=${span.kind} /><${Text} as="b">${span.name}</${Text}>${span.thread_id && html`<${Text} class="faint">${span.thread_id}</${Text}>`}<span class="grow" />${['error', 'missing'].includes(span.status) && html`<${State} state=${span.status} />`}<${Outcome} outcome=${span.outcome} /><span class="faint"><${Duration} ns=${span.duration_ns} /> · <${When} at=${span.started_at} /></span></header>
      ${span.kind === 'llm' ? html`<${Blocks} blocks=${(span.input || []).filter((b) => b.type !== 'tool_result')} /><div class="answer"><${Blocks} blocks=${(span.output || []).filter((b) => b.type !== 'tool_use')} /></div>` : html`<${Blocks} blocks=${span.input} /><${Blocks} blocks=${span.output} />`}</article>`)}
    ${state.cursor && html`<p class="rest"><span class="dim">${f.count(state.items.length)} of ${f.count(trace.span_count)} spans</span><button class="button" onClick=${() => load(state.cursor)}>Show more</button></p>`}</div>`;
}
