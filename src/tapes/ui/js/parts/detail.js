// One span in all its forms: as it reads, as JSON, its bytes, its chunks with their times, headers,
// and what differs from the request before.
import { html, useEffect, useMemo, useState } from './view.js';
import { at as path, bytesOf, useAnswered, useAsk } from './api.js';
import { link } from './route.js';
import { Asked, Cost, CopyButton, Duration, Failed, Icon, Kind, Outcome, State, Text, Tokens, When, save } from './pieces.js';
import { Block, Blocks, Json, Long, isMedia } from './content.js';
import { Differences, differences } from './diffing.js';
import { cacheOf, standing, sumOf } from './model.js';
import * as f from './format.js';

const TABS = [['rendered', 'Rendered'], ['json', 'JSON'], ['raw', 'Bytes'], ['chunks', 'Chunks'], ['headers', 'Headers'], ['difference', 'Difference']];

// What came as a record of somebody else, and not over the wire, has no bytes, chunks and headers.
const RECORD = ['record', 'Record'];
const isRecord = (span) => /^(otlp(-log)?|transcript):/.test(span.request_id || '');

export function Detail({ span, before, links = [], byId, tab = 'rendered', onTab }) {
  if (span.isMissing) {
    return html`<div class="detail"><header><h2><${Text}>${span.name}</${Text}></h2></header><div class="notice warn"><${Icon} name="warn" />
      <div><p><strong>This span was not received.</strong></p><p>${f.plural(span.children.length, 'span')} name${span.children.length === 1 ? 's' : ''} it as the parent. When it comes, it takes this place, and nothing else moves.</p></div></div></div>`;
  }
  const hasTurn = span.raw_turn_id != null;
  const tabs = !hasTurn ? TABS.slice(0, 2) : isRecord(span) ? [...TABS.slice(0, 2), RECORD] : TABS;
  const shown = tabs.some(([name]) => name === tab) ? tab : 'rendered';
  return html`<div class="detail">
    <header class="stack"><div class="row"><${Kind} kind=${span.kind} /><h2 class="cut"><${Text}>${span.name}</${Text}></h2><span class="grow" />
      <${State} state=${standing(span)} live=${span.isRunning} /><${Outcome} outcome=${span.outcome} /></div>
      <div class="segments" role="tablist" aria-label="Forms of this span">${tabs.map(([name, label]) => html`<button key=${name} role="tab" aria-selected=${String(shown === name)} onClick=${() => onTab(name)}>${label}</button>`)}</div></header>
    <div class="detailbody" role="tabpanel" aria-label=${shown} key=${`${span.trace_id} ${span.span_id} ${shown}`} tabindex="0">
      ${shown === 'rendered' ? html`<${Rendered} ...${{ span, before, links, byId }} />`
        : shown === 'json' ? html`<${AsJson} span=${span} />`
        : shown === 'raw' ? html`<${Bytes} id=${span.raw_turn_id} />`
        : html`<${OfTurn} id=${span.raw_turn_id} which=${shown} before=${before} />`}</div></div>`;
}

function useSpan(span) {
  return useAsk(`/v1/${path('traces', span.trace_id, 'spans', span.span_id)}`, { again: `${span.status} ${span.duration_ns}` });
}

function Rendered({ span, before, links, byId }) {
  const asked = useSpan(span);
  return html`<${Facts} span=${span} before=${before} />
    ${span.kind === 'agent' && span.children?.length > 0 && html`<${Inside} span=${span} />`}
    ${span.raw_turn_id != null && span.kind === 'llm' && html`<${Earlier} id=${span.raw_turn_id} />`}
    <${Asked} asked=${asked} rows=${5}>${(full) => html`
      ${span.error_type && html`<div class="notice bad"><${Icon} name="error" /><div><p><strong><${Text}>${span.error_type}</${Text}></strong></p>${span.kind === 'llm' && span.raw_turn_id != null && html`<${Why} id=${span.raw_turn_id} />`}</div></div>`}
      <${Blocks} title=${{ tool: 'Call', llm: 'Added to the conversation' }[span.kind] || ''} blocks=${full.input} empty=${span.kind === 'llm' ? 'Nothing was added but results of tools' : ''} />
      <${Blocks} title=${{ tool: 'Result', llm: 'Answer' }[span.kind] || 'Output'} blocks=${full.output} empty=${span.kind === 'llm' ? (span.isRunning ? 'The answer is still coming' : 'No answer') : span.kind === 'tool' ? 'No result was seen' : ''} />`}</${Asked}>
    <${Links} ...${{ links, span, byId }} />`;
}

