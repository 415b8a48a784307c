// Spans as a person thinks of them: a tree, lanes, and a time in which long idleness takes no room.
import { duration, micros, plural, spentOn } from './format.js';
import { atOnce } from './slices.js';

// What has no end goes on; what began long ago just never got one.
const FRESH = 600e6;
const PIECE = 1000;

// Spans with their begin and end in microseconds, their children, and a stand-in for each parent
// that was named and not received, whether the server made it or it is made here. Times stay as they are: a child may end after its parent.
// It rests between pieces, and writes what it finds into the spans themselves: there may be many.
export function* modelling(spans, now = Date.now() * 1000) {
  const all = spans;
  const byId = new Map();
  let last = 0;
  let done = 0;
  for (const span of all) {
    span.children = [];
    if (span.status === 'missing') Object.assign(span, { kind: 'missing', name: span.span_id, isMissing: true });
    span.begin = micros(span.started_at);
    span.end = span.begin + (span.duration_ns ?? 0) / 1000;
    span.first = span.first_chunk_ns == null ? null : span.begin + span.first_chunk_ns / 1000;
    byId.set(span.span_id, span);
    if (span.end > last) last = span.end;
    if ((done += 1) % PIECE === 0) yield;
  }
  const roots = [];
  for (const span of all) {
    if ((done += 1) % PIECE === 0) yield;
    const isOpen = span.duration_ns == null && span.kind !== 'event' && !span.isMissing;
    span.isRunning = isOpen && now - span.begin < FRESH;
    span.hasNoEnd = isOpen && !span.isRunning;
    if (span.isRunning) span.end = last;
    const up = span.parent_span_id;
    if (!up) { roots.push(span); continue; }
    if (!byId.has(up)) {
      const stand = {
        span_id: up, trace_id: span.trace_id, session_id: span.session_id, kind: 'missing', name: up, status: 'missing', started_at: span.started_at,
        begin: span.begin, end: span.end, duration_ns: null, children: [], isMissing: true, thread_id: span.thread_id, seq: span.seq - 0.5, first: null,
      };
      byId.set(up, stand);
      roots.push(stand);
    }
    const parent = byId.get(up);
    parent.children.push(span);
    if (parent.isMissing) { parent.begin = Math.min(parent.begin, span.begin); parent.end = Math.max(parent.end, span.end); }
  }
  const inOrder = (a, b) => a.begin - b.begin || a.seq - b.seq;
  let missing = 0;
  for (const span of byId.values()) {
    if (span.children.length > 1) span.children.sort(inOrder);
    if (span.isMissing) missing += 1;
    if ((done += 1) % PIECE === 0) yield;
  }
  roots.sort(inOrder);
  yield;
  const model = { roots, byId, all, missing, received: byId.size - missing };
  model.clock = clockOf(all);
  yield;
  model.rows = rowsOf(model, new Set());
  yield;
  model.before = threadsOf(all);
  yield;
  model.sum = sumOf(all);
  model.replayed = all.filter((span) => span.outcome === 'replayed').length;
  return model;
}

export const modelOf = (spans) => atOnce(modelling(spans));

// What failed itself: an agent that failed because something in it did is not one more.
export const isFault = (span) => span.status === 'error' && !(span.kind === 'agent' && span.children?.some((each) => each.status === 'error'));

// How a span stands: what never got an end is not running for ever.
export const standing = (span) => (span.hasNoEnd ? 'no end' : span.status);
export const lasting = (span) => (span.isRunning ? 'running' : span.hasNoEnd ? 'no end' : duration(span.duration_ns));

// Why an answer is not whole, though the call did not fail.
const LIMITS = ['length', 'max_tokens', 'max_output_tokens'];
export function cutBy({ stop_reason: reason = '' }) {
  const told = (reason || '').toLowerCase();
  if (LIMITS.includes(told)) return `cut off at its limit of tokens (${told})`;
  if (told === 'content_filter') return `stopped by a filter (${told})`;
  return told.includes('error') ? `ended by ${reason}` : '';
}

