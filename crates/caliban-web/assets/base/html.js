// Imported by every component: `html` bound to Preact, the hooks and the signals.
import { Component, createElement, Fragment, options, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

/** The rendering that waits until the page is visible. @type {(() => void) | null} */
let waiting = null;
// A hidden page is not rendered.
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
 * A component that is rendered again only when one of these props changes. For rows of long lists.
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
