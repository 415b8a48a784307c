// The address is the truth: a path and parameters, all in the fragment, which no server ever sees.
//
//   #/sessions?q=model:gpt-4o&sort=total_cost_usd     #/trace/ID?span=ID&view=waterfall
import { makeStore, useEffect, useStore } from './view.js';

export function parse(fragment) {
  const text = fragment.replace(/^#?\/?/, '');
  const [path, query = ''] = splitOnce(text, '?');
  return {
    path: path.split('/').filter(Boolean).map(decode),
    params: Object.fromEntries(new URLSearchParams(query)),
  };
}

function splitOnce(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function link(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== '' && value !== false) query.set(name, value);
  }
  const text = query.toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export const route = makeStore(parse(location.hash));
window.addEventListener('hashchange', () => route.set(parse(location.hash)));
window.addEventListener('popstate', () => route.set(parse(location.hash)));

export const useRoute = () => useStore(route);

export function go(path, params = {}, { replace = false } = {}) {
  const target = link(path, params);
  if (target === location.hash) return;
  if (replace) history.replaceState(history.state, '', target);
  else history.pushState(null, '', target);
  route.set(parse(target));
}

// Change some parameters of where we are; `push` where Back should undo it.
export function set(patch, { push = false } = {}) {
  const { path, params } = route.get();
  go(path, { ...params, ...patch }, { replace: !push });
}

// What a tab and the history call a place: what is shown, and on which screen.
const title = { shown: '', screen: '' };
function entitle(name, text) {
  title[name] = (text ?? '').replace(/[\p{Cc}\s\u202a-\u202e\u2066-\u2069]+/gu, ' ').trim().match(/^.{0,100}/su)[0];
  document.title = [...new Set([title.shown, title.screen, 'Tapes'])].filter(Boolean).join(' · ');
}

export function useScreen(name) {
  useEffect(() => entitle('screen', `${name[0].toUpperCase()}${name.slice(1)}`), [name]);
}

export function useTitle(text) {
  useEffect(() => {
    entitle('shown', text);
    return () => entitle('shown', '');
  }, [text]);
}

// What a place looked like when it was left: scroll and selection, by its address.
const left = new Map();
export function remember(name, value) {
  left.delete(name);
  left.set(name, value);
  if (left.size > 100) left.delete(left.keys().next().value);
}
export const recall = (name) => left.get(name);
