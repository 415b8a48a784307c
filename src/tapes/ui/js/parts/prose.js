// Texts with Markdown as they are meant, or as they were written: as the reader likes. Made of elements,
// each with a text in it; a link says where it leads, and leads there when it is pressed and never before.
import { h, html, useEffect, useMemo, useRef, useState, useStore } from './view.js';
import { prefer, prefs } from './prefs.js';
import { CopyButton, Icon, Text, shown } from './pieces.js';
import { blocksOf, piecesOf } from './markdown.js';
import * as f from './format.js';

export const flipPlain = () => prefer({ plain: !prefs.get().plain });
export const PLAIN_KEY = { key: 'm', label: 'plain text', hidden: true, run: flipPlain };
export function PlainSwitch() {
  const { plain } = useStore(prefs);
  return html`<button class="button plain" aria-pressed=${String(Boolean(plain))} title="Show texts as they were written, with the signs of Markdown (m)" onClick=${flipPlain}>Plain text</button>`;
}

const MOST = 60_000; // characters; what has more is shown as it was written

export function Prose({ text, className }) {
  const { plain } = useStore(prefs);
  const isLong = text.length > MOST;
  const blocks = useMemo(() => (plain || isLong ? null : blocksOf(text)), [text, plain]);
  const isMixed = useMemo(() => f.mixes(text), [text]);
  if (!blocks) return html`<${Text} as="div" class=${className}>${text}</${Text}>${isLong && !plain && html`<p class="faint">More than ${f.count(MOST)} characters: as it was written, without Markdown</p>`}`;
  return html`<div class=${`${className} markdown`}><${Blocks} ...${{ blocks, isMixed }} /></div>`;
}

// What is long comes in groups, a few at a time, so that the page answers in between. What was shown
// before it became longer is shown at once.
const GROUP = 40;
const AT_ONCE = 3;
const THEN = 8;
function useSome(list, draw) {
  const held = useMemo(() => ({ from: list[Symbol.iterator](), groups: [], isDone: false }), [list]);
  const [, again] = useState(0);
  const before = useRef(AT_ONCE);
  const pull = (most) => {
    for (let n = 0; n < most && !held.isDone; n += 1) {
      const part = [];
      while (part.length < GROUP && !held.isDone) {
        const { value, done } = held.from.next();
        if (done) held.isDone = true;
        else part.push(value);
      }
      if (part.length) held.groups.push(draw(part, held.groups.length));
    }
    before.current = Math.max(before.current, held.groups.length);
  };
  if (!held.groups.length) pull(before.current);
  const { length } = held.groups;
  useEffect(() => {
    if (held.isDone) return undefined;
    const soon = setTimeout(() => { pull(THEN); again((n) => n + 1); });
    return () => clearTimeout(soon);
  }, [held, length]);
  return held.groups.slice();
}

const Some = ({ list, draw }) => list.map(draw);
const Blocks = ({ blocks, isMixed }) => useSome(blocks, (list, i) => h(Some, { key: i, list, draw: (block, n) => h(Block, { key: n, block, isMixed }) }));

// What holds others begins at the side at which the first text in it does.
const textIn = ([block]) => (!block ? '' : block.text ?? (block.head ? block.head.join(' ') : textIn(block.blocks || block.items?.[0].blocks || [])));
const sideOf = (text) => (f.beginsRight(text) ? 'rtl' : 'ltr');

function Block({ block, isMixed }) {
  switch (block.kind) {
    case 'head': return h(`h${Math.min(6, block.level + 3)}`, { class: `level${block.level}`, dir: 'auto' }, line(block.text, isMixed));
    case 'code': return html`<${Code} ...${block} />`;
    case 'list': return html`<${List} ...${{ ...block, isMixed }} />`;
    case 'quote': return html`<blockquote dir=${sideOf(textIn(block.blocks))}><${Blocks} ...${{ blocks: block.blocks, isMixed }} /></blockquote>`;
    case 'table': return html`<${Table} ...${{ ...block, isMixed }} />`;
    case 'rule': return html`<hr />`;
    default: return h('p', { dir: 'auto' }, line(block.text, isMixed));
  }
}

function List({ start, items, isMixed }) {
  const drawn = useSome(items, (list, i) => h(Some, { key: i, list, draw: (item, n) => h('li', { key: n, class: item.isTask ? 'task' : undefined },
    item.isTask && h('span', { role: 'img', 'aria-label': item.done ? 'done' : 'to do' }, item.done ? '☑' : '☐'), h('div', null, h(Blocks, { blocks: item.blocks, isMixed }))) }));
  const dir = sideOf(textIn(items[0].blocks));
  return start === null ? html`<ul dir=${dir}>${drawn}</ul>` : html`<ol dir=${dir} start=${start}>${drawn}</ol>`;
}

function Table({ head, sides, rows, isMixed }) {
  const drawn = useSome(rows, (list, i) => h(Some, { key: i, list, draw: (row, n) => h('tr', { key: n }, head.map((_, at) => h('td', { key: at, dir: 'auto', class: sides[at] }, line(row[at] || '', isMixed)))) }));
  return html`<div class="tableof" dir=${sideOf(head.join(' '))} tabindex="0" role="group" aria-label="Table"><table><thead><tr>${head.map((cell, at) => h('th', { key: at, scope: 'col', dir: 'auto', class: sides[at] }, line(cell, isMixed)))}</tr></thead><tbody>${drawn}</tbody></table></div>`;
}

const MOST_MARKED = 1500; // lines of a difference that have their colours
function Code({ language, text }) {
  return html`<figure class="codeof"><figcaption class="row"><${Text} class="cut grow">${language.slice(0, 40) || 'code'}</${Text}><${CopyButton} text=${text} label="Copy the code" what="Code copied" /></figcaption>
    <pre class="code" dir="ltr">${/^(?:diff|patch)$/i.test(language) ? marked(text) : shown(text)}</pre></figure>`;
}

function marked(text) {
  const lines = text.split('\n');
  if (lines.length > MOST_MARKED) return shown(text);
  return lines.map((each, i) => {
    const kind = /^(?:\+\+\+|---|@@)/.test(each) ? 'faint' : each[0] === '+' ? 'added' : each[0] === '-' ? 'removed' : '';
    return [i ? '\n' : '', kind ? h('span', { key: i, class: kind }, shown(each)) : shown(each)];
  });
}

const TAGS = { strong: 'strong', em: 'em', gone: 's' };
const line = (text, isMixed) => drawn(piecesOf(text), isMixed);
const drawn = (pieces, isMixed) => pieces.map((piece, i) => {
  if (typeof piece === 'string') return shown(piece, isMixed);
  if (piece.kind in TAGS) return h(TAGS[piece.kind], { key: i }, drawn(piece.pieces, isMixed));
  if (piece.kind === 'code') return h('code', { key: i, dir: 'auto' }, shown(piece.text, isMixed));
  return h(Leading, { key: i, ...piece, isMixed });
});

// What leads elsewhere. No address stands in the page as one: a browser may look for its host beforehand.
const SHOWN = 120;
function Leading({ kind, text, to, isMixed }) {
  const isBare = text === to || `${text}/` === to;
  return [kind === 'picture' && h('span', { class: 'faint' }, h(Icon, { name: 'picture' }), ' picture, not fetched: '), !isBare && [shown(text, isMixed), ' '],
    h('button', { class: 'linklike leading', dir: 'ltr', title: `Open ${to} in another tab`, onClick: (event) => { event.stopPropagation(); window.open(to, '_blank', 'noopener,noreferrer'); } }, to.length > SHOWN ? `${to.slice(0, SHOWN)}…` : to)];
}
