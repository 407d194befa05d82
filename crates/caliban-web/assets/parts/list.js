// A windowed list of items of any height. The anchor is (item, offset): the items in view stay in place when items above
// change their heights, and at the end the list follows new items.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../base/html.js";
import { Heights } from "../view/heights.js";

/** Pixels beyond the window that are also rendered. */
const OVERSCAN = 500;
/** Pixels from the end that still count as the end. */
const END_PX = 24;

/**
 * @typedef {{ toEnd: () => void, toItem: (index: number) => void, atEnd: () => boolean, shows: (index: number) => boolean, top: () => { index: number, offset: number }, restore: (at: { index: number, offset: number }) => void }} ListHandle
 * @param {{ count: number, draw: (index: number) => any, keyOf?: (index: number) => string | number, need?: (from: number, to: number) => void, estimate?: number, follow?: boolean,
 *   handle?: { current: ListHandle | null }, onEnd?: (isAtEnd: boolean) => void, label: string, cls?: string, start?: number | null }} props
 */
export function List({ count, draw, keyOf = (i) => i, need, estimate = 32, follow = false, handle, onEnd, label, cls = "", start = null }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const inner = useRef(/** @type {HTMLElement | null} */ (null));
  const [, redraw] = useState(0);
  const state = useRef({ heights: new Heights(estimate), anchor: { index: start ?? 0, offset: 0 }, atEnd: follow && start === null, view: 800, width: 0, from: 0, to: 0, set: -1 }).current;
  const { heights } = state;
  heights.resize(count);

  const scrollTo = (/** @type {number} */ top) => {
    const at = Math.max(0, Math.round(top));
    if (box.current && Math.abs(box.current.scrollTop - at) >= 1) {
      state.set = at;
      box.current.scrollTop = at;
    }
  };
  const settle = () => {
    if (!box.current) return;
    if (state.atEnd && follow) scrollTo(heights.total - box.current.clientHeight + 1);
    else scrollTo(heights.top(state.anchor.index) + state.anchor.offset);
  };
  const measure = () => {
    let changed = false;
    for (const child of /** @type {any} */ (inner.current)?.children ?? []) changed = heights.set(Number(child.dataset.i), child.offsetHeight) || changed;
    return changed;
  };
  /** @param {boolean} isAtEnd */
  const setEnd = (isAtEnd) => {
    if (isAtEnd === state.atEnd) return;
    state.atEnd = isAtEnd;
    onEnd?.(isAtEnd);
  };
  const onScroll = () => {
    const el = /** @type {HTMLElement} */ (box.current);
    const top = el.scrollTop;
    // Scrolling by us keeps the anchor; scrolling by the user sets it.
    if (Math.abs(top - state.set) > 1) {
      const index = heights.at(top);
      state.anchor = { index, offset: top - heights.top(index) };
      setEnd(top + el.clientHeight >= el.scrollHeight - END_PX);
    }
    state.set = -1;
    const [from, to] = shown();
    if (from !== state.from || to !== state.to) redraw((n) => n + 1);
  };

  // The window: at the end from the heights, because the element scrolls later; else from its scroll, or before the first render from the anchor.
  const total = heights.total;
  /** The first rendered item, and the one after the last. */
  const shown = () => {
    if (count === 0) return [0, 0];
    const top = state.atEnd && follow ? Math.max(0, heights.total - state.view) : (box.current?.scrollTop ?? heights.top(state.anchor.index) + state.anchor.offset);
    return [heights.at(Math.max(0, top - OVERSCAN)), Math.min(count, heights.at(top + state.view + OVERSCAN) + 1)];
  };
  const [from, to] = shown();
  state.from = from;
  state.to = to;

  useLayoutEffect(() => {
    if (box.current) state.view = box.current.clientHeight || state.view;
    if (measure()) redraw((n) => n + 1);
    // If everything fits on the screen, so does the end.
    if (follow && count > 0 && heights.total <= state.view) setEnd(true);
    settle();
  });
  useEffect(() => {
    if (count > 0) need?.(from, to);
  });
  useEffect(() => {
    const seen = new ResizeObserver(() => {
      if (box.current && box.current.clientHeight !== state.view) {
        state.view = box.current.clientHeight;
        redraw((n) => n + 1);
      }
      if (measure()) {
        settle();
        redraw((n) => n + 1);
      }
    });
    if (box.current) seen.observe(box.current);
    if (inner.current) seen.observe(inner.current);
    return () => seen.disconnect();
  }, []);
  if (handle) {
    handle.current = {
      toEnd: () => {
        setEnd(true);
        state.anchor = { index: Math.max(0, count - 1), offset: 0 };
        settle();
        redraw((n) => n + 1);
      },
      toItem: (index) => {
        setEnd(false);
        state.anchor = { index: Math.max(0, Math.min(index, count - 1)), offset: 0 };
        settle();
        redraw((n) => n + 1);
      },
      atEnd: () => state.atEnd,
      shows: (index) => {
        const from = box.current?.scrollTop ?? 0;
        return heights.top(index + 1) > from && heights.top(index) < from + state.view;
      },
      top: () => ({ ...state.anchor }),
      restore: (at) => {
        setEnd(false);
        state.anchor = at;
        settle();
        redraw((n) => n + 1);
      },
    };
  }
  const items = [];
  for (let i = from; i < to; i += 1) items.push(html`<div key=${keyOf(i)} data-i=${i}>${draw(i)}</div>`);
  return html`<div class=${`list ${cls}`} ref=${box} onScroll=${onScroll} tabindex="0" role="region" aria-label=${label}>
    <div class="list-all" style=${{ height: `${total}px` }}><div class="list-in" ref=${inner} style=${{ transform: `translateY(${heights.top(from)}px)` }}>${items}</div></div>
  </div>`;
}
