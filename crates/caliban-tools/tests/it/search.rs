//! Glob and Grep.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    time::{Duration, SystemTime},
};

use caliban_tools::ToolOutput;
use serde_json::json;

use crate::bench::Bench;

/// Files whose times follow their order: the last is the newest.
fn files(bench: &Bench, files: &[(&str, &str)]) {
    for (index, (name, content)) in files.iter().enumerate() {
        bench.put(name, content);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + index as u64);
        File::options().append(true).open(bench.path(name)).unwrap().set_modified(time).unwrap();
    }
}

#[tokio::test]
async fn glob_lists_the_newest_first_and_respects_gitignore() {
    let bench = Bench::new();
    files(
        &bench,
        &[
            (".gitignore", "target/\n*.log\n"),
            (".git/config.rs", ""),
            ("target/a.rs", ""),
            ("src/old.rs", ""),
            ("src/deep/new.rs", ""),
            (".hidden/x.rs", ""),
            ("a.log", ""),
        ],
    );
    assert_eq!(
        bench.call("Glob", json!({"pattern": "**/*.rs"})).await,
        ToolOutput::text(".hidden/x.rs\nsrc/deep/new.rs\nsrc/old.rs", "3 files")
    );
    assert_eq!(bench.ok("Glob", json!({"pattern": "src/*.rs"})).await, "src/old.rs");
    assert_eq!(bench.ok("Glob", json!({"pattern": "new.rs"})).await, "src/deep/new.rs");
    assert_eq!(
        bench.ok("Glob", json!({"pattern": "*.rs", "path": "src"})).await,
        "src/deep/new.rs\nsrc/old.rs"
    );
    assert_eq!(bench.ok("Glob", json!({"pattern": "target/*.rs"})).await, "target/a.rs");
    assert_eq!(
        bench.ok("Glob", json!({"pattern": "*.log"})).await,
        "a.log\n[only files that .gitignore excludes]"
    );
    let absolute = format!("{}/src/**/*.rs", bench.root.display());
    assert_eq!(bench.ok("Glob", json!({"pattern": absolute})).await, "src/deep/new.rs\nsrc/old.rs");
    assert_eq!(bench.ok("Glob", json!({"pattern": "*.py"})).await, "no files match *.py");
    assert_eq!(bench.err("Glob", json!({"pattern": "nope/*"})).await, "nope does not exist");
    assert_eq!(
        bench.err("Glob", json!({"pattern": "a{"})).await,
        "`a{` is not a valid glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)"
    );
}

#[tokio::test]
async fn glob_of_a_star_lists_one_directory() {
    let bench = Bench::new();
    files(&bench, &[("a", ""), ("d/x", ""), ("d/e/y", "")]);
    let text = bench.ok("Glob", json!({"pattern": "d/*"})).await;
    let mut names: Vec<&str> = text.lines().collect();
    names.sort();
    assert_eq!(names, ["d/e/", "d/x"]);
}

#[tokio::test]
async fn glob_is_capped() {
    let bench = Bench::new();
    for n in 0..250 {
        bench.put(&format!("f{n:03}.txt"), "");
    }
    let output = bench.call("Glob", json!({"pattern": "*.txt"})).await;
    assert_eq!(output.summary, "250 files");
    let text = output.joined_text();
    assert_eq!(text.lines().count(), 201);
    assert!(text.ends_with("\n[200 of 250 shown, the newest; use a narrower pattern]"), "{text}");
}

#[tokio::test]
async fn a07_links_are_not_followed_out() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.txt"), "needle").unwrap();
    symlink(outside.path(), bench.path("link")).unwrap();
    bench.put("mine.txt", "needle");
    assert_eq!(bench.ok("Glob", json!({"pattern": "**/*.txt"})).await, "mine.txt");
    assert_eq!(bench.ok("Grep", json!({"pattern": "needle"})).await, "mine.txt");
}

