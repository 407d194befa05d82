// Spending: today, this week, the rest of the budget; bars per day by kind; tables by agent and model.
import { html, useEffect, useState } from "../base/html.js";
import { get } from "../base/api.js";
import { listen } from "../base/store.js";
import { money, tokens } from "../base/format.js";
import { bars, dated, everyDay, KINDS, sum } from "../view/spend.js";
import { Choice, Command, Empty, Failure, Loading } from "../parts/bits.js";

export default function Spend() {
  const [spend, setSpend] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [days, setDays] = useState("30");
  const [unit, setUnit] = useState("tokens");
  const load = () => get(`/api/v1/spend?days=${days}`).then((answer) => (setError(null), setSpend(answer)), setError);
  useEffect(() => void load(), [days]);
  useEffect(() => {
    let timer = 0;
    const off = listen((event) => {
      if (event !== "counts" && event !== "connected") return;
      timer ||= setTimeout(() => ((timer = 0), load()), 5000);
    });
    return () => (clearTimeout(timer), off());
  }, [days]);
  const head = html`<header><h1>Spend</h1><${Choice} label="Days" value=${days} set=${setDays} of=${[{ id: "7", title: "7 days" }, { id: "30", title: "30 days" }, { id: "90", title: "90 days" }]} /></header>`;
  if (error && !spend) return html`<div class="page">${head}<${Failure} error=${error} retry=${load} still="Agents work on, within their budgets." /></div>`;
  if (!spend) return html`<div class="page">${head}<${Loading} /></div>`;
  const list = spend.days ?? [];
  if (list.every((/** @type {any} */ it) => sum(it) === 0)) return html`<div class="page">${head}<${Empty} title="Nothing was spent yet."><${Command} text=${'caliban -p "hello"'} /><//></div>`;
  const micro = (/** @type {any} */ it) => (it === null || it === undefined ? null : typeof it === "number" ? it : it.micro_usd);
  const budget = spend.budget === null || spend.budget === undefined ? null : (micro(spend.budget) ?? spend.budget.limit_micro_usd ?? null);
  const left = budget === null ? null : Math.max(0, budget - (micro(spend.today) ?? 0));
  const chart = bars(everyDay(list, Number(days), spend.last_day ?? list.at(-1)?.day), unit);
  return html`<div class="page">${head}
    <div class="figures">${[["today", money(micro(spend.today))], ["this week", money(micro(spend.week))], ["in all", money(micro(spend.total))], ["left today", left === null ? "no budget" : money(left)]].map(([name, value]) => html`<div class="card figure" key=${name}><h3 class="dim">${name}</h3><p class="big">${value}</p></div>`)}</div>
    <section class="card panel"><h2>Per day<span class="grow"></span><span class="legend">${unit === "tokens" ? KINDS.map((kind) => html`<span key=${kind.id}><i class=${`k-${kind.id}`}></i>${kind.word}</span>`) : html`<span>days with unknown prices are marked –</span>`}</span><${Choice} label="Unit" value=${unit} set=${setUnit} of=${[{ id: "tokens", title: "Tokens" }, { id: "cost", title: "Cost" }]} /></h2>
      <div class="bars" role="img" aria-label=${`${unit} per day, at most ${chart.most}`}><span class="bars-max dim">${chart.most}</span>${chart.days.map((it) => html`<div class="day" key=${it.day} title=${it.title}><div class="stackbar">${it.parts.map((part) => html`<i key=${part.kind} class=${`k-${part.kind}`} style=${{ height: `${part.percent}%` }}></i>`)}${it.isUnknown && unit === "cost" && html`<span class="dim">–</span>`}</div><span class="dim">${it.label}</span></div>`)}</div>
      <table class="sr"><caption>Per day</caption><thead><tr><th>day</th>${KINDS.map((kind) => html`<th>${kind.word}</th>`)}<th>cost</th></tr></thead><tbody>${list.map((/** @type {any} */ it) => html`<tr><td>${dated(it.day)}</td>${KINDS.map((kind) => html`<td>${it[kind.id]}</td>`)}<td>${money(it.micro_usd)}</td></tr>`)}</tbody></table>
    </section>
    <div class="grid-2">
      <${Table} title="By agent" rows=${spend.by_agent} name=${(/** @type {any} */ it) => (it.kind === "agents" ? html`<a href=${`/agent/${it.key}`}><b>${it.name}</b> <span class="dim">${it.repo_name}</span></a>` : html`<span title=${`caliban sessions show ${it.key.split("/").at(-1)}`}><b>${it.name}</b> <span class="dim">${it.repo_name}</span></span>`)} />
      <${Table} title="By model" rows=${spend.by_model} name=${(/** @type {any} */ it) => it.model} />
    </div></div>`;
}

/** @param {{ title: string, rows: any[], name: (it: any) => any }} props */
const Table = ({ title, rows, name }) => html`<section class="card panel"><h2>${title}</h2><div class="table" tabindex="0" role="region" aria-label=${title}><table><thead><tr><th></th><th class="num">cost</th>${KINDS.map((kind) => html`<th class="num">${kind.word}</th>`)}</tr></thead>
  <tbody>${(rows ?? []).slice(0, 50).map((it, i) => html`<tr key=${i}><td class="name cut">${name(it)}</td><td class="num"><b>${money(it.micro_usd)}</b></td>${KINDS.map((kind) => html`<td class="num fg2">${tokens(it[kind.id])}</td>`)}</tr>`)}</tbody></table></div></section>`;
