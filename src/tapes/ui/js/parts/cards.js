// A turn as a card: what the user said, what was answered, each tool call with its result, each
// sub-agent where it was called. What earlier requests said already is not said again.
import { html, useRef, useState } from './view.js';
import { at as path, useAsk } from './api.js';
import { link } from './route.js';
import { Cost, Duration, Icon, Outcome, State, Text, Tokens, When } from './pieces.js';
import { Arguments, Block, Blocks, Long, Result, isMedia } from './content.js';
import { CacheBadge } from './detail.js';
import { callsOf } from './fork.js';
import { askedOf } from './gist.js';
import { cacheOf, cutBy, isFault, lasting } from './model.js';
import * as f from './format.js';

export function Card({ trace, spans, model, before, chosen, onChoose, onFork, number, of, isCurrent }) {
  const isMain = (span) => span?.kind === 'agent' && !span.thread_id;
  const main = spans.filter((span) => isMain(span) && !isMain(model.byId.get(span.parent_span_id))); // those within are shown within
  const roots = model.roots.filter((span) => span.trace_id === trace.trace_id);
  const top = main.length ? [...roots.filter((root) => !main.some((each) => each.span_id === root.span_id)), ...main.flatMap((each) => model.byId.get(each.span_id).children)] : roots;
  const bad = spans.filter(isFault).length;
  return html`<article class=${`card ${isCurrent ? 'current' : ''}`} id=${`turn-${number}`} data-trace=${trace.trace_id} aria-label=${`Turn ${number}`} aria-posinset=${number} aria-setsize=${of}>
    <header><span class="turnno tnum">${number}</span><${When} at=${trace.started_at} />
      <span class="grow" /><span class="row wrap facts2">${bad > 0 && html`<span class="badge bad"><${Icon} name="error" />${f.plural(bad, 'error')}</span>`}${trace.missing_count > 0 && html`<span class="badge warn">${trace.missing_count} missing</span>`}
      <span><${Duration} ns=${trace.duration_ns} /></span><span><${Tokens} input=${trace.usage.input_tokens} cached=${trace.usage.cache_read_tokens} output=${trace.usage.output_tokens} /></span><span><${Cost} usd=${trace.usage.cost_usd} unpriced=${trace.unpriced_calls} saved=${trace.usage.saved_cost_usd} replayed=${spans.filter((span) => span.outcome === 'replayed').length} /></span>
      <a href=${link(['trace', trace.trace_id], { span: spans.some((span) => span.span_id === chosen) ? chosen : '' })}>${f.plural(trace.span_count, 'span')}</a>
      ${callsOf(spans).length > 0 && html`<button class="linklike forkline" aria-label="Fork from here" title="Fork from here (f)" onClick=${onFork}><${Icon} name="fork" />Fork</button>`}</span></header>
    ${(trace.user_prompt || trace.synthetic) && html`<div class="user"><span class="who">${trace.synthetic ? trace.synthetic : 'User'}</span><${Long} text=${trace.user_prompt || '(begins without a prompt of a user)'} limit=${3000} /><${Shown} first=${top.find((span) => span.kind === 'llm')} /></div>`}
    <${Steps} spans=${top} ...${{ before, chosen, onChoose }} /></article>`;
}

// What the user showed beside what was said: pictures, sounds, files.
function Shown({ first }) {
  const media = (first?.input || []).filter(isMedia);
  const [open, setOpen] = useState(false);
  const asked = useAsk(open ? `/v1/${path('traces', first.trace_id, 'spans', first.span_id)}` : '');
  if (!media.length) return null;
  const whole = (asked.value?.input || []).filter(isMedia);
  const noun = media.every((block) => block.type === 'image') ? 'picture' : 'file';
  if (whole.length) return html`<div class="shownmedia">${whole.map((block, i) => html`<${Block} key=${i} block=${block} />`)}</div>`;
  return html`<p><button class="linklike mediabutton" disabled=${asked.loading} onClick=${() => setOpen(true)}><${Icon} name="picture" />Show ${f.plural(media.length, noun)}</button>${asked.problem && html` <span class="bad">${asked.problem.message}</span>`}</p>`;
}

