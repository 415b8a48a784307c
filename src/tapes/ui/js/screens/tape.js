// One tape: what is on it, what replay saved, what no run used, what is too old.
import { html, useMemo, useState } from '../parts/view.js';
import { query, useAsk } from '../parts/api.js';
import { set, useRoute, useTitle } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Asked, Blank, CopyLine, Segments, Text, When } from '../parts/pieces.js';
import { Virtual } from '../parts/virtual.js';
import { Gone } from '../parts/gone.js';
import { Recording } from '../parts/recording.js';
import * as f from '../parts/format.js';

const SHOWS = { '': ['All', () => true], unused: ['Unused', (row) => row.unused], expired: ['Expired', (row) => row.expired], incomplete: ['Incomplete', (row) => row.state !== 'complete'] };
const HEIGHT = 34;

export function Screen() {
  const { path: [, path], params } = useRoute();
  useTitle(path);
  const asked = useAsk(path ? query('/v1/tapes/contents', { tape: path }) : '');
  if (!path || asked.problem?.status === 404) return html`<${Gone} noun="tape" id=${path} />`;
  return html`<${Asked} asked=${asked} rows=${10}>${(found) => html`<${Whole} path=${path} found=${found} params=${params} />`}</${Asked}>`;
}

const Count = ({ name, value, children, bad }) => html`<div><dt>${name}</dt><dd class=${`tnum ${bad ? 'warn' : ''}`}>${value}</dd>${children && html`<dd class="note faint">${children}</dd>`}</div>`;

// A key may stand on several rows: of those, which one.
const numbered = (rows) => {
  const seen = new Map();
  return rows.map((row) => {
    const n = seen.get(row.key) || 0;
    seen.set(row.key, n + 1);
    return { ...row, n };
  });
};

