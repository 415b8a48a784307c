// What a person does before there is anybody to hear it, kept and done again as soon as there is.
// Links work by themselves, and so does typing.
const KINDS = ['click', 'keydown'];
const app = document.getElementById('app');
const kept = [];
const keep = (event) => event.target.closest('a, input:not([type=checkbox])') || kept.push(event);

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
  for (const event of events) {
    event.target.dispatchEvent(new event.constructor(event.type, event));
    await new Promise((done) => setTimeout(done));
  }
}
