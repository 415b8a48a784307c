// A link that leads nowhere any more: what was there, and why it is gone.
import { html } from './view.js';
import { query, useAsk } from './api.js';
import { link } from './route.js';
import { Blank, Text, When } from './pieces.js';

export function Gone({ noun, id }) {
  const erasures = useAsk('/v1/audit?limit=200');
  const similar = useAsk(id.length >= 8 ? query('/v1/find', { id: id.slice(0, 36), limit: 5 }) : '');
  const erased = (erasures.value?.items || []).find((each) => JSON.stringify(each.details).includes(id));
  return html`<${Blank} title=${erased ? `This ${noun} was erased` : `There is no such ${noun}`}>
    <p><${Text} as="code">${id}</${Text}></p>
    ${erased ? html`<p>It was here until <${When} at=${erased.at} />, when ${erased.by || 'somebody'} erased it for good${erased.details.reason ? html`: “<${Text}>${String(erased.details.reason)}</${Text}>”` : ''}. Nothing of its content is kept.</p>`
      : html`<p>Nothing that this server has bears that id. It may be in another database or another project, or not have been captured.</p>`}
    ${similar.value?.items.length > 0 && html`<p>Similar: ${similar.value.items.map((each) => html`<a key=${each.id} href=${link(['find'], { q: each.id })}>${each.noun.slice(0, -1)} ${each.id.slice(0, 16)}</a> `)}</p>`}
    <a class="button first" href="#/sessions">To the sessions</a></${Blank}>`;
}
