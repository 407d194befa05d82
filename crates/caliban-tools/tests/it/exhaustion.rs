//! Out of file descriptors (r13): said in words, and over when it is over.
//!
//! The limit belongs to a whole process, so the test runs itself again in one of its own.

use std::{fs::File, process::Command};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::bench::Bench;

#[test]
fn r13_out_of_descriptors_is_said_and_recovers() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "exhaustion::r13_inside", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "run by r13_out_of_descriptors_is_said_and_recovers"]
async fn r13_inside() {
    let bench = Bench::new();
    bench.put("d/f", "needle\n");
    bench.ok("Bash", json!({"command": "true"})).await;
    let before = getrlimit(Resource::Nofile);
    let mut held = Vec::new();
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: before.maximum }).unwrap();
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    let bash = bench.call("Bash", json!({"command": "true"})).await;
    let read = bench.call("Read", json!({"file_path": "d/f"})).await;
    let write = bench.call("Write", json!({"file_path": "g", "content": "x"})).await;
    let grep = bench.call("Grep", json!({"pattern": "needle"})).await;
    let glob = bench.call("Glob", json!({"pattern": "**/*"})).await;
    held.clear();
    setrlimit(Resource::Nofile, before).unwrap();
    let helper = crate::bench::helper();
    let start = format!("the command could not be started ({}): too many files are open", helper.display());
    assert_eq!(bash.joined_text(), start);
    assert_eq!(read.joined_text(), "d/f: too many files are open");
    assert_eq!(write.joined_text(), "g: too many files are open");
    assert!(grep.joined_text().contains("could not be searched"), "{}", grep.joined_text());
    assert!(glob.joined_text().contains("could not be read"), "{}", glob.joined_text());
    bench.ok("Bash", json!({"command": "true"})).await;
    assert_eq!(bench.ok("Read", json!({"file_path": "d/f"})).await, "     1\tneedle\n");
    assert_eq!(bench.ok("Grep", json!({"pattern": "needle"})).await, "d/f");
}
