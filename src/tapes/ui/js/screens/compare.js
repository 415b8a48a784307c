// Two sessions side by side: totals, spans aligned, where they part first, what differs there.
import { html, useMemo } from '../parts/view.js';
import { at as path, query, useAsk } from '../parts/api.js';
import { link, set, useRoute, useTitle } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Cost, CopyLine, Duration, Failed, Icon, Kind, Outcome, Shades, State, Text, Tokens, When, copy, save } from '../parts/pieces.js';
import { Panes } from '../parts/panes.js';
import { Virtual } from '../parts/virtual.js';
import { Differences, differences } from '../parts/diffing.js';
import { gistOf, gistOfArguments } from '../parts/gist.js';
import { align } from '../parts/aligning.js';
import { sumOf } from '../parts/model.js';
import { Gone } from '../parts/gone.js';
import * as f from '../parts/format.js';

const HEIGHT = 40;
const spansOf = (found) => found.traces.flatMap((each) => each.spans).filter((span) => span.kind !== 'agent');

export function Screen() {
  const { path: [, one, other], params } = useRoute();
  const a = useAsk(one ? query(`/v1/${path('sessions', one, 'traces')}`, {}) : '');
  const b = useAsk(other ? query(`/v1/${path('sessions', other, 'traces')}`, {}) : '');
  const problem = a.problem || b.problem;
  if (problem?.status === 404) return html`<${Gone} noun="session" id=${a.problem ? one : other} />`;
  if (problem) return html`<div class="page"><${Failed} problem=${problem} retry=${() => { a.reload(); b.reload(); }} /></div>`;
  if (!a.value || !b.value) return html`<div class="page"><${Shades} rows=${10} /></div>`;
  return html`<${Both} left=${a.value} right=${b.value} params=${params} />`;
}

function Both({ left, right, params }) {
  const { rows, left_out: leftOut } = useMemo(() => align(spansOf(left), spansOf(right)), [left, right]);
  const first = rows.findIndex((row) => row[2] !== 'same');
  useTitle(`${left.session.display_title} / ${right.session.display_title}`);
  const chosen = Number.parseInt(params.at, 10);
  const at = Math.max(0, Math.min(chosen >= 0 ? chosen : first, rows.length - 1));
  const counts = { same: 0, differs: 0, only: 0 };
  for (const row of rows) counts[row[2]] += 1;
  const choose = (i) => set({ at: Math.max(0, Math.min(rows.length - 1, i)) });
  const next = (by) => {
    for (let i = at + by; i >= 0 && i < rows.length; i += by) if (rows[i][2] !== 'same') { choose(i); return; }
  };
  useKeys([
    { key: 'j', also: ['ArrowDown'], label: 'next', run: () => choose(at + 1) },
    { key: 'k', also: ['ArrowUp'], label: 'previous', run: () => choose(at - 1) },
    { key: 'e', label: 'next difference', run: () => next(1) },
    { key: 'E', label: 'difference before', run: () => next(-1) },
    { key: 'Escape', shown: 'Esc', label: 'back', run: () => history.back() },
  ]);
  const [x, y, kind] = rows[at] || [null, null, 'same'];
  const summary = { sessions: [left.session.id, right.session.id], same: counts.same, differing: counts.differs, only_one_side: counts.only, first_divergence: first < 0 ? null : first + 1 };
  const cell = (span, side) => (span ? html`<span class="cmpcell"><${Kind} kind=${span.kind} /><${Text} class="cut">${gist(span)}</${Text}><span class="grow" />${span.status === 'error' && html`<${Icon} name="error" />`}<span class="faint tnum">${f.duration(span.duration_ns)}</span></span>` : html`<span class="cmpcell nothing">only ${side === 'left' ? 'on the right' : 'on the left'}</span>`);
  const row = (i, top) => {
    const [p, q, how] = rows[i];
    return html`<div key=${i} role="row" aria-selected=${String(i === at)} class=${`cmp ${how} ${i === at ? 'at' : ''} ${i === first ? 'first' : ''}`} style=${{ top: `${top}px`, height: `${HEIGHT}px` }} onClick=${() => choose(i)}>
      <span role="cell">${cell(p, 'left')}</span><span role="cell" class="how" title=${how}>${how === 'same' ? '=' : how === 'differs' ? '≠' : p ? '←' : '→'}<span class="sr">${how}</span></span><span role="cell">${cell(q, 'right')}</span></div>`;
  };
  const table = html`<div class="spans"><div class="tools"><span role="status">${f.plural(counts.same, 'span')} the same, ${f.count(counts.differs)} differ, ${f.count(counts.only)} on one side only${leftOut ? `; ${f.count(leftOut)} more were not compared` : ''}</span><span class="grow" />
      <button class="button" disabled=${first < 0} onClick=${() => choose(first)}>First divergence</button><button class="button plain" onClick=${() => save('comparison.json', JSON.stringify(summary, null, 2))}>JSON</button></div>
    <div class="rowsbox"><${Virtual} outer=${{ role: 'table', 'aria-label': 'Spans of both sessions' }} count=${rows.length} height=${HEIGHT} row=${row} at=${at} /></div></div>`;
  const detail = html`<div class="detailbody" tabindex="0">${first < 0 ? html`<div class="notice"><${Icon} name=${leftOut ? 'warn' : 'done'} /><p>${leftOut ? 'As far as they were compared, the two sessions do the same.' : 'The two sessions do the same, span by span.'}</p></div>` : ''}
    ${kind === 'only' ? html`<h2>${x ? 'Only on the left' : 'Only on the right'}</h2><${Differences} list=${differences(x ? said(x) : {}, y ? said(y) : {})} />`
      : x && html`<h2><${Text}>${x.name}</${Text}>${y.name !== x.name && html` and <${Text}>${y.name}</${Text}>`}</h2>
      <dl class="facts"><dt>Took</dt><dd><${Duration} ns=${x.duration_ns} /> and <${Duration} ns=${y.duration_ns} /></dd>${x.kind === 'llm' && html`<dt>Tokens</dt><dd><${Tokens} input=${x.usage?.prompt_tokens} cached=${x.usage?.cache_read_input_tokens} output=${x.usage?.completion_tokens} /> and <${Tokens} input=${y.usage?.prompt_tokens} cached=${y.usage?.cache_read_input_tokens} output=${y.usage?.completion_tokens} /></dd>
        <dt>Cost</dt><dd><${Cost} usd=${f.spentOn(x)} /> and <${Cost} usd=${f.spentOn(y)} /></dd>`}<dt>Answered</dt><dd><${Outcome} outcome=${x.outcome} /> <${Outcome} outcome=${y.outcome} /></dd>
        <dt>Open</dt><dd><a href=${link(['trace', x.trace_id], { span: x.span_id })}>left</a>, <a href=${link(['trace', y.trace_id], { span: y.span_id })}>right</a></dd></dl>
      <${Differences} list=${differences(said(x), said(y))} same="What went in and came out is the same." />`}
    <h3>In a terminal, and in CI</h3><${CopyLine} text=${`tapes diff ${left.session.id} ${right.session.id}`} /></div>`;
  return html`<div class="whole"><header class="wholehead"><nav class="crumbs" aria-label="Where this is"><a href="#/sessions">Sessions</a> / <span>Compare</span></nav>
      <div class="row"><h1 class="grow sr">Compare two sessions</h1><div class="two">${[left, right].map((found, i) => html`<${Side} key=${i} found=${found} />`)}</div><button class="button" onClick=${() => copy(location.href, 'Link copied')}><${Icon} name="copy" />Link</button></div>
      <${More} left=${left} right=${right} /></header>
    <${Panes} name="compare" usual=${60} left=${table} right=${detail} rightLabel="What differs" /></div>`;
}