// What the provider said of a call that failed.
function Why({ id }) {
  const { status, reason, body } = useAsk(`/v1/turns/${id}`).value?.response || {};
  if (!status) return null;
  const told = body?.json?.error?.message ?? body?.json?.error ?? body?.json?.message;
  return html`<p>HTTP ${[status, reason].filter(Boolean).join(' ')}${typeof told === 'string' && html`: <${Text}>${told}</${Text}>`}</p>`;
}

function Facts({ span, before }) {
  const usage = span.usage;
  const cache = span.kind === 'llm' ? cacheOf(span, before) : null;
  return html`<dl class="facts">
    <dt>Began</dt><dd><${When} at=${span.started_at} /></dd>
    <dt>Took</dt><dd><${Duration} ns=${span.duration_ns} />${span.first_chunk_ns != null && html`<span class="dim">, the first token after <${Duration} ns=${span.first_chunk_ns} /></span>`}</dd>
    ${span.model && html`<dt>Model</dt><dd><${Text}>${span.model}</${Text}>${span.request_model && span.request_model !== span.model && html` <span class="dim">(asked for <${Text}>${span.request_model}</${Text}>)</span>`}${span.provider && html` <span class="faint">· <${Text}>${span.provider}</${Text}></span>`}</dd>`}
    ${usage && html`<dt>Tokens</dt><dd><${Breakdown} usage=${usage} /></dd>`}
    ${span.kind === 'llm' && html`<dt>Cost</dt><dd><${Cost} usd=${f.spentOn(span)} saved=${f.savedOn(span)} whole />${span.outcome === 'replayed' ? html` <span class="dim">replayed: nothing was spent</span>` : span.cost_usd == null && html` <span class="dim">${usage?.prompt_tokens == null ? 'the tokens are not known' : 'no price is known for this model'}</span>`}</dd>`}
    ${cache && html`<dt>Cache</dt><dd><${CacheBadge} cache=${cache} />${cache.why && html` <span class="dim">${cache.why}</span>`}</dd>`}
    ${span.stop_reason && html`<dt>Ended by</dt><dd><${Text}>${span.stop_reason}</${Text}></dd>`}
    ${span.anchor && html`<dt>Its place</dt><dd>${span.anchor === 'unanchored' ? html`<span class="warn">unanchored: nothing says which tool call began it</span>` : html`known by ${span.anchor}`}</dd>`}
    <dt>Id</dt><dd class="row"><${Text} as="code" class="cut">${span.span_id}</${Text}><${CopyButton} text=${span.span_id} label="Copy the id" /></dd></dl>`;
}

// What an agent did: its calls and tools in sum, what it was given first and what it said last.
function Inside({ span }) {
  const { sum, tools, bad, models } = useMemo(() => {
    const all = [];
    const left = [...span.children];
    while (left.length) { const each = left.pop(); all.push(each); left.push(...each.children); }
    return {
      sum: sumOf(all), tools: all.filter((each) => each.kind === 'tool').length, bad: all.filter((each) => each.status === 'error').length,
      models: [...new Set(all.filter((each) => each.kind === 'llm').map((each) => each.model).filter(Boolean))],
    };
  }, [span]);
  const calls = span.children.filter((each) => each.kind === 'llm');
  const [first, last] = [calls[0], calls[calls.length - 1]];
  return html`<dl class="facts"><dt>Inside</dt><dd>${f.plural(sum.calls, 'call')}, ${f.plural(tools, 'tool')}${bad > 0 && html`, <span class="bad">${f.plural(bad, 'error')}</span>`}</dd>
      ${models.length > 0 && html`<dt>Models</dt><dd><${Text}>${models.join(', ')}</${Text}></dd>`}
      ${sum.calls > 0 && html`<dt>Tokens</dt><dd><${Tokens} input=${sum.input} cached=${sum.cached} output=${sum.output} /></dd><dt>Cost</dt><dd><${Cost} usd=${sum.cost} unpriced=${sum.unpriced} /></dd>`}</dl>
    ${first && html`<${OfCall} call=${first} side="input" title="What it was given" />`}
    ${last && html`<${OfCall} call=${last} side="output" title=${last === first ? 'What it said' : 'What it said last'} />`}`;
}

