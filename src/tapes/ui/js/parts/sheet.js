// The side sheet of a list: what a row is in short, without leaving the list.
import { html, useEffect, useRef } from './view.js';
import { at as path, query, useAsk } from './api.js';
import { link } from './route.js';
import { Asked, Cost, Duration, Icon, Kind, Outcome, State, Text, When } from './pieces.js';
import { Blocks } from './content.js';
import { PlainSwitch } from './prose.js';
import { how } from './columns.js';
import * as f from './format.js';

export function Sheet({ noun, id, row, onClose }) {
  const box = useRef(null);
  useEffect(() => { box.current?.scrollTo(0, 0); }, [id]);
  const Inside = { sessions: SessionSheet, traces: TraceSheet, spans: SpanSheet }[noun];
  return html`<aside class="sheet" ref=${box} aria-label="Details"><${Inside} id=${id} row=${row}
    close=${html`<button class="button plain" aria-label="Close the sheet" title="Close (Esc)" onClick=${onClose}><${Icon} name="close" /></button>`} /></aside>`;
}

const WRONG = ['failed', 'abandoned'];
const Fact = ({ name, children }) => html`<dt>${name}</dt><dd>${children}</dd>`;

function SessionSheet({ id, close }) {
  const asked = useAsk(`/v1/${path('sessions', id)}`);
  const traces = useAsk(query('/v1/traces', { session_id: id, limit: 40, direction: 'asc' }));
  return html`<${Asked} asked=${asked} rows=${8}>${({ session }) => {
    const { rollup } = session;
    return html`<header><h2><${Text}>${session.display_title}</${Text}></h2>${close}</header>
      <div class="row wrap"><${State} state=${rollup.status} live=${session.live} />${!session.live && WRONG.includes(rollup.status) && html`<span class="dim">${how(session)}</span>`}${session.tags.map((tag) => html`<span key=${tag} class="badge">${tag}</span>`)}
        <span class="grow" /><a class="button first" href=${link(['session', id])}>Open the session</a></div>
      <dl class="facts">
        <${Fact} name="Started"><${When} at=${session.started_at} /> <span class="faint">(<${When} at=${session.started_at} relative=${true} />)</span></${Fact}>
        <${Fact} name="Agent time"><${Duration} ns=${rollup.duration_ns} /></${Fact}>
        <${Fact} name="Agent"><${Text}>${[session.agent_name, session.harness_id, session.harness_version].filter(Boolean).join(' · ')}</${Text}></${Fact}>
        <${Fact} name="Tokens">${f.count(rollup.usage.input_tokens)} in, ${f.percent(rollup.usage.cache_read_tokens, rollup.usage.input_tokens)} cached, ${f.count(rollup.usage.output_tokens)} out</${Fact}>
        <${Fact} name="Cost"><${Cost} usd=${rollup.usage.cost_usd} unpriced=${rollup.unpriced_calls} saved=${rollup.usage.saved_cost_usd} replayed=${rollup.replayed_calls} whole />${rollup.unpriced_calls > 0 && html` <span class="faint">${f.plural(rollup.unpriced_calls, 'unpriced call')}</span>`}</${Fact}>
        <${Fact} name="Calls">${f.count(rollup.llm_calls)}, ${f.count(rollup.replayed_calls)} replayed, ${f.count(rollup.failed_calls)} failed</${Fact}>
        <${Fact} name="Tools">${f.count(rollup.tool_result_count)} results, ${rollup.tool_error_count ? html`<span class="bad">${rollup.tool_error_count} failed</span>` : '0 failed'}</${Fact}>
        ${session.cwd && html`<${Fact} name="Folder"><${Text} as="code">${session.cwd}</${Text}></${Fact}>`}
        <${Fact} name="Known by">${session.session_by || 'unknown'}</${Fact}>
        <${Fact} name="Id"><code>${session.id}</code></${Fact}>
      </dl>
      <h3>Turns</h3>
      <${Asked} asked=${traces}>${({ items, next_cursor: more }) => html`<ol class="turnlist">${items.map((trace) => html`<li key=${trace.trace_id}><a href=${link(['session', id], { turn: trace.trace_id })}>
        <${Text} class="cut">${trace.user_prompt || trace.name || trace.synthetic || 'no prompt'}</${Text}></a>
        <span class="row faint">${trace.status === 'error' && html`<${State} state="error" />`}<${Duration} ns=${trace.duration_ns} /> · ${f.plural(trace.tool_calls, 'tool')} · <${Cost} usd=${trace.usage.cost_usd} unpriced=${trace.unpriced_calls} saved=${trace.usage.saved_cost_usd} /></span></li>`)}</ol>
        ${more && html`<p class="faint">The first 40; <a href=${link(['session', id])}>all of them</a></p>`}`}</${Asked}>`;
  }}</${Asked}>`;
}

