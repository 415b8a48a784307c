// The rows of a list: pages fetched as they are needed, rows that change in place, new ones announced.
import { useEffect, useLayoutEffect, useRef, useState } from './view.js';
import { ask, askEarly, at, calmDown, onChange, onForget, query, useAnswered, useChanges } from './api.js';
import { idOf } from './columns.js';

const PAGE = 60;
const kept = new Map(); // what a list showed when it was left: Back finds it again

onForget(() => kept.clear());

// Sessions that changed since they were asked for, also while no list of them is on the screen; of too
// many nothing is kept.
const away = new Set();
const MOST_AWAY = 500;
onChange(({ session_id: id }) => {
  away.add(id);
  if (away.size > MOST_AWAY) { away.clear(); kept.clear(); }
});

const addressOf = (noun, { q, sort, direction }, cursor = '') => query(`/v1/${noun}`, { q, sort, direction, cursor, limit: PAGE });
const nameOf = (noun, { q, sort, direction }) => JSON.stringify([noun, q, sort, direction]);
const stateOf = (name, page) => ({
  name, items: page.items, cursor: page.next_cursor, wordless: page.items.length ? [''] : [], remarks: page.remarks, loading: false, problem: null,
  count: page.next_cursor ? undefined : { value: page.items.length, exact: true },
});

// Rows that are there before there is anything to show them in; those that come later are taken then.
export const askRowsEarly = (noun, asked) => askEarly(addressOf(noun, asked)).then((page) => {
  const name = nameOf(noun, asked);
  if (page && !kept.has(name)) kept.set(name, stateOf(name, page));
});

