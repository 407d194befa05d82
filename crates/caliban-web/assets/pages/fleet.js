// The fleet: agents that need you, work, wait or have ended. A change renders its row; the list is rendered only when rows move.
import { html, signal, useEffect, useRef } from "../base/html.js";
import { useKeys } from "../base/keys.js";
import { go } from "../base/router.js";
import { filter, frozen, groups, now, onlyRepo, ready, repos, rowOf, selected } from "../base/store.js";
import { fleetView } from "../base/prefs.js";
import { ago, clock, money, oneLine, plural } from "../base/format.js";
import { inOrder, neighbour } from "../view/groups.js";
import { Choice, Command, Empty, Glyph, Icon, Loading } from "../parts/bits.js";

/** Number of finished agents shown before "show all". */
const FINISHED = 20;
/** How long rows keep their places under a pointer that does not move. */
const FREEZE_MS = 4000;
const showAll = signal(false);
/** The group that a narrow page shows. */
export const narrow = signal("needs_you");

export function Fleet() {
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const held = useRef(groups.peek());
  if (!frozen.value) held.current = groups.value;
  const parts = held.current;
  const order = inOrder(parts.map((part) => (part.id === "finished" && !showAll.value ? { ...part, rows: part.rows.slice(0, FINISHED) } : part)));
  const thaw = useRef(0);
  const hold = () => {
    frozen.value = true;
    clearTimeout(thaw.current);
    thaw.current = setTimeout(() => (frozen.value = false), FREEZE_MS);
  };
  const release = () => {
    clearTimeout(thaw.current);
    frozen.value = false;
  };
  useEffect(() => release, []);
  const move = (/** @type {number} */ step) => {
    const key = neighbour(order, selected.value, step);
    if (!key) return;
    selected.value = key;
    const link = document.getElementById(`row-${key}`);
    link?.focus({ preventScroll: true });
    link?.closest("li")?.scrollIntoView({ block: "nearest" });
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    Enter: () => (selected.value ? go(`/agent/${selected.value}`) : undefined),
    "/": () => search.current?.focus(),
    v: () => (fleetView.value = fleetView.value === "table" ? "cards" : "table"),
  });
  if (!ready.value) return html`<div class="page"><header><h1>Fleet</h1></header><${Loading} rows=${12} /></div>`;
  const total = parts.reduce((sum, part) => sum + part.rows.length, 0);
  const repo = repos.value.find((it) => it.hash === onlyRepo.value);
  const down = repos.value.filter((it) => !it.daemon && (onlyRepo.value === "" || it.hash === onlyRepo.value) && it.recorded_at);
  return html`<div class="page fleet" data-view=${fleetView.value} data-narrow=${narrow.value}>
    <header>
      <h1>${repo ? repo.name : "Fleet"}</h1>
      ${down.length > 0 && html`<span class="pill" title=${down.map((it) => `${it.name}: as recorded ${clock(it.recorded_at)}`).join("\n")}>≈ ${down.length === 1 ? `${down[0].name} recorded ${clock(down[0].recorded_at)}` : `${down.length} repos without a daemon`}</span>`}
      <label class="filter"><span class="sr">Filter</span><${Icon} name="search" /><input ref=${search} type="search" placeholder="Filter" value=${filter.value} onInput=${(/** @type {any} */ event) => (filter.value = event.target.value)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Escape") {
          filter.value = "";
          search.current?.blur();
        }
        if (event.key === "Enter") move(1);
      }} /><kbd>/</kbd></label>
      ${repos.value.length > 1 && html`<label class="repo-pick"><span class="sr">Repo</span><select class="field" value=${onlyRepo.value} onChange=${(/** @type {any} */ event) => (onlyRepo.value = event.target.value)}><option value="">All repos</option>${repos.value.map((it) => html`<option key=${it.hash} value=${it.hash}>${it.name}</option>`)}</select></label>`}
      <${Choice} label="View" value=${fleetView.value} set=${(/** @type {string} */ value) => (fleetView.value = value)} of=${[{ id: "table", title: "Table", icon: "rows-3" }, { id: "cards", title: "Cards", icon: "layout-grid" }]} />
    </header>
    <div class="narrow-tabs" role="group" aria-label="Group">${parts.map((part) => html`<button key=${part.id} class="btn" aria-pressed=${narrow.value === part.id ? "true" : "false"} onClick=${() => (narrow.value = part.id)}>${part.title}<span class=${part.id === "needs_you" && part.rows.length > 0 ? "attn" : "dim"}>${part.rows.length}</span></button>`)}</div>
    ${total === 0 ? html`<${Nothing} />` : html`<div class="groups" onPointerMove=${hold} onPointerLeave=${release}>${parts.map((part) => html`<${Group} key=${part.id} part=${part} />`)}</div>`}
  </div>`;
}

