// Short messages about what has just happened, in a corner.
import { html, signal } from "../base/html.js";

const STAY_MS = 6000;
/** @type {import("../vendor/signals-core.js").Signal<{ id: number, tone: string, text: string, hint?: string }[]>} */
const shown = signal([]);
let next = 0;

/** @param {"ok" | "bad" | "run"} tone @param {string} text @param {string} [hint] */
export function toast(tone, text, hint) {
  const id = (next += 1);
  // An error does not stay under a later success.
  const before = tone === "ok" ? shown.value.filter((it) => it.tone !== "bad") : shown.value;
  shown.value = [...before.slice(-3), { id, tone, text, hint }];
  setTimeout(() => drop(id), tone === "bad" ? STAY_MS * 2 : STAY_MS);
}

/** Shows an error. @param {any} error */
export const tell = (error) => toast("bad", error?.message ?? String(error), error?.hint);

/** @param {number} id */
const drop = (id) => (shown.value = shown.value.filter((it) => it.id !== id));

export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">
  ${shown.value.map((it) => html`<div key=${it.id} class=${`toast ${it.tone}`}><div class="grow">${it.text}${it.hint && html`<small>${it.hint}</small>`}</div><button class="btn quiet icon" aria-label="Close" onClick=${() => drop(it.id)}>×</button></div>`)}
</div>`;
