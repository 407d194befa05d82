// The server's rendered runs, lines and blocks as elements and text nodes. Nothing here parses markup.
import { html } from "../base/html.js";

/** @typedef {[string, string] | [string, string, string]} Run */

/** Classes of runs have a prefix of their own. @param {string} cls */
const classes = (cls) => (cls === "" ? undefined : cls.split(" ").map((word) => `r-${word}`).join(" "));

/** Only schemes that cannot run code. @param {string} href */
const isHref = (href) => /^(https?:|mailto:)/i.test(href);

/** @param {{ of: Run[] | null | undefined }} props */
export const Runs = ({ of }) => (of ?? []).map(([cls, text, href], i) => (href !== undefined && isHref(href) ? html`<a key=${i} class="r-a" href=${href} target="_blank" rel="noopener noreferrer">${text}</a>` : cls === "" ? text : html`<span key=${i} class=${classes(cls)}>${text}</span>`));

/** Lines of code or output. @param {{ of: Run[][], cls?: string }} props */
export const Lines = ({ of, cls = "" }) => html`<pre class=${`lines ${cls}`}>${of.map((line, i) => html`<div key=${i}>${line.length === 0 ? "​" : html`<${Runs} of=${line} />`}</div>`)}</pre>`;

/** @param {{ of: any[] | null | undefined }} props */
export const Blocks = ({ of }) => (of ?? []).map((block, i) => html`<${Block} key=${i} block=${block} />`);

/** @param {{ block: any }} props */
function Block({ block }) {
  switch (block.b) {
    case "h":
      return html`<div class="md-h" role="heading" aria-level=${Math.min(6, block.level + 2)} data-level=${block.level}><${Runs} of=${block.in} /></div>`;
    case "code":
      return html`<figure class="md-code">${block.lang && html`<figcaption>${block.lang}</figcaption>`}<${Lines} of=${block.lines} /></figure>`;
    case "list": {
      const items = block.items.map((/** @type {any} */ item, /** @type {number} */ i) => html`<li key=${i}>${item.done !== null && item.done !== undefined && html`<span class="md-done">${item.done ? "☑" : "☐"}</span>`}<${Blocks} of=${item.blocks} /></li>`);
      return block.start === null || block.start === undefined ? html`<ul class="md-list">${items}</ul>` : html`<ol class="md-list" start=${block.start}>${items}</ol>`;
    }
    case "quote":
      return html`<blockquote class="md-quote"><${Blocks} of=${block.blocks} /></blockquote>`;
    case "table":
      return html`<div class="md-table" tabindex="0" role="region" aria-label="Table"><table><thead><tr>${block.head.map((/** @type {any} */ cell, /** @type {number} */ i) => html`<th key=${i} data-align=${block.align?.[i]}><${Runs} of=${cell} /></th>`)}</tr></thead>
        <tbody>${block.rows.map((/** @type {any} */ row, /** @type {number} */ r) => html`<tr key=${r}>${row.map((/** @type {any} */ cell, /** @type {number} */ i) => html`<td key=${i} data-align=${block.align?.[i]}><${Runs} of=${cell} /></td>`)}</tr>`)}</tbody></table></div>`;
    case "hr":
      return html`<hr class="md-hr" />`;
    default:
      return html`<p class="md-p"><${Runs} of=${block.in ?? []} /></p>`;
  }
}
