// One item of a transcript.
import { drawnFor, html, useState } from "../base/html.js";
import { get } from "../base/api.js";
import { clock, money, oneLine, plural, tokens, took } from "../base/format.js";
import { callSign, turnEnd } from "../view/transcript.js";
import { tell } from "./toasts.js";
import { Blocks, Lines } from "./rich.js";
import { DiffRows } from "./diffrows.js";
import { Icon } from "./bits.js";

/** Lines of output that an unfolded call shows before "all". */
const LAST_LINES = 20;
/** Maximum number of lines that "all" fetches. */
const ALL_LINES = 5000;

/** @typedef {{ item: any, isOpen: boolean, live: any[] | undefined, toggle: (open: boolean) => void, path: string, isMarked: boolean }} ItemProps */
// A scroll renders the list again, not its items. `toggle` is left out: every version of it does the same.
export const Item = drawnFor(/** @type {(keyof ItemProps)[]} */ (["item", "isOpen", "live", "isMarked"]), drawItem);

/** @param {ItemProps} props */
function drawItem({ item, isOpen, live, toggle, path, isMarked }) {
  const mark = isMarked ? " marked" : "";
  switch (item.kind) {
    case "prompt":
    case "queued":
      // A queued message that was delivered is a prompt of its own, further down.
      if (item.heard) return html`<div class="it it-heard"></div>`;
      return html`<div class=${`it it-prompt${mark}`} data-author=${item.author}><span class="it-by">${item.author === "user" ? "You" : item.author}${item.kind === "queued" && !item.heard ? " · not heard yet" : ""}<time>${clock(item.at)}</time></span>${item.typed ? html`<div class="typed">${item.typed}</div>` : html`<div class="md"><${Blocks} of=${item.blocks} /></div>`}</div>`;
    case "reply":
      return html`<div class=${`it it-reply${mark}`}>${item.thinking?.length > 0 && html`<details class="it-thinking"><summary>Thinking</summary><div class="md"><${Blocks} of=${item.thinking} /></div></details>`}<div class="md"><${Blocks} of=${item.blocks} /></div></div>`;
    case "call":
      return html`<${Call} item=${item} isOpen=${isOpen} live=${live} toggle=${toggle} path=${path} mark=${mark} />`;
    case "ask":
      return html`<div class=${`it it-line${mark}`}><span class=${`glyph ${item.answer === null ? "attn" : "fg3"}`}>!</span><span class="cut">asked: ${item.name} ${item.title}</span><span class="dim">${item.answer === null ? "open" : item.answer === "no" ? `denied${item.reason ? `: ${item.reason}` : ""}` : item.answer === "keep" ? `allowed from now on: ${item.reason}` : item.answer === "always" ? "allowed from now on" : item.answer === "always_outside" ? "allowed from now on, outside the fence" : "allowed once"}</span></div>`;
    case "summary":
      return html`<details class=${`it it-summary${mark}`}><summary>The conversation before this was summed up</summary><div class="md"><${Blocks} of=${item.blocks} /></div></details>`;
    case "turn_end":
      return html`<div class=${`it it-rule${mark}`}><span>${turnEnd(item)}${item.turns ? ` · ${plural(item.turns, "turn")}` : ""} · ${money(item.micro_usd)}${item.usage ? ` · ${tokens((item.usage.input ?? 0) + (item.usage.output ?? 0) + (item.usage.cache_read ?? 0) + (item.usage.cache_write ?? 0))} tokens` : ""}</span></div>`;
    case "start":
    case "resumed":
      return html`<div class=${`it it-rule${mark}`}><span>${item.kind === "start" ? "began" : "went on"} ${clock(item.at)} · ${item.model}</span></div>`;
    default:
      return html`<div class=${`it it-line${mark}`}><span class="glyph fg3">·</span><span class="it-note fg2">${item.text ?? item.kind}</span></div>`;
  }
}

