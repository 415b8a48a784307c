// One tape: what is on it, what replay saved, what no run used, what is too old.
import { html } from '../parts/view.js';
import { query, useAsk } from '../parts/api.js';
import { set, useRoute } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Asked, Blank, CopyLine, Segments, Text, When } from '../parts/pieces.js';
import { Virtual } from '../parts/virtual.js';
import { Gone } from '../parts/gone.js';
import * as f from '../parts/format.js';

const SHOWS = { '': ['All', () => true], unused: ['Unused', (row) => row.unused], expired: ['Expired', (row) => row.expired], incomplete: ['Incomplete', (row) => row.state !== 'complete'] };
const HEIGHT = 30;
const TEMPLATE = '6rem minmax(12rem, 1.4fr) minmax(8rem, 1fr) 4rem 6rem 5rem 6rem 7rem';

export function Screen() {
  const { path: [, path], params } = useRoute();
  const asked = useAsk(query('/v1/tapes/contents', { tape: path }));
  useKeys([{ key: 'Escape', shown: 'Esc', label: 'back', run: () => history.back() }]);
  if (asked.problem?.status === 404) return html`<${Gone} noun="tape" id=${path} />`;
  return html`<${Asked} asked=${asked} rows=${10}>${(found) => html`<${Whole} path=${path} found=${found} show=${params.show || ''} />`}</${Asked}>`;
}

const Number = ({ name, value, children, bad }) => html`<div><dt>${name}</dt><dd class=${`tnum ${bad ? 'warn' : ''}`}>${value}</dd>${children && html`<dd class="note faint">${children}</dd>`}</div>`;

function Whole({ path, found, show }) {
  const { saved } = found;
  const rows = found.exchanges.filter((SHOWS[show] || SHOWS[''])[1]);
  const row = (i, top) => {
    const each = rows[i];
    return html`<div key=${i} role="row" class="tr" style=${{ gridTemplateColumns: TEMPLATE, top: `${top}px`, height: `${HEIGHT}px` }}><span role="cell"><code>${each.key.slice(0, 8)}</code></span><span role="cell" class="cut"><${Text} title=${each.said}>${each.said || each.what}</${Text}></span>
      <span role="cell" class="cut"><${Text}>${each.model || each.what}</${Text}></span><span role="cell" class="num">${each.status ?? f.NONE}</span><span role="cell" class="num">${f.brief(each.input_tokens)} / ${f.brief(each.output_tokens)}</span><span role="cell" class="num">${each.hits ? f.count(each.hits) : html`<span class="faint">0</span>`}</span><span role="cell"><${When} at=${each.recorded_at} /></span>
      <span role="cell">${each.state !== 'complete' && html`<span class="badge bad">${each.state}</span>`}${each.expired && html`<span class="badge warn">expired</span>`}${each.unused && html`<span class="badge">unused</span>`}</span></div>`;
  };
  const heads = ['Key', 'What was said', 'Model', 'Status', 'In / out', 'Served', 'Recorded', ''];
  return html`<div class="whole tapepage"><header class="wholehead"><nav class="crumbs" aria-label="Where this is"><a href="#/tapes">Tapes</a> / <span>Tape</span></nav><h1><${Text}>${path}</${Text}></h1>
    <dl class="counters"><${Number} name="Answers" value=${f.count(found.tape.answers)}>${f.bytes(found.tape.bytes)}, ${found.tape.kind}</${Number}><${Number} name="Served from it" value=${f.count(found.served)}>${f.plural(found.runs.length, 'run')} known here</${Number}>
      <${Number} name="Refused" value=${f.count(found.refused)} bad=${found.refused > 0}>requests that are not on it</${Number}><${Number} name="Not spent" value=${saved.usd == null ? f.count(saved.tokens) : f.money(saved.usd)}>${saved.usd == null ? 'tokens' : `${f.brief(saved.tokens)} tokens`} in ${f.plural(saved.calls, 'call')}${saved.unpriced ? `, ${saved.unpriced} without a price` : ''}</${Number}>
      <${Number} name="Unused" value=${found.unused == null ? f.NONE : f.count(found.unused)} bad=${found.unused > 0}>${found.unused == null ? 'no run is known here' : 'in the latest run'}</${Number}><${Number} name="Expired" value=${f.count(found.expired)} bad=${found.expired > 0}>${'by max_age of tapes.toml'}</${Number}></dl>
    <div class="row wrap"><${Segments} label="Which recordings" value=${show} options=${Object.entries(SHOWS).map(([name, [label]]) => [name, label])} onChange=${(name) => set({ show: name })} /><span class="dim">${f.plural(rows.length, 'recording')}${found.left_out ? ` of ${f.count(found.exchanges.length + found.left_out)}; the rest: tapes tape ls ${path}` : ''}</span></div></header>
    ${!rows.length ? html`<${Blank} title=${show ? `None is ${show}` : 'This tape is empty'} />` : html`<div class="tablebox"><${Virtual} outer=${{ role: 'table', 'aria-label': 'Recordings' }} count=${rows.length} height=${HEIGHT} row=${row} head=${html`<div class="tr th" data-head="yes" role="row" style=${{ gridTemplateColumns: TEMPLATE }}>${heads.map((head, i) => html`<span key=${i} role="columnheader" class=${i > 2 && i < 6 ? 'num' : ''}>${head || html`<span class="sr">State</span>`}</span>`)}</div>`} /></div>`}
    ${(found.unused > 0 || found.expired > 0) && html`<footer class="tapefoot">${found.unused > 0 && html`<${CopyLine} text=${`tapes tape prune ${path} --unused`} />`}${found.expired > 0 && html`<${CopyLine} text=${`DEMO_LIVE=1 tapes tape refresh ${path} --expired`} />`}</footer>`}</div>`;
}
