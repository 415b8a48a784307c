// What the lists show: for each noun its columns, how wide, and by what they sort. A cell is text, or
// elements in it; `tip` is its exact value, `text` says that it came from elsewhere. A long list has
// thousands of cells, so each is one element wherever that is enough.
import { h, html, makeStore } from './view.js';
import { Icon, State, Text, TokensOf, costTip, tokensTip } from './pieces.js';
import { prefer, prefs } from './prefs.js';
import * as f from './format.js';

export const when = (get, rest) => ({ id: 'start', head: 'Start', width: 5.25, sort: 'started_at', cell: (row, utc) => f.moment(get(row), utc), tip: (row) => (get(row) ? f.exactly(get(row)) : ''), ...rest });
export const started = (row) => row.started_at;
export const duration = (get, rest) => ({ id: 'duration', head: 'Duration', width: 5, num: true, sort: 'duration_ns', cell: (row) => f.duration(get(row)), tip: (row) => (get(row) == null ? 'unknown' : `${f.count(get(row))} ns`), ...rest });
export const tokens = (input, cached, output) => ({
  id: 'tokens', head: 'Tokens in/cached/out', width: 8.5, num: true, sort: 'total_tokens',
  cell: (row) => TokensOf(input(row), cached(row), output(row)), tip: (row) => tokensTip(input(row), cached(row), output(row)),
});
const errors = ({ rollup }) => rollup.failed_calls + rollup.tool_error_count;
// How a session ended, in words. One that failed though nothing in it did has an answer that was cut off.
const HOW = {
  completed: 'its last answer was whole', abandoned: 'its caller left before the last answer was whole',
  failed: 'its last call failed, or most of its tools did', 'cut off': 'its last answer was cut off, by a limit of tokens or by a filter', unknown: 'how it ended is not known',
};
export const ended = ({ rollup }) => (rollup.status === 'failed' && !errors({ rollup }) ? 'cut off' : rollup.status);
export const how = (row) => HOW[ended(row)];
export const cost = (usd, unpriced, saved, sort, replayed = () => 0) => ({
  id: 'cost', head: 'Cost', width: 4.75, num: true, sort,
  cell: (row) => (unpriced(row) && usd(row) != null ? [f.money(usd(row)), html`<span class="warn">+${unpriced(row)}?</span>`] : f.money(f.spent(usd(row), { unpriced: unpriced(row), saved: saved(row), replayed: replayed(row) }))),
  tip: (row) => costTip(usd(row), unpriced(row), saved(row), replayed(row)),
});
export const text = (id, head, width, get, rest) => ({ id, head, width, text: true, cell: (row) => get(row) || f.NONE, ...rest });
const models = (row) => (row.rollup.model_usage || []).map((each) => each.model).join(', ') || row.rollup.model;

// How the calls of a session were answered, in words; the bar says the same.
const mixed = ({ llm_calls: all, replayed_calls: replayed, failed_calls: failed }) => `${f.plural(all, 'call')}: ${all - replayed - failed} answered, ${replayed} replayed, ${failed} failed`;
function Mix({ rollup }) {
  const { llm_calls: all, replayed_calls: replayed, failed_calls: failed } = rollup;
  const share = (n) => `${all ? Math.round((100 * n) / all) : 0}%`;
  return h('i', { class: 'mix', role: 'img', 'aria-label': mixed(rollup), style: { '--live': share(all - replayed - failed), '--unfailed': share(all - failed) } });
}

// Widths are in rem; the column that is always there takes what is left. Sessions are seen first; the
// columns of the other lists come with the rest of the page.
export const COLUMNS = {
  sessions: [
    when((row) => row.last_seen_at, { id: 'active', head: 'Last active', width: 5.5, sort: 'last_active' }),
    when(started, { more: true }),
    { id: 'title', head: 'Session', width: 12, fixed: true, cell: (row) => [
      row.pinned && h('span', { class: 'pin', title: 'pinned: exempt from retention' }, Icon({ name: 'pin' })), Text({ children: row.display_title }),
      row.tags.map((tag) => h('span', { key: tag, class: 'badge' }, tag))] },
    text('agent', 'Agent', 6.25, (row) => row.agent_name || row.harness_id),
    { id: 'state', head: 'State', width: 6.75, sort: 'derived_status', cell: (row) => State({ state: row.rollup.status, why: ended(row) === 'cut off' ? ': cut off' : '', live: row.live }), tip: (row) => (row.live ? 'its last call was less than five minutes ago' : how(row)) },
    duration((row) => row.rollup.duration_ns, { width: 4.75 }),
    tokens((row) => row.rollup.usage.input_tokens, (row) => row.rollup.usage.cache_read_tokens, (row) => row.rollup.usage.output_tokens),
    cost((row) => row.rollup.usage.cost_usd, (row) => row.rollup.unpriced_calls, (row) => row.rollup.usage.saved_cost_usd, 'total_cost_usd', (row) => row.rollup.replayed_calls),
    { id: 'turns', head: 'Turns', width: 3.25, num: true, sort: 'turn_count', cell: (row) => f.count(row.rollup.turn_count) },
    { id: 'errors', head: 'Errors', width: 3.5, num: true, cell: (row) => f.count(errors(row)), tone: (row) => (errors(row) ? 'bad' : 'faint'), tip: ({ rollup }) => `${rollup.failed_calls} failed calls, ${rollup.tool_error_count} failed tools` },
    text('models', 'Models', 7.25, models, { tip: models }),
    { id: 'mix', head: 'Answers', width: 3.75, cell: Mix, tip: (row) => mixed(row.rollup) },
    text('cwd', 'Folder', 9, (row) => row.cwd, { more: true, tip: (row) => row.cwd }),
  ],
};

