// An agent's task, its limits, and its cost over time.
import { html, useEffect, useState } from "../base/html.js";
import { agentPath, get } from "../base/api.js";
import { muted } from "../base/prefs.js";
import { day, money, tokens } from "../base/format.js";
import { rowOf } from "../base/store.js";
import { Steps } from "./plot.js";

/** @param {{ id: string, agent: any, whole: any }} props */
export function AgentInfo({ id, agent, whole }) {
  const [usage, setUsage] = useState(/** @type {any} */ (null));
  useEffect(() => void get(`${agentPath(id)}/usage`).then(setUsage, () => setUsage({ points: [] })), [id, agent.turns]);
  const points = usage?.points ?? [];
  const over = (/** @type {string} */ field) => points.map((/** @type {any} */ point) => ({ at: Date.parse(point.at), value: point[field] }));
  const spec = whole?.spec ?? {};
  const nameOf = (/** @type {string} */ other) => rowOf(`${id.split("/")[0]}/${other}`)?.value.name ?? other;
  const facts = [
    ["id", agent.id],
    ["model", agent.model],
    ["type", spec.agent_type],
    ["isolation", spec.isolation],
    ["branch", agent.branch],
    ["base", spec.base],
    ["directory", agent.worktree ?? agent.cwd],
    ["permissions", spec.permission_mode],
    ["turns", spec.max_turns ? `${agent.turns} of ${spec.max_turns}` : agent.turns],
    ["budget", spec.budget_micro_usd ? money(spec.budget_micro_usd) : null],
    ["used", agent.near],
    ["began", day(agent.created_at)],
    ["started by", agent.parent && nameOf(agent.parent)],
    ["after", agent.after?.map(nameOf).join(", ")],
    ["note", agent.note],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  const isMuted = muted.value.includes(id);
  return html`<div class="pad stack info" tabindex="0" role="region" aria-label="Info">
    <section><h3>Task</h3><p class="pre">${spec.prompt ?? agent.prompt}</p></section>
    <section class="kinds"><h3>Tokens</h3><dl>${[["input", "input"], ["output", "output"], ["cache_read", "cache read"], ["cache_write", "cache write"]].map(([kind, word]) => html`<div><dt class="dim">${word}</dt><dd>${tokens(agent.usage?.[kind])}</dd></div>`)}<div><dt class="dim">cost</dt><dd>${money(agent.micro_usd)}</dd></div></dl></section>
    ${points.length > 1 && html`<section><h3>Context${usage.window ? html`<span class="dim"> of ${tokens(usage.window)}</span>` : ""}</h3><${Steps} points=${over("context")} tone="run" words=${tokens} label=${`Context over time, now ${tokens(points[points.length - 1].context)}`} /></section>
    <section><h3>Cost</h3><${Steps} points=${over("micro_usd")} tone="ok" words=${money} label=${`Cost over time, now ${money(points[points.length - 1].micro_usd)}`} /></section>`}
    <section><h3>Facts</h3><dl class="facts">${facts.map(([name, value]) => html`<dt class="dim">${name}</dt><dd class="cut" title=${value}>${value}</dd>`)}</dl></section>
    <label class="rowflex"><input type="checkbox" checked=${isMuted} onChange=${() => (muted.value = isMuted ? muted.value.filter((it) => it !== id) : [...muted.value, id])} /> No notices about this agent</label>
  </div>`;
}
