// What holds for the assets as a whole: contrast, size, what is forbidden in the browser.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import zlib from "node:zlib";

const assets = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), "../../assets");
const files = fs.readdirSync(assets, { recursive: true }).filter((name) => /\.(js|css|html)$/.test(name));
const read = (name) => fs.readFileSync(path.join(assets, name), "utf8");

const tokens = Object.fromEntries([...read("css/tokens.css").matchAll(/--([\w-]+): light-dark\(#(\w+), #(\w+)\)/g)].map(([, name, light, dark]) => [name, { light, dark }]));
function luminance(hex) {
  const full = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  const [r, g, b] = [0, 2, 4].map((i) => parseInt(full.slice(i, i + 2), 16) / 255).map((it) => (it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

test("every word is readable on every surface, light and dark", () => {
  const poor = [];
  for (const scheme of ["light", "dark"]) {
    for (const word of ["fg", "fg2", "fg3", "run", "attn", "wait", "ok", "bad"]) {
      for (const ground of ["bg", "surface", "raised", "sel"]) {
        const ratio = contrast(tokens[word][scheme], tokens[ground][scheme]);
        if (ratio < 4.5) poor.push(`${word} on ${ground}, ${scheme}: ${ratio.toFixed(2)}`);
      }
    }
    for (const [word, ground] of [["attn", "attn-bg"], ["on", "run"], ["fg", "add"], ["fg", "del"], ["fg", "add2"], ["fg", "del2"], ["ok", "add"], ["bad", "del"], ["fg3", "attn-bg"]]) {
      const ratio = contrast(tokens[word][scheme], tokens[ground][scheme]);
      if (ratio < 4.5) poor.push(`${word} on ${ground}, ${scheme}: ${ratio.toFixed(2)}`);
    }
    const edge = contrast(tokens.edge[scheme], tokens.surface[scheme]);
    if (edge < 3) poor.push(`edge, ${scheme}: ${edge.toFixed(2)}`);
  }
  assert.deepEqual(poor, []);
});

test("script and style are at most 120 KB gzipped", () => {
  const total = files.filter((name) => !name.endsWith(".html")).reduce((sum, name) => sum + zlib.gzipSync(read(name), { level: 9 }).length, 0);
  assert.ok(total <= 120 * 1024, `${total} bytes`);
});

test("our files have no HTML sink, no inline script or style and no address outside", () => {
  const wrong = [];
  for (const name of files.filter((it) => !it.startsWith("vendor/"))) {
    const text = read(name);
    for (const bad of [/innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML/, /\beval\(|new Function\(/, /setAttribute\("style"/, /\sstyle="/, /\son[a-z]+="[^$]/, /["'(]https?:\/\//]) {
      const found = bad.exec(text);
      if (found) wrong.push(`${name}: ${found[0]}`);
    }
  }
  assert.deepEqual(wrong, []);
});

test("a file is small enough to be read at one sitting", () => {
  const long = files.filter((name) => !name.startsWith("vendor/") && read(name).split("\n").length > 400);
  assert.deepEqual(long, []);
});

test("every import is a file that is here", () => {
  const missing = [];
  for (const name of files.filter((it) => it.endsWith(".js"))) {
    for (const [, wanted] of read(name).matchAll(/(?:from|import)\s*\(?"([^"]+)"/g)) {
      if (!fs.existsSync(path.join(assets, path.dirname(name), wanted))) missing.push(`${name}: ${wanted}`);
    }
  }
  assert.deepEqual(missing, []);
});

test("what the first page needs is asked for at once, not one import after the other", () => {
  const needed = new Set();
  const follow = (name) => {
    if (needed.has(name)) return;
    needed.add(name);
    const statics = [...read(name).matchAll(/^(?:import|export)[^;"]*?from\s*"([^"]+)"|^import\s*"([^"]+)"|from"(\.[^"]+)"/gm)];
    for (const [, one, two, three] of statics) follow(path.posix.join(path.posix.dirname(name), one ?? two ?? three));
  };
  follow("app.js");
  needed.delete("app.js");
  const preloaded = [...read("index.html").matchAll(/rel="modulepreload" href="\/([^"]+)"/g)].map(([, name]) => name);
  assert.deepEqual(preloaded.sort(), [...needed].sort());
});
