// Long lists: only the rows in sight are in the document. Rows have one height. `outer` says what the
// whole is (a table, a tree) to those who do not see it.
import { h, useEffect, useLayoutEffect, useRef, useState } from './view.js';

const BEYOND = 8; // rows beyond those in sight, as soon as those are drawn

// How high what is in sight will be, before there is anything to measure; asked for while the page is
// empty, since a browser that is asked later lays out all that there is.
let tall = innerHeight;
window.addEventListener('resize', () => { tall = innerHeight; });
const guessed = () => Math.min(800, tall * 0.75);
export const seenFirst = (height) => Math.ceil(guessed() / height);

// The elements, around rows that are there.
export const frameOf = ({ rows, height, head, extra, role = 'rowgroup', style, outer, ...rest }) => h('div', { class: 'virtual', style, tabindex: 0, ...outer, ...rest },
  head, h('div', { class: 'rows', role, style: { height: `${height}px` } }, rows), extra);

export function Virtual({ count, height, row, head, onEnd, at = -1, onScroll, start = 0, of, role = 'rowgroup', extra, style, outer = {} }) {
  const box = useRef(null);
  const [place, setPlace] = useState({ top: start, size: guessed() });
  const [beyond, setBeyond] = useState(0);
  useEffect(() => {
    const timer = setTimeout(() => setBeyond(BEYOND), 100);
    return () => clearTimeout(timer);
  }, []);
  useLayoutEffect(() => {
    const element = box.current;
    if (start) element.scrollTop = start;
    const watch = new ResizeObserver(() => setPlace({ top: element.scrollTop, size: element.clientHeight }));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const shown = useRef(of);
  useLayoutEffect(() => { // other rows
    if (shown.current === of) return;
    shown.current = of;
    box.current.scrollTop = start;
    setPlace(({ size }) => ({ top: start, size }));
  }, [of]);
  const first = Math.max(0, Math.floor(place.top / height) - beyond);
  const last = Math.min(count, Math.ceil((place.top + place.size) / height) + beyond);
  useEffect(() => {
    if (onEnd && count > 0 && last >= count - 5) onEnd();
  }, [last, count]);
  // What is selected stays in sight.
  useEffect(() => {
    const element = box.current;
    if (at < 0 || !element) return;
    const heading = element.firstElementChild?.dataset.head ? element.firstElementChild.offsetHeight : 0;
    const top = at * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height + heading > element.scrollTop + element.clientHeight) element.scrollTop = top + height + heading - element.clientHeight;
  }, [at]);
  const scrolled = (event) => {
    const { scrollTop, clientHeight } = event.currentTarget;
    setPlace({ top: scrollTop, size: clientHeight });
    onScroll?.(scrollTop);
  };
  const rows = [];
  for (let i = first; i < last; i += 1) rows.push(row(i, i * height));
  return frameOf({ rows, height: count * height, head, extra, role, style, outer, ref: box, onScroll: scrolled });
}
