// The whole session in small: one lane for the main agent and each sub-agent, time going down; long
// idleness is folded, with its length written on it.
import { html, useEffect, useMemo, useRef } from './view.js';
import { Cost, Text } from './pieces.js';
import * as f from './format.js';

// Many lanes are narrower, so that all of them are seen at once.
const ROOM = 176;
const LANE = 16;
const GAP = 6;
const LEAST = 4;

export function Lanes({ model, clock, threads, chosen, onChoose, turns }) {
  const step = Math.max(LEAST + 1, Math.min(LANE + GAP, ROOM / threads.length));
  const lane = Math.max(LEAST, step - Math.min(GAP, step / 4));
  const inset = Math.min(3, lane / 4);
  const height = Math.max(220, Math.min(1400, model.all.length * 11 + clock.gaps.length * 20));
  const marks = useMemo(() => model.all.filter((span) => span.kind === 'llm' || span.kind === 'tool').slice(0, 4000).map((span) => {
    const of = Math.max(0, threads.findIndex((each) => each.id === span.thread_id));
    const top = clock.at(span.begin) * height;
    return { span, x: of * step, top, size: Math.max(3, clock.at(span.end) * height - top) };
  }).sort((a, b) => (a.span.status === 'error') - (b.span.status === 'error')), [model, clock, threads, height, step]); // what failed lies on top
  const wide = threads.length * step;
  const box = useRef(null);
  useEffect(() => { box.current?.querySelector('.mark.at')?.scrollIntoView({ block: 'nearest', inline: 'nearest' }); }, [chosen]);
  return html`<aside class="lanes" aria-label="The whole session">
    <ol class="lanenames">${threads.map((each, i) => html`<li key=${each.id}><button class="laneof" onClick=${() => each.first && onChoose(each.first)}><b class="tnum">${i + 1}</b>
      <${Text} class="cut" title=${each.id}>${each.label}</${Text}></button>
      <span class="faint tnum">${each.unanchored && html`<span class="warn">unanchored · </span>`}${f.plural(each.sum.calls, 'call')} · ${f.brief(each.sum.input)} / ${f.brief(each.sum.output)} · <${Cost} usd=${each.sum.cost} unpriced=${each.sum.unpriced} /></span></li>`)}</ol>
    <div class="minibox" ref=${box} style=${{ height: `${height + 8}px` }}>
      <svg class="mini" width=${wide + 2} height=${height + 4} viewBox=${`-1 -2 ${wide + 2} ${height + 4}`} aria-hidden="true">
        ${threads.map((each, i) => html`<rect key=${each.id} class="track" x=${i * step} y="0" width=${lane} height=${height} rx="2" />`)}
        ${turns.length * 8 < height && turns.map((turn) => html`<line key=${turn.id} class="turnline" x1="0" x2=${wide} y1=${clock.at(turn.begin) * height} y2=${clock.at(turn.begin) * height} />`)}
        ${marks.map(({ span, x, top, size }) => html`<rect key=${span.trace_id + span.span_id} class=${`mark ${span.kind} ${span.status === 'error' ? 'failed' : ''} ${span.span_id === chosen ? 'at' : ''}`} x=${x + (span.kind === 'tool' ? inset : 0)} y=${top} width=${span.kind === 'tool' ? lane - 2 * inset : lane} height=${size} rx="1.5" onClick=${() => onChoose(span)}><title>${`${span.name} · ${f.duration(span.duration_ns)}`}</title></rect>`)}
      </svg>
      ${clock.gaps.map((gap) => html`<span key=${gap.place} class="minigap" style=${{ top: `${gap.left * height}px`, height: `${Math.max(14, gap.share * height)}px` }} title=${`idle for ${f.duration(gap.idle * 1000)}`}>⋯ ${f.duration(gap.idle * 1000)} idle</span>`)}
    </div></aside>`;
}