export function useRows(noun, { q, sort, direction }) {
  const name = nameOf(noun, { q, sort, direction });
  const [state, set] = useState(() => kept.get(name) || { name, items: [], loading: true });
  const [version, setVersion] = useState(0);
  const [fresh, setFresh] = useState(new Set());
  const now = useRef(state);
  const busy = useRef(false);
  const update = (next) => {
    if (next.name !== name) return; // it came for a list that is no longer shown
    now.current = next;
    kept.set(name, next);
    if (kept.size > 12) kept.delete(kept.keys().next().value);
    set(next);
  };
  const fetchPage = (cursor, signal) => ask(addressOf(noun, { q, sort, direction }, cursor), { signal });
  // How many there are comes after the rows: who looks at a list looks at those.
  const fetchCount = (signal) => ask(query(`/v1/${noun}`, { q, limit: 1, count: 'yes' }), { signal }).then(
    ({ count }) => now.current.name === name && update({ ...now.current, count }), () => {},
  );

  useLayoutEffect(() => {
    const known = kept.get(name);
    if (known && version === 0 && known.items.length && !known.problem) {
      now.current = known;
      set(known);
      calmDown();
      return undefined;
    }
    const stop = new AbortController();
    set((old) => ({ ...old, name, wordless: [], loading: true, problem: null }));
    fetchPage('', stop.signal).then(
      (page) => {
        if (stop.signal.aborted) return;
        setFresh(new Set());
        if (version > 0) kept.clear(); // what was asked for before is older
        if (noun === 'sessions' && !q) away.clear();
        update(stateOf(name, page));
      },
      (problem) => problem.name !== 'AbortError' && !stop.signal.aborted && set((old) => ({ ...old, name, loading: false, problem })),
    ).finally(calmDown);
    return () => stop.abort();
  }, [name, version]);
  const isCounted = Boolean(state.count) || state.name !== name || state.loading || Boolean(state.problem);
  useEffect(() => {
    if (isCounted) return undefined;
    const stop = new AbortController();
    fetchCount(stop.signal);
    return () => stop.abort();
  }, [name, isCounted]);

  // What spans say comes after the rows too: it is read from elsewhere, and takes longer.
  const { wordless = [] } = state.name === name ? state : {};
  useEffect(() => {
    if (noun !== 'spans' || !wordless.length) return undefined;
    const stop = new AbortController();
    const done = (words) => {
      if (stop.signal.aborted || now.current.name !== name) return;
      const { items, wordless: left } = now.current;
      update({ ...now.current, items: items.map((row) => ({ ...row, ...words.get(idOf.spans(row)) })), wordless: left.slice(1) });
    };
    ask(query('/v1/spans', { q, sort, direction, cursor: wordless[0], limit: PAGE, payload: 'preview' }), { signal: stop.signal }).then(
      (page) => done(new Map(page.items.map((row) => [idOf.spans(row), row]))), () => done(new Map()),
    );
    return () => stop.abort();
  }, [name, wordless]);

  const more = () => {
    const { cursor } = now.current;
    if (!cursor || busy.current || now.current.name !== name) return;
    busy.current = true;
    fetchPage(cursor).then(
      (page) => {
        if (now.current.name !== name || now.current.cursor !== cursor) return; // another list is shown by now, or this one anew
        const known = new Set(now.current.items.map(idOf[noun]));
        update({ ...now.current, items: [...now.current.items, ...page.items.filter((row) => !known.has(idOf[noun](row)))], cursor: page.next_cursor, wordless: [...(now.current.wordless || []), cursor], tail: null });
      },
      (problem) => now.current.name === name && set((old) => (old.name === name ? { ...old, tail: problem } : old)),
    ).finally(() => { busy.current = false; });
  };

  useAnswered(state.problem, () => setVersion((n) => n + 1));
  useAnswered(state.tail, more);

  // A session that changes again while it is asked for is asked for once more.
  const asking = useRef(new Map());
  const renew = (id) => {
    if (asking.current.has(id)) { asking.current.set(id, true); return; }
    asking.current.set(id, false);
    away.delete(id);
    const put = (make) => latest.current(id, make);
    ask(`/v1/${at('sessions', id)}`).then(({ session }) => put(() => session), (problem) => (problem.status === 404 ? put((row) => ({ ...row, erased: true })) : away.add(id))).finally(() => {
      const isMore = asking.current.get(id);
      asking.current.delete(id);
      if (isMore) renew(id);
    });
  };
  // What changed while the list was not shown is seen to when it is again.
  useEffect(() => {
    if (noun !== 'sessions' || now.current.name !== name) return;
    const shown = new Set(now.current.items.map(idOf.sessions));
    const others = [...away].filter((id) => !shown.has(id));
    for (const id of [...away]) if (shown.has(id)) renew(id);
    if (shown.size && others.length) setFresh((ids) => new Set([...ids, ...others]));
  }, [name]);

  // A session that is shown changes where it stands; one that is not is only announced.
  useChanges((change) => {
    if (now.current.name !== name) return;
    if (noun !== 'sessions') {
      setFresh((ids) => new Set(ids).add(change.session_id));
      return;
    }
    const place = now.current.items.findIndex((row) => row.id === change.session_id);
    if (change.erased) {
      if (place >= 0) patch(change.session_id, (row) => ({ ...row, erased: true }));
    } else if (place >= 0) {
      renew(change.session_id);
    } else setFresh((ids) => new Set(ids).add(change.session_id));
  });
  const patched = (list, id, make) => ({ ...list, items: list.items.map((row) => (row.id === id ? make(row) : row)) });
  const patch = (id, make) => {
    for (const [key, list] of kept) if (key.startsWith('["sessions"')) kept.set(key, patched(list, id, make));
    update(patched(now.current, id, make));
  };
  const latest = useRef(patch);
  latest.current = patch;

  // Until others come, the rows before stay: whoever sorts by a head still has it.
  const shown = state.name === name ? state : { ...(kept.get(name) || { ...state, count: undefined }), loading: true, problem: null };
  return { ...shown, more, fresh: fresh.size, reload: () => setVersion((n) => n + 1), version };
}
