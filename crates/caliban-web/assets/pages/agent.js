// One agent: its live conversation, its question, its changes, its todo list and its cost.
import { html, useEffect, useRef, useState } from "../base/html.js";
import { agentPath, get, post, request } from "../base/api.js";
import { useKeys } from "../base/keys.js";
import { watch } from "../base/live.js";
import { back, go, route } from "../base/router.js";
import { asks, listen, now, ready, rowOf, allRows, selected } from "../base/store.js";
import { ago, instant, money, oneLine, span } from "../base/format.js";
import { AskCard } from "../parts/askcard.js";
import { Failure, Glyph, Icon, Loading, Tabs } from "../parts/bits.js";
import { Composer } from "../parts/composer.js";
import { Dialog, Menu } from "../parts/dialog.js";
import { Diff } from "../parts/diff.js";
import { AgentInfo } from "../parts/agentinfo.js";
import { Merge } from "../parts/merge.js";
import { Todo } from "../parts/item.js";
import { Talk } from "../parts/talk.js";
import { tell, toast } from "../parts/toasts.js";

/** The last tab of each agent, for going back. @type {Map<string, string>} */
const tabs = new Map();

export default function Agent() {
  const key = route.value.args.slice(0, 2).join("/");
  allRows();
  return html`<${One} key=${key} id=${key} />`;
}

