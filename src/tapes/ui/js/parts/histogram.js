// How a list spreads over time, as three small charts over one time: counts with what failed in them,
// how long half and 19 of 20 took, and the cost. Dragging over them narrows the range, and so do the
// arrow keys with Enter.
import { html, useEffect, useState, useStore } from './view.js';
import { calm, query, useAsk } from './api.js';
import { prefs } from './prefs.js';
import { useStrip } from './strip.js';
import * as f from './format.js';

const PARTS = 72;
const NS = 1e6;
// Where each chart stands, from its top to its foot; the whole is as high.
const COUNTS = [0, 32];
const TIMES = [35, 49];
const COSTS = [52, 60];
const HEIGHT = 60;

// `wait` while the rows are not there: they come first.
export function Histogram({ noun, q, version, wait, onRange }) {
  const isCalm = useStore(calm);
  const [last, setLast] = useState('');
  const address = query(`/v1/histogram/${noun}`, { q, parts: PARTS });
  useEffect(() => { if (isCalm && !wait) setLast(address); }, [isCalm, wait, address]);
  const asked = useAsk(last, { again: version });
  const { utc } = useStore(prefs);
  const found = asked.value;
  const at = (i) => new Date(Date.parse(found.since) + (i * found.width_ns) / NS).toISOString();
  const { does, drag, cursor } = useStrip(PARTS, (a, b) => onRange(at(Math.min(a, b)), at(Math.max(a, b) + 1)));
  // Its place is kept, so that the rows below do not move when it comes.
  if (!found?.bars.length) return html`<div class=${`strip ${found ? 'empty' : ''}`} aria-hidden="true" />`;
  const since = Date.parse(found.since);
  const width = found.width_ns / NS;
  const parts = Array(PARTS).fill(null);
  for (const bar of found.bars) parts[Math.min(PARTS - 1, Math.round((Date.parse(bar.at) - since) / width))] = bar;
  const most = Math.max(...found.bars.map((bar) => bar.rows));
  const dearest = Math.max(...found.bars.map((bar) => bar.cost_usd || 0));
  const slowest = Math.max(...found.bars.map((bar) => bar.p95_ns || 0));
  const shown = parts[cursor ?? -1];
  const total = found.bars.reduce((sum, bar) => sum + bar.rows, 0);
  // Of very many rows a sample was counted.
  const about = found.exact ? '' : 'about ';
  const failed = found.bars.reduce((sum, bar) => sum + bar.failed, 0);
  const cost = found.bars.reduce((sum, bar) => sum + (bar.cost_usd || 0), 0);
  const said = cursor === null ? `${f.moment(found.since, utc)} – ${f.moment(found.until, utc)}`
    : `${f.moment(at(cursor), utc)} · ${about}${f.count(shown?.rows ?? 0)} ${noun}${shown?.failed ? `, ${shown.failed} failed` : ''}${shown?.cost_usd ? `, ${f.money(shown.cost_usd)}` : ''}${shown?.p50_ns ? `, half within ${f.duration(shown.p50_ns)}, 95 % within ${f.duration(shown.p95_ns)}, longest ${f.duration(shown.longest_ns)}` : ''}`;
  // Times differ by powers of ten: their bars are as high as the root of what they show.
  const high = ([top, foot], share) => (share > 0 ? Math.max(1.5, (foot - top) * share) : 0);
  const bar = (name, i, chart, share) => share > 0 && html`<rect key=${name + i} class=${name} x=${i + 0.12} width="0.76" y=${chart[1] - high(chart, share)} height=${high(chart, share)} />`;
  return html`<figure class="strip">
    <svg viewBox=${`0 0 ${PARTS} ${HEIGHT}`} preserveAspectRatio="none" ...${does} aria-label=${`${noun} over time; arrows move, Enter narrows to it`} aria-valuetext=${said}>
      ${drag && html`<rect class="chosen" x=${Math.min(...drag)} width=${Math.abs(drag[1] - drag[0]) + 1} y="0" height=${HEIGHT} />`}
      ${cursor !== null && html`<rect class="cursor" x=${cursor} width="1" y="0" height=${HEIGHT} />`}
      ${parts.map((one, i) => one && html`${bar('bar-ok', i, COUNTS, one.rows / most)}${bar('bar-bad', i, COUNTS, one.failed / most)}
        ${bar('bar-p95', i, TIMES, Math.sqrt(one.p95_ns / slowest))}${bar('bar-p50', i, TIMES, Math.sqrt(one.p50_ns / slowest))}
        ${bar('bar-cost', i, COSTS, one.cost_usd / dearest)}`)}</svg>
    <figcaption><span>${said}${cursor === null && html`<span class="hint"> · drag to narrow</span>`}</span><span><span><i class="key-ok" />${about}${f.plural(total, noun.slice(0, -1))}</span>${failed > 0 && html` <span><i class="key-bad" />${f.count(failed)} failed</span>`}${slowest > 0 && html` <span><i class="key-p50" />half, <i class="key-p95 near" />95 % within ${f.duration(slowest)}</span>`}${dearest > 0 && html` <span><i class="key-cost" />${about}${f.money(cost)}</span>`}</span></figcaption></figure>`;
}