function Nothing() {
  if (filter.value) return html`<${Empty} title=${`No agent fits “${filter.value}”.`}><button class="btn" onClick=${() => (filter.value = "")}>Clear the filter</button><//>`;
  return html`<${Empty} title="No agents yet."><p>Hand over a task; it goes on in the background, in a worktree of its own.</p><${Command} text=${'caliban --bg "fix the failing test"'} /><a class="btn primary" href="/new"><${Icon} name="plus" />New agent</a><//>`;
}

/** @param {{ part: any }} props */
function Group({ part }) {
  const failed = part.rows.filter((/** @type {any} */ row) => row.tone === "bad").length;
  const rows = part.id === "finished" && !showAll.value ? part.rows.slice(0, FINISHED) : part.rows;
  const isEmpty = rows.length === 0;
  return html`<section class=${`group ${isEmpty ? "empty" : ""}`} id=${part.id} data-id=${part.id} aria-label=${part.title}>
    <h2 class=${part.id === "needs_you" && !isEmpty ? "attn" : ""}>${part.title}<span class="n">${part.rows.length}</span>${failed > 0 && html`<span class="bad">${failed} failed</span>`}</h2>
    ${isEmpty ? html`<p class="none">${part.id === "needs_you" ? "No questions" : `No agents ${part.id}`}</p>` : html`<ul>${rows.map((/** @type {any} */ row) => html`<${Row} key=${row.key} id=${row.key} />`)}</ul>`}
    ${rows.length < part.rows.length && html`<button class="btn quiet" onClick=${() => (showAll.value = true)}>Show all ${part.rows.length}</button>`}
  </section>`;
}

/** @param {{ id: string }} props */
function Row({ id }) {
  const row = rowOf(id)?.value;
  if (!row) return null;
  const isAsking = row.status === "asks";
  const href = `/agent/${row.key}`;
  return html`<li class=${`agent-row ${row.group === "needs_you" ? "needy" : ""} ${selected.value === id ? "selected" : ""}`}>
    <span class="who"><${Glyph} row=${row} /><a id=${`row-${id}`} class="hit cut" href=${href} onFocus=${() => (selected.value = id)} title=${row.prompt}>${row.label ?? oneLine(row.prompt)}</a></span>
    <span class="repo cut dim">${row.repo_name}</span>
    <span class=${`doing cut ${row.group === "needs_you" ? "attn" : row.group === "finished" ? "fg2" : ""}`} title=${row.doing}>${row.near && html`<span class="near">${row.near}</span> `}${row.review_words && html`<span class=${`review ${row.review.state}`}>${row.review_words}</span> `}${oneLine(row.doing)}</span>
    <span class="words fg2">${oneLine(row.group === "finished" ? row.prompt : (row.last_text ?? row.prompt))}</span>
    <span class="act">${isAsking ? html`<a class="btn" href=${`/asks/${row.key}`}>Show</a>` : row.status === "waits" ? html`<a class="btn" href=${`${href}?reply`}>Reply</a>` : null}</span>
    <span class="model cut dim">${row.model ?? ""}</span>
    <span class="turns num dim">${row.turns > 0 ? plural(row.turns, "turn") : ""}</span>
    <span class="cost num">${row.turns > 0 && row.cost !== "-" ? (row.cost ?? money(row.micro_usd)) : row.turns > 0 ? "–" : ""}</span>
    <span class="since num dim"><${Since} at=${row.since} /></span>
  </li>`;
}

/** Only this is rendered each second. @param {{ at: string }} props */
const Since = ({ at }) => ago(at, now.value);
