import assert from "node:assert/strict";
import test from "node:test";
import { qrBox, qrPath } from "../../assets/view/qr.js";

test("dark modules are drawn as runs, with a light margin around", () => {
  assert.equal(qrPath(["110", "000", "101"]), "M0 0h2v1h-2zM0 2h1v1h-1zM2 2h1v1h-1z");
  assert.equal(qrBox(["110", "000", "101"]), "-4 -4 11 11");
});
