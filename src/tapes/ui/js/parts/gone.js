// A link that leads nowhere any more: what was there, and why it is gone.
import { html } from './view.js';
import { query, useAsk } from './api.js';
import { link } from './route.js';
import { Blank, Text, When } from './pieces.js';

const WHY = {
  session: 'Nothing that this server has bears that id. It may be in another database or another project, or not have been captured.',
  trace: 'Nothing that this server has bears that id. It may have been erased with its session, be in another database or another project, or not have been captured.',
  call: 'Nothing that this server has bears that number. It may have been erased with its session, or be in another database.',
  tape: 'No tape lies there, below the folder in which the server was started. It may have been moved, or the server was started elsewhere.',
};
const isOfTapes = (noun) => noun === 'tape' || noun === 'call';

export function Gone({ noun, id = '' }) {
  const erasures = useAsk(noun === 'session' && id ? query('/v1/erasures', { session_id: id }) : '');
  const similar = useAsk(id.length >= 8 && noun !== 'tape' ? query('/v1/find', { id: id.slice(0, 36), limit: 5 }) : '');
  const erased = erasures.value?.items[0];
  if (erasures.loading) return html`<div class="page" role="status" aria-label="Loading" />`;
  return html`<${Blank} title=${erased ? `This ${noun} was erased` : `There is no such ${noun}`}>
    <p><${Text} as="code">${id}</${Text}></p>
    ${erased ? html`<p>It was here until <${When} at=${erased.asked_at} />, when ${erased.by ? html`<${Text}>${erased.by}</${Text}>` : 'somebody'} erased it for good${erased.reason ? html`: “<${Text}>${erased.reason}</${Text}>”` : ''}. Nothing of its content is kept.</p>`
      : html`<p>${WHY[noun]}</p>`}
    ${similar.value?.items.length > 0 && html`<p>Similar: ${similar.value.items.map((each) => html`<a key=${each.id} href=${link(['find'], { q: each.id })}>${each.noun.slice(0, -1)} ${each.id.slice(0, 16)}</a> `)}</p>`}
    ${isOfTapes(noun) ? html`<a class="button first" href="#/tapes">To the tapes</a>` : html`<a class="button first" href="#/sessions">To the sessions</a>`}</${Blank}>`;
}
