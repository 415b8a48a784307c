// Sessions, traces or spans: one filter, bars over time, rows; a side sheet, and what to do with many.
import { html, useEffect, useRef, useState, useStore } from '../parts/view.js';
import { go, recall, remember, set, useRoute, useTitle } from '../parts/route.js';
import { prefer, prefs } from '../parts/prefs.js';
import { useKeys } from '../parts/keys.js';
import { Filter, RANGES, asked } from '../parts/filter.js';
import { Histogram } from '../parts/histogram.js';
import { Blank, Dialog, Failed, Icon, Segments, Shades, Stale } from '../parts/pieces.js';
import { Virtual } from '../parts/virtual.js';
import { asUsual, bounded, flip, gridOf, idOf, ordered, placeOf, put, room, shift, shownColumns, widen, widthOf } from '../parts/columns.js';
import { HEIGHT, aboutOf, headsOf, rowOf, sortOf } from '../parts/table.js';
import { useRows } from '../parts/rows.js';
import { Sheet } from '../parts/sheet.js';
import { Many } from '../parts/many.js';
import { Facets } from '../parts/facets.js';
import * as f from '../parts/format.js';
import { Start } from './start.js';

// What the sheet and the filters at the side take, in rem, where they do not lie over the list.
const besideOf = (width, isOpen, hasFilters) => (width < 60 ? 0 : (isOpen ? Math.min(30, width * 0.46) : 0) + (hasFilters ? 13 : 0));

