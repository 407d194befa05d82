// The fleet's evening: which agents worked, waited (and for whom), asked and failed. A canvas, and the same as a table.
import { html, useEffect, useMemo, useRef, useState } from "../base/html.js";
import { get } from "../base/api.js";
import { theme } from "../base/prefs.js";
import { go } from "../base/router.js";
import { listen } from "../base/store.js";
import { clock, day, span } from "../base/format.js";
import { arrows, axis, FOLD_PX, lanes, legend, stretches, ticks } from "../view/evening.js";
import { Choice, Empty, Failure, Loading } from "../parts/bits.js";
import { colour } from "../parts/plot.js";

const LANE = 26;
const HEAD = 26;

export default function Evening() {
  const [data, setData] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [hours, setHours] = useState("12");
  const [isHiding, setHiding] = useState(false);
  const [isOnlyWaits, setOnlyWaits] = useState(false);
  const [asTable, setTable] = useState("plot");
  const load = () => {
    const to = Date.now();
    return get(`/api/v1/timeline?from=${encodeURIComponent(new Date(to - Number(hours) * 3_600_000).toISOString())}&to=${encodeURIComponent(new Date(to).toISOString())}`).then((answer) => (setError(null), setData(answer)), setError);
  };
  useEffect(() => void load(), [hours]);
  useEffect(() => {
    let timer = 0;
    const off = listen((event) => {
      if (["agent", "removed", "connected"].includes(event)) timer ||= setTimeout(() => ((timer = 0), load()), 4000);
    });
    return () => (clearTimeout(timer), off());
  }, [hours]);
  const all = useMemo(() => {
    if (!data) return [];
    return lanes(data, Date.now()).filter((lane) => lane.spans.length > 0 && !(isHiding && lane.agent.ended) && !(isOnlyWaits && !(lane.agent.waited_ms > 0)));
  }, [data, isHiding, isOnlyWaits]);
  const head = html`<header><h1>Timeline</h1>
    <label class="rowflex"><input type="checkbox" checked=${isHiding} onChange=${(/** @type {any} */ event) => setHiding(event.target.checked)} /> hide finished</label>
    <label class="rowflex"><input type="checkbox" checked=${isOnlyWaits} onChange=${(/** @type {any} */ event) => setOnlyWaits(event.target.checked)} /> only who waited for you</label>
    <${Choice} label="How far back" value=${hours} set=${setHours} of=${[{ id: "4", title: "4 h" }, { id: "12", title: "12 h" }, { id: "24", title: "24 h" }, { id: "168", title: "7 d" }]} />
    <${Choice} label="View" value=${asTable} set=${setTable} of=${[{ id: "plot", title: "Plot" }, { id: "table", title: "Table" }]} /></header>`;
  if (error && !data) return html`<div class="page">${head}<${Failure} error=${error} retry=${load} /></div>`;
  if (!data) return html`<div class="page">${head}<${Loading} /></div>`;
  if (all.length === 0) return html`<div class="page">${head}<${Empty} title="Nobody was at work in this time." /></div>`;
  return html`<div class="page">${head}
    <p class="legend">${legend(all).map(({ status, glyph, tone }) => html`<span key=${status} class=${tone}>${glyph} ${status}</span>`)}<span class="fg2">⇢ waits for, started by</span><span class="wait">→ message</span></p>
    ${asTable === "plot" ? html`<div class="card panel"><${Canvas} all=${all} messages=${data.messages ?? []} /></div>` : null}
    <div class=${asTable === "plot" ? "sr" : "card panel table"}><table><caption class="sr">What each agent did</caption><thead><tr><th>agent</th><th>repo</th><th>began</th><th class="num">worked</th><th class="num">waited for you</th><th>waited for</th><th>ended</th></tr></thead><tbody>${all.map((lane) => html`<tr key=${lane.key}><td><a href=${`/agent/${lane.key}`}><b>${lane.name}</b></a></td><td class="dim">${lane.repo}</td><td>${day(lane.spans[0].from)}</td><td class="num">${span(lane.agent.worked_ms ?? 0)}</td><td class="num">${lane.agent.waited_ms > 0 ? html`<span class="attn">${span(lane.agent.waited_ms)}</span>` : "–"}</td><td class="dim">${(lane.agent.after ?? []).map((/** @type {string} */ id) => all.find((other) => other.key.endsWith(`/${id}`))?.name ?? id).join(", ") || "–"}</td><td>${lane.agent.ended ?? "goes on"}</td></tr>`)}</tbody></table></div>
  </div>`;
}

