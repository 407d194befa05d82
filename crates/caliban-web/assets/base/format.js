// Numbers, money and times as text. Pure; the current time is a parameter.

/** Micro-dollars; an unknown price is a dash, never 0. @param {number | null | undefined} micro */
export function money(micro) {
  if (micro === null || micro === undefined) return "–";
  const usd = micro / 1e6;
  if (usd === 0) return "$0";
  if (usd < 0.01) return "<$0.01";
  return usd < 1000 ? `$${usd.toFixed(2)}` : `$${Math.round(usd).toLocaleString("en-US")}`;
}

/** 999, 1.2k, 34k, 1.2M. @param {number | null | undefined} count */
export function tokens(count) {
  if (count === null || count === undefined) return "–";
  for (const [limit, unit, letter] of [[1e3, 1, ""], [1e6, 1e3, "k"], [1e9, 1e6, "M"], [Infinity, 1e9, "G"]]) {
    if (count < /** @type {number} */ (limit)) {
      const value = count / /** @type {number} */ (unit);
      return (letter && value < 10 ? value.toFixed(1) : String(Math.round(value))) + letter;
    }
  }
  return String(count);
}

/** A length of time, the largest unit: 4s, 3m, 2h, 5d. @param {number} ms */
export function span(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** How long a call took: 12 ms, 0.4 s, 41 s, 3m 20s. @param {number | null | undefined} ms */
export function took(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 100) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 60_000) return `${Math.round(ms / 1000)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)}m ${seconds % 60}s`;
}

/** How long ago, of an instant. @param {string | number | null | undefined} at @param {number} now */
export function ago(at, now) {
  const then = instant(at);
  return then === null ? "" : span(now - then);
}

/** Milliseconds of an RFC 3339 instant or of a number. @param {string | number | null | undefined} at @returns {number | null} */
export function instant(at) {
  if (at === null || at === undefined || at === "") return null;
  const ms = typeof at === "number" ? at : Date.parse(at);
  return Number.isFinite(ms) ? ms : null;
}

/** 14:02 or 02:02 PM, in the zone and the locale of the browser. @param {string | number | null | undefined} at */
export function clock(at) {
  const ms = instant(at);
  if (ms === null) return "";
  return new Date(ms).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
}

/** 17 Nov 14:02, as the locale of the browser has it. @param {string | number | null | undefined} at */
export function day(at) {
  const ms = instant(at);
  if (ms === null) return "";
  return `${new Date(ms).toLocaleDateString(undefined, { day: "numeric", month: "short" })} ${clock(ms)}`;
}

/** 1 file, 3 files. @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many) {
  return `${count} ${count === 1 ? one : (many ?? `${one}s`)}`;
}

/** 512 B, 20 KB, 3 MB. @param {number} count */
export function bytes(count) {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${Math.round(count / 1024)} KB`;
  return `${(count / 1024 / 1024).toFixed(1)} MB`;
}

/** A text as one line: line ends become a sign that every font has. @param {string | null | undefined} text */
export const oneLine = (text) => (text ?? "").replace(/[\n␊]+/g, " ↵ ");

/** A call without the tool name in front. @param {string} tool @param {string} what */
export const bare = (tool, what) => oneLine(what.startsWith(`${tool} `) ? what.slice(tool.length + 1) : what);

/** The last part of a path. @param {string} path */
export function basename(path) {
  return path.replace(/\/+$/, "").split("/").pop() || path;
}

/** A browser's user agent in short: "Firefox 145 on Linux". @param {string} agent */
export function browser(agent) {
  const system = [["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Mac OS X", "Mac"], ["Windows", "Windows"], ["Linux", "Linux"]].find(([sign]) => agent.includes(sign))?.[1];
  // In this order: each browser's user agent also names those after it.
  for (const [sign, name] of [["Edg", "Edge"], ["OPR", "Opera"], ["Firefox", "Firefox"], ["Chrome", "Chrome"], ["Version", "Safari"]]) {
    const found = new RegExp(`${sign}[A-Za-z]*/(\\d+)`).exec(agent);
    if (found) return `${name} ${found[1]}${system ? ` on ${system}` : ""}`;
  }
  return agent || "a browser";
}
