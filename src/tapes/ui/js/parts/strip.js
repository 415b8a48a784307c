// A strip of parts of time that is narrowed by dragging over it, and by keys: arrows move, Shift and
// arrows choose, Enter narrows.
import { useRef, useState } from './view.js';

export function useStrip(parts, narrow) {
  const strip = useRef(null);
  const [drag, setDrag] = useState(null);
  const [cursor, setCursor] = useState(null);
  const place = (event) => {
    const { left, width } = strip.current.getBoundingClientRect();
    return Math.max(0, Math.min(parts - 1, Math.floor(((event.clientX - left) / width) * parts)));
  };
  const press = (event) => {
    const now = cursor ?? parts - 1;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: parts - 1 }[event.key];
    if (next !== undefined) {
      const to = Math.max(0, Math.min(parts - 1, next));
      setCursor(to);
      setDrag(event.shiftKey ? [drag?.[0] ?? now, to] : null);
    } else if (event.key === 'Enter') { narrow(...(drag || [now, now])); setDrag(null); } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const does = {
    ref: strip, tabindex: '0', role: 'slider', 'aria-valuemin': '0', 'aria-valuemax': parts - 1, 'aria-valuenow': cursor ?? parts - 1,
    onPointerDown: (event) => { strip.current.setPointerCapture(event.pointerId); setDrag([place(event), place(event)]); },
    onPointerMove: (event) => (drag ? setDrag([drag[0], place(event)]) : setCursor(place(event))),
    onPointerUp: () => { if (drag) narrow(...drag); setDrag(null); },
    onPointerCancel: () => setDrag(null), onPointerLeave: () => !drag && setCursor(null), onKeyDown: press, onBlur: () => setCursor(null),
  };
  return { does, drag, cursor };
}
