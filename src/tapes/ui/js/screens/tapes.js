// Which tapes there are, and what lately was on none of them.
import { html } from '../parts/view.js';
import { useAsk, useChangesSoon } from '../parts/api.js';
import { go, link, set, useRoute } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Asked, Blank, CopyLine, Icon, Text, When } from '../parts/pieces.js';
import * as f from '../parts/format.js';

// What the runs that ended here did with a tape; where none did, it is not known.
function Replayed({ did }) {
  if (!did) return html`<td class="num faint" title="no run has ended here">${f.NONE}</td><td class="num faint">${f.NONE}</td><td class="num faint">${f.NONE}</td>`;
  const { served, refused, saved, runs } = did;
  const unpriced = saved.unpriced ? `; ${f.plural(saved.unpriced, 'call')} without a price not in it` : '';
  return html`<td class="num" title=${`in ${f.plural(runs, 'run')} that ended`}>${f.count(served)}</td><td class=${`num ${refused ? 'warn' : ''}`}>${f.count(refused)}</td>
    <td class="num" title=${`${f.count(saved.tokens)} tokens in ${f.plural(saved.calls, 'call')}${unpriced}`}>${saved.usd == null && saved.calls > 0 ? (saved.tokens == null ? f.NONE : `${f.brief(saved.tokens)} tokens`) : f.money(saved.usd ?? 0)}</td>`;
}

export function Screen() {
  const { params } = useRoute();
  const tapes = useAsk('/v1/tapes');
  const misses = useAsk('/v1/misses?limit=50');
  useChangesSoon(misses.reload);
  const items = tapes.value?.items || [];
  const chosen = Number.parseInt(params.at, 10);
  const at = Math.min(chosen >= 0 ? chosen : -1, items.length - 1);
  useKeys([
    { key: 'j', also: ['ArrowDown'], label: 'next', hidden: !items.length, run: () => set({ at: Math.min(items.length - 1, at + 1) }) },
    { key: 'k', also: ['ArrowUp'], label: 'previous', hidden: !items.length, run: () => set({ at: Math.max(0, at - 1) }) },
    { key: 'Enter', label: 'open', hidden: !items.length, run: () => items[at] && go(['tape', items[at].path]) },
  ]);
  return html`<div class="page"><h1>Tapes</h1>
    <${Asked} asked=${tapes} rows=${6}>${({ items: found, folder }) => (!found.length ? html`<${Blank} title="No tape here yet">
        ${folder ? html`<p>None lies below <code>${folder}</code>, where the server was started. A tape is made by recording once:</p><div class="fit"><${CopyLine} text=${'DEMO_LIVE=1 CASSETTE_MODE=record tapes run --tape tests/tapes/first.jsonl -- python agent.py'} /></div>` : html`<p>Tapes belong to this machine, and your project has none.</p>`}</${Blank}>`
      : html`<section class="panel"><header><h2>${f.plural(found.length, 'tape')}</h2><${Text} as="code" class="faint">${folder}</${Text}></header>
        <table class="plain"><thead><tr><th scope="col">Tape</th><th scope="col">Kind</th><th scope="col" class="num">Answers</th><th scope="col" class="num">Incomplete</th><th scope="col" class="num">Served</th><th scope="col" class="num">Refused</th><th scope="col" class="num">Not spent</th><th scope="col" class="num">Size</th><th scope="col">Last recorded</th></tr></thead>
        <tbody>${found.map((tape, i) => html`<tr key=${tape.path} class=${i === at ? 'at' : ''}><th scope="row"><a href=${link(['tape', tape.path])}><${Text}>${tape.path}</${Text}></a>${tape.problem && html`<p class="bad row"><${Icon} name="error" /><${Text}>${tape.problem}</${Text}></p>`}</th><td>${tape.kind}</td><td class="num">${tape.problem ? f.NONE : f.count(tape.answers)}</td><td class="num">${tape.incomplete ? html`<span class="warn">${tape.incomplete}</span>` : '0'}</td><${Replayed} did=${tape.replayed} /><td class="num">${f.bytes(tape.bytes)}</td><td><${When} at=${tape.last_recorded} /></td></tr>`)}</tbody></table></section>`)}</${Asked}>
    <section class="panel"><header><h2>Refused lately</h2></header><${Asked} asked=${misses} rows=${4}>${({ items: found }) => (!found.length
      ? html`<p class="inside dim">No request was refused. One that is on no tape is refused in replay, never sent on; it then stands here with its diagnosis.</p>`
      : html`<table class="plain"><thead><tr><th scope="col">When</th><th scope="col">What was asked</th><th scope="col">Model</th><th scope="col">Tape</th><th scope="col">Why</th><th scope="col">Session</th></tr></thead><tbody>${found.map((turn) => html`<tr key=${turn.id}>
        <td><${When} at=${turn.received_at} /></td><th scope="row"><a href=${link(['miss', turn.id])} title=${`${turn.method || ''} ${turn.url || ''}`}><${Text}>${turn.said || `${turn.method || ''} ${turn.url || `call ${turn.id}`}`}</${Text}></a></th><td><${Text}>${turn.model || f.NONE}</${Text}></td><td><${Text}>${turn.tape || f.NONE}</${Text}></td><td>${f.whyRefused(turn.refused)}</td><td>${turn.session_id ? html`<a href=${link(['session', turn.session_id], { turn: turn.id })}>session</a>` : f.NONE}</td></tr>`)}</tbody></table>`)}</${Asked}></section></div>`;
}
