// Long work in short pieces, so that the page goes on answering: an answer read as it comes, and
// whatever is written as a generator that rests between its pieces.
const PIECE_MS = 8;
const LEAST = 100_000; // characters that are worth a piece
const BETWEEN = '},{"trace_id":'; // no text in JSON holds this: its quotes would be escaped

const rest = () => (globalThis.scheduler?.yield ? scheduler.yield() : new Promise((done) => setTimeout(done)));

// Do a generator's work, and give what it returns: at once, or in pieces while others go on.
export function atOnce(work) {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
  }
}

export async function inPieces(work, signal) {
  let began = performance.now();
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
    if (performance.now() - began < PIECE_MS) continue;
    await rest();
    if (signal?.aborted) throw signal.reason;
    began = performance.now();
  }
}

// The JSON of an answer whose member `name` is a long list, and how long it is. Where it cannot be cut it is read whole.
export async function jsonInPieces(answer, name) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const begin = `"${name}":[`;
  const all = [];
  const items = [];
  let before = null;
  let text = '';
  let isCut = true;
  let began = performance.now();
  const take = (until) => {
    try {
      for (const item of JSON.parse(`[${text.slice(0, until + 1)}]`)) items.push(item);
      text = text.slice(until + 2);
    } catch {
      isCut = false;
    }
  };
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    all.push(value);
    if (!isCut) continue;
    text += value;
    if (before === null) {
      const at = text.indexOf(begin);
      if (at < 0) continue;
      before = text.slice(0, at + begin.length);
      text = text.slice(at + begin.length);
    }
    if (text.length < LEAST) continue;
    const until = text.lastIndexOf(BETWEEN);
    if (until > 0) take(until);
    if (performance.now() - began < PIECE_MS) continue;
    await rest();
    began = performance.now();
  }
  if (isCut && items.length) {
    try {
      const value = JSON.parse(before + text);
      return { value: { ...value, [name]: items.concat(value[name]) }, size: all.reduce((sum, { length }) => sum + length, 0) };
    } catch { /* read whole */ }
  }
  const whole = all.join('');
  return { value: JSON.parse(whole), size: whole.length };
}
