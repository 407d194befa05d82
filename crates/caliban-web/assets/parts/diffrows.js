// Rows of a diff, unified or side by side.
import { html } from "../base/html.js";
import { Runs } from "./rich.js";

/** @param {{ row: any, act?: any, isAt?: boolean }} props */
export const Unified = ({ row, act, isAt }) => (row.t === "\\" ? html`<div class="dr dim"><span class="dn"></span><span class="dn"></span><span class="ds"></span><span class="dt"><${Runs} of=${row.in} /></span></div>` : row.t === "@" ? html`<div class="dr hunk" aria-current=${isAt ? "true" : undefined}><span class="dn"></span><span class="dn"></span><span class="dt"><${Runs} of=${row.in} /></span></div>` : html`<div class=${`dr ${row.t === "+" ? "plus" : row.t === "-" ? "minus" : ""}`}><span class="dn">${row.a ?? ""}</span><span class="dn">${row.b ?? ""}</span>${act}<span class="ds" aria-hidden="true">${row.t}</span><span class="dt"><${Runs} of=${row.in} /></span></div>`);

/** @param {{ pair: { left: any, right: any, whole?: any }, act?: any, isAt?: boolean }} props */
export const Split = ({ pair, act, isAt }) => (pair.whole ? html`<${Unified} row=${pair.whole} isAt=${isAt} />` : html`<div class="dr two"><span class=${`side ${pair.left?.t === "-" ? "minus" : pair.left ? "" : "void"}`}><span class="dn">${pair.left?.a ?? ""}</span><span class="dt"><${Runs} of=${pair.left?.in} /></span></span><span class=${`side ${pair.right?.t === "+" ? "plus" : pair.right ? "" : "void"}`}><span class="dn">${pair.right?.b ?? ""}</span>${act}<span class="dt"><${Runs} of=${pair.right?.in} /></span></span></div>`);

/** A few rows, for an edit in a transcript. @param {{ rows: any[] }} props */
export const DiffRows = ({ rows }) => html`<div class="diff small" tabindex="0" role="region" aria-label="Changes">${rows.map((row, i) => html`<${Unified} key=${i} row=${row} />`)}</div>`;
