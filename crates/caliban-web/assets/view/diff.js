// A diff's rows side by side, the flat list of all files, and comments on lines. Pure.

/** @typedef {{ t: string, a?: number | null, b?: number | null, in: any[] }} Row */
/** @typedef {{ left: Row | null, right: Row | null, whole?: Row }} Pair */
/** @typedef {{ id: string, path: string, side: "a" | "b", line: number, quote: string, text: string }} Comment */

/** Removed lines beside the added ones that follow them. @param {Row[]} rows @returns {Pair[]} */
export function pairs(rows) {
  /** @type {Pair[]} */
  const found = [];
  for (let i = 0; i < rows.length; ) {
    const row = rows[i];
    if (row.t === " ") {
      found.push({ left: row, right: row });
      i += 1;
    } else if (row.t !== "-" && row.t !== "+") {
      // A hunk's header, or a remark of git.
      found.push({ left: null, right: null, whole: row });
      i += 1;
    } else {
      const [minus, plus] = [/** @type {Row[]} */ ([]), /** @type {Row[]} */ ([])];
      while (i < rows.length && rows[i].t === "-") minus.push(rows[i++]);
      while (i < rows.length && rows[i].t === "+") plus.push(rows[i++]);
      for (let k = 0; k < Math.max(minus.length, plus.length); k += 1) found.push({ left: minus[k] ?? null, right: plus[k] ?? null });
    }
  }
  return found;
}

/** The text of a row. @param {Row | null | undefined} row */
export const textOf = (row) => (row?.in ?? []).map((run) => run[1]).join("").replace(/\n$/, "");

/** The place of a comment: the new line, or the old line of a removed one. @param {Row} row @returns {{ side: "a" | "b", line: number } | null} */
export function placeOf(row) {
  if (row.t === "@") return null;
  if (row.t === "-") return typeof row.a === "number" ? { side: "a", line: row.a } : null;
  return typeof row.b === "number" ? { side: "b", line: row.b } : null;
}

/** The comments of a row, each with whether the line has changed since. @param {Comment[]} comments @param {string} path @param {Row} row */
export function commentsOf(comments, path, row) {
  const place = placeOf(row);
  if (!place) return [];
  return comments.filter((it) => it.path === path && it.side === place.side && it.line === place.line).map((it) => ({ ...it, isChanged: it.quote !== textOf(row) }));
}

/** All comments as one message, each with its line quoted. @param {Comment[]} comments */
export function reviewMessage(comments) {
  const sorted = [...comments].sort((one, other) => (one.path < other.path ? -1 : one.path > other.path ? 1 : one.line - other.line));
  const parts = sorted.map((it, i) => `${i + 1}. ${it.path}:${it.line}${it.side === "a" ? " (the removed line)" : ""}\n> ${it.quote.trim() || "(empty line)"}\n${it.text.trim()}`);
  return `Review of your changes, ${comments.length === 1 ? "1 comment" : `${comments.length} comments`}:\n\n${parts.join("\n\n")}`;
}

/** The flat list to render: a head for each file, and the rows of the open ones. @param {{ path: string }[]} files @param {(path: string) => number} rowsOf how many rows an open file has; -1: closed */
export function flatten(files, rowsOf) {
  const starts = [];
  let count = 0;
  for (const file of files) {
    starts.push(count);
    count += 1 + Math.max(0, rowsOf(file.path));
  }
  return { starts, count };
}

/** The file and row of an index; row -1 is the head. @param {number[]} starts @param {number} index */
export function locate(starts, index) {
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (starts[middle] <= index) low = middle;
    else high = middle - 1;
  }
  return { file: low, row: index - starts[low] - 1 };
}

/** The index of a row; that of the file's head if the file is closed, -1 if it is gone. @param {{ path: string }[]} files @param {number[]} starts @param {number} count @param {{ path: string, row: number }} place */
export function indexOf(files, starts, count, { path, row }) {
  const file = files.findIndex((it) => it.path === path);
  if (file < 0) return -1;
  const end = starts[file + 1] ?? count;
  return starts[file] + 1 + row < end ? starts[file] + 1 + row : starts[file];
}

/** The rows of a file at which hunks begin, in the present view. @param {{ hunks: number[], pairs: Pair[] | null } | undefined} known @param {boolean} isSplit */
export function stopsOf(known, isSplit) {
  if (!isSplit || !known?.pairs) return known?.hunks ?? [];
  return known.pairs.flatMap((pair, i) => (pair.whole?.t === "@" ? [i] : []));
}
