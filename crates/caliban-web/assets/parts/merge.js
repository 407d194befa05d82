// Merging an agent's work: a preview is shown before anything is changed.
import { html, useEffect, useState } from "../base/html.js";
import { get, post } from "../base/api.js";
import { plural } from "../base/format.js";
import { Loading } from "./bits.js";
import { Dialog } from "./dialog.js";
import { tell, toast } from "./toasts.js";

/** @param {{ path: string, agent: any, close: () => void }} props */
export function Merge({ path, agent, close }) {
  const [seen, setSeen] = useState(/** @type {any} */ (null));
  const [diff, setDiff] = useState(/** @type {any} */ (null));
  const [isSquash, setSquash] = useState(false);
  /** What was typed; the suggestion as long as nothing was. */
  const [typed, setTyped] = useState(/** @type {string | null} */ (null));
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    post(`${path}/merge`, { preview: true }).then((told) => (told.how === "refused" ? setAnswer(told) : setSeen(told)), (error) => setAnswer({ how: "refused", error: error.message, hint: error.hint, files: [] }));
    get(`${path}/diff`).then(setDiff, () => {});
  }, []);
  const uncommitted = seen?.uncommitted ?? [];
  const conflicts = seen?.conflicts ?? [];
  const isOne = isSquash || uncommitted.length > 0;
  const message = typed ?? (seen ? (isOne ? seen.message : seen.merge_message).trimEnd() : "");
  const land = async () => {
    setBusy(true);
    try {
      const done = await post(`${path}/merge`, { squash: isSquash, commit: uncommitted.length > 0 ? message.trim() : null, message: isSquash || uncommitted.length === 0 ? message.trim() : null });
      if (done.how === "refused") setAnswer(done);
      else {
        toast("ok", done.how === "up_to_date" ? `${agent.name} has landed already.` : `${done.branch} is in ${done.into}: ${done.summary}`, done.left?.length ? `${plural(done.left.length, "file")} stay in its worktree` : undefined);
        close();
      }
    } catch (error) {
      tell(error);
    }
    setBusy(false);
  };
  const isUpToDate = seen?.would_be === "up_to_date";
  const words = { clean: `It merges into ${seen?.into} without conflicts.`, fast_forward: `It merges into ${seen?.into} without conflicts.`, up_to_date: seen?.review?.state === "nothing_changed" ? "Nothing changed: there is nothing to merge." : `${seen?.into} has everything of it already.`, conflicts: `It does not merge into ${seen?.into}: ${plural(conflicts.length, "file")} would conflict.` };
  const isBlocked = !seen || seen.would_be === "conflicts" || isUpToDate || !message.trim() || isBusy;
  return html`<${Dialog} title=${seen?.into ? `Merge ${agent.name} into ${seen.into}` : `Merge ${agent.name}`} close=${close} foot=${html`<button class="btn" onClick=${close}>Back</button><button class="btn primary" disabled=${isBlocked} onClick=${land}>${isSquash ? "Squash and merge" : "Merge"}</button>`}>
    <div class="stack">
      ${answer && html`<div class="notice bad" role="alert"><b>${answer.error}</b>${answer.hint && html`<p class="fg2">${answer.hint}</p>`}${answer.files?.length > 0 && html`<ul class="files">${answer.files.map((/** @type {string} */ file) => html`<li class="mono">${file}</li>`)}</ul>`}</div>`}
      ${!seen && !answer && html`<${Loading} rows=${3} />`}
      ${seen && html`<p class=${seen.would_be === "conflicts" ? "bad strong" : seen.would_be === "up_to_date" ? "fg2" : "ok strong"}>${words[/** @type {keyof typeof words} */ (seen.would_be)] ?? seen.would_be}</p>`}
      ${conflicts.length > 0 && html`<ul class="files">${conflicts.map((/** @type {string} */ file) => html`<li class="mono bad">✗ ${file}</li>`)}</ul><p class="fg2">Nothing was touched. Ask the agent to merge the branch into its own first.</p>`}
      ${diff && html`<section><h3>${plural(diff.commit_count ?? diff.commits.length, "commit")}</h3><ul class="files">${diff.commits.slice(0, 8).map((/** @type {any} */ commit) => html`<li><span class="mono dim">${commit.oid.slice(0, 7)}</span> ${commit.subject}</li>`)}</ul><p class="dim">${diff.summary}</p></section>`}
      ${uncommitted.length > 0 && html`<section><h3>${plural(uncommitted.length, "file")} not committed: committed first</h3><ul class="files">${uncommitted.map((/** @type {string} */ file) => html`<li class="mono">${file}</li>`)}</ul></section>`}
      ${seen && !isUpToDate && conflicts.length === 0 && html`<label class="label"><span>${uncommitted.length > 0 && !isSquash ? "Message of the commit" : isSquash ? "Message of the one commit" : "Message of the merge"}</span><textarea class="field" rows="4" value=${message} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)}></textarea></label>`}
      <label class="rowflex"><input type="checkbox" checked=${isSquash} onChange=${(/** @type {any} */ event) => setSquash(event.target.checked)} /> Squash to one commit</label>
    </div>
  <//>`;
}
