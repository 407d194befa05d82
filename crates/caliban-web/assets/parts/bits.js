// Small parts: icons, glyphs, states of a page, things to copy.
import { html, useState } from "../base/html.js";
import { toast } from "./toasts.js";

/** @param {{ name: string }} props */
export const Icon = ({ name }) => html`<svg class="ico" aria-hidden="true"><use href=${`/vendor/icons.svg#${name}`} /></svg>`;

/** The glyph of a state, with its word for screen readers. @param {{ row: any }} props */
export const Glyph = ({ row }) => html`<span class=${`glyph ${row.tone}`} aria-hidden="true">${row.glyph}</span><span class="sr">${row.status}</span>`;

/** Copies a text and confirms it. @param {{ text: string, label?: string }} props */
export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    } catch {
      toast("bad", "the browser did not let the page copy");
    }
  };
  return html`<button class="btn quiet icon" type="button" onClick=${copy} aria-label=${label ?? "Copy"} title=${label ?? "Copy"}><${Icon} name=${done ? "check" : "copy"} /></button>`;
}

/** A command to copy. @param {{ text: string }} props */
export const Command = ({ text }) => html`<span class="cmd"><code>${text}</code><${Copy} text=${text} label="Copy the command" /></span>`;

/** Nothing for 150 ms, then rows of the final height. @param {{ rows?: number }} props */
export const Loading = ({ rows = 8 }) => html`<div class="skeleton" role="status" aria-label="Loading">${Array.from({ length: rows }, (_, i) => html`<i key=${i}></i>`)}</div>`;

/** The server's error, what to do, and what still works. @param {{ error: any, retry?: () => void, still?: string }} props */
export const Failure = ({ error, retry, still }) => html`<div class="state" role="alert">
  <h2>${error.message ?? String(error)}</h2>
  ${error.hint && html`<p>${error.hint}</p>`}
  ${still && error.code !== "unreachable" && html`<p class="dim">${still}</p>`}
  ${retry && html`<button class="btn" onClick=${retry}>Retry</button>`}
</div>`;

/** @param {{ title: string, children?: any }} props */
export const Empty = ({ title, children }) => html`<div class="state"><h2>${title}</h2>${children}</div>`;

/** A choice of one among several. @param {{ value: string, set: (value: string) => void, of: { id: string, title: string, icon?: string }[], label: string }} props */
export const Choice = ({ value, set, of, label }) => html`<div class="seg" role="group" aria-label=${label}>
  ${of.map((it) => html`<button key=${it.id} type="button" class="btn" aria-pressed=${it.id === value ? "true" : "false"} onClick=${() => set(it.id)} title=${it.title} aria-label=${it.title}>${it.icon ? html`<${Icon} name=${it.icon} />` : it.title}</button>`)}
</div>`;

/** Tabs with arrow keys. @param {{ value: string, set: (value: string) => void, of: { id: string, title: any }[], label: string }} props */
export function Tabs({ value, set, of, label }) {
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const next = of[(of.findIndex((it) => it.id === value) + step + of.length) % of.length];
    set(next.id);
    const tablist = /** @type {HTMLElement} */ (event.currentTarget);
    requestAnimationFrame(() => /** @type {HTMLElement | null} */ (tablist.querySelector("[aria-selected=true]"))?.focus());
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${of.map((it) => html`<button key=${it.id} type="button" role="tab" aria-selected=${it.id === value ? "true" : "false"} tabindex=${it.id === value ? 0 : -1} onClick=${() => set(it.id)}>${it.title}</button>`)}
  </div>`;
}
