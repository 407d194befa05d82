//! Edit.

use std::fs;

use caliban_tools::ToolOutput;
use serde_json::json;

use crate::bench::Bench;

#[tokio::test]
async fn one_place_is_replaced_and_shown() {
    let bench = Bench::new();
    bench.put("f.rs", "fn a() {\n    one();\n}\n");
    let text = "edited f.rs: +1 -1\n     1  fn a() {\n       -    one();\n     2 +    two();\n     3  }";
    assert_eq!(
        bench.call("Edit", json!({"file_path": "f.rs", "old_string": "one()", "new_string": "two()"})).await,
        ToolOutput::text(text, "edited f.rs: +1 -1")
    );
    assert_eq!(bench.get("f.rs"), b"fn a() {\n    two();\n}\n");
}

#[tokio::test]
async fn what_is_not_exact_is_refused_with_a_hint() {
    let bench = Bench::new();
    bench.put("f", "a\n\tb = 1\na\n");
    let edit = async |old: &str, new: &str| {
        bench.err("Edit", json!({"file_path": "f", "old_string": old, "new_string": new})).await
    };
    assert_eq!(
        edit("a\n", "x\n").await,
        "old_string occurs 2 times in f (lines 1, 3): give more context, or set replace_all"
    );
    assert_eq!(
        edit("    b = 1", "x").await,
        "old_string was not found in f: lines 2-2 differ from it only in whitespace; they are exactly:\n\tb = 1"
    );
    assert_eq!(edit("zzz", "x").await, "old_string was not found in f");
    assert_eq!(edit("a", "a").await, "old_string and new_string are the same: nothing to change");
    assert_eq!(edit("", "a").await, "old_string is empty; use Write for a new file");
    assert_eq!(bench.get("f"), b"a\n\tb = 1\na\n");
    assert_eq!(
        bench.err("Edit", json!({"file_path": "g", "old_string": "a", "new_string": "b"})).await,
        "g does not exist; use Write for a new file"
    );
}

#[tokio::test]
async fn replace_all_replaces_all() {
    let bench = Bench::new();
    bench.put("f", "a b a\n");
    let text = bench
        .ok("Edit", json!({"file_path": "f", "old_string": "a", "new_string": "c", "replace_all": true}))
        .await;
    assert!(text.starts_with("edited f: 2 places, the first of them:\n"), "{text}");
    assert_eq!(bench.get("f"), b"c b c\n");
}

#[tokio::test]
async fn a_stale_file_is_refused_and_a_touched_one_is_not() {
    let bench = Bench::new();
    bench.put("f", "one two\n");
    bench.ok("Read", json!({"file_path": "f"})).await;
    bench.put("f", "one 222\n");
    let edit = json!({"file_path": "f", "old_string": "one", "new_string": "1"});
    assert_eq!(bench.err("Edit", edit.clone()).await, "f changed on disk since you read it: read it again");
    assert_eq!(bench.get("f"), b"one 222\n");
    bench.ok("Read", json!({"file_path": "f"})).await;
    // Written again with the same content: new times, nothing new to know.
    bench.put("f", "one 222\n");
    bench.ok("Edit", edit).await;
    bench.ok("Edit", json!({"file_path": "f", "old_string": "222", "new_string": "2"})).await;
    assert_eq!(bench.get("f"), b"1 2\n");
}

#[tokio::test]
async fn bytes_that_were_not_meant_stay() {
    let bench = Bench::new();
    bench.put("f", b"\xef\xbb\xbfone\r\ntwo\r\n\xff\xfe\r\nlast");
    bench.ok("Read", json!({"file_path": "f"})).await;
    bench.ok("Edit", json!({"file_path": "f", "old_string": "one\ntwo\n", "new_string": "1\n2\n3\n"})).await;
    assert_eq!(bench.get("f"), b"\xef\xbb\xbf1\r\n2\r\n3\r\n\xff\xfe\r\nlast");
}

#[tokio::test]
async fn edits_of_one_file_in_parallel_are_all_made() {
    let bench = Bench::new();
    let words: Vec<String> = (0..20).map(|n| format!("word{n:02}")).collect();
    bench.put("f", words.join("\n"));
    bench.ok("Read", json!({"file_path": "f"})).await;
    let edits = words.iter().map(|word| {
        let new = word.to_uppercase();
        bench.ok("Edit", json!({"file_path": "f", "old_string": word, "new_string": new}))
    });
    futures_util::future::join_all(edits).await;
    assert_eq!(fs::read_to_string(bench.path("f")).unwrap(), words.join("\n").to_uppercase());
}
