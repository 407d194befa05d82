// The keyboard. A page's keys take precedence over the shell's; typing into a field is never a command.
import { signal, useLayoutEffect, useRef } from "./html.js";
import { singleKeys } from "./prefs.js";

/** @typedef {Record<string, (event: KeyboardEvent) => boolean | void>} Keys */

/** The layers, the topmost last. @type {{ keys: Keys, modal: boolean }[]} */
const layers = [];
/** The first key of an incomplete two-key command. */
let prefix = "";
let prefixAt = 0;
const PREFIX_MS = 1200;
/** When a key was last typed into a field; a question is not answered shortly after (view/approval.js). */
export const typedAt = signal(-Infinity);

/** Whether the element takes text input. @param {EventTarget | null} target */
export function isField(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && !/^(checkbox|radio|button)$/.test(/** @type {any} */ (target).type ?? "");
}

/** The name of a key: `j`, `Shift+Y`, `Ctrl+k`, `Enter`. @param {KeyboardEvent} event */
export function keyName(event) {
  const key = event.key;
  const mods = (event.ctrlKey || event.metaKey ? "Ctrl+" : "") + (event.altKey ? "Alt+" : "");
  if (key.length === 1) {
    const isLetter = key.toLowerCase() !== key.toUpperCase();
    return mods + (isLetter && event.shiftKey ? `Shift+${key.toUpperCase()}` : key);
  }
  return mods + (event.shiftKey ? "Shift+" : "") + key;
}

addEventListener(
  "keydown",
  (event) => {
    if (event.isComposing) return;
    const field = isField(event.target);
    if (field && event.key.length === 1) typedAt.value = performance.now();
    let name = keyName(event);
    const isPlain = event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (field && name !== "Escape" && !name.startsWith("Ctrl+")) return;
    if (isPlain && !singleKeys.value) return;
    if (isPlain && prefix && performance.now() - prefixAt < PREFIX_MS) name = `${prefix} ${name}`;
    else if (isPlain && name === "g" && layers.some((layer) => layer.keys["g f"])) {
      prefix = "g";
      prefixAt = performance.now();
      return;
    }
    prefix = "";
    // Enter and Space on a focused control activate that control.
    const control = event.target instanceof HTMLElement && event.target.closest("button,a[href],summary,[role=tab],[role=option]");
    if (control && (name === "Enter" || name === " ")) return;
    for (let i = layers.length - 1; i >= 0; i -= 1) {
      const act = layers[i].keys[name];
      if (act && act(event) !== false) {
        event.preventDefault();
        return;
      }
      if (layers[i].modal) return;
    }
  },
  true,
);
addEventListener("input", () => (typedAt.value = performance.now()), true);

/** Adds keys while a component is mounted. A layer keeps its place when its component is rendered again. @param {Keys} keys @param {{ modal?: boolean }} [how] */
export function useKeys(keys, how = {}) {
  const layer = useRef({ keys, modal: how.modal ?? false }).current;
  layer.keys = keys;
  // In the same frame as the component, so that a key pressed as soon as it is visible reaches it.
  useLayoutEffect(() => {
    layers.push(layer);
    return () => void layers.splice(layers.indexOf(layer), 1);
  }, []);
}
