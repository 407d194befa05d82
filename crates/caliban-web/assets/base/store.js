// The page's state of the fleet: a signal per agent, so that a change of one row renders one row.
import { batch, computed, signal } from "./html.js";
import { arrange } from "../view/groups.js";

/** @typedef {Record<string, any> & { key: string, group: string, since: string }} Agent */

/** Rows by `repo/id`. @type {Map<string, import("../vendor/signals-core.js").Signal<Agent>>} */
const rows = new Map();
/** Changes when a row is added, removed or moved. */
const shape = signal(0);

export const counts = signal({ needs_you: 0, working: 0, queued: 0, finished: 0, failed: 0, asks: 0 });
export const today = signal({ micro_usd: /** @type {number | null} */ (0), budget_micro_usd: /** @type {number | null} */ (null), is_whole: true, tokens: 0, budget_tokens: /** @type {number | null} */ (null) });
/** @type {import("../vendor/signals-core.js").Signal<any[]>} */
export const repos = signal([]);
/** Open questions by id. @type {import("../vendor/signals-core.js").Signal<Map<string, any>>} */
export const asks = signal(new Map());
/** "connecting", "live" or "offline". */
export const link = signal({ state: "connecting", since: Date.now(), retryAt: 0, why: "" });
/** Whether the first snapshot has arrived. */
export const ready = signal(false);
/** The hash of the repo that is shown; empty for all. */
export const onlyRepo = signal("");
/** The words of the filter. */
export const filter = signal("");
/** The selected row. */
export const selected = signal("");
/** While the pointer is over the list, rows keep their places. */
export const frozen = signal(false);
/** The current time, updated once a second while the page is visible. */
export const now = signal(Date.now());
setInterval(() => document.hidden || (now.value = Date.now()), 1000);
document.addEventListener("visibilitychange", () => document.hidden || (now.value = Date.now()));

/** The agents by group, filtered and in order. */
export const groups = computed(() => {
  shape.value;
  const all = [...rows.values()].map((row) => row.peek());
  return arrange(all, { filter: filter.value, repo: onlyRepo.value });
});

/** The signal of one row. @param {string} key */
export const rowOf = (key) => rows.get(key);
/** The current rows. */
export const allRows = () => {
  shape.value;
  return [...rows.values()].map((row) => row.peek());
};

/** Whether neither the row's place in the list nor its match with the filter changes. @param {Agent} one @param {Agent} other */
const isSamePlace = (one, other) => one.group === other.group && one.since === other.since && one.name === other.name && one.status === other.status && (filter.peek() === "" || one.doing === other.doing);

/** @param {Agent} row */
function put(row) {
  const known = rows.get(row.key);
  if (!known) {
    rows.set(row.key, signal(row));
    return true;
  }
  const moved = !isSamePlace(known.peek(), row);
  known.value = row;
  return moved;
}

/** Listeners for events that are not state: records, deltas, output, messages. @type {Set<(event: string, data: any) => void>} */
const listeners = new Set();
/** @param {(event: string, data: any) => void} hear */
export function listen(hear) {
  listeners.add(hear);
  return () => void listeners.delete(hear);
}

/** Applies events of the stream. @param {{ event: string, data: any }[]} news */
export function take(news) {
  batch(() => {
    let moved = false;
    for (const { event, data } of news) {
      if (event === "snapshot") {
        const there = new Set(data.agents.map((/** @type {Agent} */ row) => row.key));
        for (const key of rows.keys()) if (!there.has(key)) rows.delete(key);
        for (const row of data.agents) put(row);
        repos.value = data.repos;
        counts.value = data.counts;
        today.value = data.today;
        ready.value = true;
        moved = true;
      } else if (event === "agent") moved = put(data) || moved;
      else if (event === "removed") moved = rows.delete(data.key) || moved;
      else if (event === "counts") {
        counts.value = data.counts;
        today.value = data.today;
      } else if (event === "daemon") repos.value = repos.value.filter((repo) => repo.hash !== data.hash).concat([data]).sort((a, b) => a.name.localeCompare(b.name));
      else if (event === "ask") asks.value = new Map(asks.value).set(askKey(data), fuller(data));
      else if (event === "ask_closed") {
        const left = new Map(asks.value);
        left.delete(`${data.key}/${data.ask}`);
        asks.value = left;
      } else if (event === "asks") asks.value = new Map(data.asks.map((/** @type {any} */ ask) => [askKey(ask), fuller(ask)]));
    }
    if (moved) shape.value += 1;
  });
  for (const { event, data } of news) for (const hear of listeners) hear(event, data);
}

/** Events have long calls cut; a call that is known whole is kept. @param {any} ask */
function fuller(ask) {
  const known = asks.peek().get(askKey(ask));
  return ask.is_cut && known && known.digest === ask.digest && !known.is_cut ? known : ask;
}

/** The key of a question: its agent and its own id. @param {any} ask */
export const askKey = (ask) => `${ask.key}/${ask.id}`;

/** The whole state, for a tab that has just opened. */
export const whole = () => [
  { event: "snapshot", data: { agents: [...rows.values()].map((row) => row.peek()), repos: repos.peek(), counts: counts.peek(), today: today.peek() } },
  { event: "asks", data: { asks: [...asks.peek().values()] } },
];