#[tokio::test]
async fn grep_has_three_modes() {
    let bench = Bench::new();
    files(
        &bench,
        &[
            (".gitignore", "target/\n"),
            ("target/x", "needle"),
            ("b.rs", "one\nneedle\nthree\nNeedle\n"),
            ("a.txt", "needle needle\n"),
        ],
    );
    let grep = async |input| bench.call("Grep", input).await;
    assert_eq!(grep(json!({"pattern": "needle"})).await, ToolOutput::text("a.txt\nb.rs", "2 files"));
    assert_eq!(
        grep(json!({"pattern": "needle", "output_mode": "content"})).await,
        ToolOutput::text("a.txt:1:needle needle\nb.rs:2:needle", "2 matches in 2 files")
    );
    assert_eq!(
        grep(json!({"pattern": "needle", "output_mode": "content", "-n": false, "glob": "*.rs", "-i": true}))
            .await,
        ToolOutput::text("b.rs:needle\nb.rs:Needle", "2 matches in 1 file")
    );
    assert_eq!(
        grep(json!({"pattern": "needle", "output_mode": "count", "type": "rust", "-i": "true"})).await,
        ToolOutput::text("b.rs:2", "2 matches in 1 file")
    );
    assert_eq!(
        grep(json!({"pattern": "three", "-C": 1})).await,
        ToolOutput::text("b.rs-2-needle\nb.rs:3:three\nb.rs-4-Needle", "1 match in 1 file")
    );
    assert_eq!(
        grep(json!({"pattern": "one.needle", "output_mode": "content", "multiline": true})).await,
        ToolOutput::text("b.rs:1:one\nb.rs:2:needle", "1 match in 1 file")
    );
    assert_eq!(
        grep(json!({"pattern": "needle", "path": "b.rs", "output_mode": "content", "head_limit": 1, "-i": true}))
            .await
            .joined_text(),
        "b.rs:2:needle\n[1 of 2 lines; narrow the search or raise head_limit]"
    );
    assert_eq!(grep(json!({"pattern": "nothing"})).await, ToolOutput::text("no matches", "no matches"));
}

#[tokio::test]
async fn grep_says_what_is_wrong_with_the_call() {
    let bench = Bench::new();
    let error = async |input| bench.err("Grep", input).await;
    let text = error(json!({"pattern": "a("})).await;
    assert!(text.starts_with("Grep: not a valid regular expression: "), "{text}");
    assert!(text.ends_with("escape characters that are meant literally, such as \\{ \\( \\["), "{text}");
    let text = error(json!({"pattern": "a\\nb"})).await;
    assert!(text.ends_with("set multiline to match line ends"), "{text}");
    assert_eq!(error(json!({"pattern": "a", "path": "nope"})).await, "nope does not exist");
    assert_eq!(
        error(json!({"pattern": "a", "type": "klingon"})).await,
        "Grep: unknown file type `klingon`; use glob instead, such as *.klingon"
    );
    assert_eq!(
        error(json!({"pattern": "a", "output_mode": "lines"})).await,
        "Grep: unknown variant `lines`, expected one of `files_with_matches`, `content`, `count`"
    );
}

#[tokio::test]
async fn grep_skips_binary_files_and_survives_invalid_utf8() {
    let bench = Bench::new();
    bench.put("bin", b"needle\0");
    bench.put("latin", b"caf\xe9 needle\n");
    bench.put("long", format!("needle {}\n", "x".repeat(2_000)));
    assert_eq!(
        bench.ok("Grep", json!({"pattern": "needle", "output_mode": "content"})).await,
        format!("latin:1:caf\u{fffd} needle\nlong:1:needle {}… [line cut]", "x".repeat(493))
    );
}

#[tokio::test]
async fn grep_output_over_the_cap_is_kept_whole_in_a_file() {
    let bench = Bench::with(|options| options.limits.output_chars = 1_000);
    bench.put("f", "needle in a haystack\n".repeat(400));
    let output =
        bench.call("Grep", json!({"pattern": "needle", "output_mode": "content", "head_limit": 0})).await;
    let whole = output.whole.clone().unwrap();
    assert_eq!(fs::read_to_string(&whole).unwrap().lines().count(), 400);
    let text = output.joined_text();
    assert!(text.ends_with(&format!("[whole output: {}]", whole.display())), "{text}");
    assert!(text.chars().count() < 1_200);
}

#[tokio::test]
async fn a_cancelled_search_returns_at_once() {
    let bench = Bench::new();
    bench.put("f", "needle");
    bench.cancel.cancel();
    for (tool, input) in [("Grep", json!({"pattern": "needle"})), ("Glob", json!({"pattern": "*"}))] {
        assert_eq!(bench.call(tool, input).await, ToolOutput::error("interrupted before it was done"));
    }
}

#[tokio::test]
async fn grep_says_when_only_ignored_files_match() {
    let bench = Bench::new();
    files(
        &bench,
        &[
            (".gitignore", "build/\n"),
            ("src/a.rs", "fn a() {}"),
            ("build/gen.rs", "fn made() {}"),
            ("build/x", "made"),
        ],
    );
    assert_eq!(
        bench.ok("Grep", json!({"pattern": "made"})).await,
        "no matches\n[matches in 2 files that .gitignore excludes: build/gen.rs, build/x; give the path]"
    );
    assert_eq!(
        bench.ok("Grep", json!({"pattern": "made", "glob": "*.rs", "output_mode": "content"})).await,
        "no matches\n[matches in 1 file that .gitignore excludes: build/gen.rs; give the path]"
    );
    assert_eq!(bench.ok("Grep", json!({"pattern": "made", "path": "build/x"})).await, "build/x");
    assert_eq!(bench.ok("Grep", json!({"pattern": "fn a"})).await, "src/a.rs");
    assert_eq!(bench.ok("Grep", json!({"pattern": "nowhere"})).await, "no matches");
}
