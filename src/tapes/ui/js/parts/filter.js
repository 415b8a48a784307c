// One filter: a field with completion, the same filter as chips, and the range of time.
import { html, useEffect, useMemo, useRef, useState, useSettled, useStore } from './view.js';
import { calm, query, useAsk } from './api.js';
import { Icon, Text } from './pieces.js';

// The parts of a query at its top level, with where they stand. Brackets stay one part.
export function partsOf(text) {
  const parts = [];
  let depth = 0;
  let quoted = false;
  let begin = -1;
  for (let i = 0; i <= text.length; i += 1) {
    const c = text[i];
    const ends = i === text.length || (/\s/.test(c) && !quoted && depth === 0);
    if (ends) {
      if (begin >= 0) parts.push({ text: text.slice(begin, i), begin, end: i });
      begin = -1;
      continue;
    }
    if (begin < 0) begin = i;
    if (c === '"') quoted = !quoted;
    else if (!quoted && c === '(') depth += 1;
    else if (!quoted && c === ')') depth -= 1;
  }
  return parts;
}

export const without = (text, part) => {
  const left = partsOf(text).filter((each) => each.begin !== part.begin).map((each) => each.text);
  return left.filter((word, i) => !(word === 'OR' && (i === 0 || i === left.length - 1 || left[i - 1] === 'OR'))).join(' ');
};

