// The read API: questions with entity tags, errors as problems, the stream of changes, the token.
//
// A server that does not answer is a problem too, with the code `unreachable`; what was read before
// stays where it is shown, marked as stale by whoever shows it.
import { makeStore, useEffect, useState, useRef } from './view.js';
import { jsonInPieces } from './slices.js';
import { given } from './given.js';

export class Problem extends Error {
  constructor(said) {
    super(said.detail || said.title || 'the server failed');
    Object.assign(this, { status: 0, code: 'internal', remedy: '', position: null }, said);
  }
}

// --- the token: asked for once, kept for this tab only

const TOKEN = 'tapes.token';
let asking = null;
let isDeclined = false; // nobody is asked twice, but who tries again
export const tokenAsked = makeStore(null); // {why, resolve} while somebody is asked

function token() {
  try {
    return sessionStorage.getItem(TOKEN) || '';
  } catch {
    return '';
  }
}

export function giveToken(text) {
  if (text !== token()) forget(); // what one may read another may not
  try {
    sessionStorage.setItem(TOKEN, text);
  } catch { /* it holds for the next question only */ }
  isDeclined = !text;
  tokenAsked.get()?.resolve(Boolean(text));
  tokenAsked.set(null);
  asking = null;
}

function askForToken(why) {
  if (isDeclined) return Promise.resolve(false);
  asking ??= new Promise((resolve) => tokenAsked.set({ why, resolve }));
  return asking;
}

function withToken(headers = {}) {
  const known = token();
  return known ? { ...headers, 'x-tapes-token': known } : headers;
}

// --- questions

export const connection = makeStore({ state: 'waiting', since: Date.now() });
const seen = new Map(); // address → {tag, value, size}; the oldest is forgotten first
const MOST = 300;
const MOST_CHARACTERS = 40e6;
let held = 0; // characters of the answers that are kept
const forgetting = new Set([() => { seen.clear(); held = 0; }]);
const forget = () => forgetting.forEach((each) => each());
export const onForget = (each) => forgetting.add(each);

function drop(address) {
  held -= seen.get(address)?.size ?? 0;
  seen.delete(address);
}

function keep(address, answer) {
  drop(address);
  if (answer.size > MOST_CHARACTERS / 2) return;
  seen.set(address, answer);
  held += answer.size;
  while (seen.size > MOST || held > MOST_CHARACTERS) drop(seen.keys().next().value);
}

function connected(state) {
  if (connection.get().state !== state) connection.set({ state, since: Date.now() });
}

// A question that a part of the page will ask, asked before that part is there.
const early = new Map();
export function askEarly(address) {
  const answer = given[address] ? Promise.resolve(given[address]) : ask(address);
  early.set(address, answer);
  return answer.catch(() => {}).finally(() => early.delete(address)); // whoever took it is told
}

// What can wait does so until what a person came for is on the screen.
export const calm = makeStore(false);
export const calmDown = () => calm.get() || requestAnimationFrame(() => setTimeout(() => calm.set(true)));

