// The rows of a list: pages fetched as they are needed, rows that change in place, new ones announced.
import { useEffect, useRef, useState } from './view.js';
import { ask, at, query, useChanges } from './api.js';
import { idOf } from './columns.js';

const PAGE = 60;
const kept = new Map(); // what a list showed when it was left: Back finds it again

export function useRows(noun, { q, sort, direction }) {
  const name = JSON.stringify([noun, q, sort, direction]);
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
  const fetchPage = (cursor, signal) => ask(query(`/v1/${noun}`, { q, sort, direction, cursor, limit: PAGE, count: cursor ? '' : 'yes' }), { signal });

  useEffect(() => {
    const known = kept.get(name);
    if (known && version === 0 && known.items.length && !known.problem) {
      now.current = known;
      set(known);
      return undefined;
    }
    const stop = new AbortController();
    set((old) => ({ ...old, name, loading: true, problem: null }));
    fetchPage('', stop.signal).then(
      (page) => { setFresh(new Set()); update({ name, items: page.items, cursor: page.next_cursor, count: page.count, remarks: page.remarks, loading: false, problem: null }); },
      (problem) => problem.name !== 'AbortError' && set((old) => ({ ...old, name, loading: false, problem })),
    );
    return () => stop.abort();
  }, [name, version]);

  const more = () => {
    const { cursor, items } = now.current;
    if (!cursor || busy.current || now.current.name !== name) return;
    busy.current = true;
    fetchPage(cursor).then(
      (page) => {
        const known = new Set(items.map(idOf[noun]));
        update({ ...now.current, items: [...items, ...page.items.filter((row) => !known.has(idOf[noun](row)))], cursor: page.next_cursor, tail: null });
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
