// The rows of a list: pages fetched as they are needed, rows that change in place, new ones announced.
import { useEffect, useLayoutEffect, useRef, useState } from './view.js';
import { ask, askEarly, at, calmDown, query, useChanges } from './api.js';
import { idOf } from './columns.js';

const PAGE = 60;
const kept = new Map(); // what a list showed when it was left: Back finds it again

const addressOf = (noun, { q, sort, direction }, cursor = '') => query(`/v1/${noun}`, { q, sort, direction, cursor, limit: PAGE });
const nameOf = (noun, { q, sort, direction }) => JSON.stringify([noun, q, sort, direction]);
const stateOf = (name, page) => ({
  name, items: page.items, cursor: page.next_cursor, wordless: [''], remarks: page.remarks, loading: false, problem: null,
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
    set((old) => ({ ...old, name, loading: true, problem: null }));
    fetchPage('', stop.signal).then(
      (page) => {
        if (stop.signal.aborted) return;
        setFresh(new Set());
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
    const { cursor, items } = now.current;
    if (!cursor || busy.current || now.current.name !== name) return;
    busy.current = true;
    fetchPage(cursor).then(
      (page) => {
        const known = new Set(items.map(idOf[noun]));
        update({ ...now.current, items: [...items, ...page.items.filter((row) => !known.has(idOf[noun](row)))], cursor: page.next_cursor, wordless: [...(now.current.wordless || []), cursor], tail: null });
      },
      (problem) => set((old) => ({ ...old, tail: problem })),
    ).finally(() => { busy.current = false; });
  };

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
      ask(`/v1/${at('sessions', change.session_id)}`).then(({ session }) => patch(session.id, () => session), () => {});
    } else setFresh((ids) => new Set(ids).add(change.session_id));
  });
  const patch = (id, make) => update({ ...now.current, items: now.current.items.map((row) => (row.id === id ? make(row) : row)) });

  const shown = state.name === name ? state : { items: [], loading: true };
  return { ...shown, more, fresh: fresh.size, reload: () => setVersion((n) => n + 1), version };
}