export function List({ noun }) {
  const { params } = useRoute();
  useTitle(params.q);
  const q = asked(params);
  const rows = useRows(noun, { q, sort: params.sort, direction: params.dir });
  const preferred = useStore(prefs);
  const columns = shownColumns(noun, preferred, besideOf(useStore(room), params.open, preferred.facets));
  const [chosen, setChosen] = useState(new Map()); // with what is known of each: another filter may not show it
  const [choosing, setChoosing] = useState(false);
  const memory = `${noun} ${q} ${params.sort} ${params.dir}`;
  const [at, setAt] = useState(() => recall(memory)?.at ?? -1);
  const place = useRef(recall(memory)?.top ?? 0);
  // Another order or filter begins at its top, or where it was left.
  const left = useRef({ memory, at });
  const leave = () => remember(left.current.memory, { at: left.current.at, top: place.current });
  const isOther = left.current.memory !== memory;
  if (isOther) { leave(); place.current = recall(memory)?.top ?? 0; }
  left.current = { memory, at: isOther ? recall(memory)?.at ?? -1 : at };
  useEffect(() => setAt(left.current.at), [memory]);
  useEffect(() => () => leave(), []);
  const ids = rows.items.map(idOf[noun]);
  const index = params.open ? ids.indexOf(params.open) : Math.min(at, ids.length - 1);
  const move = (by) => {
    if (!ids.length) return;
    const next = Math.max(0, Math.min(ids.length - 1, index + by));
    setAt(next);
    if (params.open) set({ open: ids[next] });
  };
  const enter = () => index >= 0 && go(...placeOf[noun](rows.items[index]));
  const toggle = (id) => setChosen((now) => { const next = new Map(now); if (!next.delete(id)) next.set(id, rows.items[ids.indexOf(id)]); return next; });
  const renew = () => { setAt(-1); rows.reload(); };
  useKeys([
    { key: 'j', also: ['ArrowDown'], label: 'next', hidden: !ids.length, run: () => move(1) },
    { key: 'k', also: ['ArrowUp'], label: 'previous', hidden: !ids.length, run: () => move(-1) },
    { key: 'Enter', label: 'open', hidden: !ids.length, run: enter },
    { key: ' ', shown: 'Space', label: 'look', hidden: !ids.length, run: () => index >= 0 && set({ open: params.open === ids[index] ? '' : ids[index] }, { push: true }) },
    { key: 'x', label: 'select', hidden: !ids.length, run: () => index >= 0 && toggle(ids[index]) },
    { key: 'f', label: 'filter', run: () => document.querySelector('[data-filter]')?.focus() },
    { key: 'F', label: 'filters at the side', hidden: true, run: () => prefer({ facets: !prefs.get().facets }) },
    { key: 'e', label: 'next error', hidden: !ids.length, run: () => {
      const next = rows.items.findIndex((row, i) => i > index && isBad(noun, row));
      if (next >= 0) { setAt(next); if (params.open) set({ open: ids[next] }); }
    } },
    { key: 'n', label: 'show new', hidden: !rows.fresh, run: renew },
    { key: 'Escape', shown: 'Esc', label: 'back', hidden: true, run: () => (params.open ? set({ open: '' }) : setChosen(new Map())) },
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
        <button class="button plain" aria-pressed=${String(Boolean(preferred.facets))} onClick=${() => prefer({ facets: !preferred.facets })}><${Icon} name="facets" />Filters</button>
        <button class="button plain" onClick=${() => setChoosing(true)}><${Icon} name="columns" />Columns</button>
      </div>
      <${Histogram} noun=${noun} q=${q} version=${rows.version} wait=${rows.loading} onRange=${(from, to) => narrow({ from, to, range: '' })} />
    </div>
    ${rows.remarks?.length > 0 && html`<div class="notice warn"><${Icon} name="warn" /><p>${rows.remarks.join(' ')}</p></div>`}
    ${rows.problem && rows.items.length > 0 && html`<${Stale} problem=${rows.problem} retry=${rows.reload} />`}
    <div class="listbody">
      ${preferred.facets && html`<${Facets} noun=${noun} q=${params.q || ''} version=${rows.version} onChange=${(text) => narrow({ q: text })} onClose=${() => prefer({ facets: false })} />`}
      ${rows.problem && !rows.items.length ? html`<div class="page"><${Failed} problem=${rows.problem} retry=${rows.reload} query=${rows.problem.position == null ? null : q} /></div>`
        : rows.loading && !rows.items.length ? html`<${Shades} rows=${12} />`
        : !rows.items.length ? html`<${Blank} title=${`No ${noun} match`}><p>Nothing that was captured fits this filter${params.range || params.from ? ' in this time' : ''}.</p>
            <button class="button first" onClick=${() => narrow({ q: '', range: '', from: '', to: '' })}>Clear the filter</button></${Blank}>`
        : html`<${Table} ...${{ noun, rows, columns, preferred, index, chosen, toggle, params, place, memory }} onPick=${(i) => { setAt(i); set({ open: ids[i] }, { push: !params.open }); }} />`}
      ${params.open && html`<${Sheet} noun=${noun} id=${params.open} row=${rows.items[ids.indexOf(params.open)]} onClose=${() => set({ open: '' })} />`}
    </div>
    ${rows.fresh > 0 && html`<button class="announce" onClick=${renew}>${noun === 'sessions' ? `${f.plural(rows.fresh, 'new session')}` : 'New or changed'} · show</button>`}
    ${chosen.size > 0 && html`<${Many} noun=${noun} ids=${[...chosen.keys()]} rows=${[...chosen.values()]} onDone=${() => { setChosen(new Map()); rows.reload(); }} onClear=${() => setChosen(new Map())} />`}
    ${choosing && html`<${Columns} noun=${noun} onClose=${() => setChoosing(false)} />`}
  </div>`;
}

const isBad = (noun, row) => (noun === 'sessions' ? row.rollup.failed_calls + row.rollup.tool_error_count > 0 || row.rollup.status === 'failed' : row.status === 'error');

function counted(noun, rows) {
  if (!rows.count) return '';
  const all = `${f.count(rows.count.value)}${rows.count.exact ? '' : ' or more'}`;
  const named = rows.count.value === 1 && rows.count.exact ? noun.slice(0, -1) : noun;
  return rows.count.value > rows.items.length ? `${f.count(rows.items.length)} of ${all} ${named}` : `${all} ${named}`;
}

function Table({ noun, rows, columns, preferred, index, chosen, toggle, params, onPick, place, memory }) {
  const [trying, setTrying] = useState({});
  const sort = sortOf(noun, params);
  const { utc } = preferred;
  const row = (i) => {
    const item = rows.items[i];
    const id = idOf[noun](item);
    return rowOf(noun, item, i, {
      columns, utc, is: { at: i === index, first: i === Math.max(index, 0), chosen: chosen.has(id) },
      does: { pick: (event) => !event.target.closest('input, a') && onPick(i), open: () => go(...placeOf[noun](item)), choose: () => toggle(id) },
    });
  };
  const head = html`<${Heads} ...${{ noun, columns, preferred, sort, params, setTrying }} />`;
  return html`<div class="tablebox">
    <${Virtual} count=${rows.items.length} height=${HEIGHT} row=${row} head=${head} style=${gridOf(noun, columns, preferred, trying)} outer=${aboutOf(noun, rows.count)} at=${index} start=${place.current} of=${memory}
      onScroll=${(top) => { place.current = top; }} onEnd=${rows.more}
      extra=${rows.tail ? html`<${Failed} problem=${rows.tail} retry=${rows.more} />` : rows.cursor && html`<p class="faint more">more rows are read as you scroll</p>`} /></div>`;
}

// The heads: a click sorts, dragging puts a column elsewhere, its edge makes it wider. One of them is
// reached by Tab, the others from there by arrows.
function Heads({ noun, columns, preferred, sort, params, setTrying }) {
  const [at, setAt] = useState('');
  const [drag, setDrag] = useState(null);
  const ids = columns.map((each) => each.id);
  const within = ids.includes(at) ? at : ids[0];
  const by = (each) => set({ sort: each.sort, dir: sort === each.sort && params.dir !== 'asc' ? 'asc' : '' }, { push: true });
  const focus = (id) => { setAt(id); requestAnimationFrame(() => document.querySelector(`[data-column="${id}"]`)?.focus()); };
  const press = (event, each) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const width = widthOf(noun, each);
    const by_ = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by_ && event.shiftKey) { shift(noun, each.id, by_, ids); focus(each.id); }
    else if (by_) focus(ids[ids.indexOf(each.id) + by_] || each.id);
    else if (event.key === '+' || event.key === '-') widen(noun, each.id, width + (event.key === '+' ? 0.5 : -0.5));
    else if (event.key === '0') widen(noun, each.id, null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  // What is under the pointer while a head is dragged.
  const over = (event) => document.elementFromPoint(event.clientX, event.clientY)?.closest('[role=columnheader]')?.dataset.head;
  const down = (event, each) => { if (event.button === 0) setDrag({ id: each.id, from: event.clientX, over: '' }); };
  const move = (event) => {
    if (!drag || !event.buttons || (!drag.over && Math.abs(event.clientX - drag.from) < 6)) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    setDrag({ ...drag, over: over(event) || drag.over || drag.id });
  };
  const up = () => { if (drag?.over) put(noun, drag.id, drag.over); setTimeout(() => setDrag(null)); };
  const grip = (each) => {
    const began = (event) => {
      const cell = event.currentTarget.parentElement.getBoundingClientRect();
      event.currentTarget.setPointerCapture(event.pointerId);
      event.currentTarget.dataset.less = event.clientX - cell.width;
      event.stopPropagation();
    };
    const width = (event) => bounded((event.clientX - event.currentTarget.dataset.less) / parseFloat(getComputedStyle(document.documentElement).fontSize));
    return {
      onPointerDown: began, onDblClick: () => widen(noun, each.id, null),
      onPointerMove: (event) => { if (event.buttons) { event.currentTarget.dataset.moved = 'yes'; setTrying({ [each.id]: width(event) }); } },
      onPointerUp: (event) => { if (event.currentTarget.dataset.moved) widen(noun, each.id, width(event)); delete event.currentTarget.dataset.moved; setTrying({}); },
    };
  };
  const does = (each) => ({
    sorts: () => drag?.over || by(each), grip: grip(each), name: {
      onKeyDown: (event) => press(event, each), onFocus: () => setAt(each.id),
      onPointerDown: (event) => down(event, each), onPointerMove: move, onPointerUp: up, onPointerCancel: () => setDrag(null),
    },
  });
  const tone = ({ id }) => (!drag?.over ? '' : id === drag.id ? 'dragged' : id === drag.over ? 'target' : '');
  return headsOf(columns, { sort, dir: params.dir, at: within, tone, does });
}

function Columns({ noun, onClose }) {
  const preferred = useStore(prefs);
  const all = ordered(noun, preferred);
  const ids = all.map((each) => each.id);
  const shown = shownColumns(noun, preferred).map((each) => each.id);
  const button = (label, text, run, disabled) => html`<button class="button plain icon" aria-label=${label} title=${label} disabled=${disabled} onClick=${run}>${text}</button>`;
  return html`<${Dialog} title="Columns" onClose=${onClose}><ul class="columnlist">${all.map((each, i) => html`<li key=${each.id} class="row">
    <label class="row grow"><input type="checkbox" checked=${shown.includes(each.id)} disabled=${each.fixed} onChange=${() => flip(noun, each.id)} />${each.head}</label>
    ${button(`${each.head}: earlier`, '↑', () => shift(noun, each.id, -1, ids), i === 0)}${button(`${each.head}: later`, '↓', () => shift(noun, each.id, 1, ids), i === all.length - 1)}
    ${button(`${each.head}: narrower`, '−', () => widen(noun, each.id, widthOf(noun, each) - 0.5))}${button(`${each.head}: wider`, '+', () => widen(noun, each.id, widthOf(noun, each) + 0.5))}</li>`)}</ul>
    <div><button class="button" onClick=${() => asUsual(noun)}>As usual</button></div></${Dialog}>`;
}
