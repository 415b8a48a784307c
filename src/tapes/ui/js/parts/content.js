// What was said, as it is shown: blocks of text, thinking, tool calls and results; JSON as a tree.
// Whatever comes from outside is text here, in its own direction, and never anything else.
import { html, useEffect, useMemo, useState, useStore } from './view.js';
import { prefs } from './prefs.js';
import { Icon, Text, save } from './pieces.js';
import { Prose } from './prose.js';
import * as f from './format.js';

const LONG = 6000;

// A long text begins; the rest is one step away, and says how much it is.
export function Long({ text, limit = LONG, as = 'div', className = 'prose' }) {
  const [shown, setShown] = useState(limit);
  const drawn = (part) => (as === 'div' ? html`<${Prose} text=${part} className=${className} />` : html`<${Text} as=${as} class=${className}>${part}</${Text}>`);
  if (text.length <= shown) return drawn(text);
  return html`${drawn(text.slice(0, shown))}
    <p class="rest"><span class="faint">${f.count(shown)} of ${f.count(text.length)} characters</span>
      <button class="linklike" onClick=${() => setShown(shown + 50_000)}>50,000 more</button>
      ${text.length < 1_000_000 && html`<button class="linklike" onClick=${() => setShown(Infinity)}>all</button>`}</p>`;
}

// --- pictures, and what else is neither text nor JSON

const NAMES = { image: 'Picture', audio: 'Sound', video: 'Film', document: 'Document', file: 'File' };
// These hold points of colour and nothing that could act. What lies elsewhere is never fetched.
const DRAWN = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);
const MOST_DRAWN = 12_000_000; // characters

// What a block holds: of which type it is, its bytes as base64 if they are here, else where they lie.
function heldBy(block) {
  const source = block.source ?? {};
  const where = block.image_url?.url ?? block.image_url ?? block.url ?? source.url ?? '';
  const [, named, inside] = /^data:([\w.+-]+\/[\w.+-]+)[^,]*;base64,(.*)$/s.exec(String(where)) || [];
  const data = String(inside ?? block.image_base64 ?? block.data ?? source.data ?? '');
  return {
    name: NAMES[block.type] || NAMES.file, type: String(named ?? block.media_type ?? source.media_type ?? block.mimeType ?? ''),
    data: data.endsWith('…') ? '' : data, where: inside === undefined && where ? String(where) : String(block.file_id ?? source.file_id ?? ''),
  };
}

export const isMedia = (block) => block?.type in NAMES && block.content === undefined;

function bytesIn(data) {
  try { return Uint8Array.from(atob(data), (each) => each.charCodeAt(0)); } catch { return null; }
}

function Media({ block }) {
  const { name, type, data, where } = heldBy(block);
  const [isBroken, setBroken] = useState(false);
  const bytes = useMemo(() => (data && data.length <= MOST_DRAWN ? bytesIn(data) : null), [data]);
  const address = useMemo(() => (bytes && DRAWN.has(type) ? URL.createObjectURL(new Blob([bytes], { type })) : ''), [bytes, type]);
  useEffect(() => () => address && URL.revokeObjectURL(address), [address]);
  return html`<figure class="media">${address && !isBroken && html`<img src=${address} alt=${`${name} in what was said, ${type}`} decoding="async" onError=${() => setBroken(true)} />`}
    <figcaption class="row wrap"><${Icon} name="picture" /><b>${name}</b>${type && html`<${Text} as="code" class="faint">${type}</${Text}>`}${data && html`<span class="faint tnum">${f.bytes(Math.floor((data.length * 3) / 4))}</span>`}
      ${where && html`<${Text} as="code" class="cut" title=${where}>${where}</${Text}><span class="faint">lies elsewhere and is not fetched</span>`}${isBroken && html`<span class="warn">cannot be drawn</span>`}
      ${bytes && html`<button class="linklike" onClick=${() => save(`${name.toLowerCase()}.${(type.split('/')[1] || 'bin').replace(/\W.*/, '')}`, bytes, 'application/octet-stream')}>Save</button>`}</figcaption></figure>`;
}

