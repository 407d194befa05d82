// This browser: notices, theme, density, keys; and the devices that are signed in.
import { html, useEffect, useState } from "../base/html.js";
import { get, post, request, session } from "../base/api.js";
import { density, muted, notify, singleKeys, theme } from "../base/prefs.js";
import { rowOf } from "../base/store.js";
import { browser, day } from "../base/format.js";
import { qrBox, qrPath } from "../view/qr.js";
import { Choice, Copy } from "../parts/bits.js";
import { tell, toast } from "../parts/toasts.js";

const KINDS = [["ask", "An agent asks for a permission"], ["wait", "An agent waits for your words"], ["failed", "An agent fails or crashes"], ["done", "An agent is done"]];

export default function Settings() {
  const [devices, setDevices] = useState(/** @type {any[]} */ ([]));
  const [me, setMe] = useState(/** @type {any} */ (null));
  const [url, setUrl] = useState(/** @type {any} */ (null));
  const load = () => get("/api/v1/devices").then((answer) => setDevices(answer.devices), tell);
  useEffect(() => {
    load();
    get("/api/v1/me").then(setMe, () => {});
  }, []);
  const can = "Notification" in window;
  const turnOn = async (/** @type {any} */ event) => {
    const on = event.target.checked;
    if (on && can && Notification.permission === "default") await Notification.requestPermission();
    if (on && Notification.permission !== "granted") toast("bad", "The browser does not allow notices here.", "Its own settings for this page decide.");
    notify.value = { ...notify.value, on: on && can && Notification.permission === "granted" };
  };
  const revoke = (/** @type {any} */ device) => request("DELETE", `/api/v1/devices/${device.id}`).then(() => (toast("ok", "Signed out."), device.this ? (session.value = "out") : load()), tell);
  const leave = () => request("POST", "/auth/leave", {}).then(() => (session.value = "out"), tell);
  return html`<div class="page"><header><h1>Settings</h1></header><div class="settings">
    <section class="card"><h2>Look</h2>
      <div class="line"><span>Theme</span><${Choice} label="Theme" value=${theme.value} set=${(/** @type {string} */ it) => (theme.value = it)} of=${[{ id: "system", title: "System" }, { id: "light", title: "Light" }, { id: "dark", title: "Dark" }]} /></div>
      <div class="line"><span>Rows</span><${Choice} label="Rows" value=${density.value} set=${(/** @type {string} */ it) => (density.value = it)} of=${[{ id: "normal", title: "Normal" }, { id: "compact", title: "Compact" }]} /></div>
    </section>
    <section class="card"><h2>Notices</h2>
      <label class="line"><span>Desktop notices while this page is open<br /><small class="dim">With the page closed, the setting fleet.notify runs a command of yours.</small></span><input type="checkbox" checked=${notify.value.on} onChange=${turnOn} /></label>
      ${KINDS.map(([id, words]) => html`<label class="line" key=${id}><span class=${notify.value.on ? "" : "dim"}>${words}</span><input type="checkbox" disabled=${!notify.value.on} checked=${/** @type {any} */ (notify.value)[id]} onChange=${(/** @type {any} */ event) => (notify.value = { ...notify.value, [id]: event.target.checked })} /></label>`)}
      ${muted.value.length > 0 && html`<div class="line"><span>No notices about ${muted.value.map((key) => rowOf(key)?.value.name ?? key).join(", ")}</span><button class="btn" onClick=${() => (muted.value = [])}>Clear</button></div>`}
    </section>
    <section class="card"><h2>Keys</h2><label class="line"><span>Single keys act (j, k, n, c …)</span><input type="checkbox" checked=${singleKeys.value} onChange=${(/** @type {any} */ event) => (singleKeys.value = event.target.checked)} /></label><p class="dim">All keys: <kbd>?</kbd></p></section>
    <section class="card"><h2>Devices</h2>
      <div class="line"><span>Another device<br /><small class="dim">A link that works once, for ten minutes. The device must reach this server: through a tunnel or TLS.</small></span>${url ? html`<code class="cut" title=${url.url}>${url.url}</code><${Copy} text=${url.url} label="Copy the link" />` : html`<button class="btn" onClick=${() => post("/api/v1/links", {}).then(setUrl, tell)}>Make a link</button>`}</div>
      ${url?.qr && html`<svg class="qr" role="img" aria-label="The link as a QR code" viewBox=${qrBox(url.qr)} shape-rendering="crispEdges"><path d=${qrPath(url.qr)} /></svg>`}
      ${devices.map((device) => html`<div class="line" key=${device.id}><span title=${device.agent}>${browser(device.agent)}${device.this ? html` <span class="pill">this one</span>` : null}<br /><small class="dim">since ${day(device.since)}, last seen ${day(device.last_seen)}</small></span><button class="btn danger" onClick=${() => (device.this ? leave() : revoke(device))}>Sign out</button></div>`)}
    </section>
    ${me && html`<p class="dim">caliban ${me.server?.version} on ${me.host}, since ${day(me.server?.started_at)}, pid ${me.server?.pid}</p>`}
  </div></div>`;
}
