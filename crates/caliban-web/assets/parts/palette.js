// Ctrl+K: every page, agent and command by name.
import { html, useMemo, useState } from "../base/html.js";
import { go } from "../base/router.js";
import { allRows } from "../base/store.js";
import { density, theme } from "../base/prefs.js";
import { oneLine } from "../base/format.js";
import { best } from "../view/fuzzy.js";
import { Icon } from "./bits.js";
import { Dialog } from "./dialog.js";
import { PAGES } from "./pages.js";

const LIMIT = 50;

/** @param {{ close: () => void, help: () => void }} props */
export function Palette({ close, help }) {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const entries = useMemo(() => {
    const order = { needs_you: 0, working: 1, queued: 2, finished: 3 };
    const agents = allRows().sort((a, b) => order[/** @type {keyof order} */ (a.group)] - order[/** @type {keyof order} */ (b.group)] || (a.since < b.since ? 1 : -1));
    return [
      ...agents.map((row) => ({ title: row.name, more: `${row.repo_name} ${row.id} ${row.doing ?? ""}`, where: row.repo_name, row, act: () => go(`/agent/${row.key}`) })),
      ...PAGES.map((page) => ({ title: page.title, icon: page.icon, where: page.keys ?? "", act: () => go(page.path) })),
      { title: "Theme: light", icon: "sun", where: "", act: () => (theme.value = "light") },
      { title: "Theme: dark", icon: "moon", where: "", act: () => (theme.value = "dark") },
      { title: "Theme: as the system", icon: "monitor", where: "", act: () => (theme.value = "system") },
      { title: "Rows: compact or normal", icon: "rows-3", where: "", act: () => (density.value = density.value === "compact" ? "normal" : "compact") },
      { title: "Keys", icon: "keyboard", where: "?", act: help },
    ];
  }, []);
  const found = best(query, /** @type {any[]} */ (entries), LIMIT);
  if (query.trim()) found.push({ title: `Search transcripts for “${query.trim()}”`, icon: "search", where: "", act: () => go(`/search?q=${encodeURIComponent(query.trim())}`) });
  const chosen = Math.min(at, found.length - 1);
  const run = (/** @type {any} */ entry) => {
    close();
    entry?.act();
  };
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const step = event.key === "ArrowDown" || (event.ctrlKey && event.key === "n") ? 1 : event.key === "ArrowUp" || (event.ctrlKey && event.key === "p") ? -1 : 0;
    if (step) {
      event.preventDefault();
      const next = (chosen + step + found.length) % found.length;
      setAt(next);
      requestAnimationFrame(() => document.getElementById(`pal-${next}`)?.scrollIntoView({ block: "nearest" }));
    }
    if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      run(found[chosen]);
    }
  };
  return html`<${Dialog} title="Go to" close=${close} bare cls="palette">
    <input type="text" placeholder="Agent, page or command" aria-label="Agent, page or command" role="combobox" aria-expanded="true" aria-controls="pal" aria-activedescendant=${`pal-${chosen}`} autocomplete="off" spellcheck=${false} value=${query}
      onInput=${(/** @type {any} */ event) => {
        setQuery(event.target.value);
        setAt(0);
      }} onKeyDown=${move} />
    <ul id="pal" role="listbox" aria-label="Found">
      ${found.map((entry, i) => html`<li key=${i} id=${`pal-${i}`} role="option" aria-selected=${i === chosen ? "true" : "false"} onMouseMove=${() => setAt(i)} onClick=${() => run(entry)}>
        ${entry.row ? html`<span class=${`glyph ${entry.row.tone}`}>${entry.row.glyph}</span>` : html`<${Icon} name=${entry.icon} />`}
        <span class="cut">${entry.title}</span>${entry.row && html`<span class="dim cut">${oneLine(entry.row.doing)}</span>`}<span class="where">${entry.where}</span>
      </li>`)}
    </ul>
  <//>`;
}