function OfCall({ call, side, title }) {
  const asked = useSpan(call);
  return html`<${Asked} asked=${asked} rows=${2}>${(full) => html`<${Blocks} title=${title} blocks=${full[side]} />`}</${Asked}>`;
}

export const CacheBadge = ({ cache }) => html`<span class=${`badge ${cache.state === 'warm' ? 'good' : 'warn'}`} title=${cache.why}>cache ${cache.state}</span>`;

export function Breakdown({ usage }) {
  const { prompt_tokens: input, completion_tokens: output, cache_read_input_tokens: read, cache_creation_input_tokens: written } = usage;
  const reasoning = usage.completion_tokens_details?.reasoning_tokens ?? usage.reasoning_tokens;
  if (input == null && output == null) return html`<span class="dim">not known</span>`;
  const all = (input || 0) + (output || 0) || 1;
  const rest = (input || 0) - (read || 0) - (written || 0);
  const parts = [['cached', read, 'from the cache'], ['written', written, 'written to the cache'], ['input', rest, 'new'], ['output', output, 'answered']].filter(([, n]) => n > 0);
  return html`<div class="stack tight"><span class="tnum">${f.count(input)} in${read > 0 && html` <span class="dim">(${f.percent(read, input)} cached)</span>`}, ${f.count(output)} out${reasoning > 0 && html` <span class="dim">(${f.count(reasoning)} of reasoning)</span>`}</span>
    <div class="tokenbar" aria-hidden="true">${parts.map(([name, n]) => html`<i key=${name} class=${`t-${name}`} style=${{ width: `${(100 * n) / all}%` }} />`)}</div>
    <div class="tokenkey">${parts.map(([name, n, label]) => html`<span key=${name}><i class=${`t-${name}`} />${f.count(n)} ${label}</span>`)}</div></div>`;
}

// What the request repeated: folded, counted when it is looked at.
function Earlier({ id }) {
  const [open, setOpen] = useState(false);
  return html`<details class="fold" onToggle=${(e) => setOpen(e.currentTarget.open)}><summary>System prompt, tools and earlier messages</summary>${open && html`<${EarlierInside} id=${id} />`}</details>`;
}

function EarlierInside({ id }) {
  const asked = useAsk(`/v1/turns/${id}`);
  return html`<${Asked} asked=${asked} rows=${3}>${(turn) => {
    const body = turn.request?.body?.json ?? turn.plain_request;
    if (!body || typeof body !== 'object') return html`<p class="faint">The request has no JSON form${turn.request?.body?.undecoded ? `: ${turn.request.body.undecoded}` : ''}.</p>`;
    const messages = body.messages || (Array.isArray(body.input) ? body.input : null) || body.contents || [];
    const system = body.system ?? body.instructions ?? body.systemInstruction;
    return html`<div class="stack">${system !== undefined && html`<details class="fold"><summary>System prompt</summary><${Said} content=${system.parts ?? system} /></details>`}
      ${body.tools?.length > 0 && html`<details class="fold"><summary>${f.plural(body.tools.length, 'tool')}</summary><${Json} value=${body.tools} open=${1} /></details>`}
      <p class="dim">${f.plural(messages.length, 'message')} in this request</p>
      ${messages.map((message, i) => html`<details key=${i} class="fold message"><summary><b>${String(message.role || message.type || '')}</b> <${Text} class="faint">${gist(message)}</${Text}></summary><${Said} content=${message.content ?? message.parts ?? message} /></details>`)}</div>`;
  }}</${Asked}>`;
}

const gist = (message) => {
  const content = message.content ?? message.parts;
  const text = typeof content === 'string' ? content : Array.isArray(content) ? content.map((part) => part.text || part.type || part.name || '').join(' · ') : '';
  return text.slice(0, 90);
};

function Said({ content }) {
  if (typeof content === 'string') return html`<${Long} text=${content} />`;
  if (!Array.isArray(content)) return html`<${Json} value=${content} />`;
  return html`<div class="stack">${content.map((part, i) => {
    if (typeof part?.text === 'string') return html`<${Long} key=${i} text=${part.text} />`;
    if (isMedia(part) || part?.type === 'image_url') return html`<${Block} key=${i} block=${{ ...part, type: part.type === 'image_url' ? 'image' : part.type }} />`;
    if (part?.type === 'tool_use') return html`<${Block} key=${i} block=${{ type: 'tool_use', tool_name: part.name, tool_use_id: part.id, tool_input: part.input }} />`;
    if (part?.type === 'tool_result') return html`<${Block} key=${i} block=${{ type: 'tool_result', tool_result_id: part.tool_use_id, tool_output: typeof part.content === 'string' ? part.content : JSON.stringify(part.content), is_error: part.is_error }} />`;
    return html`<${Json} key=${i} value=${part} />`;
  })}</div>`;
}

