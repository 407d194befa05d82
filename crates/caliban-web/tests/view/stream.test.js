import assert from "node:assert/strict";
import test from "node:test";
import { sseParser } from "../../assets/view/sse.js";
import { digest, kindOf } from "../../assets/view/notices.js";

const text = 'id: 1-1\nevent: agent\ndata: {"a":\ndata: 1}\n\n: a comment\nevent: ping\ndata: {}\n\r\nevent: x\r\ndata: y\r\n\r\n';
const events = [{ id: "1-1", event: "agent", data: '{"a":\n1}' }, { id: "1-1", event: "ping", data: "{}" }, { id: "1-1", event: "x", data: "y" }];

test("events come out whole however the stream is cut", () => {
  for (let size = 1; size <= text.length; size += 1) {
    const feed = sseParser();
    const found = [];
    for (let i = 0; i < text.length; i += size) found.push(...feed(text.slice(i, i + size)));
    assert.deepEqual(found, events, `pieces of ${size}`);
  }
});

test("twenty children that end are no notice of their own; one that asks is", () => {
  const child = { key: "r/1", status: "done", parent: "r/0" };
  assert.equal(kindOf(child, "running"), null);
  assert.equal(kindOf({ ...child, status: "asks" }, "running"), "ask");
  assert.equal(kindOf({ key: "r/2", status: "failed", parent: null, has_ended: true, needs_you: true }, "running"), "failed");
  assert.equal(kindOf({ key: "r/2", status: "failed", parent: null }, "failed"), null);
});

test("several at once are one notice, which opens the asks", () => {
  const news = Array.from({ length: 20 }, (_, i) => ({ kind: i === 3 ? "ask" : "done", row: { key: `r/${i}`, name: `a${i}`, repo_name: "api", doing: "" } }));
  assert.deepEqual(digest(news), { title: "1 of 20 agents ask", body: "a0, a1, a2, a3 and 16 more", tag: "several", path: "/asks" });
  assert.deepEqual(digest(news.slice(3, 4)), { title: "a3 · api", body: "", tag: "r/3", path: "/asks/r/3" });
  assert.equal(digest([]), null);
});
