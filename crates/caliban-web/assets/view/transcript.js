// A transcript in the page: items by position, partial output, folds. Pure except for its own state.

/** Number of items per request. */
export const PAGE = 100;
/** With more items than this, those more than BESIDE pages from the window are dropped; the server has them. */
const KEPT = 2000;
const BESIDE = 4;
/** Maximum number of lines kept of a running command's output. */
const OUTPUT_LINES = 400;
/** Maximum length of a partial reply. */
const DELTA_CHARS = 200_000;

export class Transcript {
  constructor() {
    this.total = 0;
    /** @type {Map<number, any>} */ this.items = new Map();
    /** Pages that were requested. @type {Set<number>} */ this.asked = new Set();
    /** The partial reply of the model. */
    this.saying = { thinking: "", text: "" };
    /** Output of running calls. @type {Map<string, any[]>} */ this.output = new Map();
    /** Items that the user has folded or unfolded. @type {Map<number, boolean>} */ this.folds = new Map();
    /** Whether all calls are unfolded; null for the default of each. @type {boolean | null} */ this.all = null;
  }

  /** @param {{ total: number, first: number, records: any[] }} page */
  take(page) {
    this.total = Math.max(this.total, page.total);
    for (const item of page.records) this.items.set(item.n, item);
  }

  /** @param {string} event @param {any} data @returns {boolean} whether something has changed */
  hear(event, data) {
    if (event === "record") {
      this.total = Math.max(this.total, data.total);
      this.items.set(data.item.n, data.item);
      if (data.item.kind === "reply" || data.item.kind === "turn_end") this.saying = { thinking: "", text: "" };
      if (data.item.kind === "call" && data.item.state !== "running") this.output.delete(data.item.id);
      return true;
    }
    if (event === "delta") {
      const kind = data.kind === "thinking" ? "thinking" : "text";
      this.saying = { ...this.saying, [kind]: (this.saying[kind] + data.text).slice(-DELTA_CHARS) };
      return true;
    }
    if (event === "output") {
      const lines = (this.output.get(data.call) ?? []).concat(data.runs);
      this.output.set(data.call, lines.slice(-OUTPUT_LINES));
      return true;
    }
    return false;
  }

  /** Pages with items that were unfinished when the stream broke: they may have changed since. @returns {number[]} */
  unfinished() {
    const isOpen = (/** @type {any} */ item) => (item.kind === "call" && item.state === "running") || (item.kind === "ask" && item.answer === null) || (item.kind === "queued" && !item.heard);
    return [...new Set([...this.items.values()].filter(isOpen).map((item) => Math.floor(item.n / PAGE)))];
  }

  /** Whether there is a partial reply. */
  get isSaying() {
    return this.saying.text !== "" || this.saying.thinking !== "";
  }

  /** Number of rows of the list: all items, and the partial reply. */
  get count() {
    return this.total + (this.isSaying ? 1 : 0);
  }

  /** Pages in a window that were not requested yet. @param {number} from @param {number} to @returns {number[]} */
  missing(from, to) {
    const pages = [];
    for (let page = Math.floor(from / PAGE); page * PAGE < Math.min(to, this.total); page += 1) {
      if (this.asked.has(page)) continue;
      const last = Math.min((page + 1) * PAGE, this.total);
      for (let n = page * PAGE; n < last; n += 1) {
        if (!this.items.has(n)) {
          pages.push(page);
          break;
        }
      }
    }
    return pages;
  }

  /** Drops items far from the window, so that a page that is open all day does not grow. @param {number} from @param {number} to */
  keep(from, to) {
    if (this.items.size <= KEPT) return;
    const [low, high] = [Math.floor(from / PAGE) - BESIDE, Math.floor(to / PAGE) + BESIDE];
    const isFar = (/** @type {number} */ page) => page < low || page > high;
    for (const n of this.items.keys()) if (isFar(Math.floor(n / PAGE))) this.items.delete(n);
    for (const page of this.asked) if (isFar(page)) this.asked.delete(page);
  }

  /** By default calls are folded when they succeeded and unfolded when they failed or run. @param {any} item */
  isOpen(item) {
    return this.folds.get(item.n) ?? this.all ?? (item.kind === "call" && (item.state === "failed" || item.state === "running" || item.name === "TodoWrite"));
  }
}

/** The glyph and the tone of a call. @param {any} item */
export function callSign(item) {
  switch (item.state) {
    case "running":
      return { sign: "▶", tone: "run", word: "running" };
    case "failed":
      return { sign: "✗", tone: "bad", word: "failed" };
    case "refused":
      return { sign: "⊘", tone: "attn", word: "refused" };
    case "interrupted":
      return { sign: "†", tone: "fg3", word: "interrupted" };
    default:
      return { sign: "✓", tone: "ok", word: "done" };
  }
}

/** How a turn ended, as text. @param {any} item */
export function turnEnd(item) {
  const outcome = typeof item.outcome === "string" ? item.outcome : (item.outcome?.how ?? item.outcome?.kind ?? "ended");
  return outcome.replaceAll("_", " ");
}
