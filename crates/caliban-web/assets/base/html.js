// What every component imports: `html` bound to Preact, the hooks and the signals.
import { Component, createElement, Fragment, options, render } from "../vendor/preact.js";
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

/**
 * A component that is drawn anew only when one of these props is another one. For rows of long lists.
 * @template P @param {(keyof P)[]} names @param {(props: P) => any} draw @returns {any}
 */
export const drawnFor = (names, draw) =>
  class extends Component {
    /** @param {P} next */
    shouldComponentUpdate(next) {
      return names.some((name) => /** @type {any} */ (this).props[name] !== next[name]);
    }

    /** @param {P} props */
    render(props) {
      return draw(props);
    }
  };
export { createElement, Fragment, render };
export { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback } from "../vendor/hooks.js";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "../vendor/signals.js";
