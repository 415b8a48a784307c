// What the lists show: for each noun its columns, how wide, and by what they sort.
import { html } from './view.js';
import { Cost, Duration, Icon, Kind, Outcome, State, Text, Tokens, When } from './pieces.js';
import * as f from './format.js';

const when = { id: 'start', head: 'Start', width: '5.25rem', sort: 'started_at', cell: (row) => html`<${When} at=${row.started_at} />` };
const cost = (get) => ({ id: 'cost', head: 'Cost', width: '4.75rem', num: true, cell: get });
const models = (row) => (row.rollup.model_usage || []).map((each) => each.model).join(', ') || row.rollup.model || f.NONE;

// How the calls of a session were answered: a bar, and the same in words.
function Mix({ rollup }) {
  const { llm_calls: all, replayed_calls: replayed, failed_calls: failed } = rollup;
  const live = all - replayed - failed;
  const words = `${f.plural(all, 'call')}: ${live} answered, ${replayed} replayed, ${failed} failed`;
  return html`<span class="mix" title=${words}><span class="sr">${words}</span>${[['live', live], ['replayed', replayed], ['failed', failed]].map(([name, n]) => n > 0 && html`<i key=${name} class=${`m${name}`} style=${{ flexGrow: n }} />`)}</span>`;
}

