import assert from "node:assert/strict";
import test from "node:test";
import { browser } from "../../assets/base/format.js";
import { arrows, axis, FOLD_PX, lanes, legend, stretches } from "../../assets/view/evening.js";
import { bars, everyDay, dayWords } from "../../assets/view/spend.js";
import { address, stateOf, tally } from "../../assets/view/broker.js";
import { ago, money, span, took, tokens } from "../../assets/base/format.js";
import { ceiling, steps } from "../../assets/view/steps.js";
import { best } from "../../assets/view/fuzzy.js";

const at = (minute) => new Date(Date.UTC(2026, 0, 1, 20, minute)).toISOString();
const data = { agents: [{ key: "r/1", name: "auth", repo_name: "api", spans: [{ status: "queued", from: at(-300), to: at(0) }, { status: "running", is_in_turn: true, from: at(0), to: at(10) }] }, { key: "r/2", name: "sql", repo_name: "api", spans: [{ status: "running", is_in_turn: true, from: at(120), to: null }] }] };

test("idle gaps are folded, and the queue does not scale the axis", () => {
  const now = Date.parse(at(130));
  const all = lanes(data, now);
  const parts = stretches(all);
  assert.deepEqual(parts.map((it) => [it.from, it.to]), [[Date.parse(at(0)), Date.parse(at(10))], [Date.parse(at(120)), now]]);
  const line = axis(parts, 200 + FOLD_PX);
  assert.deepEqual([line.x(Date.parse(at(-300))), line.x(Date.parse(at(0))), Math.round(line.x(Date.parse(at(10)))), Math.round(line.x(Date.parse(at(120)))), Math.round(line.x(now))], [0, 0, 100, 100 + FOLD_PX, 200 + FOLD_PX]);
  assert.equal(line.gaps[0].ms, 110 * 60_000);
});

test("the legend has each status once, with the looks that the server gives it", () => {
  const look = (status) => ({ status, glyph: status[0], tone: `tone of ${status}` });
  const spans = ["running", "asks", "running"].map((status) => ({ ...look(status), from: at(0), to: at(1) }));
  const all = lanes({ agents: [{ key: "r/1", name: "auth", repo_name: "api", spans, end: look("budget") }, { key: "r/2", name: "sql", repo_name: "api", spans: [], end: null }] }, 0);
  assert.deepEqual(legend(all), ["running", "asks", "budget"].map(look));
});

test("an unknown price is a dash and never 0", () => {
  assert.deepEqual([money(null), money(0), money(4_100_000), money(400), money(12_345_678_901)], ["–", "$0", "$4.10", "<$0.01", "$12,346"]);
  assert.equal(bars([{ day: "2026-01-01", input: 5, output: 0, cache_read: 0, cache_write: 0, micro_usd: null }], "cost").days[0].isUnknown, true);
});

test("the day's spending stands beside its budget, in the kind that has one", () => {
  const day = { micro_usd: 4_100_000, is_whole: true, tokens: 900_000, budget_micro_usd: null, budget_tokens: null };
  const shown = (more) => {
    const { used, of, isNear } = dayWords({ ...day, ...more });
    return [used, of, isNear];
  };
  assert.deepEqual(shown({}), ["$4.10", "", false]);
  assert.deepEqual(shown({ budget_micro_usd: 20_000_000 }), ["$4.10", "$20.00", false]);
  assert.deepEqual(shown({ budget_micro_usd: 5_000_000 }), ["$4.10", "$5.00", true]);
  assert.deepEqual(shown({ budget_tokens: 1_000_000 }), ["900k", "1.0M tokens", true]);
  assert.deepEqual(shown({ is_whole: false }), ["$4.10+", "", false]);
  assert.deepEqual(shown({ is_whole: false, micro_usd: 0 }), ["–", "", false]);
});

test("days are named as the locale of the browser has it", () => {
  const [day] = bars([{ day: "2026-01-02", input: 10, output: 0, cache_read: 0, cache_write: 0, micro_usd: 5 }], "tokens").days;
  const named = new Date(2026, 0, 2).toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
  assert.equal(day.title.split(":")[0], named);
});

test("cache reads are a part of a day's bar", () => {
  const [day] = bars([{ day: "2026-01-02", input: 10, output: 20, cache_read: 60, cache_write: 10, micro_usd: 5 }], "tokens").days;
  assert.deepEqual(day.parts.map((it) => [it.kind, it.percent]), [["cache_read", 60], ["cache_write", 10], ["input", 10], ["output", 20]]);
});

