// Why a request is on no tape: what was asked, what is nearest, what differs, why, and what to do.
import { html, useEffect } from '../parts/view.js';
import { query, useAsk, useChangesSoon } from '../parts/api.js';
import { go, link, set, useRoute, useTitle } from '../parts/route.js';
import { useKeys } from '../parts/keys.js';
import { Asked, Blank, CopyLine, Icon, Text, When, capital } from '../parts/pieces.js';
import { Json, Long } from '../parts/content.js';
import { Words } from '../parts/diffing.js';
import { Gone } from '../parts/gone.js';
import * as f from '../parts/format.js';

export function Screen() {
  const { path: [, id] } = useRoute();
  return !id ? html`<${Gone} noun="call" />` : /^\d+$/.test(id) ? html`<${Known} />` : html`<${Named} id=${id} />`;
}

// A refusal names its call before the log has it: the call gets its number when it is written.
function Named({ id }) {
  const asked = useAsk(query('/v1/find', { id, limit: 5 }));
  useChangesSoon(asked.reload);
  const turn = asked.value?.items.find((each) => each.noun === 'turns');
  useEffect(() => { if (turn) go(['miss', String(turn.id)], {}, { replace: true }); }, [turn]);
  return html`<div class="page"><nav class="crumbs" aria-label="Where this is"><a href="#/tapes">Tapes</a> / <span>Miss</span></nav>
    <${Asked} asked=${asked} rows=${9}>${() => (turn ? null : html`<${Blank} title="This call is not in the log yet"><p>It comes here by itself as soon as it is written. If it does not, it was captured into another log, or was erased.</p></${Blank}>`)}</${Asked}></div>`;
}

function Known() {
  const { path: [, id], params } = useRoute();
  const asked = useAsk(query(`/v1/misses/${encodeURIComponent(id)}`, { tape: params.tape }));
  useKeys([{ key: 'Escape', shown: 'Esc', label: 'back', run: () => history.back() }]);
  if (asked.problem?.status === 404 && !params.tape) return html`<${Gone} noun="call" id=${id} />`;
  return html`<div class="page"><nav class="crumbs" aria-label="Where this is"><a href="#/tapes">Tapes</a> / <span>Miss</span></nav>
    <${Asked} asked=${asked} rows=${9}>${(miss) => html`<${Whole} miss=${miss} />`}</${Asked}></div>`;
}

function Whole({ miss }) {
  const found = miss.explanation;
  useTitle(miss.what);
  const choice = html`<label class="row">On the tape<select class="field fitted" value=${found?.tape || ''} onChange=${(e) => set({ tape: e.target.value })}>${miss.tapes.map((tape) => html`<option key=${tape} value=${tape}>${tape}</option>`)}</select></label>`;
  const head = html`<div class="row wrap"><h1 class="grow">${found?.verdict === 'hit' ? 'This request is on the tape' : found ? 'This request is not on the tape' : 'This request is on no tape'}</h1>${miss.tapes.length > 0 && choice}${miss.session_id && html`<a class="button" href=${link(['session', miss.session_id], { turn: miss.turn_id })}>Its session</a>`}</div>
    <p class="mono dim"><${Text}>${miss.what}</${Text}>${miss.refused && miss.refused !== 'miss' && html` <span class="badge bad">${f.whyRefused(miss.refused)}</span>`}</p>`;
  if (!found) return html`${head}<${Blank} title="There is no tape to look on"><p>None lies below the folder in which the server was started.</p></${Blank}><section class="panel"><header><h2>The request</h2></header><div class="inside"><${Json} value=${miss.asked} /></div></section>`;
  if (found.verdict === 'unknown') return html`${head}<div class="notice bad"><${Icon} name="error" /><p><${Text}>${found.problem}</${Text}></p></div>`;
  const near = found.nearest;
  return html`${head}
    ${found.verdict === 'hit' ? html`<div class="notice"><${Icon} name="done" /><p>Asked now, the tape answers it: it was recorded meanwhile, or a rule was added.</p></div>` : html`
    <div class="missgrid"><section class="panel"><header><h2>Likely cause</h2></header><div class="inside stack">
      ${found.causes.length ? found.causes.map((cause) => html`<p class="cause" key=${cause}><${Text}>${capital(cause)}</${Text}></p>`) : near ? html`<p>What differs does not show a cause by itself.</p>` : html`<p class="cause">Nothing on this tape is like it</p>`}
      ${found.rule && html`<p>With this rule in <code>tapes.toml</code> the two are the same request:</p><${CopyLine} text=${found.rule} label="Copy the rule" />`}
      <p>To record it once, live, run your program so, with the command that starts it in place of COMMAND:</p><${CopyLine} text=${found.record} label="Copy the command" />
      <p>Or, if it is led to this server's proxy, stop the server and start it so, with its other options; then run your program again:</p><${CopyLine} text="DEMO_LIVE=1 tapes serve --mode record" label="Copy the command for the server" /></div></section>
    <section class="panel"><header><h2>The decision</h2></header><div class="inside"><p class="stack"><${Text}>${found.message || ''}</${Text}></p><dl class="facts"><dt>Key</dt><dd><code>${found.key}</code></dd><dt>Canonicalizer</dt><dd>${found.canonicalizer}</dd><dt>Left out</dt><dd>${found.left_out.length ? found.left_out.join(', ') : 'nothing'}</dd><dt>Redacted</dt><dd>${found.redacted.length ? found.redacted.join(', ') : 'nothing'}</dd><dt>Rules used</dt><dd>${found.rules.length ? f.plural(found.rules.length, 'rule') : 'none'}</dd></dl></div></section></div>
    ${near && html`<section class="panel"><header><h2>Against the nearest recording</h2><code class="faint">${near.key.slice(0, 12)}</code>${near.recorded_at && html`<span class="faint">recorded <${When} at=${near.recorded_at} /></span>`}</header>
      <div class="inside">${near.differences.length ? html`<ol class="diffs">${near.differences.slice(0, 60).map((each) => html`<li key=${each.place}><header><code><${Text}>${each.place}</${Text}></code><span class=${`badge ${each.recorded === null ? 'good' : each.asked === null ? 'bad' : 'warn'}`}>${each.recorded === null ? 'only asked' : each.asked === null ? 'only recorded' : 'differs'}</span></header>
        <${Words} was=${each.recorded === null ? undefined : each.recorded} is=${each.asked === null ? undefined : each.asked} /></li>`)}</ol>${near.differences.length > 60 && html`<p class="dim">60 of ${f.count(near.differences.length)} places</p>`}` : html`<p class="dim">No place differs but those that a rule or a redaction covers.</p>`}
        <p class="faint legend"><del>recorded</del> <ins>asked now</ins></p></div></section>`}`}
    <section class="panel"><header><h2>The request</h2></header><div class="inside stack"><${Json} value=${miss.asked} />
      <details class="fold"><summary>The canonical text from which the key is made</summary><${Long} text=${found.canonical_text} as="pre" className="code" /></details></div></section>`;
}
