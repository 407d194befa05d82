// Pages by path, and their scroll positions.
import { signal } from "./html.js";

/** @typedef {{ page: string, args: string[], query: URLSearchParams, path: string }} Route */

/** The first part of a path names the page. */
const PAGES = { "": "fleet", agent: "agent", asks: "asks", new: "new", broker: "broker", spend: "spend", evening: "evening", search: "search", settings: "settings" };

/** @param {string} path @param {string} query @returns {Route} */
export function parse(path, query) {
  const [first = "", ...args] = path.replace(/^\/+|\/+$/g, "").split("/").map(decodeURIComponent);
  const page = Object.hasOwn(PAGES, first) ? PAGES[/** @type {keyof typeof PAGES} */ (first)] : "nowhere";
  return { page, args, query: new URLSearchParams(query), path: path + query };
}

export const route = signal(parse(location.pathname, location.search));
/** Scroll positions by path, for going back. @type {Map<string, number>} */
const scrolls = new Map();
let depth = 0;

/** The element that scrolls. */
const scroller = () => document.getElementById("main");

function leave() {
  const main = scroller();
  if (main) scrolls.set(route.peek().path, main.scrollTop);
}

/** Goes to a page. @param {string} path @param {{ replace?: boolean }} [how] */
export function go(path, how = {}) {
  if (path === route.peek().path) return;
  leave();
  if (how.replace) history.replaceState(null, "", path);
  else {
    history.pushState(null, "", path);
    depth += 1;
  }
  arrive();
}

/** Goes to the previous page; to the fleet if that was not one of ours. */
export function back() {
  if (depth > 0) history.back();
  else go("/");
}

/** The scroll position at which a page was left. */
export const scrollOf = (/** @type {string} */ path) => scrolls.get(path) ?? 0;

function arrive() {
  route.value = parse(location.pathname, location.search);
}

addEventListener("popstate", () => {
  leave();
  depth = Math.max(0, depth - 1);
  arrive();
});

// Links are ordinary links: only a plain click is handled within the page.
addEventListener("click", (event) => {
  const link = /** @type {HTMLElement} */ (event.target)?.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(/** @type {HTMLAnchorElement} */ (link).href);
  if (url.origin !== location.origin || link.hasAttribute("target") || link.hasAttribute("download")) return;
  if (url.pathname.startsWith("/api/")) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
