import assert from "node:assert/strict";
import test from "node:test";
import { Heights } from "../../assets/view/heights.js";
import { Transcript } from "../../assets/view/transcript.js";

test("heights: sums and searches are those of a plain list, through growth and shrinking", () => {
  const heights = new Heights(10);
  let plain = [];
  let seed = 7;
  const random = (below) => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
  for (let round = 0; round < 400; round += 1) {
    const count = random(300);
    heights.resize(count);
    plain = plain.slice(0, count);
    while (plain.length < count) plain.push(10);
    for (let k = 0; k < 5 && count > 0; k += 1) {
      const [at, to] = [random(count), 1 + random(90)];
      heights.set(at, to);
      plain[at] = to;
    }
    const total = plain.reduce((sum, it) => sum + it, 0);
    assert.equal(heights.total, total);
    if (count === 0) continue;
    const y = random(total);
    let [index, top] = [0, 0];
    while (top + plain[index] <= y) top += plain[index++];
    assert.equal(heights.at(y), index);
    assert.equal(heights.top(index), top);
  }
});

test("calls fold on success and unfold on failure; a person's choice stays", () => {
  const talk = new Transcript();
  const call = { n: 3, kind: "call", name: "Bash", state: "running" };
  assert.equal(talk.isOpen(call), true);
  assert.equal(talk.isOpen({ ...call, state: "done" }), false);
  assert.equal(talk.isOpen({ ...call, state: "failed" }), true);
  talk.folds.set(3, false);
  assert.equal(talk.isOpen({ ...call, state: "failed" }), false);
  talk.all = true;
  assert.equal(talk.isOpen({ ...call, n: 4, state: "done" }), true);
});

test("what is said word by word gives way to the record that has it whole", () => {
  const talk = new Transcript();
  talk.take({ total: 1, first: 0, records: [{ n: 0, kind: "prompt" }] });
  talk.hear("delta", { kind: "text", text: "hel" });
  talk.hear("delta", { kind: "text", text: "lo" });
  assert.deepEqual([talk.count, talk.saying.text], [2, "hello"]);
  talk.hear("record", { total: 2, item: { n: 1, kind: "reply", blocks: [] } });
  assert.deepEqual([talk.count, talk.isSaying], [2, false]);
});

test("a window asks once for each page that it lacks", () => {
  const talk = new Transcript();
  talk.take({ total: 350, first: 300, records: Array.from({ length: 50 }, (_, i) => ({ n: 300 + i })) });
  assert.deepEqual(talk.missing(290, 350), [2]);
  talk.asked.add(2);
  assert.deepEqual(talk.missing(190, 350), [1]);
});

test("a running command's output is kept within its bound", () => {
  const talk = new Transcript();
  for (let i = 0; i < 900; i += 1) talk.hear("output", { call: "c", runs: [[["", String(i)]]] });
  assert.equal(talk.output.get("c").length, 400);
  talk.hear("record", { total: 1, item: { n: 0, kind: "call", id: "c", state: "done" } });
  assert.equal(talk.output.has("c"), false);
});

test("a transcript that grows all day keeps what is around the window, and asks again for the rest", () => {
  const talk = new Transcript();
  for (let n = 0; n < 20_000; n += 1) {
    talk.hear("record", { total: n + 1, item: { n, kind: "reply" } });
    talk.asked.add(Math.floor(n / 100));
    talk.keep(Math.max(0, n - 10), n + 1);
  }
  assert.ok(talk.items.size <= 2001, `${talk.items.size} items`);
  assert.deepEqual([talk.missing(19_990, 20_000), talk.missing(100, 250)], [[], [1, 2]]);
  // One scrolls up: what is there then stays, the end goes.
  for (let page = 0; page < 30; page += 1) talk.take({ total: 20_000, first: page * 100, records: Array.from({ length: 100 }, (_, i) => ({ n: page * 100 + i })) });
  talk.keep(1000, 1020);
  assert.deepEqual([talk.missing(1000, 1020), talk.missing(19_990, 20_000), talk.items.has(600), talk.items.has(599)], [[], [199], true, false]);
});