const parsed = (value) => {
  if (typeof value !== 'string' || !/^\s*[[{]/.test(value) || value.length > 400_000) return null;
  try { return JSON.parse(value); } catch { return null; }
};

export function Blocks({ title, blocks, empty }) {
  if (!blocks?.length) return empty ? html`<p class="faint">${empty}</p>` : null;
  return html`<section class="blocks">${title && html`<h3>${title}</h3>`}${blocks.map((block, i) => html`${block.choice && block.choice !== blocks[i - 1]?.choice ? html`<h3 key=${`choice ${i}`}>Choice ${block.choice + 1}</h3>` : ''}<${Block} key=${i} block=${block} />`)}</section>`;
}

export function Block({ block }) {
  if (isMedia(block)) return html`<${Media} block=${block} />`;
  switch (block.type) {
    case 'text': return html`<${Spoken} text=${String(block.text ?? '')} />`;
    case 'thinking': return html`<details class="fold"><summary>Thinking <span class="faint">${f.plural(String(block.thinking ?? '').length, 'character')}</span></summary><${Long} text=${String(block.thinking ?? '')} /></details>`;
    case 'tool_use': return html`<div class="toolblock"><p class="toolname"><${Icon} name="tool" /><${Text} as="b">${String(block.tool_name ?? '')}</${Text}> <${Text} as="code" class="faint">${String(block.tool_use_id ?? '')}</${Text}></p><${Arguments} value=${block.tool_input} /></div>`;
    case 'tool_result': return html`<div class=${`toolblock ${block.is_error ? 'failed' : ''}`}><p class="toolname"><${Icon} name=${block.is_error ? 'error' : 'done'} /><b>${block.is_error ? 'Error' : 'Result'}</b> <${Text} as="code" class="faint">${String(block.tool_result_id ?? '')}</${Text}></p><${Result} value=${block.tool_output} content=${block.content} /></div>`;
    case 'attributes': case 'resource': return html`<section class="blocks"><h3>${block.type === 'resource' ? 'Resource' : 'Attributes'}</h3><${Arguments} value=${block.content} /></section>`;
    default: return html`<div class="toolblock"><p class="toolname"><b>${String(block.type ?? 'block')}</b></p><${Json} value=${block} /></div>`;
  }
}

// JSON of which nothing is lost but blanks: no digit of a number, no member.
const exactly = (text) => {
  const json = parsed(text);
  return json !== null && JSON.stringify(json) === text.replace(/"(?:[^"\\]|\\.)*"|\s+/g, (part) => (part[0] === '"' ? part : '')) ? json : null;
};

// What was said; where it is JSON, as JSON.
function Spoken({ text }) {
  const { plain } = useStore(prefs);
  const json = useMemo(() => (plain ? null : exactly(text)), [text, plain]);
  return json === null ? html`<${Long} text=${text} />` : html`<${Json} value=${json} />`;
}

// The result of a tool; pictures in it, which its text has not, are below.
export function Result({ value, content }) {
  const json = useMemo(() => (typeof value === 'string' ? parsed(value) : value), [value]);
  const media = Array.isArray(content) ? content.filter(isMedia) : [];
  if (media.length) return html`${value ? html`<${Result} value=${value} />` : ''}${media.map((block, i) => html`<${Media} key=${i} block=${block} />`)}`;
  if (json !== null && typeof json === 'object') return html`<${Json} value=${json} />`;
  return html`<${Long} text=${value == null ? '' : String(value)} as="pre" className="code" />`;
}

// The arguments of a call: a command is shown as what it is, the rest by name.
export function Arguments({ value }) {
  if (value == null) return html`<p class="faint">no arguments were seen</p>`;
  if (typeof value !== 'object' || Array.isArray(value)) return html`<${Result} value=${value} />`;
  const entries = Object.entries(value);
  if (!entries.length) return html`<p class="faint">no arguments</p>`;
  return html`<dl class="arguments">${entries.map(([name, each]) => html`<dt key=${`n${name}`}><${Text}>${name}</${Text}></dt><dd key=${`v${name}`}>${typeof each === 'string'
    ? html`<${Long} text=${each} as="pre" className="code" limit=${2000} />` : html`<${Json} value=${each} />`}</dd>`)}</dl>`;
}

// --- JSON

const MANY = 100;
export const Json = ({ value, open = 2 }) => html`<div class="json mono" dir="ltr"><${Node} value=${value} open=${open} /></div>`;

function Node({ name, value, open, last = true }) {
  const [isOpen, setOpen] = useState(open > 0);
  const [most, setMost] = useState(MANY);
  const label = name === undefined ? null : html`<span class="jname">${JSON.stringify(name)}</span>: `;
  const comma = last ? '' : ',';
  if (value === null || typeof value !== 'object') return html`<div class="jline">${label}<${Leaf} value=${value} />${comma}</div>`;
  const isList = Array.isArray(value);
  const entries = isList ? value.map((each, i) => [i, each]) : Object.entries(value);
  const [left, right] = isList ? '[]' : '{}';
  if (!entries.length) return html`<div class="jline">${label}${left}${right}${comma}</div>`;
  return html`<div class="jnode">
    <button class="jfold" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}><${Icon} name=${isOpen ? 'down' : 'right'} /><span>${label}${left}${isOpen ? '' : html`<span class="faint"> ${f.plural(entries.length, isList ? 'item' : 'member')} </span>${right}${comma}`}</span></button>
    ${isOpen && html`<div class="jinside">${entries.slice(0, most).map(([key, each], i) => html`<${Node} key=${key} name=${isList ? undefined : key} value=${each} open=${open - 1} last=${i === entries.length - 1} />`)}
      ${entries.length > most && html`<button class="linklike" onClick=${() => setMost(most * 10)}>${f.count(entries.length - most)} more</button>`}</div><div class="jline">${right}${comma}</div>`}</div>`;
}

function Leaf({ value }) {
  const [all, setAll] = useState(false);
  if (typeof value === 'string') {
    const shown = all ? value : value.slice(0, 1500);
    return html`<${Text} class="jtext">${JSON.stringify(shown)}</${Text}>${shown.length < value.length && html` <button class="linklike" onClick=${() => setAll(true)}>${f.count(value.length - shown.length)} more characters</button>`}`;
  }
  return html`<span class="jatom">${String(value)}</span>`;
}
