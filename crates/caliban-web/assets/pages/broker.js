// The broker: sessions, messages and their delivery, members and their panes; a composer as Administrator.
import { html, useEffect, useRef, useState } from "../base/html.js";
import { get, post } from "../base/api.js";
import { draft, keepDraft } from "../base/prefs.js";
import { go, route } from "../base/router.js";
import { link, listen, now } from "../base/store.js";
import { ago, clock, plural } from "../base/format.js";
import { address, stateOf, tally } from "../view/broker.js";
import { Command, Empty, Failure, Loading, Tabs } from "../parts/bits.js";
import { Blocks, Lines } from "../parts/rich.js";
import { tell } from "../parts/toasts.js";

/** The interval at which a visible pane is polled. */
const PANE_MS = 2000;

export default function Broker() {
  const [sessions, setSessions] = useState(/** @type {any[] | null} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const load = () => get("/api/v1/broker/sessions").then((answer) => (setError(null), setSessions(answer.sessions)), setError);
  useEffect(() => void load(), []);
  useEffect(() => listen((event) => void ((event === "message" || event === "connected") && load())), []);
  const wanted = route.value.args[0];
  const chosen = sessions?.find((it) => it.session_id === wanted) ?? sessions?.[0];
  if (error && !sessions) return html`<div class="page"><header><h1>Broker</h1></header><${Failure} error=${error} retry=${load} still="The fleet works without the broker." /></div>`;
  if (!sessions) return html`<div class="page"><header><h1>Broker</h1></header><${Loading} /></div>`;
  if (!chosen) return html`<div class="page"><header><h1>Broker</h1></header><${Empty} title="No session yet."><p>A session is a room in which agents of any kind write to each other.</p><${Command} text="cafleet session create --label ship" /><//></div>`;
  return html`<${Session} key=${chosen.session_id} session=${chosen} sessions=${sessions} />`;
}

/** @param {{ session: any, sessions: any[] }} props */
function Session({ session, sessions }) {
  const id = session.session_id;
  const [room, setRoom] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [tab, setTab] = useState("talk");
  const [member, setMember] = useState(/** @type {string | null} */ (null));
  const end = useRef(/** @type {HTMLElement | null} */ (null));
  const stuck = useRef(true);
  const load = () => get(`/api/v1/broker/sessions/${id}`).then((answer) => (setError(null), setRoom(answer)), setError);
  const timer = useRef(0);
  useEffect(() => void load(), [id]);
  useEffect(() => listen((event, data) => {
    if (event !== "connected" && !(event === "message" && (data.session === id || data.session === null))) return;
    clearTimeout(timer.current);
    timer.current = setTimeout(load, 100);
  }), [id]);
  useEffect(() => {
    if (stuck.current && end.current) end.current.scrollTop = end.current.scrollHeight;
  }, [room]);
  const agents = room?.agents ?? [];
  const named = (/** @type {any} */ it) => it.label || it.session_id.slice(0, 8);
  return html`<div class="broker" data-tab=${tab}>
    <div class="agent-tabs"><${Tabs} label="Parts" value=${tab} set=${setTab} of=${[{ id: "sessions", title: "Sessions" }, { id: "talk", title: "Talk" }, { id: "members", title: "Members" }]} /></div>
    <aside class="rooms" aria-label="Sessions"><h1>Broker</h1><ul>${sessions.map((it) => html`<li key=${it.session_id}><a href=${`/broker/${it.session_id}`} aria-current=${it.session_id === id ? "true" : undefined} onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      go(`/broker/${it.session_id}`, { replace: true });
      setTab("talk");
    }}><b class="cut">${named(it)}</b><span class="dim">${plural(it.agent_count, "agent")} · ${ago(it.created_at, now.value)}</span></a></li>`)}</ul></aside>
    <section class="room" aria-label="Messages">
      <div class="room-in" tabindex="0" role="log" aria-label="Messages" ref=${end} onScroll=${(/** @type {any} */ event) => (stuck.current = event.target.scrollTop + event.target.clientHeight >= event.target.scrollHeight - 20)}>
        ${error ? html`<${Failure} error=${error} retry=${load} />` : !room ? html`<${Loading} />` : room.entries.length === 0 ? html`<${Empty} title="Nothing was said yet." />` : room.entries.map((/** @type {any} */ it) => html`<${Entry} key=${it.task_id} entry=${it} />`)}
      </div>
      <${Say} id=${id} agents=${agents.filter((/** @type {any} */ it) => it.status === "active" && it.kind !== "administrator" && it.agent_id !== session.administrator_agent_id)} sent=${load} />
    </section>
    <aside class="members" aria-label="Members"><h2>Members <span class="dim">${agents.length}</span></h2><ul>${agents.map((/** @type {any} */ it) => html`<li key=${it.agent_id}><button type="button" aria-pressed=${member === it.agent_id ? "true" : "false"} disabled=${!it.placement} onClick=${() => setMember(member === it.agent_id ? null : it.agent_id)} title=${it.description}><span class=${`dot ${it.status === "active" ? "live" : ""}`}></span><b class="cut">${it.name}</b><span class="dim cut">${it.kind.replace("builtin-", "")}${it.placement ? ` · ${it.placement.backend ?? it.placement.coding_agent ?? "pane"}` : ""}</span></button></li>`)}</ul>
      ${member && html`<${Pane} key=${member} session=${id} id=${member} name=${agents.find((/** @type {any} */ it) => it.agent_id === member)?.name} />`}
    </aside>
  </div>`;
}

