// A question with its whole call. Nothing answers it by accident: see view/approval.js.
import { html, useEffect, useRef, useState } from "../base/html.js";
import { agentPath, post } from "../base/api.js";
import { typedAt, useKeys } from "../base/keys.js";
import { askKey, link, now } from "../base/store.js";
import { ago, bare, clock, instant, oneLine, span } from "../base/format.js";
import { KEEP_FOR, denyHindrance, hindrance, rulesOf, waitMs } from "../view/approval.js";
import { Choice, Copy, Icon } from "./bits.js";
import { Dialog } from "./dialog.js";
import { Lines, Runs } from "./rich.js";
import { tell, toast } from "./toasts.js";

/** When the window got the focus: the click that focused it must not answer a question. */
let focusedAt = -Infinity;
addEventListener("focus", () => (focusedAt = performance.now()));

/** @param {{ ask: any, head?: any }} props */
export function AskCard({ ask, head }) {
  const id = askKey(ask);
  const call = useRef(/** @type {HTMLElement | null} */ (null));
  const [endSeen, setEndSeen] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [over, setOver] = useState("");
  const [reason, setReason] = useState("");
  const [, tick] = useState(0);
  const shownAt = useRef(performance.now());
  const moment = () => ({ now: performance.now(), shownAt: shownAt.current, typedAt: typedAt.value, focusedAt, endSeen, isLive: link.value.state === "live", isBusy, isCut: Boolean(ask.is_cut) });
  const end = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    // The end counts as seen only when it is really within the viewport, whatever the layout.
    const seen = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && setEndSeen(true));
    if (end.current) seen.observe(end.current);
    return () => seen.disconnect();
  }, [id]);
  const left = waitMs(moment());
  useEffect(() => {
    if (left <= 0) return undefined;
    const timer = setTimeout(() => tick((n) => n + 1), left + 20);
    return () => clearTimeout(timer);
  });
  useEffect(() => {
    const again = () => tick((n) => n + 1);
    addEventListener("focus", again);
    return () => removeEventListener("focus", again);
  }, []);

  /** @param {"approve" | "deny"} verb @param {any} more */
  const answer = async (verb, more) => {
    // In a dialog of its own a rule or a reason was typed for this very question.
    const said = verb === "deny" || more.always ? { ...moment(), typedAt: -Infinity } : moment();
    const why = verb === "approve" ? hindrance(said) : denyHindrance(said);
    if (why) {
      toast("run", `Not answered: ${why}.`);
      tick((n) => n + 1);
      return;
    }
    setBusy(true);
    try {
      await post(`${agentPath(ask.key)}/${verb}`, { ask: ask.id, digest: ask.digest, ...more });
      toast("ok", `${verb === "approve" ? (more.always ? "Allowed from now on" : "Allowed once") : "Denied"}: ${ask.tool} ${bare(ask.tool, ask.what)}`.slice(0, 120));
    } catch (error) {
      const it = /** @type {any} */ (error);
      if (it.code === "unreachable" || it.status >= 500) toast("bad", "It is not known whether your answer arrived.", "If the question is still here when the connection is back, answer it again: the agent takes the first answer only.");
      else tell(error);
      setBusy(false);
    }
  };
  const focused = () => document.activeElement === call.current;
  useKeys({
    "Shift+Y": () => (focused() ? void answer("approve", { always: false }) : false),
    "Shift+N": () => (focused() ? void answer("deny", { reason: null }) : false),
  });
  const why = hindrance(moment());
  const denyWhy = denyHindrance(moment());
  return html`<article class="ask" aria-label=${`${ask.name} asks`} data-ask=${id}>
    <header class="ask-head">${head}
      <div class="grow"><h2><span class="glyph attn" aria-hidden="true">!</span>${ask.above?.length > 0 && html`<span class="dim">${ask.above.join(" › ")} › </span>`}<a href=${`/agent/${ask.key}`}>${ask.name}</a>${ask.by && html` › ${ask.by}`}<span class="dim"> · ${ask.repo_name} · ${ago(ask.opened_at, now.value)}</span></h2>
      <p class="fg2 cut" title=${ask.cwd}><b>${ask.tool}</b>, in <span class="mono">${ask.cwd}</span></p></div>
      <${Copy} text=${ask.call_text ?? ""} label="Copy the call" />
    </header>
    <div class="ask-call" ref=${call} tabindex="0" role="region" aria-label="The whole call"><${Lines} of=${ask.call} cls="wrap" /><i class="ask-end" ref=${end}></i></div>
    <div class="ask-more">
      ${ask.is_cut && html`<p class="attn" role="note">A part of the call is left out here. caliban approvals shows all of it.</p>`}
      ${!endSeen && html`<p class="attn" role="note"><${Icon} name="arrow-down" /> There is more: scroll to its end before you allow it.</p>`}
      ${ask.why && html`<p class="fg2"><span class="dim">Why it asks</span><span>${typeof ask.why === "string" ? ask.why : html`<${Runs} of=${ask.why} />`}</span></p>`}
      ${ask.always?.length > 0 && html`<p class="fg2"><span class="dim">“Always” would add</span><span>${ask.always.map((/** @type {string} */ rule) => html`<code class="r-code">${rule}</code> `)}</span></p>`}
      ${ask.outside?.length > 0 && html`<p class="fg2"><span class="dim">“Always, outside the fence” would add</span><span>${ask.outside.map((/** @type {string} */ rule) => html`<code class="r-code">${rule}</code> `)}</span></p>`}
      ${ask.task && html`<p class="fg2 last"><span class="dim">Its task</span><span>${oneLine(ask.task)}</span></p>`}
      ${ask.last_text && html`<p class="fg2 last"><span class="dim">Its last words</span><span>${oneLine(ask.last_text)}</span></p>`}
      <p class="fg2"><span class="dim">Asked at</span><span>${clock(ask.opened_at)}${ask.expires_at && html`, <span class="wait">refused at ${clock(ask.expires_at)} if nobody answers (in ${span((instant(ask.expires_at) ?? 0) - now.value)})</span>`}</span></p>
    </div>
    <footer class="ask-foot">
      <button class="btn big danger" disabled=${Boolean(denyWhy)} onClick=${() => setOver("deny")} title=${denyWhy ?? "Deny (Shift+N)"}>Deny…</button>
      <span class="ask-why dim" role="status">${why ?? ""}</span>
      ${ask.always?.length > 0 && html`<button class="btn big" disabled=${Boolean(why)} onClick=${() => setOver("always")} title=${why ?? "Allow this and calls like it"}>Always…</button>`}
      ${ask.outside?.length > 0 && html`<button class="btn big" disabled=${Boolean(why)} onClick=${() => setOver("outside")} title=${why ?? "Allow this and calls like it, with your rights"}>Always, outside the fence…</button>`}
      <button class="btn big primary" disabled=${Boolean(why)} onClick=${() => answer("approve", { always: false })} title=${why ?? "Allow once (Shift+Y)"}>Allow once</button>
    </footer>
    ${over === "deny" && html`<${Dialog} title=${`Deny ${ask.tool}`} close=${() => setOver("")} foot=${html`<button class="btn" onClick=${() => setOver("")}>Back</button><button class="btn danger" onClick=${() => {
      setOver("");
      answer("deny", { reason: reason.trim() || null });
    }}>Deny</button>`}><label class="label"><span>A reason, which the agent reads (may be empty)</span><textarea class="field" rows="3" value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.target.value)}></textarea></label><//>`}
    ${(over === "always" || over === "outside") && html`<${Keep} isOutside=${over === "outside"} rules=${over === "outside" ? ask.outside : ask.always} close=${() => setOver("")} allow=${(/** @type {any} */ more) => {
      setOver("");
      answer("approve", { always: true, outside: over === "outside", ...more });
    }} />`}
  </article>`;
}

/** The rules of an "always" as they will be written, and for how long; both can be changed first.
 * @param {{ isOutside: boolean, rules: string[], close: () => void, allow: (more: { keep: string, rules: string[] }) => void }} props */
function Keep({ isOutside, rules, close, allow }) {
  const [text, setText] = useState(rules.join("\n"));
  const [keep, setKeep] = useState("session");
  const wanted = rulesOf(text);
  const isAsOffered = wanted.join("\n") === rules.join("\n");
  return html`<${Dialog} title=${isOutside ? "Always allow, outside the fence" : "Always allow"} close=${close} foot=${html`<button class="btn" onClick=${close}>Back</button><button class="btn primary" disabled=${wanted.length === 0} onClick=${() => allow({ keep, rules: isAsOffered ? [] : wanted })}>Allow always</button>`}>
    <p>${isOutside ? "Agents may do this with your rights, without asking:" : "Agents may do this without asking:"}</p>
    <label class="label"><span>Rules, one on each line, as they will be written</span><textarea class="field mono" rows=${Math.max(2, rules.length)} spellcheck="false" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea></label>
    <div class="label"><span>For</span><div><${Choice} label="For" value=${keep} set=${setKeep} of=${KEEP_FOR} /></div></div>
  <//>`;
}
