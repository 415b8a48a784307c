// What differs: two JSON values place by place, and two texts word by word.
import { html, useMemo, useState } from './view.js';
import { Text, shown as seen } from './pieces.js';
import * as f from './format.js';

const isObject = (value) => value !== null && typeof value === 'object';
const same = (a, b) => a === b || (isObject(a) && isObject(b) && JSON.stringify(a) === JSON.stringify(b));

// [{path, was, is}], each the deepest place that differs. Lists are aligned at both ends, so that
// what was added at the end of a conversation is one addition, and nothing else.
export function differences(a, b, path = '', found = []) {
  if (same(a, b)) return found;
  if (Array.isArray(a) && Array.isArray(b)) {
    let head = 0;
    while (head < a.length && head < b.length && same(a[head], b[head])) head += 1;
    let tail = 0;
    while (tail < a.length - head && tail < b.length - head && same(a[a.length - 1 - tail], b[b.length - 1 - tail])) tail += 1;
    const [left, right] = [a.length - head - tail, b.length - head - tail];
    for (let i = 0; i < Math.max(left, right); i += 1) {
      const here = `${path}[${head + i}]`;
      if (i >= left) found.push({ path: here, is: b[head + i] });
      else if (i >= right) found.push({ path: here, was: a[head + i] });
      else differences(a[head + i], b[head + i], here, found);
    }
    return found;
  }
  if (isObject(a) && isObject(b) && Array.isArray(a) === Array.isArray(b)) {
    for (const name of new Set([...Object.keys(a), ...Object.keys(b)])) {
      const here = path ? `${path}.${name}` : name;
      if (!(name in a)) found.push({ path: here, is: b[name] });
      else if (!(name in b)) found.push({ path: here, was: a[name] });
      else differences(a[name], b[name], here, found);
    }
    return found;
  }
  found.push({ path, was: a, is: b });
  return found;
}

const MOST = 1200;

// [[-1 | 0 | 1, text]]: the longest common words kept. Long texts are compared by lines first.
export function words(a, b) {
  let left = a.split(/(\s+)/);
  let right = b.split(/(\s+)/);
  if (left.length > MOST || right.length > MOST) { left = a.split(/(?<=\n)/); right = b.split(/(?<=\n)/); }
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head += 1;
  let tail = 0;
  while (tail < left.length - head && tail < right.length - head && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail += 1;
  const x = left.slice(head, left.length - tail);
  const y = right.slice(head, right.length - tail);
  const parts = [];
  const push = (kind, text) => {
    if (!text) return;
    const last = parts[parts.length - 1];
    if (last && last[0] === kind) last[1] += text;
    else parts.push([kind, text]);
  };
  push(0, left.slice(0, head).join(''));
  if (x.length * y.length > 4_000_000) { push(-1, x.join('')); push(1, y.join('')); } else for (const [kind, text] of common(x, y)) push(kind, text);
  push(0, left.slice(left.length - tail).join(''));
  return parts;
}

function common(x, y) {
  const wide = y.length + 1;
  const table = new Uint16Array((x.length + 1) * wide);
  for (let i = x.length - 1; i >= 0; i -= 1) {
    for (let j = y.length - 1; j >= 0; j -= 1) {
      table[i * wide + j] = x[i] === y[j] ? table[(i + 1) * wide + j + 1] + 1 : Math.max(table[(i + 1) * wide + j], table[i * wide + j + 1]);
    }
  }
  const parts = [];
  let [i, j] = [0, 0];
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) { parts.push([0, x[i]]); i += 1; j += 1; } else if (j >= y.length || (i < x.length && table[(i + 1) * wide + j] >= table[i * wide + j + 1])) { parts.push([-1, x[i]]); i += 1; } else { parts.push([1, y[j]]); j += 1; }
  }
  return parts;
}

const MOST_SHOWN = 20_000;
const textOf = (value) => (value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value, null, 2));

export function Words({ was, is }) {
  const parts = useMemo(() => words(textOf(was), textOf(is)), [was, is]);
  const isWhole = was === undefined || is === undefined;
  return html`<div class=${`diff ${isWhole ? 'one' : ''}`} dir="auto">${parts.map(([kind, text], i) => {
    const shown = seen(kind === 0 && text.length > 400 ? `${text.slice(0, 180)} … ${text.slice(-180)}` : text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)} … ${f.count(text.length - MOST_SHOWN)} more characters` : text);
    return kind < 0 ? html`<del key=${i}>${shown}</del>` : kind > 0 ? html`<ins key=${i}>${shown}</ins>` : html`<span key=${i}>${shown}</span>`;
  })}</div>`;
}

export function Differences({ list, same: none = 'Nothing differs.' }) {
  const [most, setMost] = useState(30);
  if (!list.length) return html`<p class="dim">${none}</p>`;
  return html`<ol class="diffs">${list.slice(0, most).map((each) => html`<li key=${each.path}>
    <header><code><${Text}>${each.path || 'the whole'}</${Text}></code><span class=${`badge ${each.was === undefined ? 'good' : each.is === undefined ? 'bad' : 'warn'}`}>${each.was === undefined ? 'added' : each.is === undefined ? 'gone' : 'changed'}</span></header>
    <${Words} was=${each.was} is=${each.is} /></li>`)}</ol>
    ${list.length > most && html`<button class="linklike" onClick=${() => setMost(most + 100)}>${f.count(list.length - most)} more differences</button>`}`;
}