// Texts come cut at first; the whole is asked for where somebody reads on.
const isCut = (value) => (typeof value === 'string' ? value.endsWith('…') && value.length >= 513 && value.length <= 1025 && [...value].length === 513
  : value !== null && typeof value === 'object' && Object.values(value).some(isCut));

function useWhole(span, wanted) {
  const cut = span.payload === 'preview' && (isCut(span.output) || isCut(span.input));
  const asked = useAsk(cut && wanted ? `/v1/${path('traces', span.trace_id, 'spans', span.span_id)}` : '', { again: `${span.status} ${span.duration_ns}` });
  return { span: asked.value || span, cut: cut && !asked.value, loading: asked.loading };
}

const STEPS = 150;

function Steps({ spans, ...rest }) {
  const [most, setMost] = useState(STEPS);
  return html`<div class="steps">${spans.slice(0, most).map((span) => {
    if (span.kind === 'llm') return html`<${Call} key=${span.span_id} span=${span} ...${rest} />`;
    if (span.kind === 'tool') return html`<${Tool} key=${span.span_id} span=${span} ...${rest} />`;
    if (span.kind === 'agent') return html`<${Agent} key=${span.span_id} span=${span} ...${rest} />`;
    if (span.isMissing) return html`<div key=${span.span_id} class="notreceived"><${Icon} name="warn" /><span><${Text} as="code">${span.name}</${Text}> was not received</span><${Steps} spans=${span.children} ...${rest} /></div>`;
    const line = html`<button key=${span.span_id} class="eventline" onClick=${() => rest.onChoose(span)}><${Icon} name="event" /><${Text}>${span.name}</${Text}></button>`;
    return span.children.length ? html`<div key=${span.span_id} class="step">${line}<${Steps} spans=${span.children} ...${rest} /></div>` : line;
  })}${spans.length > most && html`<p class="rest"><span class="dim">${f.count(most)} of ${f.count(spans.length)} steps</span><button class="button" onClick=${() => setMost(most + 500)}>Show more</button></p>`}</div>`;
}

function Call({ span, before, chosen, onChoose }) {
  const cache = cacheOf(span, before.get(span.span_id));
  const [wanted, setWanted] = useState(false);
  const whole = useWhole(span, wanted);
  const said = (whole.span.output || []).filter((block) => block.type !== 'tool_use');
  const isSide = span.call_kind && span.call_kind !== 'main';
  return html`<div data-span=${span.span_id} class=${`call ${span.span_id === chosen ? 'at' : ''} ${span.status === 'error' ? 'failed' : ''}`}>
    ${isSide && html`<p class="faint">${span.call_kind}</p>`}
    ${said.map((block, i) => html`<${Block} key=${i} block=${block} />`)}
    ${whole.cut && isCut(said) && html`<div><button class="linklike" disabled=${whole.loading} onClick=${() => setWanted(true)}>Read all of it</button></div>`}
    ${span.status === 'error' && html`<p class="bad row"><${Icon} name="error" /><${Text}>${span.error_type || 'failed'}</${Text}></p>`}
    ${span.status === 'aborted' && html`<p class="row"><${State} state="aborted" /><span class="dim">the answer was cut off here</span></p>`}
    ${span.status === 'ok' && cutBy(span) && html`<p class="row warn"><${Icon} name="warn" /><${Text}>${`the answer was ${cutBy(span)}`}</${Text}></p>`}
    ${span.children.length > 0 && html`<${Steps} spans=${span.children} ...${{ before, chosen, onChoose }} />`}
    <button class="callline" aria-pressed=${String(span.span_id === chosen)} onClick=${() => onChoose(span)}><${Icon} name="llm" /><${Text} class="cut">${span.model || span.name}</${Text}>
      <span class="faint tnum">${f.brief(span.usage?.prompt_tokens)} in</span>${span.usage?.cache_read_input_tokens > 0 && html`<span class="share" title=${`${f.percent(span.usage.cache_read_input_tokens, span.usage.prompt_tokens)} from the cache`}><i style=${{ width: `${(100 * span.usage.cache_read_input_tokens) / span.usage.prompt_tokens}%` }} /></span>`}<span class="faint tnum">${f.brief(span.usage?.completion_tokens)} out</span>
      ${cache && html`<${CacheBadge} cache=${cache} />`}${cache?.state === 'cold' && html`<span class="faint cut why" title=${cache.why}>${cache.why}</span>`}
      <span class="tail"><${Outcome} outcome=${span.outcome} />${span.cost_usd != null && html`<span class="tnum"><${Cost} usd=${f.spentOn(span)} saved=${f.savedOn(span)} /></span>`}<span class="faint tnum">${lasting(span)}</span></span></button></div>`;
}

