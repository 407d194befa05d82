// Desktop notices when an agent begins to need you: from one tab, several at once as one notice; a click opens the question.
import { effect } from "./html.js";
import { go } from "./router.js";
import { listen } from "./store.js";
import { muted, notify } from "./prefs.js";
import { digest, kindOf } from "../view/notices.js";

/** Events within this time become one notice. */
const GATHER_MS = 700;

export function notices() {
  /** The last known state of each agent. @type {Map<string, string>} */
  const known = new Map();
  /** @type {any[]} */
  let gathered = [];
  let timer = 0;
  let isFirst = true;
  const tell = () => {
    timer = 0;
    const notice = digest(gathered);
    gathered = [];
    if (!notice || document.hasFocus()) return;
    // Notices with the same tag from several tabs are one.
    const shown = new Notification(notice.title, { body: notice.body, tag: notice.tag, icon: "/icon.svg" });
    shown.onclick = () => {
      window.focus();
      go(notice.path);
      shown.close();
    };
  };
  const hear = (/** @type {any} */ row) => {
    const before = known.get(row.key);
    known.set(row.key, row.status);
    const kind = kindOf(row, before);
    const { on, ...kinds } = notify.value;
    if (isFirst || !kind || !on || !kinds[kind] || muted.value.includes(row.key)) return;
    if (!("Notification" in window) || Notification.permission !== "granted") return;
    gathered.push({ kind, row });
    timer ||= setTimeout(tell, GATHER_MS);
  };
  effect(() => void notify.value);
  listen((event, data) => {
    if (event === "snapshot") {
      for (const row of data.agents) hear(row);
      isFirst = false;
    } else if (event === "agent") hear(data);
  });
}
