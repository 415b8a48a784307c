// One recording of a tape beside the list of them: as it reads, and as it lies there.
import { html } from './view.js';
import { query, useAsk } from './api.js';
import { Asked, CopyButton, CopyLine, Icon, Text, When } from './pieces.js';
import { Blocks, Json, Long } from './content.js';
import { PlainSwitch } from './prose.js';
import { Chunks, headersOf } from './detail.js';
import * as f from './format.js';

const TABS = [['', 'Conversation'], ['request', 'Request'], ['response', 'Response'], ['chunks', 'Chunks']];

export function Recording({ tape, row, n, tab = '', onTab, onClose }) {
  const address = query('/v1/tapes/recording', { tape, key: row.key, n });
  const asked = useAsk(address);
  const tabs = TABS.filter(([name]) => name !== 'chunks' || asked.value?.response?.chunks.length);
  const shown = tabs.some(([name]) => name === tab) ? tab : '';
  return html`<aside class="sheet" aria-label="Recording"><header><h2><${Text}>${row.said || row.what}</${Text}></h2>
      <button class="button plain" aria-label="Close the sheet" title="Close (Esc)" onClick=${onClose}><${Icon} name="close" /></button></header>
    <dl class="facts"><dt>Key</dt><dd class="row"><code class="cut">${row.key}</code><${CopyButton} text=${row.key} label="Copy the key" /></dd>
      <dt>Request</dt><dd><${Text} as="code">${row.what}</${Text}></dd>
      ${row.model && html`<dt>Model</dt><dd><${Text}>${row.model}</${Text}></dd>`}
      <dt>Recorded</dt><dd><${When} at=${row.recorded_at} /> ${row.recorded_at && html`<span class="faint">(<${When} at=${row.recorded_at} relative=${true} />)</span>`}</dd>
      <dt>Tokens</dt><dd class="tnum">${f.count(row.input_tokens)} in, ${f.count(row.output_tokens)} out</dd>
      <dt>Served</dt><dd>${row.hits ? f.plural(row.hits, 'time') : html`<span class="dim">by no run that is known here</span>`}</dd></dl>
    <div class="segments" role="tablist" aria-label="Forms of this recording">${tabs.map(([name, label]) => html`<button key=${name} role="tab" aria-selected=${String(shown === name)} onClick=${() => onTab(name)}>${label}</button>`)}</div>
    ${!shown && html`<div><${PlainSwitch} /></div>`}<div role="tabpanel" aria-label=${shown || 'conversation'} class="stack">
      <${Asked} asked=${asked} rows=${6}>${(found) => (shown === 'request' ? html`<${Side} side=${found.request} plain=${found.plain_request} none="It is kept without its request." />`
        : shown === 'response' ? html`<${Side} side=${found.response} plain=${found.plain_response} none="No response was kept." />`
        : shown === 'chunks' ? html`<${Chunks} turn=${found} where=${address} />`
        : html`<${Conversation} found=${found} />`)}</${Asked}></div>
    <h3>In a terminal</h3><${CopyLine} text=${`tapes tape show ${f.typed(tape)} ${row.key.slice(0, 12)}`} /></aside>`;
}

// What was said before the last message is folded; what came is all there.
function Conversation({ found }) {
  const { messages, answers, tools, unread } = found;
  if (unread) return html`<p class="dim">It does not read as a call of a model (<code>${unread}</code>); request and response are there as they came.</p>`;
  const last = messages.length - 1;
  return html`${tools.length > 0 && html`<p class="dim">${f.plural(tools.length, 'tool')} offered: ${tools.slice(0, 12).join(', ')}${tools.length > 12 ? ', …' : ''}</p>`}
    ${messages.map((message, i) => html`<details key=${i} class="fold message" open=${i === last}><summary><b><${Text}>${message.role}</${Text}></b></summary><${Blocks} blocks=${message.parts} empty="(nothing)" /></details>`)}
    ${answers.map((answer, i) => html`<section key=${`a${i}`} class="blocks answer"><h3>${answers.length > 1 ? `Answer ${i + 1}` : 'Answer'}</h3><${Blocks} blocks=${answer.parts} empty="It is empty." /></section>`)}
    ${found.stop && html`<p class="faint">ended by ${found.stop}</p>`}`;
}

function Side({ side, plain, none }) {
  if (!side) return plain === undefined ? html`<p class="dim">${none}</p>` : html`<${Json} value=${plain} open=${3} />`;
  const { body } = side;
  return html`<p class="mono">${side.method ? html`<b>${side.method}</b> <${Text}>${side.url}</${Text}>` : html`<b>${side.status}</b> <${Text}>${side.reason || ''}</${Text}>`}</p>
    ${headersOf(side.headers)}
    ${body.json !== undefined ? html`<${Json} value=${body.json} open=${6} />` : body.text ? html`<${Long} text=${body.text} as="pre" className="code" />` : html`<p class="dim">${body.undecoded || (body.bytes ? `${f.bytes(body.bytes)} that are no text` : 'The body is empty.')}</p>`}
    ${body.cut_at && html`<p class="faint">${f.bytes(body.cut_at)} of ${f.bytes(body.bytes)}</p>`}`;
}
