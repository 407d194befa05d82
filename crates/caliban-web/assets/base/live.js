// One stream for all tabs of this browser: the tab with the lock reads it and passes it on over a channel.
// A browser allows six connections to a server; with a stream per tab the seventh tab would hang.
import { get, pageKey, session } from "./api.js";
import { sseParser } from "../view/sse.js";
import { link, take, whole } from "./store.js";

/** The stream counts as dead after this silence: the server pings every 10 s. */
const SILENCE_MS = 25_000;
const RETRY_MS = [500, 1000, 2000, 3000];
/** Maximum number of agents watched at once. */
const WATCH_MAX = 16;
/** How long, and how many, events wait on a hidden page. */
const HIDDEN_MS = 1000;
const HIDDEN_NEWS = 1000;
/** Time limit for another tab's answer. */
const HELLO_MS = 800;

const me = Math.random().toString(36).slice(2);
const channel = new BroadcastChannel("caliban-live");
let isLeader = false;
let lastId = "";
let attempt = 0;
/** Closes the open stream, so that it is reopened. */
let reopen = () => {};
/** Ends the wait for the next attempt. */
let hurry = () => {};
/** What each tab watches. @type {Map<string, string[]>} */
const watches = new Map();
/** Events since the last frame. @type {{ event: string, data: any }[]} */
let pending = [];
let timer = 0;
let frame = 0;

function draw() {
  clearTimeout(timer);
  cancelAnimationFrame(frame);
  timer = frame = 0;
  const all = pending;
  pending = [];
  take(all);
}

/** @param {{ event: string, data: any }[]} news */
function apply(news) {
  pending.push(...news);
  // A hidden tab gets no animation frames.
  if (!document.hidden) frame ||= requestAnimationFrame(draw);
  else if (pending.length > HIDDEN_NEWS) draw();
  else timer ||= setTimeout(draw, HIDDEN_MS);
}
// Events that wait for a frame when the tab is hidden, or for the timer when it is shown again, are applied at once.
document.addEventListener("visibilitychange", () => (timer || frame) && draw());

/** @param {{ state: string, since: number, retryAt: number, why: string }} state */
function tellLink(state) {
  link.value = state;
  channel.postMessage({ link: state });
}

/** Sets the agent whose transcript this tab shows; null for none. @param {string | null} key */
export function watch(key) {
  const keys = key === null ? [] : [key];
  watches.set(me, keys);
  channel.postMessage({ watch: { tab: me, keys } });
  if (isLeader) rewatch();
}

let watched = "";
const wanted = () => [...new Set([...watches.values()].flat())].slice(-WATCH_MAX).sort().join(",");
function rewatch() {
  if (wanted() !== watched) reopen();
}

/** Reconnects now instead of later. */
export function retryNow() {
  if (isLeader) hurry();
  else channel.postMessage({ retry: true });
}

channel.onmessage = ({ data }) => {
  if (data.news && !isLeader) apply(data.news);
  if (data.link && !isLeader) link.value = data.link;
  if (data.watch) {
    watches.set(data.watch.tab, data.watch.keys);
    if (isLeader) rewatch();
  }
  if (data.bye) {
    watches.delete(data.bye);
    if (isLeader) rewatch();
  }
  if (data.retry && isLeader) hurry();
  if (data.hello && isLeader) {
    channel.postMessage({ state: { to: data.hello, news: whole(), link: link.value } });
  }
  if (data.state && data.state.to === me && !isLeader) {
    answered = true;
    apply(data.state.news);
    link.value = data.state.link;
  }
  if (data.who && !isLeader) watches.get(me) && channel.postMessage({ watch: { tab: me, keys: watches.get(me) } });
};
let answered = false;
/** Releases the lock. */
let leave = () => {};
// A page in the back/forward cache must not keep the lock from other tabs.
addEventListener("pagehide", () => {
  channel.postMessage({ bye: me });
  leave();
});
addEventListener("pageshow", (event) => event.persisted && start());

/** Starts. The lock is held as long as this tab lives. */
export function start() {
  channel.postMessage({ hello: me });
  const lead = () => {
    isLeader = true;
    isLeaving = false;
    channel.postMessage({ who: true });
    run();
    return new Promise((resolve) => {
      leave = () => {
        isLeader = false;
        isLeaving = true;
        reopen();
        hurry();
        resolve(undefined);
      };
    });
  };
  if (navigator.locks) {
    navigator.locks.request("caliban-live", lead);
    setTimeout(async () => {
      // The leading tab has not answered: this tab asks the server once itself.
      if (isLeader || answered) return;
      try {
        apply([{ event: "snapshot", data: await get("/api/v1/fleet") }, { event: "asks", data: await get("/api/v1/asks") }]);
      } catch {
        // The bar shows that there is no connection.
      }
    }, HELLO_MS);
  } else lead();
}

let isLeaving = false;

async function run() {
  while (!isLeaving) {
    try {
      await stream();
    } catch (error) {
      if (session.value === "out") {
        await new Promise((resolve) => (hurry = () => resolve(undefined)));
        continue;
      }
      if (error === REOPEN) continue;
      const wait = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)];
      attempt += 1;
      const since = link.value.state === "offline" ? link.value.since : Date.now();
      tellLink({ state: "offline", since, retryAt: Date.now() + wait, why: String(/** @type {any} */ (error)?.message ?? error) });
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, wait);
        hurry = () => {
          clearTimeout(timer);
          resolve(undefined);
        };
      });
    }
  }
}

const REOPEN = Symbol("reopen");

/** Reads one stream to its end. */
async function stream() {
  const abort = new AbortController();
  let isReopened = false;
  reopen = () => {
    isReopened = true;
    abort.abort();
  };
  watched = wanted();
  let alarm = setTimeout(() => abort.abort(), SILENCE_MS);
  try {
    /** @type {Record<string, string>} */
    const headers = { "X-Caliban-Page": pageKey(), Accept: "text/event-stream" };
    if (lastId) headers["Last-Event-ID"] = lastId;
    const answer = await fetch(`/api/v1/events${watched ? `?watch=${encodeURIComponent(watched)}` : ""}`, { headers, signal: abort.signal, cache: "no-store" });
    if (answer.status === 401) {
      session.value = "out";
      throw new Error("signed out");
    }
    if (!answer.ok || !answer.body) throw new Error(`the server answered ${answer.status}`);
    attempt = 0;
    tellLink({ state: "live", since: Date.now(), retryAt: 0, why: "" });
    spread([{ event: "connected", data: {} }]);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const feed = sseParser();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the stream ended");
      clearTimeout(alarm);
      alarm = setTimeout(() => abort.abort(), SILENCE_MS);
      const news = [];
      for (const sent of feed(value)) {
        if (sent.id) lastId = sent.id;
        if (sent.event !== "ping") news.push({ event: sent.event, data: JSON.parse(sent.data) });
      }
      if (news.length > 0) spread(news);
      // A call that is cut in the event is requested whole.
      if (news.some(({ event, data }) => (event === "ask" && data.is_cut) || (event === "asks" && data.asks.some((/** @type {any} */ ask) => ask.is_cut)))) get("/api/v1/asks").then((open) => spread([{ event: "asks", data: open }]), () => {});
    }
  } catch (error) {
    throw isReopened ? REOPEN : error;
  } finally {
    clearTimeout(alarm);
    abort.abort();
  }
}

/** @param {{ event: string, data: any }[]} news */
function spread(news) {
  apply(news);
  channel.postMessage({ news });
}
