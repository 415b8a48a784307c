// How numbers, times and money are written. What is unknown is a dash, never a zero.
export const NONE = '—';

// By hand: to load what a browser knows of languages takes longer than to draw a list.
const grouped = (n) => {
  const [whole, part] = String(Math.round(n * 1000) / 1000).split('.');
  return whole.replace(/\B(?=(\d{3})+$)/g, ',') + (part ? `.${part}` : '');
};
const UNITS = [[1e3, 'k'], [1e6, 'm'], [1e9, 'b'], [1e12, 't']];
const short = (n) => {
  const [size, unit] = UNITS.find(([each]) => n / each < 999.5) || UNITS[3];
  return `${Number((n / size).toPrecision(3))}${unit}`;
};

// A path in a command that is to be typed, as a shell takes it; one that begins with a dash is no option.
export function typed(path) {
  const text = path.startsWith('-') ? `./${path}` : path;
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

export const count = (n) => (n == null ? NONE : grouped(n));
export const brief = (n) => (n == null ? NONE : n < 10_000 ? grouped(n) : short(n));

export function money(n) {
  if (n == null) return NONE;
  if (n === 0) return '$0';
  if (n < 0.0001) return '<$0.0001';
  return `$${n < 0.01 ? n.toFixed(4) : n < 1 ? n.toFixed(3) : n < 1000 ? n.toFixed(2) : grouped(Math.round(n))}`;
}
// What was answered from a tape cost nothing: that is known, also where no price is.
// The price of such a call is what was not spent.
export const spentOn = (span) => (span.outcome === 'replayed' ? 0 : span.cost_usd);
export const savedOn = (span) => (span.outcome === 'replayed' ? span.cost_usd : null);
export const spent = (usd, { unpriced, saved, replayed }) => (usd == null && !unpriced && (replayed > 0 || saved != null) ? 0 : usd);
export const exactMoney = (n) => (n == null ? 'unknown' : `$${n}`);

export function duration(ns) {
  if (ns == null) return NONE;
  // What rounds up to the next unit is written in it: never 1000 ms, 60.0 s or 1 m 60 s.
  const ms = ns / 1e6;
  if (ms < 0.9995) return `${(ns / 1e3).toFixed(0)} µs`;
  if (ms < 999.5) return `${ms < 9.95 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 59.95) return `${s < 9.995 ? s.toFixed(2) : s.toFixed(1)} s`;
  const whole = Math.round(s);
  const m = Math.floor(whole / 60);
  if (m < 60) return `${m} m ${whole % 60} s`;
  const h = Math.floor(m / 60);
  return h < 48 ? `${h} h ${m - h * 60} m` : `${Math.floor(h / 24)} d ${h % 24} h`;
}

// A moment on an axis whose marks are `step` apart, both in microseconds: no more digits than tell them apart.
export function mark(t, step) {
  if (t === 0) return '0';
  if (t < 1000) return `${t} µs`;
  const digits = (unit) => (step >= unit ? 0 : Math.ceil(Math.log10(unit / step)));
  if (t < 1e6) return `${(t / 1e3).toFixed(digits(1e3))} ms`;
  const s = t / 1e6;
  if (s < 60) return `${s.toFixed(digits(1e6))} s`;
  const m = Math.floor(s / 60);
  const rest = s - m * 60;
  const seconds = step % 60e6 === 0 ? '' : ` ${rest.toFixed(digits(1e6))} s`;
  if (m < 60) return `${m} m${seconds}`;
  const h = Math.floor(m / 60);
  const hours = h < 48 ? `${h} h` : `${Math.floor(h / 24)} d ${h % 24} h`;
  return `${hours} ${m % 60} m${seconds}`;
}

export function bytes(n) {
  if (n == null) return NONE;
  if (n < 1000) return `${n} B`;
  if (n < 1e6) return `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)} kB`;
  return n < 1e9 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e9).toFixed(2)} GB`;
}

// Why a request got no answer. Others are said as they are named in docs/errors.md.
const WHY = { miss: 'not on the tape', 'latch-closed': 'no live calls allowed', 'budget-exhausted': 'no live calls left', expired: 'too old' };
export const whyRefused = (slug) => WHY[slug] || slug || 'refused';