/** @param {{ entry: any }} props */
function Entry({ entry }) {
  const isAll = entry.kind === "broadcast";
  const state = stateOf(entry);
  const isMine = entry.from_name === "Administrator";
  return html`<article class=${`entry ${isMine ? "mine" : ""}`}>
    <header><time class="dim">${clock(entry.at)}</time><b>${entry.from_name}</b><span class="dim">→</span><b class="fg2">${isAll ? `all ${entry.recipients.length}` : entry.to_name}</b><span class="grow"></span>${isAll ? html`<span class="dim">${tally(entry.recipients)}</span>` : html`<span class=${state.tone} title=${entry.delivery_note ?? ""}>${state.word}${entry.acked_at ? ` ${clock(entry.acked_at)}` : ""}</span>`}</header>
    <div class="md"><${Blocks} of=${entry.blocks} /></div>
    ${isAll && html`<details><summary>recipients</summary><ul class="chips">${entry.recipients.map((/** @type {any} */ it) => html`<li key=${it.agent_id} class="pill" title=${it.delivery_note ?? ""}>${it.name} <span class=${stateOf(it).tone}>${stateOf(it).word}</span></li>`)}</ul></details>`}
    ${!isAll && entry.delivery_note && state.word !== "acked" && html`<p class="dim">${entry.delivery_note}</p>`}
  </article>`;
}

/** @param {{ id: string, agents: any[], sent: () => void }} props */
function Say({ id, agents, sent }) {
  const [text, setText] = useState(/** @type {string} */ (draft(`broker.${id}`)));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => keepDraft(`broker.${id}`, text), [text]);
  const to = address(text, agents);
  const hint = text === "" ? "@name or @all, then your words" : to ? `to ${to.name}, as Administrator` : "begin with @name or @all";
  const begun = /^@(\S*)$/.exec(text);
  const offers = begun ? [{ agent_id: "*", name: "all" }, ...agents].filter((it) => it.name.toLowerCase().startsWith(begun[1].toLowerCase())).slice(0, 6) : [];
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!to || !to.text.trim() || isBusy) return;
    setBusy(true);
    try {
      await post(`/api/v1/broker/sessions/${id}/send`, { to: to.to, text: to.text });
      setText(to.to === "*" ? "@all " : `@${to.name} `);
      sent();
    } catch (failure) {
      tell(failure);
    }
    setBusy(false);
  };
  return html`<form class="composer" onSubmit=${send}>
    <div class="offers">${offers.length > 0 ? offers.map((it) => html`<button key=${it.agent_id} type="button" class="pill" onClick=${() => {
      setText(`@${it.name} `);
      /** @type {HTMLElement | null} */ (document.getElementById("say"))?.focus();
    }}>@${it.name}</button>`) : html`<span class=${text && !to ? "attn" : "dim"}>${hint}</span>`}</div>
    <div class="composer-in"><textarea id="say" class="field" rows="2" aria-label="Message as Administrator" placeholder="@all …" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
      if (event.key === "Tab" && offers.length > 0) {
        event.preventDefault();
        setText(`@${offers[0].name} `);
      }
    }}></textarea><button class="btn primary" disabled=${!to || !to.text.trim() || isBusy || link.value.state !== "live"}>Send<kbd class="on">⏎</kbd></button></div>
  </form>`;
}

/** @param {{ session: string, id: string, name: string }} props */
function Pane({ session, id, name }) {
  const [pane, setPane] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let isGone = false;
    const look = async () => {
      if (!document.hidden) await get(`/api/v1/broker/sessions/${session}/members/${id}/pane?lines=40`).then((answer) => (setError(null), setPane(answer)), setError);
      if (!isGone) timer = setTimeout(look, PANE_MS);
    };
    let timer = setTimeout(look, 0);
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [id]);
  return html`<figure class="pane"><figcaption><b>${name}</b>${pane && html`<span class="dim">${pane.pane_id} · ${pane.state}</span>`}<span class="grow"></span><span class="dim">live</span></figcaption>${error ? html`<p class="bad pad">${error.message}</p>` : pane ? html`<div class="pane-in" tabindex="0" role="region" aria-label="Pane"><${Lines} of=${pane.lines} /></div>` : html`<${Loading} rows=${3} />`}</figure>`;
}
