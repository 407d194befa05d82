// A new agent: the task first, then what it may cost and where it works.
import { html, useEffect, useRef, useState } from "../base/html.js";
import { get, post } from "../base/api.js";
import { draft, keepDraft } from "../base/prefs.js";
import { go, route } from "../base/router.js";
import { onlyRepo, ready, repos } from "../base/store.js";
import { plural } from "../base/format.js";
import { Command, Empty, Loading } from "../parts/bits.js";
import { Dialog } from "../parts/dialog.js";
import { tell, toast } from "../parts/toasts.js";

/** The models that can be chosen, those without a key marked. @param {any} facts */
function modelsOf(facts) {
  if (Array.isArray(facts?.models)) return facts.models;
  const usable = new Set((facts?.models?.providers ?? []).filter((/** @type {any} */ it) => it.is_usable).map((/** @type {any} */ it) => it.name));
  return (facts?.models?.models ?? []).map((/** @type {any} */ it) => ({ ...it, usable: usable.has(it.provider) }));
}

export default function New() {
  const [form, setForm] = useState(/** @type {any} */ ({ prompt: "", label: "", repo: "", agent_type: "", model: "", max_usd: "", max_turns: "", isolation: "", base: "", after: [], permission_mode: "", interactive: false, ...(draft("new") || {}) }));
  const [facts, setFacts] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [isAsked, setAsked] = useState(false);
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const repo = form.repo || route.value.query.get("repo") || onlyRepo.value || repos.value[0]?.hash || "";
  useEffect(() => {
    setFacts(null);
    if (repo) get(`/api/v1/repos/${repo}/new`).then(setFacts, (error) => setFacts({ error, types: [], models: [], settings: [], agents: [], queue: null }));
  }, [repo]);
  useEffect(() => keepDraft("new", form.prompt || form.label ? form : null), [form]);
  useEffect(() => void field.current?.focus(), [ready.value]);
  if (!ready.value) return html`<div class="page"><header><h1>New agent</h1></header><${Loading} /></div>`;
  if (repos.value.length === 0) return html`<div class="page"><header><h1>New agent</h1></header><${Empty} title="No repo is known yet."><p>Start the first agent of a repo in its directory; from then on the page knows it.</p><${Command} text=${'caliban --bg "say hello"'} /><//></div>`;
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
  const place = repos.value.find((it) => it.hash === repo);
  const queue = facts?.queue;
  const setting = (/** @type {string} */ key) => (facts?.settings ?? []).find((/** @type {any} */ it) => it.key === key)?.value;
  const isolation = form.isolation || setting("fleet.isolation") || "worktree";
  const mode = form.permission_mode || setting("permissions.mode");
  const start = async (/** @type {Event} */ event, isSure = false) => {
    event.preventDefault();
    if (!form.prompt.trim() || isBusy) return;
    setAsked(mode === "unattended" && !isSure);
    if (mode === "unattended" && !isSure) return;
    setBusy(true);
    const number = (/** @type {string} */ text) => (text.trim() === "" ? undefined : Number(text));
    const body = { prompt: form.prompt, label: form.label.trim() || undefined, agent_type: form.agent_type || undefined, model: form.model || undefined, max_usd: number(form.max_usd), max_turns: number(form.max_turns), permission_mode: form.permission_mode || undefined, isolation: form.isolation || undefined, base: form.base || undefined, after: form.after, interactive: form.interactive };
    try {
      const answer = await post(`/api/v1/repos/${repo}/agents`, body);
      keepDraft("new", null);
      toast("ok", `${answer.label ?? answer.id} has begun in ${place?.name}.`);
      go(`/agent/${answer.key ?? `${repo}/${answer.id}`}`, { replace: true });
    } catch (error) {
      tell(error);
      setBusy(false);
    }
  };
  return html`<div class="page"><header><h1>New agent</h1></header>
    <form class="new-form" onSubmit=${start}>
      <div class="stack">
        <label class="label"><span>Task</span><textarea ref=${field} class="field" rows="8" required value=${form.prompt} onInput=${set("prompt")} placeholder="What should be different when it is done? How is it checked?" onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && start(event)}></textarea></label>
        <div class="two-up">
          <label class="label"><span>Repo</span><select class="field" value=${repo} onChange=${set("repo")}>${repos.value.map((it) => html`<option key=${it.hash} value=${it.hash}>${it.name} — ${it.path}</option>`)}</select></label>
          <label class="label"><span>Label</span><input class="field" value=${form.label} onInput=${set("label")} placeholder="shown in lists" maxlength="60" /></label>
          <label class="label"><span>Model</span><select class="field" value=${form.model} onChange=${set("model")}><option value="">${setting("model") ? `${setting("model")} (default)` : "default"}</option>${modelsOf(facts).map((/** @type {any} */ it) => html`<option key=${it.name} value=${it.name} disabled=${it.usable === false}>${it.name}${it.usable === false ? " (no key)" : ""}</option>`)}</select></label>
          <label class="label"><span>Type</span><select class="field" value=${form.agent_type} onChange=${set("agent_type")}><option value="">general</option>${(facts?.types ?? []).map((/** @type {any} */ it) => html`<option key=${it.name} value=${it.name} title=${it.description}>${it.name}</option>`)}</select></label>
          <label class="label"><span>Budget in $</span><input class="field" inputmode="decimal" pattern="[0-9]*[.]?[0-9]*" value=${form.max_usd} onInput=${set("max_usd")} placeholder="no limit of its own" /></label>
          <label class="label"><span>Turns at most</span><input class="field" inputmode="numeric" pattern="[0-9]*" value=${form.max_turns} onInput=${set("max_turns")} placeholder="as the settings say" /></label>
          <label class="label"><span>Works in</span><select class="field" value=${isolation} onChange=${set("isolation")}><option value="worktree">a worktree of its own</option><option value="none">your own tree</option></select></label>
          <label class="label"><span>Base</span><input class="field" value=${form.base} onInput=${set("base")} placeholder="HEAD" disabled=${isolation === "none"} /></label>
          <label class="label"><span>Permissions</span><select class="field" value=${form.permission_mode} onChange=${set("permission_mode")}><option value="">as the settings say</option>${(facts?.modes ?? []).map((/** @type {any} */ it) => html`<option key=${it.name} value=${it.name}>${it.name}: ${it.words}</option>`)}</select></label>
          <label class="label"><span>Begins after</span><select class="field" value="" onChange=${(/** @type {any} */ event) => event.target.value && setForm({ ...form, after: [...new Set([...form.after, event.target.value])] })}><option value="">${form.after.length > 0 ? "add another" : "at once"}</option>${(facts?.agents ?? []).filter((/** @type {any} */ it) => !form.after.includes(it.id)).map((/** @type {any} */ it) => html`<option key=${it.id} value=${it.id}>${it.name} (${it.state})</option>`)}</select></label>
        </div>
        ${form.after.length > 0 && html`<p class="rowflex">after ${form.after.map((/** @type {string} */ id) => html`<button key=${id} type="button" class="pill" aria-label=${`not after ${id}`} onClick=${() => setForm({ ...form, after: form.after.filter((/** @type {string} */ it) => it !== id) })}>${facts?.agents?.find((/** @type {any} */ it) => it.id === id)?.name ?? id} ×</button>`)} is done</p>`}
        <label class="rowflex"><input type="checkbox" checked=${form.interactive} onChange=${set("interactive")} /> Stays and waits for messages when its task is done</label>
      </div>
      <aside class="card new-side">
        <div><h3 class="dim">At most</h3><p class="big">${form.max_usd && Number(form.max_usd) > 0 ? `$${Number(form.max_usd).toFixed(2)}` : "no limit"}</p><p class="dim">${form.max_usd ? "It stops before a request that could exceed this." : "A budget stops it before a request that could exceed it."}</p></div>
        <div><h3 class="dim">Place</h3><p class="big">${!facts ? "…" : !queue ? "–" : form.after.length > 0 ? "after the others" : queue.running < queue.max_running ? "begins at once" : `queued, number ${queue.queued + 1}`}</p><p class="dim">${queue ? `${queue.running} of ${queue.max_running} places are taken, ${plural(queue.queued, "agent")} queued` : "\u00a0"}</p></div>
        <button class="btn primary big" disabled=${isBusy || !form.prompt.trim()}>Start<kbd class="on">Ctrl ⏎</kbd></button>
        ${facts?.error && html`<p class="bad">${facts.error.message}</p>`}
        ${place && !place.daemon && html`<p class="dim">No daemon runs for ${place.name}; it is started.</p>`}
      </aside>
    </form>
    ${isAsked && html`<${Dialog} title="Start it without a fence?" close=${() => setAsked(false)} foot=${html`<button class="btn" type="button" onClick=${() => setAsked(false)}>Back</button><button class="btn danger" type="button" onClick=${(/** @type {Event} */ event) => start(event, true)}>Start unattended</button>`}><p>Its commands run with your rights, without a fence, and nobody is asked. The mode never-ask asks nothing, either, and stays fenced.</p><//>`}
  </div>`;
}
