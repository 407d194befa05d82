// Days of spending as bars. Pure.
import { money, tokens } from "../base/format.js";

export const KINDS = [
  { id: "output", word: "output" },
  { id: "input", word: "input" },
  { id: "cache_write", word: "cache write" },
  { id: "cache_read", word: "cache read" },
];

/** The share of a budget from which on it is marked, and agents are notified. */
const NEAR = 0.8;

/** Today's spending and its limit: in dollars, or in tokens if only those are limited. @param {any} day */
export function dayWords(day) {
  const isTokens = day.budget_micro_usd === null && day.budget_tokens !== null;
  const [used, most] = isTokens ? [day.tokens, day.budget_tokens] : [day.micro_usd, day.budget_micro_usd];
  const words = isTokens ? tokens : money;
  // With some unknown prices the sum is a lower bound; with unknown prices only it is a dash.
  const unknown = !isTokens && !day.is_whole;
  return {
    used: unknown && used === 0 ? "–" : `${words(used)}${unknown ? "+" : ""}`,
    of: most === null ? "" : `${words(most)}${isTokens ? " tokens" : ""}`,
    isNear: most !== null && used >= NEAR * most,
    title: most === null ? "No budget for a day is set" : `${Math.floor((100 * used) / Math.max(1, most))} % of today's budget${unknown ? "; some requests have no known price" : ""}`,
  };
}

/** @param {any} it */
export const sum = (it) => KINDS.reduce((all, kind) => all + (it[kind.id] ?? 0), 0);

/** One entry for each of so many days up to the last one: nothing was spent on those that are not there. @param {any[]} days @param {number} count @param {string} last 2026-11-18 */
export function everyDay(days, count, last) {
  const known = new Map(days.map((it) => [it.day, it]));
  const end = Date.parse(`${last}T12:00:00Z`);
  return Array.from({ length: count }, (_, i) => {
    const day = new Date(end - (count - 1 - i) * 86_400_000).toISOString().slice(0, 10);
    return known.get(day) ?? { day, input: 0, output: 0, cache_read: 0, cache_write: 0, micro_usd: 0 };
  });
}

/** A day as the locale of the browser has it. @param {string} day 2026-11-18 @param {Intl.DateTimeFormatOptions} [how] */
export const dated = (day, how = { day: "numeric", month: "short", year: "numeric" }) => new Date(`${day}T12:00:00`).toLocaleDateString(undefined, how);

/** @param {any[]} days @param {string} unit "tokens" or "cost" */
export function bars(days, unit) {
  const value = (/** @type {any} */ it) => (unit === "cost" ? (it.micro_usd ?? 0) : sum(it));
  const most = Math.max(1, ...days.map(value));
  const every = Math.ceil(days.length / 6);
  return {
    most: unit === "cost" ? money(most) : tokens(most),
    days: days.map((it, i) => ({
      day: it.day,
      label: i % every === 0 ? dated(it.day, { day: "numeric", month: "numeric" }) : "",
      title: `${dated(it.day)}: ${money(it.micro_usd)}, ${KINDS.map((kind) => `${tokens(it[kind.id] ?? 0)} ${kind.word}`).join(", ")}`,
      isUnknown: it.micro_usd === null && sum(it) > 0,
      parts: unit === "cost" ? [{ kind: "input", percent: (100 * value(it)) / most }] : KINDS.map((kind) => ({ kind: kind.id, percent: (100 * (it[kind.id] ?? 0)) / most })).reverse(),
    })),
  };
}
