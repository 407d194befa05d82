// A modal box: takes the focus, gives it back, closes with Escape.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../base/html.js";
import { useKeys } from "../base/keys.js";
import { Icon } from "./bits.js";

/** @param {{ title: string, close: () => void, children?: any, foot?: any, cls?: string, bare?: boolean }} props */
export function Dialog({ title, close, children, foot, cls = "", bare = false }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useKeys({ Escape: () => close() }, { modal: true });
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    const first = box.current?.querySelector("[autofocus],input,textarea,button:not([data-close])");
    /** @type {HTMLElement} */ (first ?? box.current)?.focus();
    return () => before?.isConnected && before.focus();
  }, []);
  /** @param {KeyboardEvent} event */
  const trap = (event) => {
    if (event.key !== "Tab" || !box.current) return;
    const all = [...box.current.querySelectorAll("a[href],button:not(:disabled),input,select,textarea,[tabindex='0']")];
    const [first, last] = [all[0], all[all.length - 1]];
    if (event.shiftKey && document.activeElement === first) {
      event.preventDefault();
      /** @type {HTMLElement} */ (last).focus();
    } else if (!event.shiftKey && document.activeElement === last) {
      event.preventDefault();
      /** @type {HTMLElement} */ (first).focus();
    }
  };
  return html`<div class="veil" onMouseDown=${(/** @type {MouseEvent} */ event) => event.target === event.currentTarget && close()}>
    <div class=${`box ${cls}`} role="dialog" aria-modal="true" aria-label=${title} tabindex="-1" ref=${box} onKeyDown=${trap}>
      ${!bare && html`<header><h2>${title}</h2><button class="btn quiet icon" data-close aria-label="Close" onClick=${close}><${Icon} name="x" /></button></header>`}
      ${bare ? children : html`<div class="in" tabindex="0">${children}</div>`}
      ${foot && html`<footer>${foot}</footer>`}
    </div>
  </div>`;
}

/** A button with a menu of actions. @param {{ label: any, name: string, items: ({ title: string, icon?: string, act: () => void, off?: boolean, danger?: boolean } | null)[], cls?: string, up?: boolean }} props */
export function Menu({ label, name, items, cls = "", up = false }) {
  const [open, setOpen] = useState(false);
  const root = useRef(/** @type {HTMLElement | null} */ (null));
  useKeys(open ? { Escape: () => setOpen(false) } : {});
  useEffect(() => {
    if (!open) return undefined;
    /** @param {MouseEvent} event */
    const away = (event) => root.current?.contains(/** @type {Node} */ (event.target)) || setOpen(false);
    addEventListener("mousedown", away);
    return () => removeEventListener("mousedown", away);
  }, [open]);
  return html`<div class=${`menu ${up ? "up" : ""}`} ref=${root}>
    <button class=${`btn ${cls}`} type="button" aria-haspopup="menu" aria-expanded=${open ? "true" : "false"} aria-label=${name} onClick=${() => setOpen(!open)}>${label}</button>
    ${open && html`<div class="pop" role="menu">${items.filter(Boolean).map((it) => it && html`<button key=${it.title} type="button" role="menuitem" disabled=${it.off} class=${it.danger ? "bad" : ""} onClick=${() => {
      setOpen(false);
      it.act();
    }}>${it.icon && html`<${Icon} name=${it.icon} />`}${it.title}</button>`)}</div>`}
  </div>`;
}
