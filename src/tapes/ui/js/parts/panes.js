// Two panes with a bar between them that is dragged or moved by keys; its place is remembered.
import { html, useRef, useStore } from './view.js';
import { prefer, prefs } from './prefs.js';

export function Panes({ name, usual = 60, left, right, rightLabel }) {
  const box = useRef(null);
  const { panes } = useStore(prefs);
  const share = panes[name] ?? usual;
  const put = (value) => prefer({ panes: { ...prefs.get().panes, [name]: Math.max(0, Math.min(100, Math.round(value * 10) / 10)) } });
  const move = (event) => {
    const { left: begin, width } = box.current.getBoundingClientRect();
    const value = (100 * (event.clientX - begin)) / width;
    put(value < 12 ? 0 : value > 90 ? 100 : value);
  };
  const press = (event) => {
    const next = { ArrowLeft: share - 4, ArrowRight: share + 4, Home: 0, End: 100, Enter: usual }[event.key];
    if (next === undefined) return;
    put(next);
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="panes" ref=${box} style=${{ gridTemplateColumns: `minmax(0, ${share}fr) 7px minmax(0, ${100 - share}fr)` }}>
    <div class="pane">${share > 0 && left}</div>
    <div class="bartween" role="separator" tabindex="0" aria-orientation="vertical" aria-label="Size of the panes" aria-valuenow=${Math.round(share)} aria-valuemin="0" aria-valuemax="100"
      onPointerDown=${(e) => e.currentTarget.setPointerCapture(e.pointerId)} onPointerMove=${(e) => e.buttons && move(e)} onDblClick=${() => put(usual)} onKeyDown=${press} />
    <div class="pane right" role="region" aria-label=${rightLabel}>${share < 100 && right}</div></div>`;
}
