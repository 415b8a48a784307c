// What a person does before there is anybody to hear it, kept and done again as soon as there is.
// Links work by themselves.
const KINDS = ['click', 'keydown', 'input'];
const app = document.getElementById('app');
let kept = []; // [event, what the field said then]

function keep(event) {
  const { target, type } = event;
  if (type === 'input') {
    kept = [...kept.filter(([each]) => each.type !== 'input' || each.target !== target), [event, target.value]];
  } else if (!target.closest('a, input:not([type=checkbox])')) kept.push([event]);
}

export function beginWaiting() {
  app.setAttribute('aria-busy', 'true');
  for (const kind of KINDS) window.addEventListener(kind, keep);
}

export function endWaiting() {
  app.removeAttribute('aria-busy');
  for (const kind of KINDS) window.removeEventListener(kind, keep);
  again(kept);
}

// Each when what came of the one before is there.
async function again(events) {
  for (const [event, said] of events) {
    if (said !== undefined) event.target.value = said;
    event.target.dispatchEvent(new event.constructor(event.type, event));
    await new Promise((done) => setTimeout(done));
  }
}
