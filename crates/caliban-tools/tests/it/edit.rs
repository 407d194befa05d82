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
async fn after_an_outside_change_a_unique_match_is_edited_and_nothing_else() {
    let bench = Bench::new();
    bench.put("f", "one two\n");
    bench.ok("Read", json!({"file_path": "f"})).await;
    bench.put("f", "one 222\nthree\n");
    let edit = |old: &str, all: bool| json!({"file_path": "f", "old_string": old, "new_string": "1", "replace_all": all});
    let text = bench.ok("Edit", edit("one", false)).await;
    let note = "[the file had changed on disk since you read it; the edit fits what is there now]";
    assert!(text.ends_with(note), "{text}");
    // Of the rest it knows nothing: Write would lose it.
    let write = json!({"file_path": "f", "content": "mine\n"});
    let error = bench.err("Write", write).await;
    assert!(error.starts_with("f holds more than you have seen"), "{error}");
    bench.put("f", "1 222\n3\n");
    let missing = bench.err("Edit", edit("three", false)).await;
    let words = "old_string was not found in f\n[the file changed on disk since you read it: read it again]";
    assert_eq!(missing, words);
    assert_eq!(
        bench.err("Edit", edit("2", true)).await,
        "f changed on disk since you read it: read it again"
    );
    assert_eq!(bench.get("f"), b"1 222\n3\n");
    bench.ok("Read", json!({"file_path": "f"})).await;
    // Written again with the same content: new times, nothing new to know.
    bench.put("f", "1 222\n3\n");
    assert!(!bench.ok("Edit", edit("222", false)).await.contains("changed on disk"));
    assert_eq!(bench.get("f"), b"1 1\n3\n");
}

#[tokio::test]
async fn several_edits_are_made_in_order_or_not_at_all() {
    let bench = Bench::new();
    bench.put("f", "one\ntwo\nthree\n");
    let edit = |old: &str, new: &str| json!({"old_string": old, "new_string": new});
    let edits = json!([edit("one", "1"), edit("1\ntwo", "1\n2"), edit("three", "3\n4")]);
    assert_eq!(
        bench.call("Edit", json!({"file_path": "f", "edits": edits})).await,
        ToolOutput::text(
            "edited f: 3 edits, +4 -3\n       -one\n     1 +1\n     2  two\n     3  three\n  …\n     1  1\n       -two\n     2 +2\n     \
             3  three\n  …\n     1  1\n     2  2\n       -three\n     3 +3\n     4 +4",
            "edited f: 3 edits, +4 -3"
        )
    );
    assert_eq!(bench.get("f"), b"1\n2\n3\n4\n");
    // Some models send the list as text; then the first edit may also stand by itself.
    let edits = json!([edit("2", "zwei")]).to_string();
    let both = json!({"file_path": "f", "old_string": "1", "new_string": "eins", "edits": edits});
    bench.ok("Edit", both).await;
    assert_eq!(bench.get("f"), b"eins\nzwei\n3\n4\n");
    let edits = json!([edit("eins", "uno"), edit("nowhere", "x")]);
    assert_eq!(
        bench.err("Edit", json!({"file_path": "f", "edits": edits})).await,
        "edit 2 of 2: old_string was not found in f; nothing was changed"
    );
    assert_eq!(bench.get("f"), b"eins\nzwei\n3\n4\n");
}

#[tokio::test]
async fn a_near_miss_shows_the_closest_lines_and_straight_quotes_fit_curly_ones() {
    let bench = Bench::new();
    bench.put("f", "fn load(path: &Path) -> Config {\n    // don’t\n}\n");
    let edit = |old: &str, new: &str| json!({"file_path": "f", "old_string": old, "new_string": new});
    assert_eq!(
        bench.err("Edit", edit("fn load(path: &str) -> Config {", "x")).await,
        "old_string was not found in f: the closest lines are 1-1:\nfn load(path: &Path) -> Config {"
    );
    bench.ok("Edit", edit("// don't\n", "// don't stop\n")).await;
    assert_eq!(bench.get("f"), "fn load(path: &Path) -> Config {\n    // don’t stop\n}\n".as_bytes());
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

#[tokio::test]
async fn a_person_is_shown_the_lines_around_before_anything_is_changed() {
    let bench = Bench::new();
    let before: String = (1..=9).map(|line| format!("line {line}\n")).collect();
    bench.put("f", &before);
    let input = json!({"file_path": "f", "old_string": "5\n", "new_string": "five\n"});
    let tool = bench.tool("Edit");
    assert_eq!(tool.preview(&input), None, "nothing was judged");
    tool.access(&input).unwrap();
    let shown = "     2  line 2\n     3  line 3\n     4  line 4\n       -line 5\n     5 +line five\n     6  line 6\n     \
                 7  line 7\n     8  line 8";
    assert_eq!(tool.preview(&input).as_deref(), Some(shown));
    assert_eq!(bench.get("f"), before.as_bytes());
    // Nothing is left out of it, and what cannot be carried out has none.
    let long = "x".repeat(5_000);
    let input = json!({"file_path": "f", "old_string": "5\n", "new_string": format!("{long}\n").repeat(9)});
    assert_eq!(tool.preview(&input).unwrap().matches(&long).count(), 9);
    assert_eq!(tool.preview(&json!({"file_path": "f", "old_string": "no", "new_string": "x"})), None);
}