function Whole({ path, found, params }) {
  const { saved, since } = found;
  const ended = found.runs.length ? `in ${f.plural(found.runs.length, 'run')} that ended` : 'no run has ended here';
  const atLeast = since.more ? 'at least ' : '';
  const show = params.show || '';
  const all = useMemo(() => numbered(found.exchanges), [found]);
  const rows = all.filter((SHOWS[show] || SHOWS[''])[1]);
  const [left, setLeft] = useState(-1);
  const opened = rows.findIndex((row) => row.key === params.open && row.n === Number(params.n || 0));
  const at = opened >= 0 ? opened : Math.min(left, rows.length - 1);
  const open = (i) => { setLeft(i); set({ open: rows[i].key, n: rows[i].n || '' }, { push: !params.open }); };
  const close = () => { setLeft(at); set({ open: '', n: '', tab: '' }); };
  const move = (by) => {
    const next = Math.max(0, Math.min(rows.length - 1, at + by));
    if (params.open) open(next); else setLeft(next);
  };
  useKeys([
    { key: 'j', also: ['ArrowDown'], label: 'next', hidden: !rows.length, run: () => rows.length && move(1) },
    { key: 'k', also: ['ArrowUp'], label: 'previous', hidden: !rows.length, run: () => rows.length && move(-1) },
    { key: 'Enter', also: [' '], label: 'look', hidden: !rows.length, run: () => at >= 0 && (params.open ? close() : open(at)) },
    { key: 'Escape', shown: 'Esc', label: params.open ? 'close' : 'back', run: () => (params.open ? close() : history.back()) },
  ]);
  const row = (i, top) => {
    const each = rows[i];
    return html`<div key=${i} role="row" aria-selected=${String(i === at)} class=${`tr taperow ${i === at ? 'at' : ''}`} style=${{ top: `${top}px`, height: `${HEIGHT}px` }} onClick=${() => open(i)}><span role="cell" class="keycell"><code>${each.key.slice(0, 8)}</code></span><span role="cell" class="cut"><${Text} title=${each.said}>${each.said || each.what}</${Text}></span>
      <span role="cell" class="cut modelcell"><${Text}>${each.model || each.what}</${Text}></span><span role="cell" class="num statuscell">${each.status ?? f.NONE}</span><span role="cell" class="num tokenscell">${f.brief(each.input_tokens)} / ${f.brief(each.output_tokens)}</span><span role="cell" class="num">${each.hits ? f.count(each.hits) : html`<span class="faint">0</span>`}</span><span role="cell" class="whencell"><${When} at=${each.recorded_at} /></span>
      <span role="cell" class="row">${each.state !== 'complete' && html`<span class="badge bad">${each.state}</span>`}${each.expired && html`<span class="badge warn">expired</span>`}${each.unused && html`<span class="badge">unused</span>`}</span></div>`;
  };
  const heads = [['Key', 'keycell'], ['What was said'], ['Model', 'modelcell'], ['Status', 'num statuscell'], ['In / out', 'num tokenscell'], ['Served', 'num'], ['Recorded', 'whencell'], ['']];
  return html`<div class="whole tapepage"><header class="wholehead"><nav class="crumbs" aria-label="Where this is"><a href="#/tapes">Tapes</a> / <span>Tape</span></nav><h1><${Text}>${path}</${Text}></h1>
    <dl class="counters"><${Count} name="Answers" value=${f.count(found.tape.answers)}>${f.bytes(found.tape.bytes)}, ${found.tape.kind}</${Count}><${Count} name="Served from it" value=${f.count(found.served + since.served)}>${ended}${since.served > 0 && `, ${atLeast}${f.count(since.served)} since`}</${Count}>
      <${Count} name="Refused" value=${f.count(found.refused + since.refused)} bad=${found.refused + since.refused > 0}>${since.refused > 0 ? html`<a href="#/tapes">${atLeast}${f.count(since.refused)} lately</a>` : 'requests that are not on it'}</${Count}><${Count} name="Not spent" value=${saved.usd == null ? f.count(saved.tokens) : f.money(saved.usd)}>${saved.usd == null ? 'tokens' : `${f.brief(saved.tokens)} tokens`} in ${f.plural(saved.calls, 'call')}${saved.unpriced ? `, ${saved.unpriced} without a price` : ''}</${Count}>
      <${Count} name="Unused" value=${found.unused == null ? f.NONE : f.count(found.unused)} bad=${found.unused > 0}>${found.unused == null ? 'no run has ended here' : 'in the latest run'}</${Count}><${Count} name="Expired" value=${f.count(found.expired)} bad=${found.expired > 0}>${'by max_age of tapes.toml'}</${Count}></dl>
    <div class="row wrap"><${Segments} label="Which recordings" value=${show} options=${Object.entries(SHOWS).map(([name, [label]]) => [name, label])} onChange=${(name) => set({ show: name, open: '', n: '' })} /><span class="dim">${f.plural(rows.length, 'recording')}${found.left_out ? ` of ${f.count(found.exchanges.length + found.left_out)}; the rest: tapes tape ls ${f.typed(path)}` : ''}</span></div></header>
    ${!rows.length ? html`<${Blank} title=${show ? `None is ${show}` : 'This tape is empty'} />` : html`<div class="listbody"><div class="tablebox"><${Virtual} outer=${{ role: 'table', 'aria-label': 'Recordings' }} count=${rows.length} height=${HEIGHT} row=${row} at=${at} head=${html`<div class="tr th taperow" data-head="yes" role="row">${heads.map(([head, name]) => html`<span key=${head} role="columnheader" class=${name || ''}>${head || html`<span class="sr">State</span>`}</span>`)}</div>`} /></div>
      ${opened >= 0 && html`<${Recording} key=${`${params.open} ${params.n}`} tape=${path} row=${rows[opened]} n=${rows[opened].n} tab=${params.tab} onTab=${(tab) => set({ tab })} onClose=${close} />`}</div>`}
    ${(found.unused > 0 || found.expired > 0) && html`<footer class="tapefoot">${found.unused > 0 && html`<${CopyLine} text=${`tapes tape prune ${f.typed(path)} --unused`} />`}${found.expired > 0 && html`<${CopyLine} text=${`DEMO_LIVE=1 tapes tape refresh ${f.typed(path)} --expired`} />`}</footer>`}</div>`;
}
