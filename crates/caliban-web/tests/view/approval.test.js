import assert from "node:assert/strict";
import test from "node:test";
import { denyHindrance, hindrance, rulesOf, waitMs } from "../../assets/view/approval.js";

const calm = { now: 10_000, shownAt: 0, typedAt: -Infinity, focusedAt: -Infinity, endSeen: true, isLive: true, isBusy: false };

test("a calm look at the whole call may answer", () => assert.equal(hindrance(calm), null));

test("keys and clicks within a second of an ask, of a focus click or of typing answer nothing", () => {
  assert.equal(hindrance({ ...calm, shownAt: 9_001 }), "it has just appeared");
  assert.equal(hindrance({ ...calm, shownAt: 9_000 }), null);
  assert.equal(hindrance({ ...calm, focusedAt: 9_500 }), "it has just appeared");
  assert.equal(hindrance({ ...calm, typedAt: 9_500 }), "you are typing");
  assert.equal(waitMs({ ...calm, shownAt: 9_400, typedAt: 9_800 }), 800);
});

test("a call whose end was not seen can be denied but not allowed", () => {
  assert.equal(hindrance({ ...calm, endSeen: false }), "scroll to the end of the call first");
  assert.equal(denyHindrance({ ...calm, endSeen: false }), null);
});

test("offline and twice are refused", () => {
  assert.match(String(hindrance({ ...calm, isLive: false })), /offline/);
  assert.match(String(hindrance({ ...calm, isBusy: true })), /on its way/);
});

test("rules are the lines of a text", () => {
  assert.deepEqual(rulesOf(" Bash(make) \n\nEdit(./a.txt)\n"), ["Bash(make)", "Edit(./a.txt)"]);
  assert.deepEqual(rulesOf(" \n"), []);
});