// Nanoseconds since 1970 as a BigInt would be exact; a microsecond is enough for bars.
// Spans come in order, so most have the second of the one before.
let second = '';
let start = 0;
export function micros(text) {
  if (!text) return null;
  if (text[19] === '.' && text.endsWith('Z')) {
    const before = text.slice(0, 19);
    if (before !== second) { second = before; start = Date.parse(`${before}Z`) * 1000; }
    return start + Number(text.slice(20, 26).replace('Z', '').padEnd(6, '0'));
  }
  return Date.parse(text) * 1000;
}

function parts(date, utc) {
  const get = (name) => date[`get${utc ? 'UTC' : ''}${name}`]();
  const two = (n) => String(n).padStart(2, '0');
  return {
    day: `${get('FullYear')}-${two(get('Month') + 1)}-${two(get('Date'))}`,
    time: `${two(get('Hours'))}:${two(get('Minutes'))}:${two(get('Seconds'))}`,
  };
}

export function moment(text, utc, now = Date.now()) {
  if (!text) return NONE;
  const date = new Date(text);
  const { day, time } = parts(date, utc);
  const today = parts(new Date(now), utc).day;
  return day === today ? time : `${day.slice(day.slice(0, 4) === today.slice(0, 4) ? 5 : 0)} ${time.slice(0, 5)}`;
}

// A moment to the microsecond as it came, and as it is on the wall here.
export function exactly(text) {
  const date = new Date(text);
  const { day, time } = parts(date, false);
  const minutes = -date.getTimezoneOffset();
  const two = (n) => String(Math.abs(n)).padStart(2, '0');
  const zone = `${minutes < 0 ? '-' : '+'}${two(Math.trunc(minutes / 60))}:${two(minutes % 60)}`;
  return `${text.replace('T', ' ').replace('Z', ' UTC')} · here ${day} ${time} (${zone})`;
}