export const idOf = { sessions: (row) => row.id, traces: (row) => row.trace_id, spans: (row) => `${row.trace_id}\n${row.span_id}` };
export const placeOf = {
  sessions: (row) => [['session', row.id]], traces: (row) => [['trace', row.trace_id]],
  spans: (row) => [['trace', row.trace_id], { span: row.span_id }],
};

// --- which of them, in what order, how wide: what a person chose, in this browser

// How wide the window is, in rem.
const wide = () => innerWidth / parseFloat(getComputedStyle(document.documentElement).fontSize);
export const room = makeStore(wide());
window.addEventListener('resize', () => room.set(wide()));

export function ordered(noun, { order } = prefs.get()) {
  const places = order?.[noun] || [];
  const place = ({ id }, i) => (places.includes(id) ? places.indexOf(id) : places.length + i);
  return COLUMNS[noun].map((each, i) => [place(each, i), each]).sort(([a], [b]) => a - b).map(([, each]) => each);
}

// Where nobody chose, those that tell most and fit; and so beside what takes `less` of the room.
const TELLING = ['title', 'active', 'start', 'kind', 'state', 'output', 'duration', 'cost', 'errors', 'tokens', 'outcome'];
export function shownColumns(noun, preferred = prefs.get(), less = 0) {
  const chosen = preferred.columns?.[noun];
  const all = ordered(noun, preferred).filter((each) => each.fixed || (chosen ? chosen.includes(each.id) : !each.more));
  if (chosen && !less) return all;
  const place = ({ id }) => (TELLING.includes(id) ? TELLING.indexOf(id) : TELLING.length);
  let left = room.get() - less - AROUND;
  const fits = new Set([...all].sort((a, b) => place(a) - place(b)).filter((each) => {
    const width = widthOf(noun, each, preferred) + 0.5;
    if (!each.fixed && width > left) return false;
    left -= width;
    return true;
  }));
  return all.filter((each) => fits.has(each));
}

export function flip(noun, id) {
  const shown = shownColumns(noun).map((each) => each.id);
  prefer({ columns: { ...prefs.get().columns, [noun]: shown.includes(id) ? shown.filter((each) => each !== id) : [...shown, id] } });
}

// Put a column where another is.
export function put(noun, id, where) {
  const ids = ordered(noun).map((each) => each.id);
  const to = ids.indexOf(where);
  if (id === where || to < 0) return;
  ids.splice(ids.indexOf(id), 1);
  ids.splice(to, 0, id);
  prefer({ order: { ...prefs.get().order, [noun]: ids } });
}

// Put a column so many places on among `ids`.
export function shift(noun, id, by, ids) {
  const where = ids[ids.indexOf(id) + by];
  if (where) put(noun, id, where);
}

const LEAST = 2.5;
const MOST = 60;
export const bounded = (width) => Math.max(LEAST, Math.min(MOST, Math.round(width * 16) / 16));
export const widthOf = (noun, each, { widths } = prefs.get()) => widths?.[noun]?.[each.id] ?? each.width;
export function widen(noun, id, width) {
  const mine = { ...prefs.get().widths?.[noun], [id]: width === null ? undefined : bounded(width) };
  prefer({ widths: { ...prefs.get().widths, [noun]: mine } });
}

export const asUsual = (noun) => {
  const { columns, order, widths } = prefs.get();
  prefer({ columns: { ...columns, [noun]: undefined }, order: { ...order, [noun]: undefined }, widths: { ...widths, [noun]: undefined } });
};

const AROUND = 4.25; // the box to select by, and both edges

// The columns as a grid has them, and the least width at which none is cut off.
export function gridOf(noun, columns, preferred, trying = {}) {
  const width = (each) => trying[each.id] ?? widthOf(noun, each, preferred);
  const isOwn = (each) => each.id in trying || preferred.widths?.[noun]?.[each.id] !== undefined;
  const grows = (each) => each.fixed || (each.share && !isOwn(each));
  return {
    '--columns': `2.25rem ${columns.map((each) => (grows(each) ? `minmax(${width(each)}rem, ${each.share || 1}fr)` : `${width(each)}rem`)).join(' ')}`,
    '--least': `${columns.reduce((sum, each) => sum + width(each) + 0.5, AROUND)}rem`,
  };
}
