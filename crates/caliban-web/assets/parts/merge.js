// Merging an agent's work: a preview is shown before anything is changed.
import { html, useEffect, useState } from "../base/html.js";
import { get, post } from "../base/api.js";
import { plural } from "../base/format.js";
import { Loading } from "./bits.js";
import { Dialog } from "./dialog.js";
import { tell, toast } from "./toasts.js";

/** @param {{ path: string, agent: any, close: () => void, landed: () => void }} props */
export function Merge({ path, agent, close, landed }) {
  const [seen, setSeen] = useState(/** @type {any} */ (null));
  const [diff, setDiff] = useState(/** @type {any} */ (null));
  const [isSquash, setSquash] = useState(false);
  const [message, setMessage] = useState("");
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    post(`${path}/merge`, { preview: true }).then(setSeen, (error) => setAnswer({ how: "refused", error: error.message, hint: error.hint, files: [] }));
    get(`${path}/diff`).then(setDiff, () => {});
  }, []);
  const uncommitted = seen?.uncommitted ?? [];
  const conflicts = seen?.conflicts ?? [];
  const land = async () => {
    setBusy(true);
    try {
      const done = await post(`${path}/merge`, { squash: isSquash, commit: uncommitted.length > 0 ? message.trim() : null, message: isSquash && message.trim() ? message.trim() : null });
      if (done.how === "refused") setAnswer(done);
      else {
        toast("ok", done.how === "up_to_date" ? `${agent.name} has landed already.` : `${done.branch} is in ${done.into}: ${done.summary}`, done.left?.length ? `${plural(done.left.length, "file")} stay in its worktree` : undefined);
        landed();
        close();
      }
    } catch (error) {
      tell(error);
    }
    setBusy(false);
  };
  const isUncommittedOnly = seen?.would_be === "up_to_date" && uncommitted.length > 0;
  const words = { clean: "It merges cleanly.", fast_forward: "It merges cleanly, as a fast-forward.", up_to_date: "There is nothing to land.", conflicts: `${plural(conflicts.length, "file")} would conflict.` };
  const isBlocked = !seen || seen.would_be === "conflicts" || (seen.would_be === "up_to_date" && !isUncommittedOnly) || (uncommitted.length > 0 && !message.trim()) || isBusy;
  return html`<${Dialog} title=${`Merge ${agent.name}`} close=${close} foot=${html`<button class="btn" onClick=${close}>Back</button><button class="btn primary" disabled=${isBlocked} onClick=${land}>${isSquash ? "Squash and merge" : "Merge"}</button>`}>
    <div class="stack">
      ${answer && html`<div class="notice bad" role="alert"><b>${answer.error}</b>${answer.hint && html`<p class="fg2">${answer.hint}</p>`}${answer.files?.length > 0 && html`<ul class="files">${answer.files.map((/** @type {string} */ file) => html`<li class="mono">${file}</li>`)}</ul>`}</div>`}
      ${!seen && !answer && html`<${Loading} rows=${3} />`}
      ${seen && html`<p class=${seen.would_be === "conflicts" ? "bad strong" : seen.would_be === "up_to_date" ? "fg2" : "ok strong"}>${isUncommittedOnly ? "Its work is in no commit yet: it is committed first, then merged." : (words[/** @type {keyof typeof words} */ (seen.would_be)] ?? seen.would_be)}</p>`}
      ${conflicts.length > 0 && html`<ul class="files">${conflicts.map((/** @type {string} */ file) => html`<li class="mono bad">✗ ${file}</li>`)}</ul><p class="fg2">Nothing was touched. Ask the agent to merge the branch into its own first.</p>`}
      ${diff && html`<section><h3>${plural(diff.commit_count ?? diff.commits.length, "commit")}</h3><ul class="files">${diff.commits.slice(0, 8).map((/** @type {any} */ commit) => html`<li><span class="mono dim">${commit.oid.slice(0, 7)}</span> ${commit.subject}</li>`)}</ul><p class="dim">${diff.summary}</p></section>`}
      ${uncommitted.length > 0 && html`<section><h3>${plural(uncommitted.length, "file")} not committed</h3><ul class="files">${uncommitted.map((/** @type {string} */ file) => html`<li class="mono">${file}</li>`)}</ul></section>`}
      ${(uncommitted.length > 0 || isSquash) && html`<label class="label"><span>${uncommitted.length > 0 ? "Commit them as" : "The message of the one commit"}</span><input class="field" value=${message} placeholder=${`${agent.name}: …`} onInput=${(/** @type {any} */ event) => setMessage(event.target.value)} /></label>`}
      <label class="rowflex"><input type="checkbox" checked=${isSquash} onChange=${(/** @type {any} */ event) => setSquash(event.target.checked)} /> Squash to one commit</label>
    </div>
  <//>`;
}
