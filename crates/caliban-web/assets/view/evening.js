// A fleet's evening as lanes: the position of each span, with idle gaps folded. Pure.

/** A gap of this length, in which no agent works or asks, is folded. */
const GAP_MS = 10 * 60_000;
/** The width of a folded gap. */
export const FOLD_PX = 34;

/** @typedef {{ from: number, to: number }} Stretch */

/** @param {any} data @param {number} now @returns {{ key: string, name: string, repo: string, spans: { from: number, to: number, status: string, glyph: string, tone: string, is_in_turn: boolean }[], agent: any }[]} */
export function lanes(data, now) {
  return data.agents
    .map((/** @type {any} */ agent) => ({ key: agent.key, name: agent.name, repo: agent.repo_name, agent, spans: agent.spans.map((/** @type {any} */ span) => ({ ...span, from: Date.parse(span.from), to: span.to === null ? now : Date.parse(span.to) })) }))
    .sort((/** @type {any} */ one, /** @type {any} */ other) => (one.spans[0]?.from ?? 0) - (other.spans[0]?.from ?? 0));
}

/** The stretches of time with activity: waiting in the queue, for example, is drawn and does not scale the axis. @param {ReturnType<typeof lanes>} all @returns {Stretch[]} */
export function stretches(all) {
  const busy = all.flatMap((lane) => lane.spans.filter((span) => span.is_in_turn)).map(({ from, to }) => ({ from, to }));
  if (busy.length === 0) {
    const any = all.flatMap((lane) => lane.spans);
    return any.length === 0 ? [] : [{ from: Math.min(...any.map((span) => span.from)), to: Math.max(...any.map((span) => span.to)) }];
  }
  busy.sort((one, other) => one.from - other.from);
  const found = [{ ...busy[0] }];
  for (const span of busy) {
    const last = found[found.length - 1];
    if (span.from - last.to > GAP_MS) found.push({ ...span });
    else last.to = Math.max(last.to, span.to);
  }
  return found;
}

/** Maps time to pixels over the stretches, each gap FOLD_PX wide. @param {Stretch[]} parts @param {number} width */
export function axis(parts, width) {
  const folds = Math.max(0, parts.length - 1);
  const time = parts.reduce((all, part) => all + Math.max(60_000, part.to - part.from), 0);
  const scale = Math.max(0.000001, (width - folds * FOLD_PX) / Math.max(1, time));
  let at = 0;
  const placed = parts.map((part) => {
    const length = Math.max(60_000, part.to - part.from) * scale;
    const here = { ...part, x: at, width: length };
    at += length + FOLD_PX;
    return here;
  });
  /** @param {number} time */
  const x = (time) => {
    if (placed.length === 0) return 0;
    for (let i = 0; i < placed.length; i += 1) {
      const part = placed[i];
      if (time < part.from) return i === 0 ? 0 : part.x - FOLD_PX / 2;
      if (time <= part.to) return part.x + (time - part.from) * scale;
    }
    const last = placed[placed.length - 1];
    return last.x + last.width;
  };
  const gaps = placed.slice(1).map((part, i) => ({ x: part.x - FOLD_PX, ms: part.from - placed[i].to }));
  return { x, parts: placed, gaps, scale };
}

/** @typedef {{ at: number, from: string, to: string, kind: "parent" | "after" | "message", isOpen: boolean }} Arrow */

/** Arrows between shown lanes: which agent started, waited for or wrote to which. @param {ReturnType<typeof lanes>} all @param {any[]} messages @returns {Arrow[]} */
export function arrows(all, messages) {
  const there = new Set(all.map((lane) => lane.key));
  /** @type {Arrow[]} */
  const found = [];
  for (const lane of all) {
    const repo = lane.key.split("/")[0];
    const first = lane.spans[0];
    if (lane.agent.parent) found.push({ at: first.from, from: `${repo}/${lane.agent.parent}`, to: lane.key, kind: "parent", isOpen: false });
    // It began when the last agent that it waited for had ended; while it waits, the line is open.
    const isOpen = lane.spans.every((span) => span.status === "queued") && !lane.agent.ended;
    const began = first.status === "queued" ? first.to : first.from;
    for (const other of lane.agent.after ?? []) found.push({ at: began, from: `${repo}/${other}`, to: lane.key, kind: "after", isOpen });
  }
  for (const it of messages) found.push({ at: Date.parse(it.at), from: it.from, to: it.to, kind: "message", isOpen: false });
  return found.filter((it) => there.has(it.from) && there.has(it.to) && it.from !== it.to);
}

/** Times to label below the axis, at a minimum distance. @param {ReturnType<typeof axis>} line @param {number} apart pixels */
export function ticks(line, apart) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 240, 480].map((minutes) => minutes * 60_000);
  const step = steps.find((it) => it * line.scale >= apart) ?? steps[steps.length - 1];
  const found = [];
  let last = -Infinity;
  for (const part of line.parts) {
    for (let time = Math.ceil(part.from / step) * step; time <= part.to; time += step) {
      const x = line.x(time);
      if (x - last >= apart) {
        found.push({ time, x });
        last = x;
      }
    }
  }
  // A short evening may contain no round time.
  if (found.length === 0 && line.parts.length > 0) found.push({ time: line.parts[0].from, x: 0 });
  return found;
}

/** @typedef {{ status: string, glyph: string, tone: string }} Look */

/** How each status looks that occurs in these lanes, in the order of their occurrence. @param {ReturnType<typeof lanes>} all @returns {Look[]} */
export function legend(all) {
  const looks = all.flatMap((lane) => [...lane.spans, ...(lane.agent.end ? [lane.agent.end] : [])]);
  return [...new Map(looks.map(({ status, glyph, tone }) => [status, { status, glyph, tone }])).values()];
}