// What leads here and from here, by name where it is known.
function Links({ links, span, byId }) {
  const mine = links.filter((each) => each.from_span_id === span.span_id || each.to_span_id === span.span_id);
  if (!mine.length) return null;
  return html`<section class="blocks"><h3>Flows</h3><ul class="turnlist">${mine.slice(0, 30).map((each) => {
    const out = each.from_span_id === span.span_id;
    const [trace, other] = out ? [each.to_trace_id, each.to_span_id] : [each.from_trace_id, each.from_span_id];
    return html`<li key=${`${each.kind}${trace}${other}${out}`}><a class="row" title=${other} href=${link(['trace', trace], { span: other })}>${byId?.has(other) && html`<${Kind} kind=${byId.get(other).kind} />`}<${Text} class="cut">${byId?.get(other)?.name || other}</${Text}></a><span class="faint">${out ? each.kind : `${each.kind} this`}</span></li>`;
  })}</ul></section>`;
}

function AsJson({ span }) {
  const asked = useSpan(span);
  return html`<${Asked} asked=${asked}>${(full) => html`<div class="row"><${CopyButton} text=${JSON.stringify(full, null, 2)} label="Copy the JSON" />
    <button class="button plain" onClick=${() => save(`${span.span_id}.json`, JSON.stringify(full, null, 2))}>Save</button>
    <code class="faint cut">GET /v1/${path('traces', span.trace_id, 'spans', span.span_id)}</code></div><${Json} value=${full} open=${3} />`}</${Asked}>`;
}

function OfTurn({ id, which, before }) {
  const asked = useAsk(`/v1/turns/${id}`);
  return html`<${Asked} asked=${asked}>${(turn) => (which === 'record' ? html`<p class="dim">As it was sent here: <code>GET /v1/turns/${id}</code></p><${Json} value=${turn.records ?? turn.reduced ?? null} open=${3} />` : which === 'headers' ? html`<${Headers} turn=${turn} />` : which === 'chunks' ? html`<${Chunks} turn=${turn} />` : html`<${Difference} turn=${turn} before=${before} />`)}</${Asked}>`;
}

export const headersOf = (pairs) => html`<table class="headers"><tbody>${pairs.map(([name, value], i) => html`<tr key=${i}><th scope="row"><${Text}>${name}</${Text}></th><td><${Text}>${value}</${Text}>${/redacted/i.test(value) && html` <span class="badge">taken out</span>`}</td></tr>`)}</tbody></table>`;

function Headers({ turn }) {
  const { request, response } = turn;
  if (!request) return html`<p class="dim">This call came without HTTP: it has no headers.</p>`;
  return html`<section class="blocks"><h3>Request</h3><p class="mono"><b>${request.method}</b> <${Text}>${request.url}</${Text}></p>${headersOf(request.headers)}</section>
    <section class="blocks"><h3>Response</h3>${response ? html`<p class="mono"><b>${response.status}</b> <${Text}>${response.reason || ''}</${Text}></p>${headersOf(response.headers)}` : html`<p class="dim">No response came.</p>`}</section>
    <dl class="facts"><dt>State</dt><dd>${turn.turn.state}</dd><dt>Known by</dt><dd>${turn.session_by}</dd>${turn.key && html`<dt>Key on a tape</dt><dd><code>${turn.key}</code></dd>`}<dt>Turn</dt><dd><code>GET /v1/turns/${turn.turn.id}</code></dd></dl>
    <p class="faint">What is secret was taken out before it was kept.</p>`;
}

// What is longer is scrolled in a box of its own.
const LONG_CHUNK = 4000;

