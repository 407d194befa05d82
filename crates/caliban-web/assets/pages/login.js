// The page without a valid link.
import { html } from "../base/html.js";
import { Command } from "../parts/bits.js";

/** @param {{ error: any }} props */
export const Login = ({ error }) => html`<main class="login"><div class="card">
  <h1>Open the dashboard from your shell</h1>
  ${error ? html`<p class="bad" role="alert">${error.message}${error.hint && html`<br /><span class="fg2">${error.hint}</span>`}</p>` : html`<p class="fg2">This browser is not signed in. A link works once, for ten minutes.</p>`}
  <div class="state" style=${{ padding: 0, justifyItems: "start" }}><${Command} text="caliban dashboard" /></div>
  <p class="dim">It prints a link and opens it. On another device, Settings has a link for a phone.</p>
</div></main>`;
