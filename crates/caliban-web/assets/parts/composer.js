// A message to an agent, which gets it at its next step or, if queued, at the end of its turn. A draft survives a reload.
import { html, useEffect, useRef, useState } from "../base/html.js";
import { agentPath, post } from "../base/api.js";
import { useKeys } from "../base/keys.js";
import { draft, keepDraft } from "../base/prefs.js";
import { link } from "../base/store.js";
import { Icon } from "./bits.js";
import { tell } from "./toasts.js";

/** @param {{ id: string, agent: any, isOver: boolean, wants: boolean, resume: () => void }} props */
export function Composer({ id, agent, isOver, wants, resume }) {
  const [text, setText] = useState(/** @type {string} */ (draft(`say.${id}`)));
  const [queued, setQueued] = useState(/** @type {string} */ (draft(`queue.${id}`)));
  const [isBusy, setBusy] = useState(false);
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useKeys({ i: () => field.current?.focus() });
  useEffect(() => void (wants && field.current?.focus()), [wants]);
  useEffect(() => keepDraft(`say.${id}`, text), [text]);
  useEffect(() => keepDraft(`queue.${id}`, queued), [queued]);
  useEffect(() => {
    const el = field.current;
    if (!el) return;
    el.style.height = "auto";
    el.style.height = `${Math.min(el.scrollHeight + 2, 200)}px`;
  }, [text]);
  /** @param {string} words @param {() => void} done */
  const send = async (words, done) => {
    if (!words.trim() || isBusy) return;
    setBusy(true);
    try {
      await post(`${agentPath(id)}/send`, { text: words });
      done();
    } catch (error) {
      tell(error);
    }
    setBusy(false);
  };
  const isWorking = agent.is_in_turn;
  // Queued messages are sent when the turn is over.
  useEffect(() => {
    if (queued && !isWorking && !isOver && agent.status !== "queued" && link.value.state === "live") send(queued, () => setQueued(""));
  }, [agent.status, queued, link.value.state]);
  if (isOver) return html`<div class="composer over"><span class="dim grow">It has ${agent.state === "done" ? "finished" : "ended"}.</span><button class="btn" onClick=${resume}><${Icon} name="play" />Resume with a message</button></div>`;
  const isOff = link.value.state !== "live" || agent.status === "queued";
  const steer = () => send(text, () => setText(""));
  return html`<form class="composer" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    steer();
  }}>
    ${queued && html`<div class="queued"><span class="dim">At the end of this turn:</span><span class="cut grow">${queued}</span><button type="button" class="btn quiet" onClick=${() => {
      setText(text ? `${text}\n${queued}` : queued);
      setQueued("");
    }}>Take back</button></div>`}
    <div class="composer-in"><textarea ref=${field} class="field" rows="1" aria-label=${`Message to ${agent.name}`} placeholder=${agent.status === "queued" ? "It takes messages when it has begun" : isWorking ? "Steer it: heard at its next step" : "Message"} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !isOff) {
        event.preventDefault();
        steer();
      }
    }}></textarea>
    ${isWorking && html`<button type="button" class="btn" disabled=${!text.trim()} title="Said when this turn is over" onClick=${() => {
      setQueued(queued ? `${queued}\n\n${text}` : text);
      setText("");
    }}>Queue</button>`}
    <button class="btn primary" disabled=${isOff || isBusy || !text.trim()}>${isWorking ? "Steer" : "Send"}<kbd class="on">⏎</kbd></button></div>
  </form>`;
}
