// The conversation: windowed and live; new items are counted while the user reads further up.
import { html, useEffect, useRef, useState } from "../base/html.js";
import { get, post } from "../base/api.js";
import { useKeys } from "../base/keys.js";
import { listen } from "../base/store.js";
import { PAGE, Transcript } from "../view/transcript.js";
import { Failure, Icon, Loading } from "./bits.js";
import { Item } from "./item.js";
import { List } from "./list.js";

/** An item on the screen for this long counts as read. */
const READ_MS = 500;

/** @param {{ id: string, path: string, seq: string | null, isLive: boolean, prompt: string }} props */
export function Talk({ id, path, seq, isLive, prompt }) {
  const talk = useRef(new Transcript()).current;
  const [isReady, setReady] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (null));
  const [, redraw] = useState(0);
  const [seen, setSeen] = useState(/** @type {number | null} */ (null));
  const marked = useRef(-1);
  const [isHidden, setHidden] = useState(document.hidden);
  const list = useRef(/** @type {import("./list.js").ListHandle | null} */ (null));
  /** The item with the requested record. */
  const [wanted, setWanted] = useState(/** @type {number | null} */ (null));
  const frame = useRef(0);
  const draw = () => {
    if (frame.current) return;
    frame.current = requestAnimationFrame(() => {
      frame.current = 0;
      redraw((n) => n + 1);
    });
  };
  /** @param {string} query */
  const load = async (query) => {
    const page = await get(`${path}/transcript?${query}`);
    talk.take(page);
    return page;
  };
  const begin = async () => {
    try {
      const page = await load(seq === null ? `limit=${PAGE}` : `seq=${Number(seq)}&limit=${PAGE}`);
      if (seq !== null) {
        setWanted(page.first);
        // Opened in the middle: not read to its end.
        setSeen(page.total);
      }
      // If a part was read, here or on another device, continue after it.
      if (seq === null && page.seen !== null && page.seen < page.total && !isReady) setSeen(page.seen);
      isBegun.current = true;
      setError(null);
      setReady(true);
    } catch (failure) {
      setError(failure);
    }
  };
  const isBegun = useRef(false);
  useEffect(() => void begin(), [id]);
  useEffect(() => listen((event, data) => {
    if (event === "connected") {
      if (!talk.count) void begin();
      // Load what was missed while disconnected; a partial reply is complete by now.
      talk.saying = { thinking: "", text: "" };
      talk.asked.clear();
      load(`from=${talk.total}&limit=500`).then(draw, () => {});
      for (const page of talk.unfinished()) load(`from=${page * PAGE}&limit=${PAGE}`).then(draw, () => {});
      return;
    }
    if (data?.key !== id) return;
    // The stream has only items after its start; load those before it.
    if (event === "watched" && isBegun.current && data.total > talk.total) load(`from=${talk.total}&limit=500`).then(draw, () => {});
    // A record beyond the known end leaves a gap, which the window requests.
    if (event === "record" && talk.total > 0 && data.item.n > talk.total) talk.asked.clear();
    if (talk.hear(event, data)) draw();
  }), [id]);
  useEffect(() => {
    const look = () => setHidden(document.hidden);
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);
  // At the end of a visible page everything is read; the server stores that for other devices and later visits.
  const last = isReady && seen === null && !isHidden ? (talk.items.get(talk.total - 1)?.seq ?? -1) : -1;
  useEffect(() => {
    if (last <= marked.current) return undefined;
    const later = setTimeout(() => post(`${path}/seen`, { seq: last }).then(() => (marked.current = last), () => {}), READ_MS);
    return () => clearTimeout(later);
  }, [last]);
  const need = (/** @type {number} */ from, /** @type {number} */ to) => {
    talk.keep(from, to);
    for (const page of talk.missing(from, to)) {
      talk.asked.add(page);
      load(`from=${page * PAGE}&limit=${PAGE}`).then(draw, () => talk.asked.delete(page));
    }
  };
  const unfold = () => {
    talk.all = talk.all === true ? false : true;
    talk.folds.clear();
    redraw((n) => n + 1);
  };
  useKeys({ e: unfold, End: () => list.current?.toEnd(), Home: () => list.current?.toItem(0) });
  if (error) return html`<${Failure} error=${error} retry=${begin} still="Its questions can be answered." />`;
  if (!isReady) return html`<${Loading} />`;
  if (talk.count === 0) return html`<div class="list"><div class="it it-prompt"><div class="md"><p class="md-p pre">${prompt}</p></div></div><div class="state"><p>${isLive ? "It has not begun yet." : "It has said nothing."}</p></div></div>`;
  const fresh = seen === null ? 0 : talk.count - seen;
  return html`<div class="talk">
    <${List} cls="transcript" label="Transcript" count=${talk.count} follow handle=${list} start=${wanted ?? seen} estimate=${44} need=${need} keyOf=${(/** @type {number} */ i) => i}
      onEnd=${(/** @type {boolean} */ isAtEnd) => setSeen(isAtEnd ? null : talk.count)}
      draw=${(/** @type {number} */ n) => {
        if (n >= talk.total) return html`<div class="it it-reply live">${talk.saying.thinking && html`<p class="it-thinking dim">${talk.saying.thinking.slice(-400)}</p>`}<div class="md"><p class="md-p pre">${talk.saying.text}<span class="caret" aria-hidden="true"></span></p></div></div>`;
        const item = talk.items.get(n);
        if (!item) return html`<div class="it it-gap"></div>`;
        return html`<${Item} item=${item} isOpen=${talk.isOpen(item)} live=${talk.output.get(item.id)} isMarked=${n === wanted} path=${path} toggle=${(/** @type {boolean} */ open) => {
          talk.folds.set(n, open);
          redraw((k) => k + 1);
        }} />`;
      }} />
    ${seen !== null && html`<button class="btn fresh" onClick=${() => list.current?.toEnd()}><${Icon} name="arrow-down" />${fresh > 0 ? `${fresh} new` : "to the end"}</button>`}
  </div>`;
}
