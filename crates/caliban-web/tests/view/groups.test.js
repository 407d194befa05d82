import assert from "node:assert/strict";
import test from "node:test";
import { arrange, inOrder, neighbour, nextNeedy, title } from "../../assets/view/groups.js";

const row = (key, group, since, more = {}) => ({ key, group, since, repo: key.split("/")[0], repo_name: "api", name: key, id: key, status: "running", ...more });
const rows = [row("r/1", "working", "2026-01-01T10:00:00Z"), row("r/2", "needs_you", "2026-01-01T10:05:00Z"), row("r/3", "needs_you", "2026-01-01T10:01:00Z"), row("s/4", "finished", "2026-01-01T09:00:00Z", { doing: "done: the docs" }), row("r/5", "working", "2026-01-01T10:02:00Z")];

test("who needs you longest is first, other groups have their news first", () => {
  assert.deepEqual(inOrder(arrange(rows, { filter: "", repo: "" })), ["r/3", "r/2", "r/5", "r/1", "s/4"]);
});

test("a filter's words must all fit, and a repo leaves the others out", () => {
  assert.deepEqual(inOrder(arrange(rows, { filter: "DOCS done", repo: "" })), ["s/4"]);
  assert.deepEqual(inOrder(arrange(rows, { filter: "docs", repo: "r" })), []);
});

test("the selection follows the id when rows move", () => {
  assert.equal(neighbour(["a", "b", "c"], "b", 1), "c");
  assert.equal(neighbour(["b", "a", "c"], "b", 1), "a");
  assert.equal(neighbour(["a", "b"], "gone", 1), "a");
  assert.equal(neighbour(["a", "b"], "b", 1), "b");
  assert.equal(neighbour([], "b", 1), "");
});

test("n goes round those who need you", () => {
  const asking = rows.map((row) => ({ ...row, needs_you: row.group === "needs_you" }));
  const groups = arrange([...asking, row("s/6", "finished", "2026-01-01T09:00:00Z", { status: "failed", needs_you: true })], { filter: "", repo: "" });
  assert.equal(nextNeedy(groups, ""), "r/3");
  assert.equal(nextNeedy(groups, "r/3"), "r/2");
  assert.equal(nextNeedy(groups, "r/2"), "s/6", "one that has failed needs you, too");
  assert.equal(nextNeedy(groups, "s/6"), "r/3");
  assert.equal(nextNeedy([], "r/2"), "");
});

test("the title has the number who need you", () => {
  assert.equal(title(3, "Spend"), "(3) Spend · caliban");
  assert.equal(title(0, ""), "caliban");
});
