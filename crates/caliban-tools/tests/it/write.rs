//! Write.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
};

use caliban_tools::{Call, ToolOutput};
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
    let call = Call { id: "c", cancel: &bench.cancel, progress: &|_| {} };
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
    fs::create_dir(&disk).unwrap();
    let mount = |options: &str| {
        Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&disk).output()
    };
    if !mount("size=64k").is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this machine does not let us mount a small file system");
        return;
    }
    bench.put("disk/f", "old");
    bench.ok("Read", json!({"file_path": "disk/f"})).await;
    let big = json!({"file_path": "disk/f", "content": "x".repeat(200_000)});
    let full = bench.err("Write", big).await;
    let names: Vec<_> = fs::read_dir(&disk).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let content = bench.get("disk/f");
    let remounted = mount("remount,ro,size=64k").is_ok_and(|output| output.status.success());
    let read_only = bench.err("Write", json!({"file_path": "disk/f", "content": "y"})).await;
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
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