export const COLUMNS = {
  sessions: [
    { ...when, id: 'active', head: 'Last active', width: '5.5rem', sort: 'last_active', cell: (row) => html`<${When} at=${row.last_seen_at} />` },
    { ...when, id: 'start', more: true },
    { id: 'title', head: 'Session', width: 'minmax(12rem, 1fr)', fixed: true, cell: (row) => html`<span class="titlecell">
      ${row.pinned && html`<span title="pinned: exempt from retention"><${Icon} name="pin" /></span>`}<${Text}>${row.display_title}</${Text}>
      ${row.tags.map((tag) => html`<span key=${tag} class="badge">${tag}</span>`)}</span>` },
    { id: 'agent', head: 'Agent', width: '6.25rem', cell: (row) => html`<${Text}>${row.agent_name || row.harness_id || f.NONE}</${Text}>` },
    { id: 'state', head: 'State', width: '6.25rem', sort: 'derived_status', cell: (row) => html`<${State} state=${row.rollup.status} live=${row.live} />` },
    { id: 'duration', head: 'Duration', width: '4.75rem', num: true, sort: 'duration_ns', cell: (row) => html`<${Duration} ns=${row.rollup.duration_ns} />` },
    { id: 'tokens', head: 'In / cached / out', width: '8.5rem', num: true, sort: 'total_tokens', cell: (row) => html`<${Tokens} input=${row.rollup.usage.input_tokens} cached=${row.rollup.usage.cache_read_tokens} output=${row.rollup.usage.output_tokens} />` },
    { ...cost((row) => html`<${Cost} usd=${row.rollup.usage.cost_usd} unpriced=${row.rollup.unpriced_calls} saved=${row.rollup.usage.saved_cost_usd} />`), sort: 'total_cost_usd' },
    { id: 'turns', head: 'Turns', width: '3.25rem', num: true, sort: 'turn_count', cell: (row) => f.count(row.rollup.turn_count) },
    { id: 'errors', head: 'Errors', width: '3.5rem', num: true, cell: (row) => { const n = row.rollup.failed_calls + row.rollup.tool_error_count; return n ? html`<span class="bad" title=${`${row.rollup.failed_calls} failed calls, ${row.rollup.tool_error_count} failed tools`}>${n}</span>` : html`<span class="faint">0</span>`; } },
    { id: 'models', head: 'Models', width: '7.25rem', wide: true, cell: (row) => html`<${Text} title=${models(row)}>${models(row)}</${Text}>` },
    { id: 'mix', head: 'Answers', width: '3.75rem', wide: true, cell: (row) => html`<${Mix} rollup=${row.rollup} />` },
    { id: 'cwd', head: 'Folder', width: '9rem', more: true, cell: (row) => html`<${Text} title=${row.cwd || ''}>${row.cwd || f.NONE}</${Text}>` },
  ],
  traces: [
    { ...when, width: '6rem' },
    { id: 'title', head: 'Prompt', width: 'minmax(14rem, 1.2fr)', fixed: true, cell: (row) => html`<${Text}>${row.user_prompt || row.synthetic || row.trace_id}</${Text}>` },
    { id: 'answer', head: 'Answer', width: 'minmax(8rem, 1fr)', cell: (row) => html`<${Text} class="dim">${row.response_preview || f.NONE}</${Text}>` },
    { id: 'state', head: 'State', width: '5.5rem', cell: (row) => html`<${State} state=${row.status} live=${!row.ended_at && row.status !== 'error'} />` },
    { id: 'duration', head: 'Duration', width: '5rem', num: true, sort: 'duration_ns', cell: (row) => html`<${Duration} ns=${row.duration_ns} />` },
    { id: 'tokens', head: 'In / cached / out', width: '8.5rem', num: true, sort: 'total_tokens', cell: (row) => html`<${Tokens} input=${row.usage.input_tokens} cached=${row.usage.cache_read_tokens} output=${row.usage.output_tokens} />` },
    { ...cost((row) => html`<${Cost} usd=${row.usage.cost_usd} unpriced=${row.unpriced_calls} saved=${row.usage.saved_cost_usd} />`), sort: 'total_cost_usd' },
    { id: 'spans', head: 'Spans', width: '3.75rem', num: true, cell: (row) => html`${f.count(row.span_count)}${row.missing_count > 0 && html` <span class="warn" title=${`${row.missing_count} not received`}>+${row.missing_count}?</span>`}` },
    { id: 'tools', head: 'Tools', width: '3.5rem', num: true, cell: (row) => f.count(row.tool_calls) },
  ],
  spans: [
    { ...when, width: '6rem' },
    { id: 'kind', head: 'Kind', width: '5rem', cell: (row) => html`<${Kind} kind=${row.kind} />` },
    { id: 'title', head: 'Name', width: 'minmax(10rem, 1fr)', fixed: true, cell: (row) => html`<${Text}>${row.name}</${Text}>` },
    { id: 'state', head: 'State', width: '5.5rem', cell: (row) => html`<${State} state=${row.status} />` },
    { id: 'error', head: 'Error', width: '8rem', cell: (row) => html`<${Text} class="bad">${row.error_type || ''}</${Text}>` },
    { id: 'agent', head: 'Agent', width: '7rem', cell: (row) => html`<${Text}>${row.agent || row.thread_id || f.NONE}</${Text}>` },
    { id: 'duration', head: 'Duration', width: '5rem', num: true, sort: 'duration_ns', cell: (row) => html`<${Duration} ns=${row.duration_ns} />` },
    { id: 'first', head: 'First token', width: '5.25rem', num: true, cell: (row) => html`<${Duration} ns=${row.first_chunk_ns} />` },
    { id: 'tokens', head: 'In / cached / out', width: '8.5rem', num: true, sort: 'total_tokens', cell: (row) => html`<${Tokens} input=${row.usage?.prompt_tokens} cached=${row.usage?.cache_read_input_tokens} output=${row.usage?.completion_tokens} />` },
    { ...cost((row) => html`<${Cost} usd=${row.cost_usd} />`), sort: 'cost_usd' },
    { id: 'outcome', head: 'Answer', width: '5.25rem', cell: (row) => html`<${Outcome} outcome=${row.outcome} />` },
  ],
};

export const idOf = { sessions: (row) => row.id, traces: (row) => row.trace_id, spans: (row) => `${row.trace_id}\n${row.span_id}` };
export const placeOf = {
  sessions: (row) => [['session', row.id]], traces: (row) => [['trace', row.trace_id]],
  spans: (row) => [['trace', row.trace_id], { span: row.span_id }],
};
