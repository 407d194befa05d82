//! Write.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
};

use caliban_tools::{CallContext, ToolOutput};
use serde_json::json;

use crate::bench::Bench;

#[tokio::test]
async fn a_new_file_and_its_directories_are_made() {
    let bench = Bench::new();
    assert_eq!(
        bench.call("Write", json!({"file_path": "a/b/f", "content": "one\ntwo\n"})).await,
        ToolOutput::text("created a/b/f: 2 lines", "created a/b/f: 2 lines")
    );
    assert_eq!(bench.get("a/b/f"), b"one\ntwo\n");
    assert_eq!(
        bench.ok("Write", json!({"file_path": "a/b/f", "content": "three"})).await,
        "overwrote a/b/f: 1 line"
    );
    assert_eq!(bench.get("a/b/f"), b"three");
}

#[tokio::test]
async fn an_existing_file_must_be_known_as_it_is() {
    let bench = Bench::new();
    bench.put("f", "theirs");
    let write = json!({"file_path": "f", "content": "mine"});
    assert_eq!(
        bench.err("Write", write.clone()).await,
        "f exists and you have not read it: read it first, or use Edit"
    );
    bench.ok("Read", json!({"file_path": "f"})).await;
    bench.put("f", "newer!");
    assert_eq!(bench.err("Write", write.clone()).await, "f changed on disk since you read it: read it again");
    assert_eq!(bench.get("f"), b"newer!");
    bench.ok("Read", json!({"file_path": "f"})).await;
    bench.ok("Write", write).await;
    assert_eq!(bench.get("f"), b"mine");
}

#[tokio::test]
async fn what_one_agent_read_another_has_not() {
    let bench = Bench::new();
    bench.put("f", "x");
    bench.ok("Read", json!({"file_path": "f"})).await;
    let sibling = bench.sibling();
    let write = sibling.iter().find(|tool| tool.spec().name == "Write").unwrap();
    let call = CallContext { id: "c", cancel: &bench.cancel, progress: &|_| {}, fence: None };
    let output = write.call(json!({"file_path": "f", "content": "y"}), call).await;
    assert_eq!(output, ToolOutput::error("f exists and you have not read it: read it first, or use Edit"));
}