test("times and sizes in words", () => {
  assert.deepEqual([span(59_000), span(61_000), span(7_200_000), span(200_000_000)], ["59s", "1m", "2h", "2d"]);
  assert.deepEqual([took(4), took(420), took(41_000), took(200_000)], ["4 ms", "0.4 s", "41 s", "3m 20s"]);
  assert.deepEqual([tokens(999), tokens(1_234), tokens(34_000), tokens(1_200_000)], ["999", "1.2k", "34k", "1.2M"]);
  assert.equal(ago("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:03:10Z")), "3m");
});

test("a broadcast is counted by how far it came", () => {
  assert.equal(tally([{ status: "completed" }, { status: "completed" }, { status: "input_required", delivery: "held" }, { status: "input_required", delivery: "failed" }]), "2 acked, 1 held, 1 failed");
  assert.equal(stateOf({ status: "input_required", delivery: "stored" }).word, "stored");
});

test("a message goes to the longest name that fits, or to nobody", () => {
  const agents = [{ agent_id: "1", name: "doc" }, { agent_id: "2", name: "doc writer" }];
  assert.deepEqual(address("@doc writer: go on", agents), { to: "2", name: "doc writer", text: "go on" });
  assert.deepEqual(address("@all stop", agents), { to: "*", name: "all", text: "stop" });
  assert.equal(address("@docs stop", agents), null);
  assert.equal(address("stop", agents), null);
});

test("the palette finds beginnings of words first", () => {
  const entries = ["sql-migrations", "release-notes", "slow quiet logs"].map((title) => ({ title }));
  assert.deepEqual(best("rn", entries, 9).map((it) => it.title), ["release-notes", "sql-migrations"]);
  assert.equal(best("sql", entries, 9)[0].title, "sql-migrations");
});

test("a value over time is a path of steps below a round number", () => {
  assert.deepEqual([ceiling(47_780), ceiling(0.04), ceiling(100), ceiling(0)], [50_000, 0.05, 100, 1]);
  assert.deepEqual(steps([{ at: 0, value: 1 }, { at: 5, value: null }, { at: 10, value: 4 }], 4), { line: "M0.00 75.00H100.00V0.00", area: "M0.00 75.00H100.00V0.00V100H0Z" });
  assert.deepEqual(steps([], 4), { line: "", area: "" });
});

test("arrows go from whom one waited for, was started by and was written to, between those who are shown", () => {
  const at = (minute) => new Date(minute * 60_000).toISOString();
  const agent = (id, spans, more = {}) => ({ key: `r/${id}`, name: id, repo_name: "r", spans: spans.map(([from, to, status]) => ({ from: at(from), to: to === null ? null : at(to), status })), parent: null, after: [], ended: null, ...more });
  const all = lanes({ agents: [agent("a", [[0, 10, "running"]], { ended: "done" }), agent("b", [[1, 10, "queued"], [10, null, "running"]], { after: ["a", "gone"] }), agent("c", [[12, null, "queued"]], { after: ["b"], parent: "a" })] }, 20 * 60_000);
  const messages = [{ at: at(5), from: "r/a", to: "r/b" }, { at: at(6), from: "r/a", to: "other/x" }];
  assert.deepEqual(arrows(all, messages).map((it) => [it.kind, it.from, it.to, it.at / 60_000, it.isOpen]), [
    ["after", "r/a", "r/b", 10, false],
    ["parent", "r/a", "r/c", 12, false],
    ["after", "r/b", "r/c", 20, true],
    ["message", "r/a", "r/b", 5, false],
  ]);
});

test("a device is named as people name it", () => {
  assert.equal(browser("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/156.0.0.0 Safari/537.36"), "Chrome 156 on Linux");
  assert.equal(browser("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36 Edg/156.0.0.0"), "Edge 156 on Windows");
  assert.equal(browser("Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Mobile/15E148 Safari/604.1"), "Safari 19 on iPhone");
  assert.equal(browser("curl/8"), "curl/8");
  assert.equal(browser(""), "a browser");
});

test("30 days are 30 bars, also when nothing was spent on most of them", () => {
  const days = everyDay([{ day: "2026-11-17", input: 5, output: 0, cache_read: 0, cache_write: 0, micro_usd: 7 }], 30, "2026-11-18");
  assert.equal(days.length, 30);
  assert.deepEqual([days[0].day, days[28].micro_usd, days[29].day, days[29].input], ["2026-10-20", 7, "2026-11-18", 0]);
  assert.equal(bars(days, "tokens").days.length, 30);
});