// Why a session is called failed or abandoned, from its last call of the main thread.
export function whyEnded({ status, tool_error_count: bad, tool_result_count: all }, spans) {
  if (status === 'abandoned') return 'its caller left before the last answer was whole';
  if (status !== 'failed') return '';
  const last = spans.findLast((span) => span.kind === 'llm' && !span.thread_id && (span.call_kind || 'main') === 'main');
  if (last?.status === 'error') return `its last call failed${last.error_type ? `: ${last.error_type}` : ''}`;
  const cut = last && cutBy(last);
  return cut ? `its last answer was ${cut}` : `${bad} of ${plural(all, 'tool')} failed`;
}

// The rows of the tree that are open, each with its depth. Deep trees are walked without recursion.
export function rowsOf({ roots }, closed, keep) {
  const rows = [];
  const stack = roots.map((span) => [span, 0]).reverse();
  while (stack.length) {
    const [span, depth] = stack.pop();
    if (keep && !keep.has(span.span_id)) continue;
    rows.push({ span, depth });
    if (closed.has(span.span_id) && !keep) continue;
    for (let i = span.children.length - 1; i >= 0; i -= 1) stack.push([span.children[i], depth + 1]);
  }
  return rows;
}

// What fits a filter, and all that it hangs from.
export function kept({ byId }, fits) {
  const keep = new Set();
  const found = new Set();
  for (const span of byId.values()) {
    if (!fits(span)) continue;
    found.add(span.span_id);
    let at = span;
    while (at && !keep.has(at.span_id)) {
      keep.add(at.span_id);
      at = at.parent_span_id ? byId.get(at.parent_span_id) : null;
    }
  }
  return { keep, found };
}

// Spans of time in order, with those that touch made one.
function joined(times) {
  const all = [];
  for (const [from, to] of times.sort((a, b) => a[0] - b[0])) {
    const last = all[all.length - 1];
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else all.push([from, to]);
  }
  return all;
}

// A step that holds others may work itself between them; for longer than this it rather waits.
const WAITS = 60e6;
const holds = (span) => span.kind !== 'llm' && span.kind !== 'tool' && span.children?.length > 0;
const lasts = (span) => [span.begin, Math.max(span.end, span.begin + 1)];

// Time without its long gaps: `at(t)` is between 0 and 1; `gaps` say where how much was left out.
export function clockOf(spans, { fold = true } = {}) {
  const leaves = spans.filter((span) => span.kind !== 'agent' && span.kind !== 'missing');
  const steps = leaves.filter(holds);
  const ends = steps.flatMap(({ begin, end }) => [[begin, begin + 1], [Math.max(begin, end - 1), Math.max(begin + 1, end)]]);
  const marks = (leaves.length ? leaves.filter((span) => !holds(span)) : spans).map(lasts);
  if (!marks.length && !ends.length) return { at: () => 0, gaps: [], begin: 0, end: 0, length: 1 };
  const busy = joined([...marks, ...ends]);
  const within = joined(steps.map(lasts));
  let step = 0;
  const isWithin = (from, to) => {
    while (step < within.length && within[step][1] < to) step += 1;
    return step < within.length && within[step][0] <= from;
  };
  const working = busy.reduce((sum, [from, to]) => sum + to - from, 0);
  const longest = Math.max(2e6, working * 0.25);
  const room = Math.max(working * 0.04, 1);
  const parts = [];
  const gaps = [];
  let place = 0;
  busy.forEach(([from, to], i) => {
    if (i > 0) {
      const before = busy[i - 1][1];
      const idle = from - before;
      const isFolded = fold && idle > longest && (idle > WAITS || !isWithin(before, from));
      const width = isFolded ? room : idle;
      parts.push([before, from, place, width]);
      if (isFolded) gaps.push({ from: before, to: from, place, width, idle });
      place += width;
    }
    parts.push([from, to, place, to - from]);
    place += to - from;
  });
  const length = place || 1;
  const at = (t) => {
    if (t <= parts[0][0]) return 0;
    let low = 0;
    let high = parts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (parts[middle][0] <= t) low = middle;
      else high = middle - 1;
    }
    const [from, to, left, width] = parts[low];
    return Math.min(1, (left + (to > from ? Math.min(1, (t - from) / (to - from)) * width : 0)) / length);
  };
  for (const gap of gaps) { gap.left = gap.place / length; gap.share = gap.width / length; }
  return { at, gaps, begin: parts[0][0], end: parts[parts.length - 1][1], length };
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
const SIDE = 0.14;

