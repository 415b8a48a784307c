// Sessions, traces or spans: one filter, bars over time, rows; a side sheet, and what to do with many.
import { html, useEffect, useRef, useState, useStore } from '../parts/view.js';
import { go, link, recall, remember, set, useRoute } from '../parts/route.js';
import { prefer, prefs } from '../parts/prefs.js';
import { useKeys } from '../parts/keys.js';
import { Filter, RANGES, asked } from '../parts/filter.js';
import { Histogram } from '../parts/histogram.js';
import { Blank, Dialog, Failed, Icon, Segments, Shades, Stale } from '../parts/pieces.js';
import { Virtual } from '../parts/virtual.js';
import { COLUMNS, idOf, placeOf } from '../parts/columns.js';
import { useRows } from '../parts/rows.js';
import { Sheet } from '../parts/sheet.js';
import { Many } from '../parts/many.js';
import * as f from '../parts/format.js';
import { Start } from './start.js';

const HEIGHT = 34;

// Where nobody chose, a narrow window does without what is widest and least asked for.
const wide = matchMedia('(min-width: 74rem)');

function shownColumns(noun, columns) {
  const chosen = columns?.[noun];
  return COLUMNS[noun].filter((each) => each.fixed || (chosen ? chosen.includes(each.id) : !each.more && (wide.matches || !each.wide)));
}

export function List({ noun }) {
  const { params } = useRoute();
  const q = asked(params);
  const rows = useRows(noun, { q, sort: params.sort, direction: params.dir });
  const columns = shownColumns(noun, useStore(prefs).columns);
  const [, setWide] = useState(wide.matches);
  useEffect(() => {
    const change = () => setWide(wide.matches);
    wide.addEventListener('change', change);
    return () => wide.removeEventListener('change', change);
  }, []);
  const [chosen, setChosen] = useState(new Set());
  const [choosing, setChoosing] = useState(false);
  const memory = `${noun} ${q} ${params.sort} ${params.dir}`;
  const [at, setAt] = useState(() => recall(memory)?.at ?? -1);
  const place = useRef(recall(memory)?.top ?? 0);
  useEffect(() => () => remember(memory, { at, top: place.current }), [memory, at]);
  const ids = rows.items.map(idOf[noun]);
  const index = params.open ? ids.indexOf(params.open) : Math.min(at, ids.length - 1);
  const move = (by) => {
    if (!ids.length) return;
    const next = Math.max(0, Math.min(ids.length - 1, index + by));
    setAt(next);
    if (params.open) set({ open: ids[next] });
  };
  const enter = () => index >= 0 && go(...placeOf[noun](rows.items[index]));
  const toggle = (id) => setChosen((now) => { const next = new Set(now); if (!next.delete(id)) next.add(id); return next; });
  useKeys([
    { key: 'j', also: ['ArrowDown'], label: 'next', run: () => move(1) },
    { key: 'k', also: ['ArrowUp'], label: 'previous', run: () => move(-1) },
    { key: 'Enter', label: 'open', run: enter },
    { key: ' ', shown: 'Space', label: 'look', run: () => index >= 0 && set({ open: params.open === ids[index] ? '' : ids[index] }, { push: true }) },
    { key: 'x', label: 'select', run: () => index >= 0 && toggle(ids[index]) },
    { key: 'f', label: 'filter', run: () => document.querySelector('[data-filter]')?.focus() },
    { key: 'e', label: 'next error', run: () => {
      const next = rows.items.findIndex((row, i) => i > index && isBad(noun, row));
      if (next >= 0) { setAt(next); if (params.open) set({ open: ids[next] }); }
    } },
    { key: 'n', label: 'show new', hidden: !rows.fresh, run: rows.reload },
    { key: 'Escape', shown: 'Esc', label: 'back', hidden: true, run: () => (params.open ? set({ open: '' }) : setChosen(new Set())) },
  ]);
  const narrow = (patch) => { setAt(-1); set({ open: '', ...patch }, { push: true }); };
  const unfiltered = !q;
  if (!rows.loading && !rows.problem && !rows.items.length && unfiltered) return html`<${Start} again=${rows.reload} fresh=${rows.fresh} />`;
  return html`<div class="list">
    <div class="listhead">
      <h1 class="sr">${noun[0].toUpperCase() + noun.slice(1)}</h1>
      <${Filter} noun=${noun} value=${params.q || ''} problem=${rows.problem} onChange=${(text) => narrow({ q: text })} />
      <div class="row wrap">
        <${Segments} label="Time" value=${params.from || params.to ? 'own' : params.range || ''} options=${params.from || params.to ? [...RANGES, ['own', 'Chosen']] : RANGES}
          onChange=${(range) => range !== 'own' && narrow({ range, from: '', to: '' })} />
        ${(params.from || params.to) && html`<button class="linklike" onClick=${() => narrow({ from: '', to: '' })}>All time again</button>`}
        <span class="grow" />
        <span class="dim tnum" role="status">${counted(noun, rows)}</span>
        <button class="button plain" onClick=${() => setChoosing(true)}><${Icon} name="columns" />Columns</button>
      </div>
      <${Histogram} noun=${noun} q=${q} version=${rows.version} wait=${rows.loading} onRange=${(from, to) => narrow({ from, to, range: '' })} />
    </div>
    ${rows.remarks?.length > 0 && html`<div class="notice warn"><${Icon} name="warn" /><p>${rows.remarks.join(' ')}</p></div>`}
    ${rows.problem && rows.items.length > 0 && html`<${Stale} problem=${rows.problem} retry=${rows.reload} />`}
    <div class="listbody">
      ${rows.problem && !rows.items.length ? html`<div class="page"><${Failed} problem=${rows.problem} retry=${rows.reload} query=${rows.problem.position == null ? null : q} /></div>`
        : rows.loading && !rows.items.length ? html`<${Shades} rows=${12} />`
        : !rows.items.length ? html`<${Blank} title=${`No ${noun} match`}><p>Nothing that was captured fits this filter${params.range || params.from ? ' in this time' : ''}.</p>
            <button class="button first" onClick=${() => narrow({ q: '', range: '', from: '', to: '' })}>Clear the filter</button></${Blank}>`
        : html`<${Table} ...${{ noun, rows, columns, index, chosen, toggle, params, place }} onPick=${(i) => { setAt(i); set({ open: ids[i] }, { push: !params.open }); }} />`}
      ${params.open && html`<${Sheet} noun=${noun} id=${params.open} row=${rows.items[ids.indexOf(params.open)]} onClose=${() => set({ open: '' })} />`}
    </div>
    ${rows.fresh > 0 && html`<button class="announce" onClick=${() => { setAt(-1); rows.reload(); }}>${noun === 'sessions' ? `${f.plural(rows.fresh, 'new session')}` : 'New or changed'} · show</button>`}
    ${chosen.size > 0 && html`<${Many} noun=${noun} ids=${[...chosen]} rows=${rows.items.filter((row) => chosen.has(idOf[noun](row)))} onDone=${() => { setChosen(new Set()); rows.reload(); }} onClear=${() => setChosen(new Set())} />`}
    ${choosing && html`<${Columns} noun=${noun} onClose=${() => setChoosing(false)} />`}
  </div>`;
}

