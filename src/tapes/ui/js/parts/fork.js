// "Fork from here": a tape of the session up to a call of a turn, and the command that goes on from it.
import { html, useState } from './view.js';
import { at, bytesOf, query, useAsk } from './api.js';
import { Asked, CopyLine, Dialog, Icon, save, say } from './pieces.js';
import * as f from './format.js';

export const callsOf = (spans) => spans.filter((span) => span.kind === 'llm' && span.raw_turn_id != null).sort((a, b) => (a.begin < b.begin ? -1 : a.begin > b.begin ? 1 : a.raw_turn_id - b.raw_turn_id));

const nameOf = (span, i) => {
  const text = (span.output || []).map((block) => (block.type === 'tool_use' ? `calls ${block.tool_name || block.name || 'a tool'}` : block.text || '')).join(' ').replace(/\s+/g, ' ').trim();
  return f.visible(`call ${i + 1}${span.thread_id ? `, ${span.agent || 'sub-agent'}` : ''}${text ? `: ${text.slice(0, 70)}` : ''}`);
};

export function Fork({ session, number, spans, chosen, onClose }) {
  const calls = callsOf(spans);
  const [until, setUntil] = useState(String((calls.find((span) => span.span_id === chosen) || calls[calls.length - 1]).raw_turn_id));
  const place = `/v1/${at('sessions', session.id, 'tape')}`;
  const asked = useAsk(query(`${place}/plan`, { until }));
  const take = (plan) => bytesOf(query(place, { until })).then(
    (bytes) => { save(plan.tape.split('/').pop(), bytes, 'application/x-ndjson'); say('Tape downloaded'); }, (problem) => say(problem.message));
  return html`<${Dialog} title=${`Fork from turn ${number}`} onClose=${onClose} wide>
    <p>Run your agent again, and it is answered from a tape up to here: the same answers, at no cost. What it asks after that is asked live: with another prompt, another model, another result of a tool.</p>
    <label class="stack">The last call that comes from the tape<select class="field" value=${until} onChange=${(e) => setUntil(e.target.value)} autofocus>${calls.map((span, i) => html`
      <option key=${span.span_id} value=${String(span.raw_turn_id)}>${nameOf(span, i)}</option>`)}</select></label>
    <${Asked} asked=${asked} rows=${5}>${(plan) => html`<div class="stack">
      <p role="status"><strong>${f.plural(plan.answers, 'answer')}</strong> ${plan.answers === 1 ? 'goes' : 'go'} on the tape. ${plan.later ? html`The session made <strong>${f.plural(plan.later, 'call')}</strong> after that: the budget permits as many live ones.` : 'Nothing of the session came after that: the budget permits one live call.'}</p>
      ${plan.left_out.length > 0 && html`<div class="notice warn"><${Icon} name="warn" /><p>${f.plural(plan.left_out.length, 'call')} cannot be on a tape, and will be asked live: ${plan.left_out.slice(0, 3).map((each) => `${each.turn}: ${each.why}`).join('; ')}${plan.left_out.length > 3 ? ' …' : ''}</p></div>`}
      <p><strong>1.</strong> Make the tape, in the folder of your project:</p><${CopyLine} text=${plan.freeze} label="Copy the command that makes the tape" />
      <div class="row wrap"><button class="button" onClick=${() => take(plan)}><${Icon} name="down2" />Or download it</button><span class="dim">${`as ${plan.tape}`}</span></div>
      <p><strong>2.</strong> Run your agent with it; put the command that starts it in place of COMMAND:</p><${CopyLine} text=${plan.run} label="Copy the command that runs the agent" /></div>`}</${Asked}></${Dialog}>`;
}
