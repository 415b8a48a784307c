// What can be done with the rows that were selected: compare, tag, export, freeze, delete.
import { html, useState } from './view.js';
import { ask, at, query } from './api.js';
import { go } from './route.js';
import { CopyLine, Dialog, Failed, Icon, Text, When, save, say } from './pieces.js';
import { useKeys } from './keys.js';
import * as f from './format.js';

export function Many({ noun, ids, rows, onDone, onClear }) {
  const [dialog, setDialog] = useState('');
  const compare = () => go(['compare', ids[0], ids[1]]);
  const isSessions = noun === 'sessions';
  useKeys(isSessions && ids.length === 2 ? [{ key: 'd', label: 'compare', run: compare }] : []);
  return html`<div class="many" role="region" aria-label="Selected rows"><strong>${f.count(ids.length)} selected</strong>
    ${isSessions && html`
      <button class="button" disabled=${ids.length !== 2} title="Select two" onClick=${compare}><${Icon} name="compare" />Compare</button>
      <button class="button" onClick=${() => setDialog('tag')}>Tag</button>
      <button class="button" onClick=${() => setDialog('freeze')}><${Icon} name="snow" />Freeze</button>`}
    <button class="button" onClick=${() => exported(noun, rows)}><${Icon} name="down2" />Export</button>
    ${isSessions && html`<button class="button danger" onClick=${() => setDialog('delete')}><${Icon} name="bin" />Delete</button>`}
    <button class="button plain" onClick=${onClear}>Clear</button>
    ${dialog === 'delete' && html`<${Delete} rows=${rows} onClose=${() => setDialog('')} onDone=${onDone} />`}
    ${dialog === 'tag' && html`<${Tag} ids=${ids} onClose=${() => setDialog('')} onDone=${onDone} />`}
    ${dialog === 'freeze' && html`<${Freeze} ids=${ids} onClose=${() => setDialog('')} />`}</div>`;
}

// One after the other: many at once would keep others waiting.
async function inTurn(list, run) {
  const all = [];
  for (const each of list) all.push(await run(each));
  return all;
}

async function exported(noun, rows) {
  try {
    const lines = noun === 'sessions'
      ? await inTurn(rows, (row) => ask(`/v1/${at('sessions', row.id, 'traces')}`))
      : noun === 'traces' ? await inTurn(rows, (row) => ask(`/v1/${at('traces', row.trace_id)}`)) : rows;
    save(`${noun}.jsonl`, `${lines.map((line) => JSON.stringify(line)).join('\n')}\n`, 'application/x-ndjson');
    say(`${f.plural(lines.length, noun.slice(0, -1))} exported`);
  } catch (problem) {
    say(problem.message);
  }
}

export const freezeCommand = (ids) => ids.map((id) => `tapes freeze ${id} -o tests/tapes/${id.slice(0, 8)}.jsonl`).join('\n');

export const Freeze = ({ ids, onClose }) => html`<${Dialog} title="Freeze into a tape" onClose=${onClose}>
  <p>A tape keeps what the model answered, so that a test can ask the same again without a model: committed, redacted, and never live. The command writes it and a test that replays it.</p>
  <${CopyLine} text=${freezeCommand(ids)} label="Copy the command" /></${Dialog}>`;

const NAMED = 6;

export function Delete({ rows, onClose, onDone }) {
  const ids = rows.map((row) => row.id);
  const [plan, setPlan] = useState(null);
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const [reason, setReason] = useState('');
  // What is gone already, as after an attempt that failed half way, is no problem.
  const gone = (failed) => { if (failed.status !== 404) throw failed; return { turns: 0, bytes: 0, tapes: [] }; };
  const each = (params, headers) => inTurn(ids, (id) => ask(query(`/v1/${at('sessions', id)}`, params), { method: 'DELETE', headers }).catch(gone));
  const look = () => each({ dry_run: 'true' }).then(setPlan, setProblem);
  if (!plan && !problem && !busy) { setBusy(true); look().finally(() => setBusy(false)); }
  const sum = (name) => (plan || []).reduce((total, one) => total + one[name], 0);
  const tapes = (plan || []).flatMap((one) => one.tapes);
  const doIt = () => {
    setBusy(true);
    each({ reason }, { prefer: 'return=representation' }).then(
      () => { say(`${f.plural(ids.length, 'session')} deleted for good`); onClose(); onDone(); },
      (failed) => { setProblem(failed); setBusy(false); },
    );
  };
  return html`<${Dialog} title=${`Delete ${f.plural(ids.length, 'session')}`} onClose=${onClose} foot=${html`
      <button class="button" onClick=${onClose}>Keep</button><button class="button danger" disabled=${!plan || busy} onClick=${doIt}>Delete for good</button>`}>
    <ul class="doomed">${rows.slice(0, NAMED).map((row) => html`<li key=${row.id} class="row"><${Text} as="b" class="cut">${row.display_title}</${Text}><span class="faint tnum"><${When} at=${row.started_at} /></span></li>`)}
      ${rows.length > NAMED && html`<li class="faint">and ${f.count(rows.length - NAMED)} more</li>`}</ul>
    ${problem && html`<${Failed} problem=${problem} />`}
    ${plan ? html`<p><strong>${f.plural(sum('turns'), 'record')}</strong> and <strong>${f.bytes(sum('bytes'))}</strong> go: from the log, from everything made of it, from the search, and from the bytes of the database. It cannot be undone, and capturing goes on without what was said before.</p>
      ${tapes.length > 0 && html`<div class="notice warn"><${Icon} name="warn" /><p>These tapes were made from it. They are not touched: ${tapes.join(', ')}</p></div>`}
      <label class="stack">Why (kept in the audit)<input class="field" value=${reason} onInput=${(e) => setReason(e.target.value)} /></label>`
      : !problem && html`<p role="status">Counting what would go…</p>`}</${Dialog}>`;
}

function Tag({ ids, onClose, onDone }) {
  const [problem, setProblem] = useState(null);
  const send = (event) => {
    event.preventDefault();
    const words = new FormData(event.currentTarget).get('tags').split(/[\s,]+/).filter(Boolean);
    if (!words.length) return;
    inTurn(ids, (id) => ask(`/v1/${at('sessions', id)}`, { method: 'PATCH', body: { add_tags: words } })).then(() => { onClose(); onDone(); }, setProblem);
  };
  return html`<${Dialog} title="Tag" onClose=${onClose}><form class="row" onSubmit=${send}><label class="sr" for="tags">Tags</label>
    <input id="tags" name="tags" class="field" placeholder="regression, customer-42" autofocus /><button class="button first">Add</button></form>
    ${problem && html`<${Failed} problem=${problem} />`}</${Dialog}>`;
}
