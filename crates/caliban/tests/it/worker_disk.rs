//! r11: agents that end, or would leave memory, on a full disk.

use std::process::Command;

use serde_json::json;
use testkit::{script, text, wait_until};

use crate::{fleet::Fleet, fleet_disk::Small};

#[test]
fn r11_an_agent_that_ends_on_a_full_disk_ends_as_its_transcript_says() {
    let fleet = Fleet::new(script![text("all done")]);
    let Some(small) = Small::mount(fleet.place.env.data()) else { return };
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(1);
    // The transcript has room for what comes, and nothing else has.
    let transcript =
        std::path::PathBuf::from(fleet.row(&id)["dir"].as_str().unwrap()).join("transcript.jsonl");
    let room = Command::new("fallocate").args(["-n", "-l", "262144"]).arg(&transcript).status();
    assert!(room.is_ok_and(|status| status.success()), "fallocate");
    let filler = small.fill();
    fleet.place.server.release();
    wait_until("it has ended", || fleet.state(&id) != "running");
    let row = fleet.row(&id);
    let ended = json!(["done", {"how": "finished"}, "all done"]);
    assert_eq!(json!([row["state"], row["ending"], row["last_text"]]), ended, "{row:#}");
    fleet.run(["agents", "wait", &id]).ok();
    std::fs::remove_file(filler).unwrap();
    fleet.run(["daemon", "restart"]).ok();
    let row = fleet.row(&id);
    assert_eq!(json!([row["state"], row["ending"], row["last_text"]]), ended, "{row:#}");
}

#[test]
fn r11_an_idle_agent_stays_in_memory_while_the_disk_is_full_and_hears_what_it_is_told() {
    let fleet = Fleet::new(script![text("hello"), text("still here")]);
    let Some(small) = Small::mount(fleet.place.env.data()) else { return };
    fleet.settings("[fleet]\nidle_minutes = 1\n");
    let id = fleet.bg("the task", ["--isolation", "none", "--interactive"]);
    fleet.wait_for(&id, "idle");
    let filler = small.fill();
    // The shortest time that the settings know is a minute: longer than one wait.
    let mut doing = String::new();
    for _ in 0..3 {
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("it would sleep", || fleet.row(&id)["doing"] != "waits for your message");
        }));
        fleet.row(&id)["doing"].as_str().unwrap().clone_into(&mut doing);
        if looked.is_ok() {
            break;
        }
    }
    assert_eq!(doing, "waits for your message; disk full: stays in memory until there is room");
    let row = fleet.row(&id);
    assert_eq!(json!([row["state"], row["hibernated"], row["runs"]]), json!(["idle", false, 1]), "{row:#}");
    let mut sending = fleet.place.env.start("caliban", ["agents", "send", &id, "are you there?"]);
    sending = sending.dir(&fleet.place.repo);
    let sending = sending.spawn();
    std::fs::remove_file(filler).unwrap();
    sending.wait().ok();
    wait_until("it has answered", || fleet.row(&id)["last_text"] == "still here");
    wait_until("it is idle", || fleet.row(&id)["doing"] == "waits for your message");
    assert_eq!(fleet.row(&id)["runs"], json!(1));
}

#[test]
fn r12_an_agent_whose_transcript_cannot_be_synced_ends_failed_and_a_resume_goes_on() {
    let fleet = Fleet::new(script![text("all done"), text("once more")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--isolation", "none", "--interactive"]);
    fleet.place.server.wait_for_requests(1);
    wait_until("the daemon knows the worker", || fleet.row(&id)["pid"].is_number());
    let worker = fleet.row(&id)["pid"].to_string();
    let mut strace = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-p",
            &worker,
            "-e",
            "trace=fdatasync",
            "-e",
            "inject=fdatasync:error=EIO:when=1",
        ])
        .args(["-o", "/dev/null"])
        .spawn()
        .expect("strace starts");
    let is_traced = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    };
    wait_until("strace has the worker", || {
        let tasks = std::fs::read_dir(format!("/proc/{worker}/task")).expect("the worker lives");
        tasks.flatten().all(is_traced)
    });
    fleet.place.server.release();
    fleet.wait_for(&id, "failed");
    let row = fleet.row(&id);
    let how = row["ending"]["text"].as_str().unwrap_or_default();
    assert!(
        how.contains("its transcript cannot be written") && how.contains("Input/output error"),
        "{row:#}"
    );
    strace.wait().expect("strace ends with the worker");
    assert_ne!(fleet.run(["agents", "wait", &id]).code, 0);
    fleet.run(["resume", &id]).ok();
    fleet.wait_for(&id, "idle");
    // The answer was recorded; only the end of the turn was not. So nothing is asked again.
    assert_eq!(fleet.row(&id)["last_text"], json!("all done"));
    assert_eq!(fleet.place.server.model_requests().len(), 1);
}