// `long` names the member of the answer that may be a long list.
export async function ask(address, { method = 'GET', body, headers = {}, signal, long } = {}) {
  if (method === 'GET' && early.has(address)) {
    const answer = early.get(address);
    early.delete(address);
    return answer;
  }
  const known = method === 'GET' ? seen.get(address) : undefined;
  const sent = withToken({ accept: 'application/json', ...headers });
  if (known) sent['if-none-match'] = known.tag;
  if (body !== undefined) sent['content-type'] = 'application/json';
  const answer = await fetched(address, { method, headers: sent, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  if (connection.get().state === 'lost') connected(isStreaming ? 'live' : 'waiting');
  if (answer.status === 304 && known) return known.value;
  if (answer.status === 401 && (await askForToken(token() ? 'wrong' : 'missing'))) {
    return ask(address, { method, body, headers, signal, long });
  }
  if (!answer.ok) {
    if (method === 'GET' && [401, 403, 404, 410].includes(answer.status)) drop(address);
    throw await problemOf(answer);
  }
  const { value, size } = await valueOf(answer, long);
  const tag = answer.headers.get('etag');
  if (method === 'GET' && tag) {
    keep(address, { tag, value, size });
  }
  return value;
}

async function fetched(address, options) {
  try {
    return await fetch(address, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    connected('lost');
    probe();
    throw new Problem({
      code: 'unreachable', title: 'no answer',
      detail: 'The server does not answer.', remedy: 'Is it still running? It is started with: tapes serve',
    });
  }
}

async function problemOf(answer) {
  const { value } = await valueOf(answer);
  const again = () => { isDeclined = false; };
  return new Problem({ status: answer.status, again, ...(value && value.detail ? value : {
    title: `${answer.status}`, detail: `The server answered ${answer.status} ${answer.statusText}`,
  }) });
}

async function valueOf(answer, long) {
  if (answer.status === 204) return { value: null, size: 0 };
  if (answer.ok && long) return jsonInPieces(answer, long);
  const text = await answer.text();
  try {
    return { value: JSON.parse(text), size: text.length };
  } catch {
    if (!answer.ok) return { value: null, size: 0 };
    throw new Problem({ status: answer.status, detail: 'The answer is no JSON.' });
  }
}

export async function bytesOf(address, { signal } = {}) {
  const answer = await fetched(address, { headers: withToken(), signal });
  if (answer.status === 401 && (await askForToken(token() ? 'wrong' : 'missing'))) return bytesOf(address, { signal });
  if (!answer.ok) throw await problemOf(answer);
  return new Uint8Array(await answer.arrayBuffer());
}

export function query(path, params) {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== '') text.set(name, value);
  }
  return text.size ? `${path}?${text}` : path;
}

export const at = (...parts) => parts.map(encodeURIComponent).join('/');

// What failed because nobody answered is asked again as soon as somebody does.
export function useAnswered(problem, again) {
  const isUnreachable = problem?.code === 'unreachable';
  useEffect(() => (isUnreachable ? connection.watch(({ state }) => state !== 'lost' && again()) : undefined), [isUnreachable]);
}

// An answer while a part of the page is shown. What was there stays until the new one has come. To
// reload while an answer is on its way is to ask once more when it has come: however often something
// changes, there is always an answer that arrives.
export function useAsk(address, { again = 0, long } = {}) {
  const [state, set] = useState({ address, value: seen.get(address)?.value, problem: null, loading: Boolean(address) });
  const [times, setTimes] = useState(0);
  const last = useRef(address);
  const under = useRef({ way: false, again: false });
  useEffect(() => {
    const mine = { way: Boolean(address), again: false };
    under.current = mine;
    if (!address) {
      set({ address, value: undefined, problem: null, loading: false });
      return undefined;
    }
    const stop = new AbortController();
    const keep = last.current === address;
    last.current = address;
    set((now) => ({ address, value: seen.get(address)?.value ?? (keep ? now.value : undefined), problem: null, loading: true }));
    ask(address, { signal: stop.signal, long }).then(
      (value) => stop.signal.aborted || set({ address, value, problem: null, loading: false }),
      (problem) => stop.signal.aborted || set((now) => ({ ...now, problem, loading: false })),
    ).finally(() => {
      mine.way = false;
      if (mine.again && !stop.signal.aborted) setTimes((n) => n + 1);
    });
    return () => stop.abort();
  }, [address, times, again]);
  useAnswered(state.problem, () => setTimes((n) => n + 1));
  const shown = state.address === address ? state : { value: seen.get(address)?.value, problem: null, loading: true };
  const reload = () => {
    if (under.current.way) under.current.again = true;
    else setTimes((n) => n + 1);
  };
  return { ...shown, reload };
}

// A stream may outlive a moment without a network: then nobody else finds out that it is over.
let probing = 0;
function probe() {
  if (probing) return;
  probing = setTimeout(async () => {
    probing = 0;
    try {
      await fetch('/ping', { cache: 'no-store' });
      if (connection.get().state === 'lost' && isStreaming) connected('live');
    } catch {
      connected('lost'); // an answer that was on its way may have said otherwise
      probe();
    }
  }, 1000);
}

// --- what changes

const listeners = new Set();
let lastId = '';
let running = false;
let isStreaming = false;

export function useChanges(listen) {
  const current = useRef(listen);
  current.current = listen;
  useEffect(() => {
    const call = (change) => current.current(change);
    listeners.add(call);
    if (!running) run();
    return () => listeners.delete(call);
  }, []);
}

// What is changed often is asked for now and then.
export function useChangesSoon(listen, ms = 300) {
  const timer = useRef(0);
  useChanges((change) => { timer.current ||= setTimeout(() => { timer.current = 0; listen(change); }, ms); });
  useEffect(() => () => clearTimeout(timer.current), []);
}

// Who is never on the screen listens too, as long as somebody who is does.
export const onChange = (listen) => listeners.add(listen);

async function run() {
  running = true;
  let wait = 500;
  for (;;) {
    let isThere = false; // a server that refuses is not gone
    try {
      await listenOnce(() => { wait = 500; });
    } catch (error) {
      isThere = error instanceof Problem && error.status > 0;
    }
    isStreaming = false;
    connected(isThere ? 'waiting' : 'lost');
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 10_000);
  }
}

// The server says something every fifteen seconds. Where it did not three times, its end of the connection is gone,
// and nobody told this one: after a sleep, or behind a firewall that forgot it.
const SILENCE_MS = 45_000;

async function listenOnce(onOpen) {
  const silent = new AbortController();
  let patience = 0;
  const heard = () => { clearTimeout(patience); patience = setTimeout(() => silent.abort(), SILENCE_MS); };
  heard();
  try {
    const headers = withToken({ accept: 'text/event-stream' });
    if (lastId) headers['last-event-id'] = lastId;
    const answer = await fetch('/v1/changes/stream', { headers, signal: silent.signal });
    if (!answer.ok || !answer.body) {
      if (answer.status === 401 && (await askForToken(token() ? 'wrong' : 'missing'))) return;
      throw new Problem({ status: answer.status });
    }
    onOpen();
    isStreaming = true;
    connected('live');
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      text += value;
      const events = text.split('\n\n');
      text = events.pop();
      for (const event of events) tell(event);
    }
  } finally {
    clearTimeout(patience);
  }
}

function tell(event) {
  const fields = {};
  for (const line of event.split('\n')) {
    const at_ = line.indexOf(':');
    if (at_ > 0) fields[line.slice(0, at_)] = line.slice(at_ + 1).trimStart();
  }
  if (fields.id) lastId = fields.id;
  if (!fields.data) return;
  let change;
  try {
    change = JSON.parse(fields.data);
  } catch {
    return;
  }
  for (const listen of [...listeners]) listen(change);
}