/** Whether the input has more than the call's title shows. @param {any} item */
const says = (item) => item.input?.length > 0 && !["Edit", "Write", "TodoWrite"].includes(item.name) && !(item.input.length === 1 && textOf(item.input[0]) === `${item.name} ${item.title}` && item.title.length < 80);
/** @param {any[]} runs */
const textOf = (runs) => runs.map((run) => run[1]).join("");

/** @param {{ item: any, isOpen: boolean, live: any[] | undefined, toggle: (open: boolean) => void, path: string, mark: string }} props */
function Call({ item, isOpen, live, toggle, path, mark }) {
  const { sign, tone, word } = callSign(item);
  return html`<div class=${`it it-call${mark}`} data-state=${item.state}>
    <button type="button" class="it-fold" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => toggle(!isOpen)}>
      <${Icon} name=${isOpen ? "chevron-down" : "chevron-right"} /><b>${item.name}</b><span class="cut grow mono">${item.name === "TodoWrite" ? "" : oneLine(item.title)}</span>
      ${item.summary && html`<span class="dim cut it-sum">${item.summary}</span>`}
      <span class=${tone}><span aria-hidden="true">${sign}</span><span class="sr">${word}</span>${item.exit_code ? ` ${item.exit_code}` : ""}</span><span class="dim num it-ms">${took(item.ms)}</span>
    </button>
    ${isOpen && html`<div class="it-in">
      ${says(item) && html`<${Lines} of=${item.input} cls="wrap it-input" />`}
      ${item.state === "running" && item.name === "Bash" && !live && !item.body ? html`<p class="dim">Nothing is printed yet.</p>` : live && item.state === "running" ? html`<${Lines} of=${live.slice(-LAST_LINES)} cls="wrap out" />` : html`<${Body} body=${item.body} call=${item.id} path=${path} />`}
      ${item.decision?.why && item.state === "refused" && html`<p class="attn">${item.decision.why}</p>`}
      ${item.decision?.rule && html`<p class="dim">allowed by <code>${item.decision.rule}</code></p>`}
    </div>`}
  </div>`;
}

/** @param {{ body: any, call: string, path: string }} props */
function Body({ body, call, path }) {
  const [whole, setWhole] = useState(/** @type {any[] | null} */ (null));
  if (!body) return null;
  if (body.is === "diff") return html`<${DiffRows} rows=${body.rows} />`;
  if (body.is === "blocks") return html`<div class="md"><${Blocks} of=${body.blocks} /></div>`;
  if (body.is === "todo") return html`<${Todo} items=${body.items} />`;
  const lines = whole ?? body.lines.slice(-LAST_LINES);
  const hidden = (body.total_lines ?? body.lines.length) - lines.length;
  const all = async () => {
    if (!body.cut && !body.whole) return setWhole(body.lines);
    try {
      const answer = await get(`${path}/output/${encodeURIComponent(call)}?from=0&limit=${ALL_LINES}`);
      return setWhole(answer.lines);
    } catch (error) {
      setWhole(body.lines);
      return tell(error);
    }
  };
  return html`<div class="out-box">${hidden > 0 && html`<div class="out-head dim"><span>last ${lines.length} of ${plural(body.total_lines ?? body.lines.length, "line")}</span><button class="btn quiet" onClick=${all}>all</button></div>`}
    ${lines.length > 0 ? html`<${Lines} of=${lines} cls="wrap out" />` : html`<p class="dim">no output</p>`}</div>`;
}

const MARKS = { completed: ["✓", "ok"], in_progress: ["▶", "run"], pending: ["○", "fg3"] };

/** @param {{ items: any[] }} props */
export const Todo = ({ items }) => html`<ul class="todo">${items.map((it, i) => {
  const [sign, tone] = MARKS[/** @type {keyof typeof MARKS} */ (it.status)] ?? ["○", "fg3"];
  return html`<li key=${i} class=${it.status}><span class=${`glyph ${tone}`} aria-hidden="true">${sign}</span><span class="sr">${it.status.replace("_", " ")}</span>${it.text}</li>`;
})}</ul>`;