export function Chunks({ turn, where }) {
  const chunks = turn.response?.chunks || [];
  if (!chunks.length) return html`<p class="dim">No chunks were kept.</p>`;
  const end = chunks[chunks.length - 1].at || 1;
  return html`<p class="dim">${f.plural(chunks.length, 'chunk')} in ${f.duration(end * 1e9)}, the first after ${f.duration(chunks[0].at * 1e9)}</p>
    <svg class="ticks" viewBox="0 0 1000 18" preserveAspectRatio="none" aria-hidden="true">${chunks.slice(0, 2000).map((chunk, i) => html`<rect key=${i} x=${(chunk.at / end) * 996} width="2" y="2" height="14" />`)}</svg>
    <ol class="chunks">${chunks.slice(0, 500).map((chunk, i) => html`<li key=${i}><span class="num">${(chunk.at * 1000).toFixed(1)} ms</span><span class="num faint">${i ? `+${((chunk.at - chunks[i - 1].at) * 1000).toFixed(1)}` : ''}</span><span class="num faint">${f.bytes(chunk.bytes)}</span><pre dir="ltr" tabindex=${chunk.bytes > LONG_CHUNK ? '0' : undefined}>${f.visible(chunk.text ?? `base64 ${chunk.base64}`)}</pre></li>`)}</ol>
    ${chunks.length > 500 && html`<p class="faint">500 of ${f.count(chunks.length)} chunks; all of them: <code>GET ${where || `/v1/turns/${turn.turn.id}`}</code></p>`}`;
}

function Difference({ turn, before }) {
  const other = useAsk(before?.raw_turn_id != null ? `/v1/turns/${before.raw_turn_id}` : '');
  if (!before) return html`<p class="dim">This is the first request of its thread: there is none to compare with.</p>`;
  return html`<${Asked} asked=${other}>${(previous) => {
    const was = previous.request?.body?.json ?? previous.plain_request;
    const is = turn.request?.body?.json ?? turn.plain_request;
    if (was === undefined || is === undefined) return html`<p class="dim">One of the two requests has no JSON form.</p>`;
    return html`<p class="dim">Against the request before in this thread${before.started_at && html`, at <${When} at=${before.started_at} />`}:</p><${Differences} list=${differences(was, is)} same="The two requests are the same." />`;
  }}</${Asked}>`;
}

const FIRST = 64 * 1024;
function Bytes({ id }) {
  const [which, setWhich] = useState('response');
  const [hex, setHex] = useState(false);
  const [state, set] = useState({});
  const [times, setTimes] = useState(0);
  useEffect(() => {
    set({});
    const stop = new AbortController();
    bytesOf(`/v1/turns/${id}/${which}/body`, { signal: stop.signal }).then((bytes) => stop.signal.aborted || set({ bytes }), (problem) => stop.signal.aborted || set({ problem }));
    return () => stop.abort();
  }, [id, which, times]);
  const { bytes, problem } = state;
  const again = () => setTimes((n) => n + 1);
  useAnswered(problem, again);
  return html`<div class="row wrap"><div class="segments" role="group" aria-label="Which body">${['request', 'response'].map((name) => html`<button key=${name} aria-pressed=${String(which === name)} onClick=${() => setWhich(name)}>${name}</button>`)}</div>
      <button class="button plain" aria-pressed=${String(hex)} onClick=${() => setHex(!hex)}>hex</button><span class="grow" />${bytes && html`<span class="faint">${f.count(bytes.length)} bytes</span>
      <button class="button plain" onClick=${() => save(`turn-${id}-${which}`, bytes, 'application/octet-stream')}>Save</button>`}</div>
    ${problem ? html`<${Failed} problem=${problem} retry=${again} />` : !bytes ? html`<p role="status" class="dim">Reading…</p>` : html`<${Dump} bytes=${bytes} hex=${hex} />`}`;
}

function Dump({ bytes, hex }) {
  const [most, setMost] = useState(FIRST);
  const text = useMemo(() => {
    const part = bytes.subarray(0, hex ? most / 8 : most);
    if (!hex) return f.visible(new TextDecoder('utf-8').decode(part));
    const lines = [];
    for (let i = 0; i < part.length; i += 16) {
      const row = [...part.subarray(i, i + 16)];
      lines.push(`${i.toString(16).padStart(6, '0')}  ${row.map((b) => b.toString(16).padStart(2, '0')).join(' ').padEnd(47)}  ${row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : '·')).join('')}`);
    }
    return lines.join('\n');
  }, [bytes, hex, most]);
  const shown = hex ? most / 8 : most;
  return html`<pre class="code dump" dir="ltr">${text || '(empty)'}</pre>${bytes.length > shown && html`<p class="rest"><span class="faint">${f.count(shown)} of ${f.count(bytes.length)} bytes</span><button class="linklike" onClick=${() => setMost(most * 8)}>more</button></p>`}`;
}