/** @param {{ all: ReturnType<typeof lanes>, messages: any[] }} props */
function Canvas({ all, messages }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [tip, setTip] = useState(/** @type {any} */ (null));
  const [width, setWidth] = useState(0);
  const names = width < 520 ? 84 : 150;
  const tail = width < 520 ? 0 : 130;
  const line = useMemo(() => axis(stretches(all), Math.max(80, width - names - tail - 20)), [all, width]);
  useEffect(() => {
    const seen = new ResizeObserver(() => box.current && setWidth(box.current.clientWidth));
    if (box.current) seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  useEffect(() => {
    if (!canvas.current || width === 0) return undefined;
    const draw = () => canvas.current && paint(canvas.current, all, messages, line, { width, names, tail });
    draw();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => scheme.removeEventListener("change", draw);
  }, [all, line, width, theme.value]);
  const find = (/** @type {any} */ event) => {
    const rect = /** @type {HTMLCanvasElement} */ (canvas.current).getBoundingClientRect();
    const [x, y] = [event.clientX - rect.left, event.clientY - rect.top];
    const lane = all[Math.floor((y - HEAD) / LANE)];
    if (!lane || y < HEAD) return null;
    const at = x - names;
    const hit = lane.spans.find((it) => at >= line.x(it.from) - 2 && at <= line.x(it.to) + 2);
    return { lane, hit, x, y };
  };
  return html`<div class="evening" ref=${box}>
    <canvas ref=${canvas} aria-hidden="true" onMouseMove=${(/** @type {any} */ event) => setTip(find(event))} onMouseLeave=${() => setTip(null)} onClick=${(/** @type {any} */ event) => {
      const found = find(event);
      if (found) go(`/agent/${found.lane.key}`);
    }}></canvas>
    ${tip?.hit && html`<div class="tip" style=${{ left: `${Math.min(tip.x + 12, width - 220)}px`, top: `${tip.y + 14}px` }}><b>${tip.lane.name}</b> <span class=${tip.hit.tone}>${tip.hit.status}</span><br /><span class="dim">${clock(tip.hit.from)} – ${clock(tip.hit.to)}, ${span(tip.hit.to - tip.hit.from)}</span></div>`}
  </div>`;
}

/** @param {HTMLCanvasElement} canvas @param {ReturnType<typeof lanes>} all @param {any[]} messages @param {ReturnType<typeof axis>} line @param {{ width: number, names: number, tail: number }} size */
function paint(canvas, all, messages, line, { width, names, tail }) {
  const height = HEAD + all.length * LANE + 8;
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.scale(ratio, ratio);
  const tint = Object.fromEntries(["run", "attn", "wait", "ok", "bad", "fg", "fg2", "fg3", "line", "raised", "on", "surface"].map((name) => [name, colour(name)]));
  const font = getComputedStyle(document.body).fontFamily;
  c.textBaseline = "middle";
  c.font = `11px ${font}`;
  for (const { time, x } of ticks(line, 70)) {
    c.fillStyle = tint.fg3;
    c.fillText(clock(time), names + x + 4, HEAD / 2);
    c.fillStyle = tint.line;
    c.fillRect(names + x, 4, 1, height);
  }
  for (const gap of line.gaps) {
    c.fillStyle = tint.raised;
    c.fillRect(names + gap.x, 0, FOLD_PX, height);
    c.fillStyle = tint.fg3;
    c.textAlign = "center";
    c.fillText(span(gap.ms), names + gap.x + FOLD_PX / 2, HEAD / 2);
    c.textAlign = "left";
  }
  const middle = new Map(all.map((lane, i) => [lane.key, HEAD + i * LANE + LANE / 2]));
  all.forEach((lane, i) => {
    const y = HEAD + i * LANE;
    c.font = `600 12px ${font}`;
    c.fillStyle = tint.fg;
    c.fillText(fitText(c, lane.name, names - 12), 2, y + LANE / 2);
    for (const it of lane.spans) {
      const tone = tint[it.tone] ?? tint.fg3;
      const [from, to] = [names + line.x(it.from), names + line.x(it.to)];
      const isThin = it.status === "queued" || it.status === "asleep" || it.status === "waits";
      c.fillStyle = tone;
      if (isThin) c.fillRect(from, y + LANE / 2 - 1, Math.max(1, to - from), 2);
      else {
        c.beginPath();
        c.roundRect(from, y + 6, Math.max(2, to - from - 1), LANE - 12, 3);
        c.fill();
        if (to - from > 16 && it.status !== "running") {
          c.fillStyle = tint.on;
          c.font = `700 11px ${font}`;
          c.fillText(it.glyph, from + 5, y + LANE / 2 + 0.5);
        }
      }
    }
    if (tail > 0 && lane.agent.waited_ms > 0) {
      c.font = `11px ${font}`;
      c.fillStyle = tint.attn;
      c.textAlign = "right";
      c.fillText(`waited for you ${span(lane.agent.waited_ms)}`, width - 2, y + LANE / 2);
      c.textAlign = "left";
    }
    // Spans end with the agent; its end is drawn after the last one.
    const last = lane.spans[lane.spans.length - 1];
    if (lane.agent.end && last) {
      c.fillStyle = tint[lane.agent.end.tone] ?? tint.fg3;
      c.font = `700 12px ${font}`;
      c.fillText(lane.agent.end.glyph, names + line.x(last.to) + 3, y + LANE / 2);
    }
  });
  const tones = { parent: tint.fg3, after: tint.fg2, message: tint.wait };
  for (const it of arrows(all, messages)) arrow(c, names + line.x(it.at), /** @type {number} */ (middle.get(it.from)), /** @type {number} */ (middle.get(it.to)), tones[it.kind], it.kind === "message" ? [] : it.isOpen ? [2, 3] : [5, 3]);
}

/** @param {CanvasRenderingContext2D} c @param {number} x @param {number} from @param {number} to @param {string} tone @param {number[]} dashes */
function arrow(c, x, from, to, tone, dashes) {
  const way = to > from ? 1 : -1;
  c.strokeStyle = tone;
  c.fillStyle = tone;
  c.lineWidth = 1.25;
  c.setLineDash(dashes);
  c.beginPath();
  c.moveTo(x, from + way * 7);
  c.lineTo(x, to - way * 9);
  c.stroke();
  c.setLineDash([]);
  c.beginPath();
  c.moveTo(x, to - way * 6);
  c.lineTo(x - 3.5, to - way * 11);
  c.lineTo(x + 3.5, to - way * 11);
  c.fill();
}

/** @param {CanvasRenderingContext2D} c @param {string} text @param {number} width */
function fitText(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let cut = text;
  while (cut.length > 1 && c.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
  return `${cut}…`;
}
