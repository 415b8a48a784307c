// A pasted id: straight to the thing, or what begins so.
import { html, useEffect } from '../parts/view.js';
import { query, useAsk } from '../parts/api.js';
import { go, link, useRoute, useTitle } from '../parts/route.js';
import { placeOf } from '../parts/palette.js';
import { Asked, Blank, Text } from '../parts/pieces.js';

export function Screen() {
  const { params: { q = '' } } = useRoute();
  useTitle(q);
  const asked = useAsk(q ? query('/v1/find', { id: q }) : '');
  const items = asked.value?.items;
  const whole = items?.filter((each) => each.whole);
  useEffect(() => {
    if (!items) return;
    const one = whole.length === 1 ? whole[0] : items.length === 1 ? items[0] : null;
    if (one && placeOf(one)[0][0] !== 'find') go(...placeOf(one), { replace: true });
    else if (!items.length) go(['search'], { q }, { replace: true });
  }, [items]);
  return html`<div class="page"><h1>What has the id <${Text} as="code">${q}</${Text}></h1><${Asked} asked=${asked}>${({ items: found }) => (found.length
    ? html`<ul class="turnlist">${found.map((each) => html`<li key=${each.noun + each.id}><a href=${link(...placeOf(each))}><code>${each.id}</code></a><span class="faint">${each.noun.slice(0, -1)}, by its ${each.by}</span></li>`)}</ul>`
    : html`<${Blank} title="Nothing has this id" />`)}</${Asked}></div>`;
}
