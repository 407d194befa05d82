// An agent's changes: files with their rows, viewed marks, comments on lines that are sent as one message.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../base/html.js";
import { agentPath, get, post, randomId } from "../base/api.js";
import { useKeys } from "../base/keys.js";
import { diffView, draft, keepDraft } from "../base/prefs.js";
import { plural } from "../base/format.js";
import { commentsOf, flatten, indexOf, locate, pairs, placeOf, reviewMessage, stopsOf, textOf } from "../view/diff.js";
import { Choice, Empty, Failure, Icon, Loading } from "./bits.js";
import { List } from "./list.js";
import { Split, Unified } from "./diffrows.js";
import { tell, toast } from "./toasts.js";

/** Number of rows per request. */
const PAGE = 500;
/** Number of rows loaded before anything is shown: a screenful. */
const AT_FIRST = 80;
/** A file with more rows is never shown side by side: its pairs are unknown until all rows are loaded. */
const SPLIT_MAX = 3000;

/** @param {{ id: string, version: string }} props */
export function Diff({ id, version }) {
  const path = agentPath(id);
  const [diff, setDiff] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isStale, setStale] = useState(false);
  const [, redraw] = useState(0);
  const [open, setOpen] = useState(/** @type {Set<string>} */ (new Set()));
  const [viewed, setViewed] = useState(/** @type {Record<string, string>} */ (draft(`viewed.${id}`) || {}));
  const [comments, setComments] = useState(/** @type {import("../view/diff.js").Comment[]} */ (draft(`review.${id}`) || []));
  const [writing, setWriting] = useState(/** @type {any} */ (null));
  /** The row that a key last went to. */
  const [mark, setMark] = useState(/** @type {{ path: string, row: number } | null} */ (null));
  const list = useRef(/** @type {import("./list.js").ListHandle | null} */ (null));
  /** Rows by file: the total, and those loaded. */
  const rows = useRef(/** @type {Map<string, { total: number, rows: Map<number, any>, asked: Map<number, Promise<void>>, etag: string, binary: boolean, cut: boolean, hunks: number[], pairs: any[] | null, isOld: boolean }>} */ (new Map())).current;
  const load = async () => {
    setError(null);
    try {
      const answer = await get(`${path}/diff`);
      // Old rows stay on the screen until the new ones are loaded.
      for (const known of rows.values()) Object.assign(known, { asked: new Map(), isOld: true });
      const unfolded = answer.files.filter((/** @type {any} */ file) => !file.folded).slice(0, 30);
      // Loaded together: files that arrive one by one would move under the pointer.
      let expected = 0;
      const first = unfolded.filter((/** @type {any} */ file) => expected < AT_FIRST && (expected += 1 + file.added + file.deleted));
      if (!diff) await Promise.all(first.map((/** @type {any} */ file) => fetchRows(file.path, 0)));
      setStale(false);
      setDiff(answer);
      setOpen((was) => (was.size > 0 ? was : new Set(unfolded.map((/** @type {any} */ file) => file.path))));
    } catch (failure) {
      setError(failure);
    }
  };
  useEffect(() => void load(), [id]);
  // The agent has changed more: the page reports it and stays as it is.
  useEffect(() => {
    if (!diff) return undefined;
    const timer = setTimeout(async () => {
      try {
        const answer = await get(`${path}/diff`);
        if (answer.etag !== diff.etag) setStale(true);
      } catch {
        // The next change tries again.
      }
    }, 2000);
    return () => clearTimeout(timer);
  }, [version]);
  // Stored before it is shown: a reload may follow at once.
  useLayoutEffect(() => keepDraft(`review.${id}`, comments.length > 0 ? comments : null), [comments]);
  useEffect(() => keepDraft(`viewed.${id}`, Object.keys(viewed).length > 0 ? viewed : null), [viewed]);

  const files = diff?.files ?? [];
  const fetchRows = (/** @type {string} */ name, /** @type {number} */ from) => {
    const known = rows.get(name) ?? { total: 0, rows: new Map(), asked: new Map(), etag: "", binary: false, cut: false, hunks: [], pairs: null, isOld: false };
    rows.set(name, known);
    const asked = known.asked.get(from) ?? take(known, name, from);
    known.asked.set(from, asked);
    return asked;
  };
  const take = async (/** @type {any} */ known, /** @type {string} */ name, /** @type {number} */ from) => {
    try {
      const answer = await get(`${path}/diff/file?path=${encodeURIComponent(name)}&from=${from}&limit=${PAGE}`);
      if (known.isOld) Object.assign(known, { rows: new Map(), pairs: null, isOld: false });
      Object.assign(known, { total: answer.total, etag: answer.etag, binary: answer.binary, cut: answer.cut, hunks: answer.hunks ?? known.hunks });
      answer.rows.forEach((/** @type {any} */ row, /** @type {number} */ i) => known.rows.set(answer.first + i, row));
      if (known.rows.size < known.total && known.total <= SPLIT_MAX) await fetchRows(name, from + PAGE);
      if (known.rows.size === known.total && known.total <= SPLIT_MAX) known.pairs = pairs(Array.from({ length: known.total }, (_, i) => known.rows.get(i)));
      redraw((n) => n + 1);
    } catch (failure) {
      known.asked.delete(from);
      tell(failure);
    }
  };
  const isSplit = diffView.value === "split";
  const countOf = (/** @type {string} */ name) => {
    if (!open.has(name)) return -1;
    const known = rows.get(name);
    if (!known || known.total === 0) return 1;
    return isSplit && known.pairs ? known.pairs.length : known.total;
  };
  const { starts, count } = flatten(files, countOf);
  const toggle = (/** @type {string} */ name) => setOpen((was) => {
    const next = new Set(was);
    if (!next.delete(name)) next.add(name);
    return next;
  });
  // Rows added or removed above do not move the rows in view.
  const drawn = useRef({ files, starts });
  useLayoutEffect(() => {
    const was = drawn.current;
    drawn.current = { files, starts };
    const top = list.current?.top();
    if (!top || was.files.length === 0) return;
    const { file, row } = locate(was.starts, top.index);
    const index = indexOf(files, starts, count, { path: was.files[file].path, row });
    if (index >= 0 && index !== top.index) list.current?.restore({ index, offset: top.offset });
  });
  useLayoutEffect(() => {
    if (mark) list.current?.toItem(indexOf(files, starts, count, mark));
  }, [mark]);
  /** The current row: the one that a key went to, while it is on the screen, else the topmost one. */
  const here = () => {
    const index = mark ? indexOf(files, starts, count, mark) : -1;
    return locate(starts, index >= 0 && list.current?.shows(index) ? index : (list.current?.top().index ?? 0));
  };
  const toFile = (/** @type {number} */ by) => {
    const { file, row } = here();
    // Going back from within a file leads to the file's own head.
    const next = files[by < 0 && row >= 0 ? file : file + by];
    if (next) setMark({ path: next.path, row: -1 });
  };
  const toHunk = async (/** @type {number} */ by) => {
    const { file, row } = here();
    for (let i = file; files[i]; i += by) {
      const { path: name } = files[i];
      if (!open.has(name)) continue;
      await fetchRows(name, 0);
      const next = stopsOf(rows.get(name), diffView.value === "split").filter((stop) => i !== file || (by > 0 ? stop > row : stop < row)).at(by > 0 ? 0 : -1);
      if (next === undefined) continue;
      setMark({ path: name, row: next });
      return;
    }
  };
  const setView = (/** @type {any} */ file) => {
    const key = `${file.added}/${file.deleted}`;
    const isViewed = viewed[file.path] === key;
    const next = { ...viewed };
    if (isViewed) delete next[file.path];
    else next[file.path] = key;
    setViewed(next);
    setOpen((was) => {
      const now = new Set(was);
      if (isViewed) now.add(file.path);
      else now.delete(file.path);
      return now;
    });
  };
  const view = () => files.length > 0 && setView(files[here().file]);
  useKeys({ "[": () => toFile(-1), "]": () => toFile(1), j: () => void toHunk(1), k: () => void toHunk(-1), v: view });
  const send = async () => {
    try {
      await post(`${path}/send`, { text: reviewMessage(comments) });
      toast("ok", `Sent ${plural(comments.length, "comment")} as one message.`);
      setComments([]);
    } catch (failure) {
      tell(failure);
    }
  };
  const total = useMemo(() => files.reduce((/** @type {any} */ sum, /** @type {any} */ file) => ({ add: sum.add + (file.added ?? 0), del: sum.del + (file.deleted ?? 0) }), { add: 0, del: 0 }), [diff]);

  if (error) return html`<${Failure} error=${error} retry=${load} still="The conversation goes on." />`;
  if (!diff) return html`<${Loading} />`;
  if (files.length === 0) return html`<${Empty} title="Nothing is changed."><p>${diff.branch ? `Against ${String(diff.base).slice(0, 8)}, where ${diff.branch} began.` : ""}</p><//>`;

  /** @param {number} index */
  const draw = (index) => {
    const { file: which, row: n } = locate(starts, index);
    const file = files[which];
    const isAt = mark?.path === file.path && mark.row === n;
    if (n < 0) return html`<${Head} file=${file} isAt=${isAt} isOpen=${open.has(file.path)} isViewed=${viewed[file.path] === `${file.added}/${file.deleted}`} toggle=${() => toggle(file.path)} view=${() => setView(file)} isUncommitted=${diff.uncommitted?.some((/** @type {any} */ it) => it.path === file.path)} />`;
    const known = rows.get(file.path);
    if (!known || known.asked.size === 0) queueMicrotask(() => fetchRows(file.path, 0));
    if (!known) return html`<div class="dr dim">…</div>`;
    if (known.binary) return html`<div class="dr note dim">a binary file</div>`;
    if (known.total === 0) return html`<div class="dr note dim">${known.asked.size && known.etag ? "no lines to show" : "…"}</div>`;
    const pair = isSplit && known.pairs ? known.pairs[n] : null;
    const row = pair ? (pair.whole ?? pair.right ?? pair.left) : known.rows.get(n);
    if (!row) {
      queueMicrotask(() => fetchRows(file.path, Math.floor(n / PAGE) * PAGE));
      return html`<div class="dr dim">…</div>`;
    }
    const place = placeOf(row);
    const act = place && html`<button type="button" class="dc" aria-label=${`Comment on line ${place.line}`} onClick=${() => setWriting({ path: file.path, ...place, quote: textOf(row), text: "" })}>+</button>`;
    const own = commentsOf(comments, file.path, row);
    const isHere = writing && writing.path === file.path && place && writing.side === place.side && writing.line === place.line;
    return html`${pair ? html`<${Split} pair=${pair} act=${act} isAt=${isAt} />` : html`<${Unified} row=${row} act=${act} isAt=${isAt} />`}
      ${own.map((it) => html`<div key=${it.id} class="dcomment">${it.isChanged && html`<p class="attn">The line has changed. It was: <code>${it.quote}</code></p>`}<p>${it.text}</p><button class="btn quiet icon" aria-label="Delete this comment" onClick=${() => setComments(comments.filter((other) => other.id !== it.id))}><${Icon} name="trash-2" /></button></div>`)}
      ${isHere && html`<${Write} value=${writing} close=${() => setWriting(null)} save=${(/** @type {string} */ text) => {
        setComments([...comments, { ...writing, text, id: randomId() }]);
        setWriting(null);
      }} />`}`;
  };
  // Comments on lines that are no longer in the diff are kept, too.
  const lost = comments.filter((it) => !files.some((/** @type {any} */ file) => file.path === it.path));
  return html`<div class="diff-pane">
    <div class="diff-bar"><span>${plural(diff.file_count ?? files.length, "file")} <span class="add">+${total.add}</span> <span class="del">−${total.del}</span></span><span class="grow"></span>
      ${isStale && html`<button class="btn" onClick=${load}>changed · reload</button>`}
      <${Choice} label="How the diff is shown" value=${diffView.value} set=${(/** @type {string} */ value) => (diffView.value = value)} of=${[{ id: "unified", title: "Unified" }, { id: "split", title: "Split" }]} />
      ${comments.length > 0 && html`<button class="btn primary" onClick=${send}><${Icon} name="send" />Send review (${comments.length})</button>`}
    </div>
    ${lost.length > 0 && html`<p class="dcomment">${plural(lost.length, "comment")} on files that are not changed any more.</p>`}
    <${List} cls="diff" label="Changes" count=${count} draw=${draw} estimate=${20} handle=${list} keyOf=${(/** @type {number} */ i) => {
      const { file, row } = locate(starts, i);
      return `${files[file].path}:${row}`;
    }} />
  </div>`;
}

