// Entry point: signs in, opens the stream, renders the page of the address.
import { effect, html, render, signal, useEffect } from "./base/html.js";
import { get, pageKey, session, signIn, takeToken } from "./base/api.js";
import { start } from "./base/live.js";
import { route, scrollOf } from "./base/router.js";
import { counts } from "./base/store.js";
import "./base/prefs.js";
import { notices } from "./base/notices.js";
import { title } from "./view/groups.js";
import { Empty, Failure, Loading } from "./parts/bits.js";
import { Login } from "./pages/login.js";
import { Shell } from "./parts/shell.js";
import { Fleet } from "./pages/fleet.js";

/** Pages; loaded when first opened. @type {Record<string, { name: string, fixed?: boolean, load?: () => Promise<any>, part?: any }>} */
const PAGES = {
  fleet: { name: "", part: Fleet },
  agent: { name: "Agent", fixed: true, load: () => import("./pages/agent.js") },
  asks: { name: "Approvals", fixed: true, load: () => import("./pages/asks.js") },
  new: { name: "New agent", load: () => import("./pages/new.js") },
  broker: { name: "Broker", fixed: true, load: () => import("./pages/broker.js") },
  spend: { name: "Spend", load: () => import("./pages/spend.js") },
  evening: { name: "Timeline", load: () => import("./pages/evening.js") },
  search: { name: "Search", load: () => import("./pages/search.js") },
  settings: { name: "Settings", load: () => import("./pages/settings.js") },
};
const loaded = signal(0);
/** Why the sign-in failed. @type {import("./vendor/signals-core.js").Signal<any>} */
const refusal = signal(null);

function App() {
  const { page: id, path } = route.value;
  loaded.value;
  useEffect(() => {
    const main = document.getElementById("main");
    if (main) main.scrollTop = scrollOf(path);
  }, [id, path]);
  if (session.value === "out") return html`<${Login} error=${refusal.value} />`;
  if (session.value === "unknown") return null;
  const page = PAGES[id];
  if (!page) return html`<${Shell} fixed=${false} page=${html`<${Empty} title="There is no such page."><a class="btn" href="/">The fleet</a><//>`} />`;
  if (!page.part && page.load) {
    const load = page.load;
    page.load = undefined;
    load().then((module) => (page.part = module.default), (error) => {
      page.load = load;
      page.part = () => html`<${Failure} error=${error} retry=${() => location.reload()} />`;
    }).finally(() => (loaded.value += 1));
  }
  return html`<${Shell} fixed=${page.fixed ?? false} page=${page.part ? html`<${page.part} key=${id} />` : html`<div class="page"><${Loading} /></div>`} />`;
}

/** Shows in the tab's title and icon how many agents need you, in hidden tabs too. */
function badge() {
  const needy = counts.value.needs_you;
  document.title = title(needy, PAGES[route.value.page]?.name ?? "");
  const icon = /** @type {HTMLLinkElement} */ (document.getElementById("icon"));
  const href = needy > 0 ? `/icon.svg?n=${Math.min(needy, 99)}` : "/icon.svg";
  if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
  const app = /** @type {any} */ (navigator);
  if (app.setAppBadge) (needy > 0 ? app.setAppBadge(needy) : app.clearAppBadge())?.catch?.(() => {});
}

async function begin() {
  const token = takeToken();
  if (token) {
    try {
      await signIn(token);
    } catch (error) {
      refusal.value = error;
      if (!pageKey()) session.value = "out";
    }
  }
  if (!pageKey()) session.value = "out";
  else if (session.value === "unknown") {
    // This request shows whether the cookie is still valid; without an answer the page opens and reports that it is offline.
    session.value = "in";
    get("/api/v1/me").catch(() => {});
  }
  render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
  if (session.value === "in") start();
  effect(badge);
  notices();
}

addEventListener("hashchange", () => /^#t=/.test(location.hash) && location.reload());
begin();

if ("serviceWorker" in navigator) {
  const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("caliban-sw", { createScriptURL: (/** @type {string} */ url) => (url === "/sw.js" ? url : "") });
  navigator.serviceWorker.register(policy ? policy.createScriptURL("/sw.js") : "/sw.js").catch(() => {});
}
