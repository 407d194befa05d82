// `?`: the keys.
import { html } from "../base/html.js";
import { singleKeys } from "../base/prefs.js";
import { Dialog } from "./dialog.js";

const KEYS = [
  { title: "Everywhere", keys: [["Ctrl K", "go to anything"], ["g f", "fleet"], ["g a", "approvals"], ["g b", "broker"], ["g s", "spend"], ["g t", "timeline"], ["c", "new agent"], ["n", "next who needs you"], ["/", "filter"], ["Esc", "back"], ["?", "these keys"]] },
  { title: "Lists", keys: [["j k", "down, up"], ["Enter", "open"], ["v", "table or cards"]] },
  { title: "Agent", keys: [["e", "unfold or fold all calls"], ["i", "write a message"], ["End", "follow the newest"], ["d", "diff"], ["j k", "hunk after, before"], ["[ ]", "file before, after"], ["v", "viewed"]] },
  { title: "A question", keys: [["Shift Y", "allow once"], ["Shift N", "deny"]], note: "Only with the call focused, its end seen, a second after it appeared and after the last typing." },
];

/** @param {{ close: () => void }} props */
export const Help = ({ close }) => html`<${Dialog} title="Keys" close=${close} foot=${html`<label class="rowflex grow"><input type="checkbox" checked=${singleKeys.value} onChange=${(/** @type {any} */ event) => (singleKeys.value = event.target.checked)} /> Single keys act</label>`}>
  <div class="keys">${KEYS.map((part) => html`<section key=${part.title}><h3>${part.title}</h3><dl>${part.keys.map(([key, what]) => html`<dt>${key.split(" ").map((it) => html`<kbd>${it}</kbd> `)}</dt><dd>${what}</dd>`)}</dl>${part.note && html`<p class="dim">${part.note}</p>`}</section>`)}</div>
<//>`;