export const quote = (value) => (/^[\w.@/*-]+$/.test(value) ? value : `"${value.replaceAll('"', '')}"`);

const HINTS = {
  model: 'which model', tool: 'a tool that was called', agent: 'who called', error: 'a kind of error', outcome: 'live, recorded, replayed, refused',
  cost: '>0.50', tokens: '>10k', duration: '>2s', since: '24h', until: '2026-07-01', status: 'completed, failed, …', tag: 'a tag', 'meta.': 'meta.team:search',
};

function wordAt(text, caret) {
  const begin = Math.max(text.lastIndexOf(' ', caret - 1), text.lastIndexOf('(', caret - 1)) + 1;
  return { begin, word: text.slice(begin, caret) };
}

function useChoices(noun, text, caret) {
  const fields = useAsk(useStore(calm) ? '/v1/fields' : '').value;
  const { begin, word } = wordAt(text, caret);
  const bare = word.replace(/^-/, '');
  const [name, value] = bare.includes(':') ? [bare.slice(0, bare.indexOf(':')), bare.slice(bare.indexOf(':') + 1)] : [bare, null];
  const isFacet = value !== null && fields?.facets.includes(name);
  const begins = useSettled(value ?? '', 80);
  const facets = useAsk(isFacet ? query(`/v1/facets/${name}`, { begins: begins.replaceAll('"', ''), limit: 12 }) : '').value;
  return useMemo(() => {
    if (!fields) return { begin, choices: [] };
    const minus = word.startsWith('-') ? '-' : '';
    if (value === null) {
      const names = [...fields[noun].fields, 'has'].filter((each) => each.startsWith(name));
      return { begin, choices: names.slice(0, 40).map((each) => ({ text: `${minus}${each}${each.endsWith('.') ? '' : ':'}`, hint: each === 'has' ? 'there is some' : HINTS[each] || '', open: true })) };
    }
    if (name === 'has') {
      return { begin, choices: fields[noun].has.filter((each) => each.startsWith(value)).map((each) => ({ text: `${minus}has:${each}`, hint: '' })) };
    }
    return { begin, choices: (facets?.items || []).map((each) => ({ text: `${minus}${name}:${quote(each.value)}`, hint: `${each.sessions} sessions` })) };
  }, [fields, facets, noun, word, begin, name, value]);
}

export function Filter({ noun, value, onChange, problem }) {
  const [text, setText] = useState(value);
  const [caret, setCaret] = useState(value.length);
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const input = useRef(null);
  useEffect(() => setText(value), [value]);
  const { begin, choices } = useChoices(noun, text, caret);
  const shown = open && choices.length > 0 && !(choices.length === 1 && choices[0].text === text.slice(begin, caret));
  const take = (choice) => {
    const next = `${text.slice(0, begin)}${choice.text}${choice.open ? '' : ' '}${text.slice(caret).trimStart()}`;
    setText(next);
    const place = begin + choice.text.length + (choice.open ? 0 : 1);
    setCaret(place);
    setAt(-1);
    if (!choice.open) onChange(next.trim());
    requestAnimationFrame(() => input.current?.setSelectionRange(place, place));
    input.current?.focus();
  };
  const press = (event) => {
    if (event.isComposing) return; // Enter takes a word of an input method then
    if (event.key === 'ArrowDown' && shown) setAt((at + 1) % choices.length);
    else if (event.key === 'ArrowUp' && shown) setAt((at + choices.length - 1) % choices.length);
    else if (event.key === 'Tab' && shown && at >= 0 && !event.shiftKey) take(choices[at]);
    else if (event.key === 'Enter') {
      if (shown && at >= 0) take(choices[at]);
      else { setOpen(false); onChange(text.trim()); }
    } else if (event.key === 'Escape' && shown) { setOpen(false); event.stopPropagation(); }
    else return;
    event.preventDefault();
  };
  const moved = (event) => { setText(event.target.value); setCaret(event.target.selectionStart); setOpen(true); setAt(-1); };
  return html`<div class="filter">
    <div class="filterfield"><${Icon} name="search" />
      <input ref=${input} class="field" value=${text} onInput=${moved} onKeyDown=${press} spellcheck=${false} autocomplete="off" data-filter
        onClick=${(e) => { setCaret(e.target.selectionStart); setOpen(true); }} onFocus=${() => setOpen(true)} onBlur=${() => setTimeout(() => setOpen(false), 150)}
        placeholder=${`Filter ${noun}: words, model:…, has:error, cost:>0.1, since:24h`} aria-label=${`Filter ${noun}`}
        role="combobox" aria-expanded=${String(shown)} aria-controls="completion" aria-autocomplete="list" aria-invalid=${String(problem?.code === 'bad-query')}
        aria-activedescendant=${shown && at >= 0 ? `completion-${at}` : undefined} />
      ${shown && html`<ul class="completion" id="completion" role="listbox" aria-label="Completion">${choices.map((choice, i) => html`
        <li key=${choice.text} id=${`completion-${i}`} role="option" aria-selected=${String(i === at)} onMouseDown=${(e) => { e.preventDefault(); take(choice); }}>
          <code>${choice.text}</code><span class="faint">${choice.hint}</span></li>`)}</ul>`}
    </div>
    ${value && html`<${Chips} value=${value} onChange=${onChange} />`}</div>`;
}

const Chips = ({ value, onChange }) => html`<ul class="chips" aria-label="The filter's parts">${partsOf(value).map((part) => (part.text === 'OR'
  ? html`<li key=${part.begin} class="faint">or</li>`
  : html`<li key=${part.begin} class=${part.text.startsWith('-') ? 'not' : ''}><${Text}>${part.text}</${Text}>
      <button aria-label=${`Remove ${part.text}`} onClick=${() => onChange(without(value, part))}><${Icon} name="close" /></button></li>`))}
  <li class="bare"><button class="linklike" onClick=${() => onChange('')}>Clear</button></li></ul>`;

// --- time

export const RANGES = [['', 'All time'], ['1h', '1 h'], ['24h', '24 h'], ['7d', '7 d'], ['30d', '30 d']];

export function asked({ q = '', range = '', from = '', to = '' }) {
  const bounds = [];
  if (range) bounds.push(`since:${range}`);
  if (from) bounds.push(`since:${from}`);
  if (to) bounds.push(`until:${to}`);
  if (!bounds.length) return q;
  return q ? `(${q}) ${bounds.join(' ')}` : bounds.join(' ');
}