const isBad = (noun, row) => (noun === 'sessions' ? row.rollup.failed_calls + row.rollup.tool_error_count > 0 : row.status === 'error');

function counted(noun, rows) {
  if (!rows.count) return '';
  const all = `${f.count(rows.count.value)}${rows.count.exact ? '' : ' or more'}`;
  return rows.count.value > rows.items.length ? `${f.count(rows.items.length)} of ${all} ${noun}` : `${all} ${noun}`;
}

function Table({ noun, rows, columns, index, chosen, toggle, params, onPick, place }) {
  const template = `2.25rem ${columns.map((each) => each.width).join(' ')}`;
  const sort = params.sort || { sessions: 'last_active', traces: 'started_at', spans: 'started_at' }[noun];
  const sorted = (each) => (each.sort === sort ? (params.dir === 'asc' ? 'ascending' : 'descending') : each.sort ? 'none' : undefined);
  const by = (each) => set({ sort: each.sort, dir: sort === each.sort && params.dir !== 'asc' ? 'asc' : '' }, { push: true });
  const head = html`<div class="tr th" data-head="yes" role="row" style=${{ gridTemplateColumns: template }}>
    <span role="columnheader"><span class="sr">Selected</span></span>
    ${columns.map((each) => html`<span key=${each.id} role="columnheader" class=${each.num ? 'num' : ''} aria-sort=${sorted(each)}>${each.sort
      ? html`<button onClick=${() => by(each)}>${each.head}${each.sort === sort ? (params.dir === 'asc' ? ' ↑' : ' ↓') : ''}</button>` : each.head}</span>`)}</div>`;
  const row = (i, top) => {
    const item = rows.items[i];
    const id = idOf[noun](item);
    return html`<div key=${id} role="row" aria-rowindex=${i + 2} aria-selected=${String(i === index)} class=${`tr ${i === index ? 'at' : ''} ${chosen.has(id) ? 'chosen' : ''} ${item.erased ? 'gone' : ''}`}
        style=${{ gridTemplateColumns: template, top: `${top}px`, height: `${HEIGHT}px` }} onClick=${(event) => !event.target.closest('input, a') && onPick(i)}
        onDblClick=${() => go(...placeOf[noun](item))}>
      <span role="cell"><input type="checkbox" aria-label="Select this row" checked=${chosen.has(id)} onChange=${() => toggle(id)} /></span>
      ${columns.map((each) => html`<span key=${each.id} role="cell" class=${each.num ? 'num' : 'cut'}>${each.fixed
        ? html`<a href=${link(...placeOf[noun](item))} tabindex=${i === Math.max(index, 0) ? 0 : -1}>${each.cell(item)}</a>` : each.cell(item)}</span>`)}</div>`;
  };
  return html`<div class="tablebox">
    <${Virtual} count=${rows.items.length} height=${HEIGHT} row=${row} head=${head} outer=${{ role: 'table', 'aria-label': noun, 'aria-rowcount': rows.count?.exact ? rows.count.value + 1 : -1 }} at=${index} start=${place.current}
      onScroll=${(top) => { place.current = top; }} onEnd=${rows.more}
      extra=${rows.tail ? html`<${Failed} problem=${rows.tail} retry=${rows.more} />` : rows.cursor && html`<p class="faint more">more rows are read as you scroll</p>`} /></div>`;
}

function Columns({ noun, onClose }) {
  const { columns } = useStore(prefs);
  const shown = shownColumns(noun, columns).map((each) => each.id);
  const flip = (id) => prefer({ columns: { ...columns, [noun]: shown.includes(id) ? shown.filter((each) => each !== id) : [...shown, id] } });
  return html`<${Dialog} title="Columns" onClose=${onClose}>${COLUMNS[noun].map((each) => html`<label key=${each.id} class="row"><input type="checkbox"
    checked=${shown.includes(each.id)} disabled=${each.fixed} onChange=${() => flip(each.id)} />${each.head}</label>`)}
    <div><button class="button" onClick=${() => prefer({ columns: { ...columns, [noun]: undefined } })}>As usual</button></div></${Dialog}>`;
}
