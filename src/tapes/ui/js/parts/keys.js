// Keys: whoever is on the screen says which it knows; the line at the foot shows those valid now.
import { makeStore, useEffect, useLayoutEffect, useRef } from './view.js';

export const known = makeStore([]); // [{key, label, run, hidden}], the innermost last
let groups = [];

function publish() {
  known.set(groups.flatMap((group) => group.current));
}

export function useKeys(list) {
  const group = useRef(list);
  group.current = list;
  useLayoutEffect(() => { // what can be seen can be used
    groups = [...groups, group];
    publish();
    return () => {
      groups = groups.filter((each) => each !== group);
      publish();
    };
  }, []);
  const names = list.map((each) => each.key + each.label + Boolean(each.hidden)).join();
  useEffect(publish, [names]);
}

const isTyping = (target) => target instanceof HTMLElement
  && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  && !/^(checkbox|radio|button)$/.test(target.type || '');

// What a key does to what has the focus goes before what it does on the screen.
const isPressed = (target, name) => target instanceof HTMLElement && ((name === 'Enter' && target.closest('button, a, summary, label'))
  || (name === ' ' && target.closest('button, summary, input')));

export function nameOf(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') return 'Ctrl K';
  if (event.isComposing) return '';
  // On many keyboards [ and ] are typed with AltGr.
  if (!event.getModifierState('AltGraph') && (event.ctrlKey || event.metaKey || event.altKey)) return '';
  return event.key;
}

window.addEventListener('keydown', (event) => {
  const name = nameOf(event);
  if (!name || event.defaultPrevented) return;
  const open = document.querySelector('dialog[open]');
  if (isTyping(event.target) && name !== 'Ctrl K' && name !== 'Escape') return;
  if (open && name !== 'Ctrl K') return;
  if (isPressed(event.target, name)) return;
  const all = groups.flatMap((group) => group.current);
  for (const each of all.reverse()) {
    if (each.key === name || each.also?.includes(name)) {
      if (name === 'Escape' && isTyping(event.target)) {
        event.target.blur();
        return;
      }
      event.preventDefault();
      each.run(event);
      return;
    }
  }
});
