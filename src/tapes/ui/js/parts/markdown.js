// The common part of Markdown: text → blocks, and a line of it → pieces. Raw HTML is text like any other,
// nothing is fetched, and what is not understood stays as it was written. Time grows with the length of the
// text and no faster, whatever the text: nothing is looked for twice, and depth has an end.
//
//   blocksOf(text) → one after the other, as they are asked for: { kind: 'text' | 'head' | 'code' | 'list' | 'quote' | 'table' | 'rule', … }
//   piecesOf(text) → [string | { kind: 'strong' | 'em' | 'gone' | 'code' | 'link' | 'picture', … }]
//
// Pure: knows no elements.

const DEPTH = 8; // lists and quotes in each other; what is deeper stays as it was written
const COLUMNS = 64;
const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*(.*)$/;
const HEAD = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])(?:([ \t]+)(?=\S)|[ \t]*$)/;
const QUOTE = /^ {0,3}>[ \t]?/;
const DASHES = /^\|?[ \t]*:?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*[ \t]*\|?$/;
const LONGEST_MARK = 2000; // no line that is longer is a rule, or tells the columns of a table
const TASK = /^\[([ xX])\][ \t]+/;

const isRule = (line) => line.length < LONGEST_MARK && RULE.test(line);
const opensFence = (line) => {
  const found = FENCE.exec(line);
  return found && !(found[2][0] === '`' && found[3].includes('`')) ? found : null;
};
const closes = (line, mark) => {
  const bare = line.trim();
  return bare.length >= mark.length && bare[0] === mark[0] && line.length - line.trimStart().length < 4 && [...bare.slice(0, 200)].every((c) => c === mark[0]) && bare.length <= 200;
};
const isBlank = (line) => line.trim() === '';
const indentOf = (line) => line.length - line.trimStart().length;
const without = (line, width) => line.slice(Math.min(width, indentOf(line)));

export const blocksOf = (text) => read(text.replaceAll('\r\n', '\n').split('\n'), 0);

function* read(lines, depth) {
  let made = [];
  let said = [];
  const end = () => {
    if (said.length) made.push({ kind: 'text', text: said.join('\n') });
    said = [];
  };
  const put = (block) => { end(); made.push(block); };
  let i = 0;
  while (i < lines.length) {
    if (made.length) { yield* made; made = []; }
    const line = lines[i];
    const first = line.trimStart()[0];
    let found;
    if (first === undefined) {
      end();
      i += 1;
    } else if ((first === '`' || first === '~') && (found = opensFence(line))) {
      i = fence(lines, i + 1, found, put);
    } else if (first === '#' && (found = HEAD.exec(line))) {
      put({ kind: 'head', level: found[1].length, text: withoutMarks(found[2]) });
      i += 1;
    } else if ('*-_'.includes(first) && isRule(line)) {
      put({ kind: 'rule' });
      i += 1;
    } else if (first === '>' && depth < DEPTH && QUOTE.test(line)) {
      const from = i;
      while (i < lines.length && QUOTE.test(lines[i])) i += 1;
      put({ kind: 'quote', blocks: [...read(lines.slice(from, i).map((each) => each.replace(QUOTE, '')), depth + 1)] });
    } else if (depth < DEPTH && (found = ITEM.exec(line)) && (!said.length || (found[3] && /^(?:\D|1[.)])/.test(found[2])))) {
      i = list(lines, i, depth, put);
    } else if (line.includes('|') && isTable(lines, i)) {
      i = table(lines, i, put);
    } else {
      said.push(line);
      i += 1;
    }
  }
  end();
  yield* made;
}

const withoutMarks = (text) => {
  const bare = text.trimEnd();
  let end = bare.length;
  while (end > 0 && bare[end - 1] === '#') end -= 1;
  return end === 0 || /[ \t]/.test(bare[end - 1]) ? bare.slice(0, end).trimEnd() : bare;
};

