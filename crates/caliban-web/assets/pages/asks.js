// The questions of all repos: the list on the left, one whole call on the right; answered on this page.
import { html, useEffect } from "../base/html.js";
import { useKeys } from "../base/keys.js";
import { go, route } from "../base/router.js";
import { askKey, asks, now, ready } from "../base/store.js";
import { ago, bare } from "../base/format.js";
import { neighbour } from "../view/groups.js";
import { AskCard } from "../parts/askcard.js";
import { Command, Empty, Icon, Loading } from "../parts/bits.js";

export default function Asks() {
  const open = [...asks.value.values()].sort((a, b) => (a.opened_at < b.opened_at ? -1 : 1));
  const wanted = route.value.args.join("/");
  // An address names an agent or one of its questions.
  const chosen = open.find((ask) => askKey(ask) === wanted || ask.key === wanted);
  const shown = chosen ?? open[0];
  const at = shown ? open.indexOf(shown) : -1;
  const pick = (/** @type {any} */ ask) => go(`/asks/${askKey(ask)}`, { replace: wanted !== "" });
  const step = (/** @type {number} */ by) => {
    const key = neighbour(open.map(askKey), shown ? askKey(shown) : "", by);
    const next = open.find((ask) => askKey(ask) === key);
    if (next) pick(next);
  };
  useKeys({ j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1), Enter: () => /** @type {HTMLElement | null} */ (document.querySelector(".ask-call"))?.focus() });
  useEffect(() => {
    // The address follows the shown question, so that a question that closes is not silently replaced by another.
    if (shown && askKey(shown) !== wanted) go(`/asks/${askKey(shown)}`, { replace: true });
  }, [shown && askKey(shown)]);
  if (!ready.value) return html`<div class="page"><header><h1>Approvals</h1></header><${Loading} /></div>`;
  if (!shown) return html`<div class="page"><header><h1>Approvals</h1></header><${Empty} title="Nobody asks for anything."><p>When an agent wants to do what no rule allows, the whole call is shown here.</p><${Command} text="caliban approvals --all-repos" /><//></div>`;
  return html`<div class="asks">
    <aside class="ask-list" aria-label="Questions"><h1>Approvals<span class="n dim">${open.length}</span></h1><ul>${open.map((ask) => html`<li key=${askKey(ask)}><a href=${`/asks/${askKey(ask)}`} aria-current=${ask === shown ? "true" : undefined} onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      pick(ask);
    }}><span class="rowflex"><span class="glyph attn" aria-hidden="true">!</span><b class="cut">${[...(ask.above ?? []), ask.name, ...(ask.by ? [ask.by] : [])].join(" › ")}</b><span class="dim">${ask.repo_name}</span><span class="grow"></span><span class="dim">${ago(ask.opened_at, now.value)}</span></span><span class="cut mono fg2">${ask.tool} ${bare(ask.tool, ask.what)}</span></a></li>`)}</ul></aside>
    <section class="ask-pane"><${AskCard} key=${askKey(shown)} ask=${shown} head=${html`<span class="ask-nav"><button class="btn icon quiet" aria-label="The one before" disabled=${at <= 0} onClick=${() => step(-1)}><${Icon} name="chevron-left" /></button><span class="dim">${at + 1} of ${open.length}</span><button class="btn icon quiet" aria-label="The next one" disabled=${at >= open.length - 1} onClick=${() => step(1)}><${Icon} name="chevron-right" /></button></span>`} /></section>
  </div>`;
}
