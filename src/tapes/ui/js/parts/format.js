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

export const count = (n) => (n == null ? NONE : grouped(n));
export const brief = (n) => (n == null ? NONE : n < 10_000 ? grouped(n) : short(n));

export function money(n) {
  if (n == null) return NONE;
  if (n === 0) return '$0';
  if (n < 0.0001) return '<$0.0001';
  return `$${n < 0.01 ? n.toFixed(4) : n < 1 ? n.toFixed(3) : n < 1000 ? n.toFixed(2) : grouped(Math.round(n))}`;
}
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
export const percent = (part, all) => (!all || part == null ? NONE : `${Math.round((100 * part) / all)} %`);
// Control characters, and those that turn the direction of text, made visible.
export const visible = (text) => text.replace(
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g,
  (c) => (c < ' ' ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`),
);