// A fence that is not closed goes to the end.
function fence(lines, from, [, indent, mark, told], put) {
  let i = from;
  while (i < lines.length && !closes(lines[i], mark)) i += 1;
  put({ kind: 'code', language: told.trim().split(/[\s{,]/, 1)[0], text: lines.slice(from, i).map((line) => without(line, indent.length)).join('\n'), isClosed: i < lines.length });
  return i + 1;
}

// The items that stand beside each other; what is further in belongs to the one before it.
function list(lines, from, depth, put) {
  const [, indent, mark] = ITEM.exec(lines[from]);
  const kind = mark.length > 1 ? mark[mark.length - 1] : mark;
  const items = [];
  let i = from;
  while (i < lines.length) {
    const found = ITEM.exec(lines[i]);
    if (!found || found[1].length > indent.length + 3 || !found[2].endsWith(kind) || isRule(lines[i])) break;
    const inner = found[1].length + found[2].length + 1;
    const mine = [lines[i].slice(found[0].length)];
    const task = TASK.exec(mine[0]);
    if (task) mine[0] = mine[0].slice(task[0].length);
    i += 1;
    let fenced = opensFence(mine[0])?.[2];
    for (; i < lines.length; i += 1) {
      const line = lines[i];
      const isIn = indentOf(line) >= Math.min(inner, found[1].length + 2);
      if (isBlank(line)) {
        const next = lines[i + 1];
        if (next === undefined || isBlank(next) || indentOf(next) < Math.min(inner, found[1].length + 2)) break;
      } else if (!isIn && (isBlank(lines[i - 1]) || opensFence(line) || ITEM.test(line) || HEAD.test(line) || QUOTE.test(line) || isRule(line) || fenced)) break;
      const bare = without(line, inner);
      if (fenced ? closes(bare, fenced) : opensFence(bare)) fenced = fenced ? undefined : opensFence(bare)[2];
      mine.push(bare);
    }
    items.push({ blocks: [...read(mine, depth + 1)], done: task && task[1] !== ' ', isTask: Boolean(task) });
    let next = i;
    while (next < lines.length && isBlank(lines[next])) next += 1;
    const after = ITEM.exec(lines[next] ?? '');
    if (next > i && after && after[2].endsWith(kind)) i = next;
  }
  put({ kind: 'list', start: mark.length > 1 ? Number.parseInt(mark, 10) : null, items });
  return i;
}

function isTable(lines, i) {
  const next = lines[i + 1];
  if (!next?.includes('-') || next.length > LONGEST_MARK || lines[i].length > 20_000 || !DASHES.test(next.trim())) return false;
  const columns = cells(next).length;
  return columns <= COLUMNS && cells(lines[i]).length === columns && (columns > 1 || next.includes('|'));
}

function table(lines, from, put) {
  const sides = cells(lines[from + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'end') : ''));
  const head = cells(lines[from]);
  const rows = [];
  let i = from + 2;
  for (; i < lines.length && lines[i].includes('|') && !isBlank(lines[i]); i += 1) {
    const row = cells(lines[i]);
    // What has no column stays in the last.
    rows.push(row.length > head.length ? [...row.slice(0, head.length - 1), row.slice(head.length - 1).join(' | ')] : row);
  }
  put({ kind: 'table', head, sides, rows });
  return i;
}

// The cells of a row: a bar that is escaped, or stands in code, divides nothing.
function cells(line) {
  const bare = line.trim();
  const found = [];
  let cell = '';
  let isCode = false;
  for (let i = bare[0] === '|' ? 1 : 0; i < bare.length; i += 1) {
    const c = bare[i];
    if (c === '\\' && bare[i + 1] === '|') { cell += '|'; i += 1; continue; }
    if (c === '`') isCode = !isCode && bare.indexOf('`', i + 1) > 0;
    if (c === '|' && !isCode) { found.push(cell.trim()); cell = ''; } else cell += c;
  }
  if (cell.trim() || bare[bare.length - 1] !== '|') found.push(cell.trim());
  return found;
}

// --- in a line

