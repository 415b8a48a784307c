// What is seen first. Where the rows of the list came with the page they are drawn by as little as
// that takes, into the frame that lies in the page; all else begins when they are seen.
import { html } from './parts/view.js';
import { applyTheme } from './parts/prefs.js';
import { route } from './parts/route.js';
import { given } from './parts/given.js';
import { draw } from './parts/drawing.js';
import { firstTable } from './parts/table.js';
import { beginWaiting } from './parts/waiting.js';

const app = document.getElementById('app');
const begin = () => import('./main.js').catch((error) => {
  app.replaceChildren();
  draw(Gone(error), app);
});
const { path: [noun = 'sessions'], params } = route.get();
const items = noun === 'sessions' && !Object.keys(params).length && Object.values(given)[0]?.items;

const Gone = ({ message }) => html`<div class="blank" role="alert"><h2>The server is gone</h2><p>The rest of the page did not come. Is the server still running? It is started with <code>tapes serve</code>.</p>
  <p class="faint">${message}</p>
  <a class="button first" href="">Load the page again</a></div>`;

applyTheme();
if (items?.length) {
  const frame = document.getElementById('frame').content.cloneNode(true);
  draw(firstTable(noun, items), frame.querySelector('.tablebox'));
  app.append(frame);
  beginWaiting();
  // After the next picture; where there is none, as in a tab that nobody looks at, soon.
  const soon = new Promise((done) => setTimeout(done, 200));
  const idle = globalThis.requestIdleCallback || setTimeout;
  const seen = new Promise((done) => requestAnimationFrame(() => idle(done)));
  Promise.race([seen, soon]).then(begin);
} else begin();
