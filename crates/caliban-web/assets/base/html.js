// What every component imports: `html` bound to Preact, the hooks and the signals.
import { createElement, Fragment, options, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

/** The drawing that waits until somebody sees the page. @type {(() => void) | null} */
let waiting = null;
// Nothing is drawn on a page that nobody sees.
options.debounceRendering = (/** @type {() => void} */ draw) => {
  if (document.hidden) waiting = draw;
  else queueMicrotask(draw);
};
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  waiting?.();
  waiting = null;
});

export const html = htm.bind(createElement);
export { createElement, Fragment, render };
export { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback } from "../vendor/hooks.js";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "../vendor/signals.js";
