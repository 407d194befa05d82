// The fleet's rows by group, filtered and in order. Pure; the groups themselves come from the server.

/** @typedef {Record<string, any>} Agent */
/** @typedef {{ id: string, title: string, rows: Agent[] }} Group */

export const GROUPS = [
  { id: "needs_you", title: "Needs you" },
  { id: "working", title: "Working" },
  { id: "queued", title: "Queued" },
  { id: "finished", title: "Finished" },
];

/** @param {Agent[]} rows @param {{ filter: string, repo: string }} what @returns {Group[]} */
export function arrange(rows, { filter, repo }) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = rows.filter((row) => (repo === "" || row.repo === repo) && words.every((word) => haystack(row).includes(word)));
  return GROUPS.map(({ id, title }) => ({ id, title, rows: shown.filter((row) => row.group === id).sort(id === "needs_you" || id === "queued" ? byAge : byNews) }));
}

/** The agent that has waited longest first. @param {Agent} one @param {Agent} other */
const byAge = (one, other) => compare(one.since, other.since) || compare(one.key, other.key);
/** The latest change first. @param {Agent} one @param {Agent} other */
const byNews = (one, other) => compare(other.since, one.since) || compare(one.key, other.key);
/** @param {string} one @param {string} other */
const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0);

/** @param {Agent} row */
function haystack(row) {
  return `${row.name} ${row.id} ${row.repo_name} ${row.status} ${row.doing ?? ""} ${row.prompt ?? ""} ${row.model ?? ""} ${row.branch ?? ""}`.toLowerCase();
}

/** The rows in display order. @param {Group[]} groups */
export const inOrder = (groups) => groups.flatMap((group) => group.rows.map((row) => row.key));

/** The row next to the selected one; the selection is an id, so it stays when rows move. @param {string[]} order @param {string} selected @param {number} step */
export function neighbour(order, selected, step) {
  if (order.length === 0) return "";
  const at = order.indexOf(selected);
  if (at < 0) return step > 0 ? order[0] : order[order.length - 1];
  return order[Math.min(order.length - 1, Math.max(0, at + step))];
}

/** The next agent that needs you after the selected one, wrapping around: it asks, or it has failed. @param {Group[]} groups @param {string} selected */
export function nextNeedy(groups, selected) {
  const needy = groups.flatMap((group) => group.rows.filter((row) => row.needs_you).map((row) => row.key));
  if (needy.length === 0) return "";
  return needy[(needy.indexOf(selected) + 1) % needy.length];
}

/** The title of the tab. @param {number} needy @param {string} page */
export const title = (needy, page) => `${needy > 0 ? `(${needy}) ` : ""}${page ? `${page} · ` : ""}caliban`;
