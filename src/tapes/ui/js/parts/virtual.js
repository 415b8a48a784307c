// Long lists: only the rows in sight are in the document. Rows have one height. `outer` says what the
// whole is (a table, a tree) to those who do not see it.
import { html, useEffect, useLayoutEffect, useRef, useState } from './view.js';

const BEYOND = 8; // rows beyond those in sight, as soon as those are drawn

export function Virtual({ count, height, row, head, onEnd, at = -1, onScroll, start = 0, role = 'rowgroup', extra, style, outer = {} }) {
  const box = useRef(null);
  const [place, setPlace] = useState({ top: start, size: Math.min(800, innerHeight * 0.75) });
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
  return html`<div class="virtual" ref=${box} style=${style} onScroll=${scrolled} tabindex="0" ...${outer}>
    ${head}
    <div class="rows" role=${role} style=${{ height: `${count * height}px` }}>${rows}</div>${extra}</div>`;
}