const MANY = 4000; // pieces; a text that has more is shown as it was written
const NESTED = 12;
const SPECIAL = /[\\`*_~[!<]|https?:\/\//g;
const RUN = /`+/g;
const LINK = /\[([^[\]\n]{1,500})\]\(\s*<?((?:[^\s()<>[\]]|\([^\s()<>[\]]{0,200}\)){1,2000})>?(?:\s+"[^"\n[\]]{0,300}")?\s*\)/y;
const BARE = /https?:\/\/[!#$%&()+,\-./0-9:;=?@A-Z_a-z~]{1,2000}/y;
const ESCAPED = /[\\`*_~|#<>]/;
// Two and more `_` are names of programs (`__init__`) before they are anything else.
const KINDS = { '*': ['em', 'strong'], _: ['em'], '~': ['gone', 'gone'] };
const isWord = (c) => /[A-Za-z0-9/\\]/.test(c);
const isSpace = (c) => c === undefined || /\s/.test(c);

export function piecesOf(text) {
  const all = [];
  const open = []; // what was begun: { mark, in: the pieces of which it is the last }
  const begun = {};
  let into = all;
  let count = 0;
  let from = 0;
  let runs = null;
  const put = (piece) => { count += 1; into.push(piece); };
  const flush = (to) => { if (to > from) put(text.slice(from, to)); };
  // What was begun and never ended is text, with what came after it.
  const drop = () => {
    const { mark, before } = open.pop();
    begun[mark] -= 1;
    before.push(mark);
    for (const each of into) before.push(each);
    into = before;
  };
  SPECIAL.lastIndex = 0;
  for (let found = SPECIAL.exec(text); found && count < MANY; found = SPECIAL.exec(text)) {
    const at = found.index;
    const c = text[at];
    let next = at + 1;
    if (c === '\\') {
      if (ESCAPED.test(text[next] ?? '')) { flush(at); from = next; next += 1; }
    } else if (c === '`') {
      RUN.lastIndex = at;
      const mark = RUN.exec(text)[0];
      next = at + mark.length;
      runs ??= lastRuns(text);
      if (runs.get(mark.length) > at) {
        let end = RUN.exec(text);
        while (end[0].length !== mark.length) end = RUN.exec(text);
        flush(at);
        put({ kind: 'code', text: codeIn(text.slice(next, end.index)) });
        next = from = end.index + mark.length;
      }
    } else if (c === '[' || (c === '!' && text[next] === '[')) {
      LINK.lastIndex = c === '!' ? next : at;
      const link = LINK.exec(text);
      const to = link && target(link[2]);
      if (to) {
        flush(at);
        put({ kind: c === '!' ? 'picture' : 'link', text: link[1], to });
        next = from = LINK.lastIndex;
      }
    } else if (c === '<' || c === 'h') {
      BARE.lastIndex = c === '<' ? next : at;
      const url = (c === 'h' && isWord(text[at - 1] ?? ' ')) ? null : BARE.exec(text)?.[0];
      const bare = url && (c === '<' ? (text[next + url.length] === '>' ? url : '') : url.slice(0, lengthOf(url)));
      const to = bare && target(bare);
      if (to) {
        flush(at);
        put({ kind: 'link', text: bare, to });
        next = from = at + bare.length + (c === '<' ? 2 : 0);
      }
    } else if (c in KINDS) {
      while (text[next] === c) next += 1;
      const mark = text.slice(at, next);
      const length = next - at;
      if (length <= (c === '_' ? 1 : 3) && !(c === '~' && length !== 2)) {
        const before = text[at - 1];
        const after = text[next];
        const mayEnd = !isSpace(before) && (length > 1 && c !== '_' ? true : isSpace(after) || !isWord(after));
        const mayBegin = !isSpace(after) && after !== '/' && (isSpace(before) || !isWord(before)) && !(c === '_' && /[\p{L}\p{N}]/u.test(before ?? ' '));
        if (mayEnd && begun[mark]) {
          flush(at);
          while (open[open.length - 1].mark !== mark) drop();
          const { before: outside } = open.pop();
          begun[mark] -= 1;
          const inside = into;
          into = outside;
          const [one, two] = KINDS[c];
          put(length === 3 ? { kind: two, pieces: [{ kind: one, pieces: inside }] } : { kind: length === 2 ? two : one, pieces: inside });
          from = next;
        } else if (mayBegin && open.length < NESTED) {
          flush(at);
          open.push({ mark, before: into });
          begun[mark] = (begun[mark] || 0) + 1;
          into = [];
          from = next;
        }
      }
    }
    SPECIAL.lastIndex = next;
  }
  if (count >= MANY) return [text];
  flush(text.length);
  while (open.length) drop();
  return all;
}

// Where the last run of so many backticks begins: what has no end is not looked for.
function lastRuns(text) {
  const last = new Map();
  for (const { 0: run, index } of text.matchAll(RUN)) last.set(run.length, index);
  return last;
}

const codeIn = (text) => (text.length > 2 && text[0] === ' ' && text[text.length - 1] === ' ' && text.trim() ? text.slice(1, -1) : text);

// A point or a bracket after an address belongs to the sentence.
function lengthOf(url) {
  const left = url.includes('(') ? /[.,;:!?_~]/ : /[.,;:!?_~)]/;
  let end = url.length;
  while (end > 0 && left.test(url[end - 1])) end -= 1;
  return end;
}

// Where a link leads, as a browser would go there; nothing but pages and letters, and no names in
// front of the host that make it look like another.
export function target(text) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(text)) return '';
  try {
    const { href, username, password } = new URL(text);
    return username || password ? '' : href;
  } catch {
    return '';
  }
}
