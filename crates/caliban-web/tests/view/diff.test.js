import assert from "node:assert/strict";
import test from "node:test";
import { commentsOf, flatten, indexOf, locate, pairs, reviewMessage, stopsOf } from "../../assets/view/diff.js";

const row = (t, a, b, text) => ({ t, a, b, in: [["", text]] });
const rows = [row("@", null, null, "@@"), row(" ", 1, 1, "one"), row("-", 2, null, "two"), row("-", 3, null, "three"), row("+", null, 2, "TWO"), row(" ", 4, 3, "four")];

test("removed lines stand beside the added ones", () => {
  assert.deepEqual(pairs(rows).map((it) => [it.whole?.t ?? null, it.left?.a ?? null, it.right?.b ?? null]), [["@", null, null], [null, 1, 1], [null, 2, 2], [null, 3, null], [null, 4, 3]]);
});

test("comments go out as one message, with their lines quoted, in the order of the files", () => {
  const comments = [{ id: "2", path: "b.rs", side: "b", line: 7, quote: "  let x;", text: "name it" }, { id: "1", path: "a.rs", side: "a", line: 2, quote: "two", text: "keep this" }];
  assert.equal(reviewMessage(comments), "Review of your changes, 2 comments:\n\n1. a.rs:2 (the removed line)\n> two\nkeep this\n\n2. b.rs:7\n> let x;\nname it");
});

test("a comment on a line that has changed since is marked", () => {
  const comment = { id: "1", path: "a.rs", side: "b", line: 2, quote: "TWO", text: "?" };
  assert.equal(commentsOf([comment], "a.rs", rows[4])[0].isChanged, false);
  assert.equal(commentsOf([comment], "a.rs", row("+", null, 2, "other"))[0].isChanged, true);
  assert.deepEqual(commentsOf([comment], "a.rs", rows[2]), []);
});

test("the flat list finds file and row of every index", () => {
  const files = [{ path: "a" }, { path: "b" }, { path: "c" }];
  const { starts, count } = flatten(files, (path) => ({ a: 2, b: -1, c: 100_000 })[path]);
  assert.equal(count, 3 + 2 + 100_000);
  assert.deepEqual([0, 1, 2, 3, 4, 5, 100_004].map((i) => Object.values(locate(starts, i))), [[0, -1], [0, 0], [0, 1], [1, -1], [2, -1], [2, 0], [2, 99_999]]);
});

test("a remark of git's has a line of its own side by side", { timeout: 5000 }, () => {
  const remark = row("\\", null, null, "\\ No newline at end of file");
  const found = pairs([...rows, row("-", 5, null, "end"), remark, row("+", null, 4, "END"), remark]);
  assert.deepEqual(found.slice(-4).map((it) => it.whole?.t ?? it.left?.t ?? it.right?.t), ["-", "\\", "+", "\\"]);
});

test("hunks are found unified and side by side, and a place in a closed file is its head", () => {
  const known = { hunks: [0, 6], pairs: pairs([...rows, ...rows]) };
  assert.deepEqual([stopsOf(known, false), stopsOf(known, true), stopsOf({ ...known, pairs: null }, true), stopsOf(undefined, true)], [[0, 6], [0, 5], [0, 6], []]);
  const files = [{ path: "a" }, { path: "b" }];
  const { starts, count } = flatten(files, (path) => ({ a: 6, b: -1 })[path]);
  assert.deepEqual([["a", -1], ["a", 5], ["b", 3], ["c", 0]].map(([path, at]) => indexOf(files, starts, count, { path, row: at })), [0, 6, 7, -1]);
});
