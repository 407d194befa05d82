// Preferences stored in this browser: theme, density, single keys, notifications, drafts. localStorage is per origin and port.
import { effect, signal } from "./html.js";

/** @param {string} name @param {any} fallback */
function load(name, fallback) {
  try {
    const text = localStorage.getItem(name);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

/** @param {string} name @param {any} value */
function save(name, value) {
  try {
    if (value === null || value === undefined || value === "") localStorage.removeItem(name);
    else localStorage.setItem(name, JSON.stringify(value));
  } catch {
    // If the storage is full or forbidden, nothing is stored; the page still works.
  }
}

/** A signal whose value is stored. @template T @param {string} name @param {T} fallback */
function kept(name, fallback) {
  const value = signal(load(`caliban.${name}`, fallback));
  let first = true;
  effect(() => {
    const now = value.value;
    if (!first) save(`caliban.${name}`, now === fallback ? null : now);
    first = false;
  });
  return value;
}

/** "system", "light" or "dark". */
export const theme = kept("theme", "system");
/** "normal" or "compact". */
export const density = kept("density", "normal");
/** "table" or "cards". */
export const fleetView = kept("fleet-view", "table");
/** Whether single keys act (WCAG 2.1.4). */
export const singleKeys = kept("single-keys", true);
/** "unified" or "split". */
export const diffView = kept("diff-view", "unified");
/** Which kinds of events notify: "ask", "wait", "failed", "done". */
export const notify = kept("notify", { on: false, ask: true, wait: true, failed: true, done: false });
/** Agents that never notify, by `repo/id`. */
export const muted = kept("muted", /** @type {string[]} */ ([]));

/** A draft that survives a reload, by its purpose. @param {string} name */
export const draft = (name) => load(`caliban.draft.${name}`, "");
/** @param {string} name @param {any} value */
export const keepDraft = (name, value) => save(`caliban.draft.${name}`, value);

effect(() => {
  const root = document.documentElement;
  root.dataset.theme = theme.value;
  root.dataset.density = density.value;
});
