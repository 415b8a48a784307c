// The columns of traces and spans, in the form of those of sessions.
import { html } from './view.js';
import { Kind, Outcome, State, Text } from './pieces.js';
import { cost, duration, started, text, tokens, when } from './columns.js';
import { answeredOf, askedOf } from './gist.js';
import * as f from './format.js';

// What a span says; what failed says how, where it says nothing else.
const failing = (row) => row.status === 'error' && row.error_type;
const words = (id, head, get, rest) => text(id, head, 8, (row) => get(row) || (id === 'output' && failing(row)) || ' ', {
  share: 1.4, tone: (row) => (id === 'output' && row.status === 'error' ? 'bad' : 'dim'), tip: (row) => f.visible(get(row)), ...rest,
});

export const MORE = {
  traces: [
    when(started, { width: 6 }),
    { id: 'title', head: 'Prompt', width: 14, share: 1.2, fixed: true, cell: (row) => html`<${Text}>${row.user_prompt || row.name || row.synthetic || row.trace_id}</${Text}>` },
    text('answer', 'Answer', 8, (row) => row.response_preview, { share: 1, tone: () => 'dim' }),
    { id: 'state', head: 'State', width: 5.5, cell: (row) => State({ state: row.status, live: !row.ended_at && row.status !== 'error' }) },
    duration((row) => row.duration_ns),
    tokens((row) => row.usage.input_tokens, (row) => row.usage.cache_read_tokens, (row) => row.usage.output_tokens),
    cost((row) => row.usage.cost_usd, (row) => row.unpriced_calls, (row) => row.usage.saved_cost_usd, 'total_cost_usd'),
    { id: 'spans', head: 'Spans', width: 3.75, num: true, tip: (row) => (row.missing_count > 0 ? `${row.missing_count} not received` : ''),
      cell: (row) => [f.count(row.span_count), row.missing_count > 0 && html` <span class="warn">+${row.missing_count}?</span>`] },
    { id: 'tools', head: 'Tools', width: 3.5, num: true, cell: (row) => f.count(row.tool_calls) },
  ],
  spans: [
    when(started, { width: 6 }),
    { id: 'kind', head: 'Kind', width: 4.75, cell: (row) => Kind({ kind: row.kind }) },
    { id: 'title', head: 'Name', width: 8, fixed: true, cell: (row) => html`<${Text}>${row.name}</${Text}>` },
    words('input', 'Input', askedOf),
    words('output', 'Output', answeredOf),
    { id: 'state', head: 'State', width: 5, cell: (row) => State({ state: row.status }) },
    text('error', 'Error', 7, (row) => row.error_type || ' ', { more: true, tone: () => 'bad', tip: (row) => row.error_type }),
    text('agent', 'Agent', 7, (row) => row.agent || row.thread_id, { more: true }),
    duration((row) => row.duration_ns),
    duration((row) => row.first_chunk_ns, { id: 'first', head: 'First token', width: 5.25, sort: undefined }),
    tokens((row) => row.usage?.prompt_tokens, (row) => row.usage?.cache_read_input_tokens, (row) => row.usage?.completion_tokens),
    cost(f.spentOn, () => 0, f.savedOn, 'cost_usd'),
    { id: 'outcome', head: 'Answer', width: 5.25, cell: (row) => Outcome({ outcome: row.outcome }) },
  ],
};
