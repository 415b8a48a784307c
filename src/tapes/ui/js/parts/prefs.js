// What one person prefers, kept in this browser: theme, clock, columns with their order and widths, sizes of panes.
import { makeStore } from './view.js';

const KEY = 'tapes.prefs';
const USUAL = { theme: 'system', utc: false, columns: null, order: null, widths: null, panes: {}, plain: false };

function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEY) || '{}');
  } catch {
    return {};
  }
}

export const prefs = makeStore({ ...USUAL, ...kept() });

export function prefer(patch) {
  prefs.set((now) => ({ ...now, ...kept(), ...patch })); // another tab may have kept something since
  try {
    localStorage.setItem(KEY, JSON.stringify(prefs.get()));
  } catch { /* a browser that keeps nothing: it holds until the page is left */ }
}

export function applyTheme() {
  const { theme } = prefs.get();
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
prefs.watch(applyTheme);
