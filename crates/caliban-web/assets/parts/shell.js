// The frame: top bar, navigation, offline bar; the keys that work everywhere.
import { html, useState } from "../base/html.js";
import { useKeys } from "../base/keys.js";
import { back, go, route } from "../base/router.js";
import { counts, groups, link, now, onlyRepo, ready, repos, selected, today } from "../base/store.js";
import { clock } from "../base/format.js";
import { nextNeedy } from "../view/groups.js";
import { dayWords } from "../view/spend.js";
import { retryNow } from "../base/live.js";
import { Icon } from "./bits.js";
import { Help } from "./help.js";
import { Palette } from "./palette.js";
import { PAGES } from "./pages.js";
import { Toasts } from "./toasts.js";

/** @param {{ page: any, fixed: boolean }} props */
export function Shell({ page, fixed }) {
  const [over, setOver] = useState("");
  const close = () => setOver("");
  useKeys({
    "Ctrl+k": () => setOver("palette"),
    "?": () => setOver("help"),
    "g f": () => go("/"),
    "g a": () => go("/asks"),
    "g b": () => go("/broker"),
    "g s": () => go("/spend"),
    "g t": () => go("/evening"),
    "g /": () => go("/search"),
    "g ,": () => go("/settings"),
    c: () => go("/new"),
    n: () => {
      const key = nextNeedy(groups.value, selected.value);
      if (!key) return false;
      selected.value = key;
      go(`/agent/${key}`);
      return true;
    },
    Escape: (event) => {
      const field = /** @type {HTMLElement} */ (event.target);
      if (field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement) field.blur();
      else if (route.value.page !== "fleet") back();
    },
  });
  const isOffline = link.value.state === "offline";
  return html`<div class=${`shell ${isOffline ? "stale" : ""}`}>
    <${Top} open=${setOver} />
    ${isOffline && html`<${Offline} />`}
    <${Nav} open=${setOver} />
    <main id="main" tabindex="-1" class=${fixed ? "main fixed" : "main"}>${page}</main>
    ${over === "palette" && html`<${Palette} close=${close} help=${() => setOver("help")} />`}
    ${over === "help" && html`<${Help} close=${close} />`}
    <${Toasts} />
  </div>`;
}

const TALLY = [
  { id: "needs_you", glyph: "!", tone: "attn", word: "need you", ofOne: "needs you" },
  { id: "working", glyph: "▶", tone: "run", word: "working", ofOne: "working" },
  { id: "queued", glyph: "○", tone: "fg3", word: "queued", ofOne: "queued" },
];

/** @param {{ open: (what: string) => void }} props */
function Top({ open }) {
  const spent = dayWords(today.value);
  return html`<header class="top">
    <a class="brand" href="/" aria-label="caliban: the fleet"><svg viewBox="0 0 24 24" aria-hidden="true"><rect x="1" y="1" width="22" height="22" rx="6" fill="var(--run)" /><path d="M16 8.5a5 5 0 1 0 0 7" fill="none" stroke="var(--on)" stroke-width="2.6" stroke-linecap="round" /><circle cx="16.6" cy="12" r="1.7" fill="var(--on)" /></svg><span>caliban</span></a>
    <nav class="tally" aria-label="Agents">
      ${TALLY.map(({ id, glyph, tone, word, ofOne }) => {
        const count = counts.value[/** @type {keyof typeof counts.value} */ (id)];
        return html`<a key=${id} href=${id === "needs_you" && counts.value.asks > 0 ? "/asks" : `/#${id}`} class=${count > 0 ? `${tone} some` : "none"}><span aria-hidden="true">${glyph}</span><span>${ready.value ? count : "–"}</span><span class="t">${count === 1 ? ofOne : word}</span></a>`;
      })}
    </nav>
    <a class="spend" href="/spend" title=${spent.title}><b class=${spent.isNear ? "wait" : ""}>${ready.value ? spent.used : "–"}</b>${spent.of && html`<span class="budget"> of ${spent.of}</span>`}<span class="of"> today</span></a>
    <span class="grow"></span>
    <${Link} />
    <button class="jump" type="button" onClick=${() => open("palette")} aria-label="Go to… Ctrl K"><${Icon} name="search" /><span class="t">Go to…</span><kbd>Ctrl K</kbd></button>
    <a class="btn primary new" href="/new"><${Icon} name="plus" />New</a>
  </header>`;
}

function Link() {
  const { state } = link.value;
  const word = state === "live" ? "live" : state === "offline" ? "offline" : "connecting";
  return html`<span class="link" role="status" aria-label=${`connection: ${word}`}><span class=${`dot ${state}`}></span><span class="t">${word}</span></span>`;
}

function Offline() {
  const { since, retryAt, why } = link.value;
  const left = Math.max(0, Math.ceil((retryAt - now.value) / 1000));
  return html`<div class="bar" role="alert" title=${why}><${Icon} name="wifi-off" /><span>offline since ${clock(since)}, ${left > 0 ? `again in ${left}s` : "trying"}</span><button class="btn" onClick=${retryNow}>now</button></div>`;
}

/** @param {{ open: (what: string) => void }} props */
function Nav({ open }) {
  const current = route.value.page;
  const asking = counts.value.asks;
  const wide = new Set(["spend", "evening", "search", "settings"]);
  return html`<nav class="nav" aria-label="Pages">
    ${PAGES.map((page) => html`${page.id === "settings" && html`<${Repos} /><span class="sep"></span>`}<a key=${page.id} href=${page.path} class=${wide.has(page.id) ? "wide" : ""} aria-current=${page.id === current ? "page" : undefined} title=${page.title}>
      <${Icon} name=${page.icon} /><span class="t">${page.short && matchMedia("(max-width: 640px)").matches ? page.short : page.title}</span>
      ${page.id === "asks" && asking > 0 && html`<span class="pill attn n">${asking}</span>`}
    </a>`)}
    <a class="more" href="/settings" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      open("palette");
    }}><${Icon} name="ellipsis" /><span class="t">More</span></a>
  </nav>`;
}

function Repos() {
  if (repos.value.length < 2) return null;
  return html`<section class="repos"><h2>Repos</h2>
    ${[{ hash: "", name: "All repos", daemon: true, path: "" }, ...repos.value].map((repo) => html`<button key=${repo.hash} type="button" title=${repo.path} aria-pressed=${onlyRepo.value === repo.hash ? "true" : "false"} onClick=${() => {
      onlyRepo.value = repo.hash;
      go("/");
    }}><span class="cut grow">${repo.name}</span>${!repo.daemon && html`<span class="dim" title=${`no daemon runs: as recorded ${clock(repo.recorded_at)}`}>≈</span>`}</button>`)}
  </section>`;
}