/** @param {{ id: string }} props */
function One({ id }) {
  const path = agentPath(id);
  const row = rowOf(id)?.value;
  const [whole, setWhole] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [side, setSide] = useState(tabs.get(id) ?? "diff");
  const [isTalk, setTalk] = useState(true);
  const [over, setOver] = useState("");
  const look = async () => {
    try {
      setWhole(await get(path));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  };
  useEffect(() => {
    selected.value = id;
    look();
    watch(id);
    return () => watch(null);
  }, [id]);
  // The todo list and the context change with turns; polling now and then is enough.
  const beat = useRef(0);
  useEffect(() => {
    clearTimeout(beat.current);
    beat.current = setTimeout(look, 600);
    return () => clearTimeout(beat.current);
  }, [row?.turns, row?.status]);
  useEffect(() => listen((event, data) => {
    if (event === "connected") look();
    if (event === "record" && data.key === id && data.item.name === "TodoWrite") look();
  }), [id]);
  const show = (/** @type {string} */ tab) => {
    tabs.set(id, tab);
    setSide(tab);
    setTalk(false);
  };
  useKeys({ d: () => show("diff"), Escape: (event) => {
    const field = /** @type {HTMLElement} */ (event.target);
    if (field instanceof HTMLTextAreaElement || field instanceof HTMLInputElement) field.blur();
    else back();
  } });
  const agent = row ?? whole;
  if (!agent) {
    if (error) return html`<div class="page"><${Failure} error=${error} retry=${look} still="The rest of the fleet is there." /></div>`;
    return html`<div class="page"><${Loading} /></div>`;
  }
  if (ready.value && !row && whole) return html`<div class="page"><${Failure} error=${{ message: `${whole.name ?? id} was removed.`, hint: "Its files are archived: caliban sessions list --archived" }} /></div>`;
  const open = [...asks.value.values()].filter((ask) => ask.key === id).sort((a, b) => (a.opened_at < b.opened_at ? -1 : 1));
  const isOver = agent.has_ended;
  const review = agent.review?.state ?? "to_review";
  const todo = whole?.todo ?? [];
  const left = todo.filter((/** @type {any} */ it) => it.status !== "completed").length;
  const act = async (/** @type {string} */ verb, /** @type {any} */ body, /** @type {string} */ words) => {
    try {
      const answer = await post(`${path}/${verb}`, body);
      toast("ok", words);
      if (verb === "respawn") go(`/agent/${id.split("/")[0]}/${answer.id}`, { replace: true });
    } catch (failure) {
      tell(failure);
    }
  };
  const remove = async () => {
    setOver("");
    try {
      const answer = await request("DELETE", path);
      toast("ok", `${agent.name} is removed.`, answer.work?.join(" "));
      go("/");
    } catch (failure) {
      tell(failure);
    }
  };
  const budget = whole?.spec?.budget_micro_usd ?? whole?.spec?.budget?.micro_usd ?? null;
  return html`<div class="agent" data-tab=${isTalk ? "talk" : side}>
    <header class="agent-head">
      <button class="btn quiet icon" aria-label="Back" onClick=${back}><${Icon} name="chevron-left" /></button>
      <div class="agent-name"><h1><${Glyph} row=${agent} /><span class="cut">${agent.name}</span></h1><span class=${`agent-doing cut ${agent.needs_you ? "attn" : "fg2"}`} title=${agent.doing}>${agent.near && html`<span class="near">${agent.near}</span> `}${agent.review_words && html`<span class=${`review ${agent.review.state}`}>${agent.review_words}</span> `}${oneLine(agent.doing)}</span></div>
      <div class="agent-facts dim"><span class="cut" title=${agent.cwd}>${agent.repo_name}</span>${agent.branch && html`<span class="cut mono" title=${agent.branch}>${agent.branch}${whole?.spec?.base && whole.spec.base !== "head" ? ` from ${whole.spec.base}` : ""}</span>`}<span>${isOver ? `ended ${ago(agent.since, now.value)} ago` : span(now.value - (instant(agent.created_at) ?? now.value))}</span>
        ${whole?.context && html`<span class="ctx" title=${`${whole.context.used} of ${whole.context.window} tokens`}><meter min="0" max="100" high="80" value=${Math.round((100 * whole.context.used) / whole.context.window)} aria-label="Context used"></meter>${Math.round((100 * whole.context.used) / whole.context.window)}%</span>`}
        <span><b class="fg">${money(agent.micro_usd)}</b>${budget !== null && ` / ${money(budget)}`}</span></div>
      <div class="agent-acts">
        ${!isOver && agent.status === "running" && html`<button class="btn" onClick=${() => act("cancel", {}, "The turn ends; the agent waits for you.")} title="End the turn; the agent lives on"><${Icon} name="square" />Stop</button>`}
        ${isOver && html`<button class="btn" onClick=${() => setOver("resume")}><${Icon} name="play" />Resume</button>`}
        ${agent.branch && html`<button class=${`btn ${review === "to_review" ? "primary" : ""}`} title=${review === "merged" ? "All its commits are on a branch of yours" : review === "nothing_changed" ? "Nothing changed" : undefined} onClick=${() => setOver("merge")}><${Icon} name=${review === "merged" ? "check" : "git-merge"} />${review === "merged" ? "Merged" : "Merge…"}</button>`}
        <${Menu} name="More" label=${html`<${Icon} name="ellipsis" />`} cls="icon" items=${[
          !isOver ? { title: "Kill", icon: "square", danger: true, act: () => setOver("kill") } : null,
          { title: "Start anew (respawn)", icon: "rotate-ccw", act: () => setOver("respawn") },
          { title: "Remove", icon: "trash-2", danger: true, off: !isOver, act: () => setOver("remove") },
        ]} />
      </div>
    </header>
    <div class="agent-tabs"><${Tabs} label="Parts" value=${isTalk ? "talk" : side} set=${(/** @type {string} */ tab) => (tab === "talk" ? setTalk(true) : show(tab))} of=${[{ id: "talk", title: "Talk" }, { id: "diff", title: "Diff" }, { id: "todo", title: "Todo" }, { id: "info", title: "Info" }]} /></div>
    <section class="agent-talk" aria-label="Conversation">
      <${Talk} id=${id} path=${path} seq=${route.value.query.get("seq")} isLive=${!isOver} prompt=${whole?.spec?.prompt ?? agent.prompt} />
      ${open.length > 0 && html`<div class="agent-ask"><${AskCard} key=${open[0].id} ask=${open[0]} head=${open.length > 1 ? html`<span class="pill attn">1 of ${open.length}</span>` : null} /></div>`}
      <${Composer} id=${id} agent=${agent} isOver=${isOver} wants=${route.value.query.has("reply")} resume=${() => setOver("resume")} />
    </section>
    <aside class="agent-side" aria-label="Work">
      <${Tabs} label="Work" value=${side} set=${show} of=${[{ id: "diff", title: "Diff" }, { id: "todo", title: left > 0 ? `Todo ${left}` : "Todo" }, { id: "info", title: "Info" }]} />
      <div class="agent-work">${side === "diff" ? (agent.branch ? html`<${Diff} id=${id} version=${`${agent.turns}/${agent.status}`} />` : agent.state === "spawning" ? html`<div class="state"><p>It has not begun: nothing is changed yet.</p></div>` : html`<div class="state"><h2>No diff</h2><p>This agent works in your own tree, without a branch.</p></div>`) : side === "todo" ? (todo.length > 0 ? html`<div class="pad"><${Todo} items=${todo} /></div>` : html`<div class="state"><p>It has made no list.</p></div>`) : html`<${AgentInfo} id=${id} agent=${agent} whole=${whole} />`}</div>
    </aside>
    ${over === "merge" && html`<${Merge} path=${path} agent=${agent} close=${() => setOver("")} />`}
    ${over === "kill" && html`<${Sure} title=${`Kill ${agent.name}?`} text="Its whole process tree ends. Its work stays on its branch, and it can be resumed." yes="Kill" close=${() => setOver("")} act=${() => act("kill", {}, `${agent.name} is killed.`)} />`}
    ${over === "respawn" && html`<${Sure} title=${`Start ${agent.name} anew?`} text="It begins again from its first prompt, with a new id. What it did is archived." yes="Start anew" close=${() => setOver("")} act=${() => act("respawn", {}, "It begins anew.")} />`}
    ${over === "remove" && html`<${Sure} title=${`Remove ${agent.name}?`} text="It leaves the list, and its worktree goes. Work that is on no branch is saved under a rescue ref first." yes="Remove" close=${() => setOver("")} act=${remove} />`}
    ${over === "resume" && html`<${Resume} close=${() => setOver("")} act=${(/** @type {any} */ body) => act("resume", body, `${agent.name} goes on.`)} />`}
  </div>`;
}

/** @param {{ title: string, text: string, yes: string, close: () => void, act: () => void }} props */
const Sure = ({ title, text, yes, close, act }) => html`<${Dialog} title=${title} close=${close} foot=${html`<button class="btn" autofocus onClick=${close}>Back</button><button class="btn danger" onClick=${() => {
  close();
  act();
}}>${yes}</button>`}><p>${text}</p><//>`;

/** @param {{ close: () => void, act: (body: any) => void }} props */
function Resume({ close, act }) {
  const [prompt, setPrompt] = useState("");
  return html`<${Dialog} title="Let it go on" close=${close} foot=${html`<button class="btn" onClick=${close}>Back</button><button class="btn primary" onClick=${() => {
    close();
    act({ prompt: prompt.trim() || null });
  }}>Resume</button>`}><label class="label"><span>What it hears first (may be empty)</span><textarea class="field" rows="4" value=${prompt} onInput=${(/** @type {any} */ event) => setPrompt(event.target.value)}></textarea></label><//>`;
}
