// The view library under our own names: elements from templates, state, effects; and stores.
import htm from '../../vendor/htm/htm.js';
import { h } from '../../vendor/preact/preact.js';
import { useEffect, useState } from '../../vendor/preact/hooks.js';

export { h, render, createContext } from '../../vendor/preact/preact.js';
export { useState, useReducer, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useErrorBoundary } from '../../vendor/preact/hooks.js';
export const html = htm.bind(h);

// A value that several parts of the page look at.
export function makeStore(value) {
  const lookers = new Set();
  return {
    get: () => value,
    set(next) {
      value = typeof next === 'function' ? next(value) : next;
      for (const look of [...lookers]) look(value);
    },
    watch(look) {
      lookers.add(look);
      return () => lookers.delete(look);
    },
  };
}

export function useStore(store) {
  const [value, set] = useState(store.get());
  useEffect(() => {
    set(store.get());
    return store.watch((next) => set(() => next));
  }, [store]);
  return value;
}

// Whatever changes quickly, at rest.
export function useSettled(value, ms) {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(() => value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
