// Go anywhere: the views, what the current screen can do, and whatever has a pasted id.
import { html, useState, useSettled } from './view.js';
import { query, useAsk } from './api.js';
import { go } from './route.js';
import { known } from './keys.js';
import { prefer, prefs } from './prefs.js';
import { Dialog } from './pieces.js';

const PLACES = [
  ['Overview', ['overview']], ['Sessions', ['sessions']], ['Traces', ['traces']], ['Spans', ['spans']], ['Tapes', ['tapes']],
  ['Services', ['services']], ['How to capture something', ['start']],
  ['Sessions with errors', ['sessions'], { q: 'has:error OR has:tool_error' }],
  ['The most expensive sessions', ['sessions'], { sort: 'total_cost_usd' }],
  ['Calls that failed', ['spans'], { q: 'has:error' }],
];

export const placeOf = (found) => ({
  sessions: [['session', found.id]], traces: [['trace', found.id]],
  spans: [['trace', found.trace_id], { span: found.id }],
  turns: found.session_id ? [['session', found.session_id], { turn: found.id }] : [['find'], { q: found.id }],
}[found.noun]);

export function Palette({ onClose }) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const wanted = useSettled(text.trim(), 120);
  const found = useAsk(wanted.length >= 8 ? query('/v1/find', { id: wanted, limit: 8 }) : '');
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const choices = [
    ...(found.value?.items || []).map((each) => ({ label: each.id, hint: each.noun.slice(0, -1), run: () => go(...placeOf(each)) })),
    ...PLACES.map(([label, path, params]) => ({ label, hint: 'go to', run: () => go(path, params) })),
    ...known.get().filter((each) => each.key.length === 1).map((each) => ({ label: each.label, hint: each.key, run: each.run })),
    { label: 'Theme: light, dark, system', hint: '', run: () => prefer({ theme: { system: 'light', light: 'dark', dark: 'system' }[prefs.get().theme] }) },
  ].filter((each) => words.every((word) => each.label.toLowerCase().includes(word)));
  if (text.trim()) choices.push({ label: `Search all text for “${text.trim()}”`, hint: 'search', run: () => go(['search'], { q: text.trim() }) });
  const chosen = Math.min(at, choices.length - 1);
  const take = (choice) => { onClose(); setTimeout(choice.run, 0); };
  const press = (event) => {
    if (event.isComposing) return;
    if (event.key === 'ArrowDown') setAt(Math.min(chosen + 1, choices.length - 1));
    else if (event.key === 'ArrowUp') setAt(Math.max(chosen - 1, 0));
    else if (event.key === 'Enter' && choices[chosen]) take(choices[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Go to" onClose=${onClose}><div class="palette">
    <input autofocus role="combobox" aria-expanded="true" aria-controls="palette" aria-label="Where to" placeholder="A view, an action, an id"
      aria-activedescendant=${`choice-${chosen}`} value=${text} onInput=${(e) => { setText(e.target.value); setAt(0); }} onKeyDown=${press} />
    <ul id="palette" role="listbox" aria-label="Choices">${choices.map((choice, i) => html`<li key=${i} id=${`choice-${i}`} role="option"
      aria-selected=${String(i === chosen)} onMouseMove=${() => setAt(i)} onClick=${() => take(choice)}><span class="grow cut">${choice.label}</span><span class="faint">${choice.hint}</span></li>`)}</ul>
  </div></${Dialog}>`;
}