function Tool({ span, chosen, onChoose, before }) {
  const failed = span.status === 'error';
  const [open, setOpen] = useState(failed);
  const whole = useWhole(span, open).span;
  const result = whole.output?.[0];
  const agents = span.children.filter((each) => each.kind === 'agent');
  return html`<div data-span=${span.span_id} class=${`toolcall ${failed ? 'failed' : ''} ${span.span_id === chosen ? 'at' : ''}`}>
    <div class="toolline"><button class="toolopen" aria-expanded=${String(open)} onClick=${() => { setOpen(!open); onChoose(span); }}><${Icon} name=${open ? 'down' : 'right'} /><${Icon} name="tool" /><${Text} as="b" class="cut">${span.name}</${Text}><${Text} as="code" class="cut dim">${askedOf(span)}</${Text}></button>
      ${failed ? html`<${State} state="error" />` : !span.output?.length ? html`<${State} state=${span.isRunning ? 'running' : 'no result'} />` : ''}<span class="faint tnum">${span.isRunning ? '' : lasting(span)}</span></div>
    ${open && html`<div class="pair"><div><span class="who">Call</span>${whole.input?.[0] ? html`<${Arguments} value=${whole.input[0].tool_input} />` : html`<p class="faint">not seen</p>`}</div>
      <div><span class=${`who ${failed ? 'bad' : ''}`}>${failed ? 'Error' : 'Result'}</span>${result ? html`<${Result} value=${result.tool_output} content=${result.content} />` : html`<p class="faint">no result was seen</p>`}</div></div>`}
    ${agents.map((agent) => html`<${Agent} key=${agent.span_id} span=${agent} ...${{ chosen, onChoose, before }} />`)}
    ${span.children.some((each) => each.kind !== 'agent') && html`<${Steps} spans=${span.children.filter((each) => each.kind !== 'agent')} ...${{ chosen, onChoose, before }} />`}</div>`;
}

// It opens for what is selected in it, and stays so until somebody closes it.
function Agent({ span, ...rest }) {
  const [isOpened, setOpen] = useState(null);
  const held = useRef(false);
  const inside = [];
  const walk = (each) => { inside.push(each); each.children.forEach(walk); };
  span.children.forEach(walk);
  const calls = inside.filter((each) => each.kind === 'llm').length;
  const tools = inside.filter((each) => each.kind === 'tool').length;
  const bad = inside.filter(isFault).length;
  if (rest.chosen && inside.some((each) => each.span_id === rest.chosen)) held.current = true;
  const open = isOpened ?? held.current;
  return html`<div data-span=${span.span_id} class="subagent"><button class="toolopen" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}><${Icon} name=${open ? 'down' : 'right'} /><${Icon} name="agent" /><${Text} as="b" class="cut">${span.agent && span.thread_id && !span.name.includes(span.agent) ? `${span.name} ${span.agent}` : span.name}</${Text}>
      <${Text} class="faint cut">${span.thread_id || ''}</${Text}>${span.anchor === 'unanchored' && html`<span class="badge warn">unanchored</span>`}<span class="grow" /><span class="faint tnum">${f.plural(calls, 'call')}, ${f.plural(tools, 'tool')}</span>${bad > 0 && html`<span class="badge bad">${f.plural(bad, 'error')}</span>`}<span class="faint tnum">${f.duration(span.duration_ns)}</span></button>
    ${open && html`<${Blocks} blocks=${span.children[0]?.input?.filter((block) => block.type === 'text')} title="Its task" /><${Steps} spans=${span.children} ...${rest} />`}</div>`;
}
