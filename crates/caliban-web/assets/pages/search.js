// Full text over transcripts and messages: hits by agent, each opening where it was said.
import { html, useEffect, useRef, useState } from "../base/html.js";
import { get } from "../base/api.js";
import { useKeys } from "../base/keys.js";
import { go, route } from "../base/router.js";
import { day } from "../base/format.js";
import { Empty, Failure, Icon, Loading } from "../parts/bits.js";
import { Runs } from "../parts/rich.js";

const PAUSE_MS = 200;

export default function Search() {
  const q = route.value.query.get("q") ?? "";
  const [text, setText] = useState(q);
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => void (q === "" && field.current?.focus()), []);
  useKeys({ "/": () => field.current?.focus() });
  useEffect(() => {
    if (text.trim() === "") {
      setFound(null);
      return undefined;
    }
    const abort = new AbortController();
    const ask = async () => {
      try {
        const answer = await get(`/api/v1/search?q=${encodeURIComponent(text)}&limit=60`, { signal: abort.signal });
        setError(null);
        setFound(answer);
        // The index is not complete yet: ask again for later hits.
        if (answer.indexing) timer = setTimeout(ask, PAUSE_MS);
      } catch (failure) {
        if (!abort.signal.aborted) setError(failure);
      }
    };
    let timer = setTimeout(() => {
      if (text !== q) go(`/search?q=${encodeURIComponent(text)}`, { replace: true });
      void ask();
    }, text === q ? 0 : PAUSE_MS);
    return () => (clearTimeout(timer), abort.abort());
  }, [text]);
  const nothing = found && found.agents.length === 0 && found.messages.length === 0;
  return html`<div class="page"><header><h1>Search</h1>${found?.indexing && html`<span class="pill">still reading older transcripts</span>`}</header>
    <label class="search-box" style=${{ display: "block" }}><span class="sr">Words</span><input ref=${field} class="field" type="search" placeholder="Words of a transcript or a message" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
    ${error ? html`<${Failure} error=${error} />` : text.trim() === "" ? html`<${Empty} title="All that agents and people said."><p>Also what commands printed. A hit opens at its place.</p><//>` : !found ? html`<${Loading} />` : nothing ? html`<${Empty} title=${`Nothing has “${found.q ?? text}”.`} />` : html`<div class="hits">
      ${found.agents.map((/** @type {any} */ agent) => html`<section class="card" key=${agent.key}><header><${Icon} name="terminal" /><a href=${`/agent/${agent.key}`}><b>${agent.name}</b></a><span class="dim">${agent.repo_name}</span><span class="grow"></span>${agent.more ? html`<span class="dim">${agent.more} more</span>` : null}</header><ul>${agent.hits.map((/** @type {any} */ hit) => html`<li key=${hit.seq}><a href=${`/agent/${agent.key}?seq=${hit.seq}`}><span class="dim num">${day(hit.at)}</span><span class="words grow"><${Runs} of=${hit.runs} /></span></a></li>`)}</ul></section>`)}
      ${found.messages.length > 0 && html`<section class="card"><header><${Icon} name="messages-square" /><b>Messages</b></header><ul>${found.messages.map((/** @type {any} */ hit) => html`<li key=${hit.task_id}><a href=${`/broker/${hit.session}`}><span class="dim num">${day(hit.at)}</span><b>${hit.from_name}</b><span class="words grow"><${Runs} of=${hit.runs} /></span></a></li>`)}</ul></section>`}
    </div>`}</div>`;
}