#[tokio::test]
async fn links_are_written_through_and_modes_kept() {
    let bench = Bench::new();
    bench.put("real", "old");
    fs::set_permissions(bench.path("real"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("real", bench.path("link")).unwrap();
    symlink("made/later", bench.path("dangling")).unwrap();
    bench.ok("Read", json!({"file_path": "link"})).await;
    bench.ok("Write", json!({"file_path": "link", "content": "new"})).await;
    assert!(fs::symlink_metadata(bench.path("link")).unwrap().is_symlink());
    assert_eq!(bench.get("real"), b"new");
    assert_eq!(fs::metadata(bench.path("real")).unwrap().permissions().mode() & 0o777, 0o755);
    bench.ok("Write", json!({"file_path": "dangling", "content": "x"})).await;
    assert_eq!(bench.get("made/later"), b"x");
    assert!(fs::symlink_metadata(bench.path("dangling")).unwrap().is_symlink());
}

#[tokio::test]
async fn a07_a_directory_swapped_for_a_link_after_the_judgement_is_not_written_through() {
    let bench = Bench::new();
    bench.put("src/keep", "");
    bench.put("outside/keep", "");
    let input = json!({"file_path": "src/f", "content": "x"});
    bench.access("Write", input.clone()).unwrap();
    fs::rename(bench.path("src"), bench.path("moved")).unwrap();
    symlink("outside", bench.path("src")).unwrap();
    let output = bench.call_only("Write", input).await;
    assert!(output.is_error);
    assert!(output.joined_text().ends_with("now; nothing was touched"), "{}", output.joined_text());
    assert!(!bench.path("outside/f").exists());
}

#[tokio::test]
async fn what_cannot_be_written_is_said() {
    let bench = Bench::new();
    bench.put("file", "");
    fs::create_dir(bench.path("dir")).unwrap();
    let error = async |path: &str| bench.err("Write", json!({"file_path": path, "content": "x"})).await;
    assert_eq!(error("dir").await, "dir: it is a directory");
    assert_eq!(error("file/x").await, "file/x: a part of the path is not a directory");
    assert_eq!(error("/dev/null").await, "/dev/null: it is not a regular file");
    let long = "x".repeat(300);
    assert_eq!(error(&long).await, format!("{long}: the name is too long or not valid"));
    // Nobody, root included, makes files there.
    let text = error("/proc/caliban-test").await;
    assert!(text.starts_with("/proc/caliban-test was not written: "), "{text}");
}

#[tokio::test]
async fn a_full_disk_and_a_read_only_one_leave_the_old_file() {
    let bench = Bench::new();
    let disk = bench.path("disk");
    let Some(_small) = testkit::SmallDisk::mount(&disk, "64k") else { return };
    bench.put("disk/f", "old");
    bench.ok("Read", json!({"file_path": "disk/f"})).await;
    let big = json!({"file_path": "disk/f", "content": "x".repeat(200_000)});
    let full = bench.err("Write", big).await;
    let names: Vec<_> = fs::read_dir(&disk).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let content = bench.get("disk/f");
    let mount = Command::new("mount").args(["-o", "remount,ro,size=64k"]).arg(&disk).output();
    let remounted = mount.is_ok_and(|output| output.status.success());
    let read_only = bench.err("Write", json!({"file_path": "disk/f", "content": "y"})).await;
    assert_eq!(full, "disk/f was not written: no space left on the device");
    assert_eq!(names, ["f"]);
    assert_eq!(content, b"old");
    if remounted {
        assert_eq!(read_only, "disk/f was not written: the file system is read-only");
    }
}

#[tokio::test]
async fn a_cancelled_call_changes_nothing() {
    let bench = Bench::new();
    bench.cancel.cancel();
    assert_eq!(
        bench.call("Write", json!({"file_path": "f", "content": "x"})).await,
        ToolOutput::error("interrupted before it was done")
    );
    assert!(!bench.path("f").exists());
}

#[tokio::test]
async fn what_was_never_seen_is_not_overwritten() {
    let bench = Bench::new();
    let refused = |path: &str| {
        format!(
            "{path} holds more than you have seen: Read showed a part of it, or could not show all of it as it is, and \
             Write would lose the rest. Read all of it, or use Edit"
        )
    };
    let write = async |path: &str| bench.call("Write", json!({"file_path": path, "content": "mine\n"})).await;
    let lines: String = (1..=5_000).map(|line| format!("line {line}\n")).collect();
    let cut = format!("short\n{}\n", "x".repeat(100_000));
    bench.put("long", &lines);
    bench.put("cut", &cut);
    fs::write(bench.path("latin"), b"caf\xe9\n").unwrap();
    bench.ok("Read", json!({"file_path": "long", "limit": 5})).await;
    bench.ok("Read", json!({"file_path": "cut"})).await;
    bench.ok("Read", json!({"file_path": "latin"})).await;
    for path in ["long", "cut", "latin"] {
        assert_eq!(write(path).await, ToolOutput::error(refused(path)));
    }
    assert_eq!(bench.get("long"), lines.as_bytes());
    assert_eq!(bench.get("cut"), cut.as_bytes());
    assert_eq!(bench.get("latin"), b"caf\xe9\n");
    // Who has read on to the end may.
    for offset in [6, 2_006] {
        bench.ok("Read", json!({"file_path": "long", "offset": offset})).await;
        assert_eq!(write("long").await, ToolOutput::error(refused("long")));
    }
    bench.ok("Read", json!({"file_path": "long", "offset": 4_006})).await;
    assert!(!write("long").await.is_error);
    assert_eq!(bench.get("long"), b"mine\n");
}

#[tokio::test]
async fn line_ends_and_a_byte_order_mark_stay() {
    let bench = Bench::new();
    fs::write(bench.path("f"), b"\xef\xbb\xbfone\r\ntwo\r\n").unwrap();
    bench.ok("Read", json!({"file_path": "f"})).await;
    assert_eq!(
        bench.call("Write", json!({"file_path": "f", "content": "three\nfour\n"})).await,
        ToolOutput::text(
            "overwrote f: 2 lines\n[its lines end with CRLF, as before]\n[it begins with a byte order mark, as before]",
            "overwrote f: 2 lines"
        )
    );
    assert_eq!(bench.get("f"), b"\xef\xbb\xbfthree\r\nfour\r\n");
}

#[tokio::test]
async fn a_read_only_file_is_not_replaced() {
    let bench = Bench::new();
    bench.put("f", "theirs\n");
    fs::set_permissions(bench.path("f"), fs::Permissions::from_mode(0o444)).unwrap();
    bench.ok("Read", json!({"file_path": "f"})).await;
    let why = "it is read-only (mode 0444); if it shall change, make it writable first";
    assert_eq!(
        bench.err("Write", json!({"file_path": "f", "content": "mine\n"})).await,
        format!("f was not written: {why}")
    );
    assert_eq!(
        bench.err("Edit", json!({"file_path": "f", "old_string": "theirs", "new_string": "mine"})).await,
        format!("f was not changed: {why}")
    );
    assert_eq!(bench.get("f"), b"theirs\n");
    let names: Vec<_> = fs::read_dir(&bench.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["f"]);
}

#[tokio::test]
async fn other_names_of_a_file_are_told() {
    let bench = Bench::new();
    bench.put("f", "old\n");
    fs::hard_link(bench.path("f"), bench.path("g")).unwrap();
    fs::hard_link(bench.path("f"), bench.path("h")).unwrap();
    bench.ok("Read", json!({"file_path": "f"})).await;
    let told = "[the file had 2 other names (hard links): the old content stays there]";
    assert_eq!(
        bench.ok("Write", json!({"file_path": "f", "content": "new\n"})).await,
        format!("overwrote f: 1 line\n{told}")
    );
    let edited = bench.ok("Edit", json!({"file_path": "g", "old_string": "old", "new_string": "new"})).await;
    assert!(
        edited.ends_with("\n[the file had 1 other name (hard links): the old content stays there]"),
        "{edited}"
    );
    assert_eq!(
        (bench.get("f"), bench.get("g"), bench.get("h")),
        (b"new\n".into(), b"new\n".into(), b"old\n".into())
    );
}