const FREE = new Set(['tool_use_id', 'tool_result_id', 'thinking_signature', 'id']);
const said = (span) => JSON.parse(JSON.stringify({ name: span.name, status: span.status, model: span.request_model || span.model || undefined, input: span.input, output: span.output }, (name, value) => (FREE.has(name) ? undefined : value)));

const gist = (span) => (span.kind === 'tool' ? `${span.name} ${gistOfArguments(span.input?.[0]?.tool_input)}` : gistOf(span.output) || span.name);

const costOf = ({ rollup }) => f.spent(rollup.usage.cost_usd, { unpriced: rollup.unpriced_calls, saved: rollup.usage.saved_cost_usd, replayed: rollup.replayed_calls });

// How much more, or less, the right has; what is unknown on one side is unknown here.
function More({ left, right }) {
  const [a, b] = [left, right].map(({ session, traces }) => ({ ...sumOf(traces.flatMap((each) => each.spans)), took: session.rollup.duration_ns, usd: costOf(session) }));
  const more = (name, label, write) => {
    const [was, is] = [a[name], b[name]];
    if (was == null || is == null) return html`<span key=${name}>${label} ${f.NONE}</span>`;
    const share = was > 0 && is !== was ? ` (${is > was ? '+' : '−'}${Math.abs(Math.round((100 * (is - was)) / was))} %)` : '';
    return html`<span key=${name}>${label} ${is === was ? 'the same' : `${is > was ? '+' : '−'}${write(Math.abs(is - was))}${share}`}</span>`;
  };
  return html`<p class="row wrap totals" aria-label="Right against left"><b>Right against left:</b>${more('calls', 'calls', f.count)}${more('took', 'time', f.duration)}${more('input', 'input', f.brief)}${more('output', 'output', f.brief)}${more('usd', 'cost', f.money)}</p>`;
}

function Side({ found: { session, traces } }) {
  const sum = sumOf(traces.flatMap((each) => each.spans));
  return html`<div class="side"><a class="cut" href=${link(['session', session.id])}><b><${Text}>${session.display_title}</${Text}></b></a>
    <div class="row wrap totals"><${State} state=${session.rollup.status} live=${session.live} /><span><${When} at=${session.started_at} /></span><span><${Duration} ns=${session.rollup.duration_ns} /></span><span>${f.plural(sum.calls, 'call')}</span><span><${Tokens} input=${sum.input} cached=${sum.cached} output=${sum.output} /></span><span><${Cost} usd=${session.rollup.usage.cost_usd} unpriced=${session.rollup.unpriced_calls} saved=${session.rollup.usage.saved_cost_usd} replayed=${session.rollup.replayed_calls} whole /></span></div></div>`;
}