/** @param {{ file: any, isAt: boolean, isOpen: boolean, isViewed: boolean, isUncommitted: boolean, toggle: () => void, view: () => void }} props */
const Head = ({ file, isAt, isOpen, isViewed, isUncommitted, toggle, view }) => html`<div class="dfile" aria-current=${isAt ? "true" : undefined}><button type="button" class="dname" aria-expanded=${isOpen ? "true" : "false"} onClick=${toggle}><${Icon} name=${isOpen ? "chevron-down" : "chevron-right"} /><span class=${`glyph ${file.status === "A" ? "ok" : file.status === "D" ? "bad" : "fg3"}`}>${file.status}</span><span class="cut mono">${file.path}</span>${isUncommitted && html`<span class="pill">uncommitted</span>`}${file.folded && !isOpen && html`<span class="dim">folded</span>`}</button>
  <span class="num">${file.added === null ? html`<span class="dim">binary</span>` : html`<span class="add">+${file.added}</span> <span class="del">−${file.deleted}</span>`}</span>
  <label class="dviewed"><input type="checkbox" checked=${isViewed} onChange=${view} />Viewed</label></div>`;

/** @param {{ value: any, close: () => void, save: (text: string) => void }} props */
function Write({ value, close, save }) {
  const [text, setText] = useState(value.text);
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useEffect(() => field.current?.focus({ preventScroll: true }), []);
  return html`<form class="dcomment write" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    if (text.trim()) save(text.trim());
  }}><textarea ref=${field} class="field" rows="3" aria-label=${`Comment on line ${value.line}`} placeholder="What should be different?" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save(text.trim());
  }}></textarea><div class="rowflex"><span class="dim grow">Sent with the others as one message.</span><button type="button" class="btn" onClick=${close}>Cancel</button><button class="btn primary" disabled=${!text.trim()}>Comment</button></div></form>`;
}
