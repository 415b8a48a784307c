// A chart over time: bars of several series, one upon the other, or one before the other; the same
// time and the same ways as the strip over a list. What a bar is worth is told in words below it.
import { html, useStore } from './view.js';
import { prefs } from './prefs.js';
import { useStrip } from './strip.js';
import * as f from './format.js';

const HEIGHT = 100;

// `series` are [{name, tone, values}], as many values as `parts`; `before` draws them one before the other.
export function Chart({ title, total, series, parts, since, width, format, onRange, before = false }) {
  const { utc } = useStore(prefs);
  const at = (i) => new Date(since + i * width).toISOString();
  const { does, drag, cursor } = useStrip(parts, (a, b) => onRange(at(Math.min(a, b)), at(Math.max(a, b) + 1)));
  const sums = Array.from({ length: parts }, (_, i) => series.reduce((sum, { values }) => (before ? Math.max(sum, values[i] || 0) : sum + (values[i] || 0)), 0));
  const most = Math.max(...sums, 0);
  const worth = (i) => series.filter(({ values }) => values[i]).map(({ name, values }) => `${f.visible(name)} ${format(values[i])}`);
  const said = cursor === null ? '' : `${f.moment(at(cursor), utc)}: ${worth(cursor).join(', ') || 'nothing'}`;
  const bars = [];
  for (let i = 0; i < parts; i += 1) {
    let foot = HEIGHT;
    for (const { name, tone, values } of series) {
      const high = most > 0 && values[i] > 0 ? Math.max(1.5, (HEIGHT * values[i]) / most) : 0;
      if (high) bars.push(html`<rect key=${`${name}${i}`} class=${tone} x=${i + 0.1} width="0.8" y=${(before ? HEIGHT : foot) - high} height=${high} />`);
      foot -= high;
    }
  }
  return html`<figure class="panel chart"><header><h2>${title}</h2><span class="tnum">${total}</span></header>
    <div class="plot"><span class="most faint tnum">${most > 0 ? format(most) : ''}</span>
      <svg viewBox=${`0 0 ${parts} ${HEIGHT}`} preserveAspectRatio="none" ...${does} aria-label=${`${title} over time; arrows move, Enter narrows to it`} aria-valuetext=${said || 'no part of time is chosen'}>
        ${drag && html`<rect class="chosen" x=${Math.min(...drag)} width=${Math.abs(drag[1] - drag[0]) + 1} y="0" height=${HEIGHT} />`}
        ${cursor !== null && html`<rect class="cursor" x=${cursor} width="1" y="0" height=${HEIGHT} />`}
        ${bars}</svg></div>
    <figcaption>${said ? html`<span class="said2">${said}</span>` : html`<span class="tnum">${f.moment(at(0), utc)}</span><span class="keys2">${series.map(({ name, tone }) => html`<span key=${name}><i class=${tone} /><bdi>${f.visible(name)}</bdi></span>`)}</span><span class="tnum">${f.moment(at(parts), utc)}</span>`}</figcaption></figure>`;
}
