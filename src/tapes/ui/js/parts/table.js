// The table of a list as elements, without state: the list draws it with what its parts do, and what
// is seen first is drawn from it before anything does something.
import { h } from './view.js';
import { gridOf, idOf, placeOf, shownColumns } from './columns.js';
import { link } from './route.js';
import { prefs } from './prefs.js';
import { Wrong } from './pieces.js';
import { frameOf, seenFirst } from './virtual.js';
import * as f from './format.js';

export const HEIGHT = 34;
const SORTS = { sessions: 'last_active', traces: 'started_at', spans: 'started_at' };
export const sortOf = (noun, params) => params.sort || SORTS[noun];
const HEAD_KEYS = '← → from head to head; Shift ← → moves the column; + and - make it wider and narrower, 0 as usual';
const GRIP = 'Drag to make it wider; twice: as usual';

// `is` says how a row stands: `at`, `first` to be reached by Tab, `chosen`, `bare` while nobody can point
// at it; `does` what its parts do.
export function rowOf(noun, item, i, { columns, utc, is = {}, does = {} }) {
  const stateless = !columns.some((each) => each.id === 'state');
  return h('div', {
    key: idOf[noun](item), role: 'row', 'aria-rowindex': i + 2, 'aria-selected': String(Boolean(is.at)), class: `tr ${is.at ? 'at' : ''} ${is.chosen ? 'chosen' : ''} ${item.erased ? 'gone' : ''}`,
    style: { top: `${i * HEIGHT}px` }, onClick: does.pick, onDblClick: does.open,
  }, h('span', { role: 'cell' }, h('input', { type: 'checkbox', 'aria-label': 'Select this row', checked: Boolean(is.chosen), onChange: does.choose })),
  columns.map((each) => {
    const cell = each.cell(item, utc);
    return h('span', {
      key: each.id, role: 'cell', class: `${each.num ? 'num' : 'cut'} ${each.tone ? each.tone(item) : ''}`, title: is.bare ? undefined : each.tip && each.tip(item), dir: each.text ? 'auto' : undefined,
    }, each.fixed ? h('a', { class: 'titlecell', href: link(...placeOf[noun](item)), tabindex: is.first ? 0 : -1 }, stateless && Wrong({ state: item.rollup?.status ?? item.status }), cell) : each.text ? f.visible(cell) : cell);
  }));
}

// The heads; `at` is the one that is reached by Tab, `does` gives what each and its edge do.
export function headsOf(columns, { sort, dir, at, tone = () => '', does = () => ({}) }) {
  const arrow = dir === 'asc' ? ' ↑' : ' ↓';
  return h('div', { class: 'tr th', 'data-head': 'yes', role: 'row' },
    h('span', { role: 'columnheader' }, h('span', { class: 'sr' }, 'Selected')),
    columns.map((each) => {
      const { name, grip, sorts } = does(each);
      const attributes = { 'data-column': each.id, tabindex: each.id === at ? 0 : -1, title: HEAD_KEYS, ...name };
      const sorted = each.sort === sort ? (dir === 'asc' ? 'ascending' : 'descending') : 'none';
      return h('span', { key: each.id, role: 'columnheader', 'data-head': each.id, class: `${each.num ? 'num' : ''} ${tone(each)}`, 'aria-sort': each.sort ? sorted : undefined },
        each.sort ? h('button', { ...attributes, onClick: sorts }, `${each.head}${each.sort === sort ? arrow : ''}`) : h('span', { class: 'headname', ...attributes }, each.head),
        h('i', { class: 'grip', 'aria-hidden': 'true', title: GRIP, ...grip }));
    }));
}

export const aboutOf = (noun, count) => ({ role: 'table', 'aria-label': noun, 'aria-rowcount': count?.exact ? count.value + 1 : -1 });

// The table as it is first seen: the rows in sight, nothing chosen, nobody listening.
export function firstTable(noun, items) {
  const preferred = prefs.get();
  const columns = shownColumns(noun, preferred);
  const rows = items.slice(0, seenFirst(HEIGHT)).map((item, i) => rowOf(noun, item, i, { columns, utc: preferred.utc, is: { first: i === 0, bare: true } }));
  return frameOf({
    rows, height: items.length * HEIGHT, outer: aboutOf(noun), style: gridOf(noun, columns, preferred),
    head: headsOf(columns, { sort: sortOf(noun, {}), at: columns[0].id }),
  });
}