function TraceSheet({ id, row, close }) {
  const asked = useAsk(query(`/v1/${path('traces', id)}`, { payload: 'none' }));
  return html`<${Asked} asked=${asked}>${({ trace, spans }) => html`
    <header><h2><${Text}>${trace.user_prompt || trace.name || trace.trace_id}</${Text}></h2>${close}</header>
    <div class="row wrap"><${State} state=${trace.status} /><${Duration} ns=${trace.duration_ns} /><span class="grow" />
      <a class="button" href=${link(['session', trace.session_id], { turn: trace.trace_id })}>Its session</a><a class="button first" href=${link(['trace', id])}>Open the trace</a></div>
    ${trace.response_preview && html`<div class="said"><${Text} as="p">${trace.response_preview}</${Text}></div>`}
    <h3>${f.plural(trace.span_count, 'span')}</h3>
    <ol class="turnlist">${spans.slice(0, 60).map((span) => html`<li key=${span.span_id}><a class="row" href=${link(['trace', id], { span: span.span_id })}><${Kind} kind=${span.kind} /><${Text} class="cut">${span.name}</${Text}></a>
      <span class="row faint">${span.status === 'error' && html`<${State} state="error" />`}<${Duration} ns=${span.duration_ns} /></span></li>`)}</ol>
    ${spans.length > 60 && html`<p class="faint">60 of ${f.count(spans.length)}; <a href=${link(['trace', id])}>all of them</a></p>`}`}</${Asked}>`;
}

function SpanSheet({ id, close }) {
  const [trace, span] = id.split('\n');
  const asked = useAsk(`/v1/${path('traces', trace, 'spans', span || '')}`);
  return html`<${Asked} asked=${asked}>${(found) => html`
    <header><h2><${Text}>${found.name}</${Text}></h2>${close}</header>
    <div class="row wrap"><${Kind} kind=${found.kind} /><${State} state=${found.status} /><${Outcome} outcome=${found.outcome} /><${Duration} ns=${found.duration_ns} /><span class="grow" />
      <a class="button first" href=${link(['trace', trace], { span })}>Open in its trace</a></div>
    <dl class="facts"><${Fact} name="Started"><${When} at=${found.started_at} /></${Fact}>
      ${found.error_type && html`<${Fact} name="Error"><${Text} class="bad">${found.error_type}</${Text}></${Fact}>`}
      ${found.model && html`<${Fact} name="Model"><${Text}>${found.model}</${Text}></${Fact}>`}
      ${found.usage && html`<${Fact} name="Tokens">${f.count(found.usage.prompt_tokens)} in, ${f.percent(found.usage.cache_read_input_tokens, found.usage.prompt_tokens)} cached, ${f.count(found.usage.completion_tokens)} out</${Fact}><${Fact} name="Cost"><${Cost} usd=${f.spentOn(found)} saved=${f.savedOn(found)} whole /></${Fact}>`}</dl>
    ${found.input?.length || found.output?.length ? html`<div><${PlainSwitch} /></div><${Blocks} title="Input" blocks=${found.input} /><${Blocks} title="Output" blocks=${found.output} />` : html`<p class="dim">${found.kind === 'agent' ? 'What it said is in its calls and tools: see its trace.' : 'It holds no text.'}</p>`}`}</${Asked}>`;
}