// The steps that a person counts in: so many of them that each has its room.
function stepOf(span) {
  const s = span / 1e6;
  if (s > 86400) return 86400e6 * 2 ** Math.ceil(Math.log2(s / 86400));
  if (s > 1) return STEPS.find((each) => each >= s) * 1e6;
  const ten = 10 ** Math.floor(Math.log10(Math.max(span, 1)));
  return ten * [1, 2, 5, 10].find((each) => each * ten >= span);
}

// The marks of an axis: round times since the beginning, each where it is, also behind a gap that is folded.
export function marksOf(clock, [from, to]) {
  const left = (share) => (share - from) / (to - from);
  const step = stepOf((clock.length * (to - from)) / 5);
  const gaps = clock.gaps.map((gap) => left(gap.left)).filter((each) => each >= 0 && each <= 0.96);
  const marks = [];
  let begin = clock.begin;
  for (const gap of [...clock.gaps, { from: clock.end, to: clock.end }]) {
    const seen = begin + Math.max(0, (from - clock.at(begin)) * clock.length);
    for (let k = Math.ceil((seen - clock.begin) / step); clock.begin + k * step <= gap.from; k += 1) {
      const at = left(clock.at(clock.begin + k * step));
      if (at > 1) return marks;
      const last = marks[marks.length - 1];
      const isFree = gaps.every((each) => Math.abs(each - at) >= SIDE);
      if (at >= 0 && at <= 0.92 && isFree && (!last || at - last.at >= SIDE)) marks.push({ at, t: k * step, step });
    }
    begin = gap.to;
  }
  return marks;
}

// Whether a call could use the provider's cache, and why not where that can be known.
export function cacheOf(span, before) {
  const read = span.usage?.cache_read_input_tokens;
  const written = span.usage?.cache_creation_input_tokens;
  if (read == null && written == null) return null;
  if (read > 0) return { state: 'warm', why: before && before.usage?.prompt_tokens > read * 1.5 ? 'only part of the previous prompt was in the cache' : '' };
  if (!before) return { state: 'cold', why: 'the first call of this thread' };
  if (before.model !== span.model) return { state: 'cold', why: `another model than before: ${before.model}` };
  const idle = (span.begin ?? micros(span.started_at)) - (before.end ?? micros(before.started_at));
  if (idle > 300e6) return { state: 'cold', why: `${Math.round(idle / 60e6)} minutes after the previous call: caches last about 5` };
  return { state: 'cold', why: 'the beginning of the prompt changed: see the difference', unsure: true };
}

export function threadsOf(spans) {
  const before = new Map();
  const last = new Map();
  for (const span of spans) {
    if (span.kind !== 'llm') continue;
    before.set(span.span_id, last.get(span.thread_id) || null);
    last.set(span.thread_id, span);
  }
  return before;
}

export function sumOf(spans) {
  const sum = { calls: 0, input: null, cached: null, output: null, cost: null, unpriced: 0 };
  const add = (name, n) => { if (n != null) sum[name] = (sum[name] ?? 0) + n; };
  for (const span of spans) {
    if (span.kind !== 'llm') continue;
    sum.calls += 1;
    add('input', span.usage?.prompt_tokens);
    add('cached', span.usage?.cache_read_input_tokens);
    add('output', span.usage?.completion_tokens);
    add('cost', spentOn(span));
    if (spentOn(span) == null && span.usage?.prompt_tokens != null) sum.unpriced += 1;
  }
  return sum;
}