export function ago(text, now = Date.now()) {
  const s = Math.round((now - Date.parse(text)) / 1000);
  if (s < 5) return 'now';
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} m ago`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
// A few are not none, and nearly all are not all.
export function percent(part, all) {
  if (!all || part == null) return NONE;
  const whole = Math.round((100 * part) / all);
  if (whole === 0 && part > 0) return '<1 %';
  return whole === 100 && part < all ? '>99 %' : `${whole} %`;
}


// --- what cannot be seen

// Characters that show nothing, or turn the direction of text; the flags of England, Scotland and
// Wales, which are written with such, are found whole.
const UNSEEN = /\u{1f3f4}\u{e0067}\u{e0062}(?:\u{e0065}\u{e006e}\u{e0067}|\u{e0073}\u{e0063}\u{e0074}|\u{e0077}\u{e006c}\u{e0073})\u{e007f}|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const HAS_UNSEEN = new RegExp(UNSEEN, 'u');
const FLAG = '\u{1f3f4}';
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
// What a browser knows of scripts is loaded where a text needs it, and that is seldom.
let scripts = null;
const scriptsOf = () => {
  scripts ??= {
    joins: /^[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Mandaic}\p{Script=Nko}\p{Script=Mongolian}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Gujarati}\p{Script=Oriya}\p{Script=Tamil}\p{Script=Telugu}\p{Script=Kannada}\p{Script=Malayalam}\p{Script=Sinhala}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}\p{M}]/u,
    joined: /^[\p{Script=Arabic}\p{Script=Syriac}]/u,
    emoji: /^[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f\u{e007f}]/u,
    pictured: /^\p{Extended_Pictographic}/u,
    han: /^\p{Script=Han}/u,
  };
  return scripts;
};

// Whether it is there for a reason that shows: it joins letters or pictures, or chooses between their forms.
function isNeeded(text, at, c, isMixed) {
  if (c.startsWith(FLAG)) return true;
  const code = c.codePointAt(0);
  // The whole character before: a class that ends a text is looked for in halves of one by some browsers.
  const before = [...text.slice(Math.max(0, at - 2), at)].pop() || '';
  const after = text.slice(at + c.length, at + c.length + 2);
  if (code === 0x200d) {
    const { joins, joined, emoji, pictured } = scriptsOf();
    return joins.test(before) || joined.test(after) || (emoji.test(before) && pictured.test(after));
  }
  if (code === 0x200c) return scriptsOf().joins.test(before);
  if (code === 0x200e || code === 0x200f || code === 0x61c) return isMixed();
  if (code >= 0xfe00 && code <= 0xfe0f) return /^[^\s\ufe00-\ufe0f]/.test(before);
  if (code >= 0xe0100 && code <= 0xe01ef) return scriptsOf().han.test(before);
  return false;
}

const codeOf = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
const NAMED = {
  '\u00ad': 'a soft hyphen', '\u200b': 'a space without width', '\u200c': 'a non-joiner without width', '\u200d': 'a joiner without width',
  '\u2060': 'a word joiner', '\ufeff': 'a byte order mark',
};
const isTag = (c) => c.codePointAt(0) >= 0xe0020 && c.codePointAt(0) <= 0xe007e;
const FEW = 6; // different characters of a run that are named
const TOLD = 300; // characters of a hidden text that are shown

// What stands for a run of them, and what it is, in words. `text` is what may stay in its place, unseen.
function signOf(run) {
  const all = [...run];
  if (all.every((c) => c < ' ')) {
    return { code: all.map((c) => String.fromCharCode(0x2400 + c.charCodeAt(0))).join(''), title: all.length > 1 ? 'control characters' : `a control character, ${codeOf(run)}`, text: '' };
  }
  const turns = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/.test(run);
  const text = turns ? '' : run;
  const tags = all.filter(isTag);
  if (tags.length * 2 > all.length) {
    const hidden = tags.map((c) => String.fromCharCode(c.codePointAt(0) - 0xe0000)).join('');
    const more = hidden.length > TOLD ? `… ${count(hidden.length)} characters` : '';
    return { code: `⟨hidden: ${hidden.slice(0, TOLD)}${more}⟩`, title: `${plural(all.length, 'character')} that cannot be seen and that a model may read (Unicode tags, ${codeOf(all[0])} …)`, text };
  }
  const times = [];
  for (const c of all) {
    const last = times[times.length - 1];
    if (last?.c === c) last.n += 1;
    else times.push({ c, n: 1 });
  }
  const codes = times.slice(0, FEW).map(({ c, n }) => codeOf(c) + (n > 1 ? ` ×${count(n)}` : '')).join(' ');
  const one = turns ? 'a character that turns the direction of text, or controls it' : NAMED[all[0]] || 'a character that cannot be seen';
  const many = `${plural(all.length, 'character')} that ${turns ? 'turn the direction of text, or control it' : 'cannot be seen'}`;
  return { code: `⟨${codes}${times.length > FEW ? ` … ${count(all.length)} characters` : ''}⟩`, title: all.length > 1 ? many : one, text };
}

// A text in parts: what is seen as it is, and a sign for each run of what is not.
// Whether its first letter is one of those that are read from right to left.
export const beginsRight = (text) => RIGHT_TO_LEFT.test(/[A-Za-z\u00aa-\u1fff\u2c00-\ud7ff\uf900-\ufefc]/.exec(text)?.[0] ?? '');

// `isMixed` tells whether the text that it is a part of has letters from right to left.
export const mixes = (text) => {
  let mixed = null;
  return () => { mixed ??= RIGHT_TO_LEFT.test(text); return mixed; };
};
export function seen(text, isMixed = mixes(text)) {
  if (!HAS_UNSEEN.test(text)) return [text];
  const parts = [];
  let from = 0;
  let run = '';
  const end = () => { if (run) parts.push(signOf(run)); run = ''; };
  for (const { 0: c, index } of text.matchAll(UNSEEN)) {
    if (isNeeded(text, index, c, isMixed)) continue;
    if (index > from) { end(); parts.push(text.slice(from, index)); }
    run += c;
    from = index + c.length;
  }
  end();
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

// The same as one text: for tips, and where there are no elements.
export const visible = (text) => (HAS_UNSEEN.test(text) ? seen(text).map((part) => part.code ?? part).join('') : text);
