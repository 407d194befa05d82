// Requests to the server: each carries the page key; errors have the server's text.
import { signal } from "./html.js";

const KEY = "caliban.page-key";
/** Time limit of a request; a merge or a kill waits for processes. */
const TIMEOUT_MS = 120_000;

/** "unknown" until the first response, then "in" or "out". */
export const session = signal("unknown");

/** An error with the server's text, or ours if the server could not be reached. */
export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message @param {string} [hint] */
  constructor(status, code, message, hint) {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }
}

/** The page key, which a request needs besides the cookie. */
export function pageKey() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** A unique id. */
export const randomId = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

/** For how long a repetition of a request without a response reuses its key. */
const UNSETTLED_MS = 120_000;
/** Requests with effects that have no response yet, by content: a second click means the same request. @type {Map<string, { key: string, at: number }>} */
const unsettled = new Map();

/** The idempotency key of a request: the server carries out two requests with the same key once. @param {string} what */
function keyOf(what) {
  const now = Date.now();
  for (const [one, { at }] of unsettled) if (now - at > UNSETTLED_MS) unsettled.delete(one);
  const known = unsettled.get(what) ?? { key: randomId(), at: now };
  unsettled.set(what, known);
  return known.key;
}

/** @param {string} method @param {string} path @param {any} [body] @param {{ headers?: Record<string, string>, signal?: AbortSignal }} [how] @returns {Promise<any>} */
export async function request(method, path, body, how = {}) {
  /** @type {Record<string, string>} */
  const headers = { "X-Caliban-Page": pageKey(), ...how.headers };
  const text = body === undefined ? undefined : JSON.stringify(body);
  if (text !== undefined) headers["Content-Type"] = "application/json";
  const what = `${method} ${path} ${text ?? ""}`;
  if (method !== "GET") headers["Idempotency-Key"] = keyOf(what);
  let answer;
  try {
    const limit = AbortSignal.timeout(TIMEOUT_MS);
    answer = await fetch(path, { method, headers, body: text, signal: how.signal ? AbortSignal.any([how.signal, limit]) : limit, cache: "no-store", redirect: "error" });
  } catch (error) {
    if (how.signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "the server cannot be reached", "is it still running? caliban dashboard starts it again");
  }
  if (answer.status === 304) return null;
  const said = await answer.text();
  // After a 5xx the effect may have happened; any other response settles the request.
  if (answer.status < 500) unsettled.delete(what);
  let json = null;
  try {
    json = said === "" ? {} : JSON.parse(said);
  } catch {
    json = null;
  }
  if (!answer.ok) {
    const error = json?.error ?? { code: "http", message: json?.detail ?? `the server answered ${answer.status}` };
    if (answer.status === 401) session.value = "out";
    throw new ApiError(answer.status, error.code, error.message, error.hint);
  }
  if (json === null) throw new ApiError(answer.status, "no_json", "the server's answer is not JSON");
  return json;
}

/** @param {string} path @param {{ headers?: Record<string, string>, signal?: AbortSignal }} [how] */
export const get = (path, how) => request("GET", path, undefined, how);
/** @param {string} path @param {any} [body] @param {{ headers?: Record<string, string> }} [how] */
export const post = (path, body = {}, how = undefined) => request("POST", path, body, how);

/** The path prefix of an agent's routes. @param {string} key */
export const agentPath = (key) => {
  const [repo, id] = key.split("/");
  return `/api/v1/repos/${repo}/agents/${id}`;
};

/** Exchanges the link's token for a cookie and a page key. @param {string} token */
export async function signIn(token) {
  const answer = await request("POST", "/auth/link", { token });
  localStorage.setItem(KEY, answer.page_key);
  session.value = "in";
}

/** Removes the token from the address, so that it gets into no bookmark. */
export function takeToken() {
  const found = /^#t=([\w.~-]+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return found[1];
}
