//! apply_patch.

use caliban_core::access::Access;
use caliban_tools::{CallContext, ToolOutput, apply_patch};
use serde_json::json;

use crate::bench::Bench;

impl Bench {
    /// Judged and called, as the loop does it.
    async fn patch(&self, lines: &str) -> ToolOutput {
        let tool = apply_patch(&self.workspace);
        let input = json!({"input": format!("*** Begin Patch\n{lines}\n*** End Patch")});
        if let Err(error) = tool.access(&input) {
            return ToolOutput::error(error);
        }
        tool.call(input, CallContext { id: "c1", cancel: &self.cancel, progress: &|_| {}, fence: None }).await
    }
}

#[tokio::test]
async fn files_are_added_updated_moved_and_removed() {
    let bench = Bench::new();
    bench.put("a.py", "def f():\n    return 1\n\ndef g():\n    return 1\n");
    bench.put("old.txt", "x\n");
    bench.put("gone.txt", "");
    let output = bench
        .patch(
            "*** Add File: new/b.py\n+print(1)\n*** Update File: a.py\n@@ def g():\n-    return 1\n+    return 2\n\
             *** Update File: old.txt\n*** Move to: moved.txt\n-x\n+y\n*** Delete File: gone.txt",
        )
        .await;
    assert!(!output.is_error, "{}", output.joined_text());
    assert_eq!(
        output.summary,
        "added new/b.py, updated a.py, added moved.txt, removed old.txt, removed gone.txt"
    );
    assert_eq!(bench.get("new/b.py"), b"print(1)\n");
    assert_eq!(bench.get("a.py"), b"def f():\n    return 1\n\ndef g():\n    return 2\n");
    assert_eq!(bench.get("moved.txt"), b"y\n");
    assert!(!bench.path("old.txt").exists() && !bench.path("gone.txt").exists());
}

#[tokio::test]
async fn a_patch_that_does_not_fit_changes_nothing() {
    let bench = Bench::new();
    bench.put("a", "one\n");
    bench.put("b", "two\n");
    let output = bench.patch("*** Update File: a\n-one\n+1\n*** Update File: b\n-three\n+3").await;
    assert!(output.is_error);
    let text = "b: piece 1 was not found in the file (in order, from line 1):\nthree\n[nothing was changed]";
    assert_eq!(output.joined_text(), text);
    assert_eq!((bench.get("a"), bench.get("b")), (b"one\n".to_vec(), b"two\n".to_vec()));
    let output = bench.patch("*** Add File: a\n+x").await;
    assert_eq!(output.joined_text(), "a exists already; use `*** Update File`\n[nothing was changed]");
    let output = bench.patch("*** Update File: a\n-one\n+1\n*** Delete File: a").await;
    assert_eq!(output.joined_text(), "apply_patch: a is named twice; one patch changes a file once");
}

#[tokio::test]
async fn every_path_of_a_patch_is_judged() {
    let bench = Bench::new();
    let text = "*** Begin Patch\n*** Update File: a\n*** Move to: ../b\n-x\n+y\n*** Delete File: /etc/c\n*** End Patch";
    let root = &bench.root;
    assert_eq!(
        apply_patch(&bench.workspace).access(&json!({"input": text})),
        Ok(vec![
            Access::Write(root.join("a")),
            Access::Write(root.join("../b")),
            Access::Write("/etc/c".into())
        ])
    );
}
