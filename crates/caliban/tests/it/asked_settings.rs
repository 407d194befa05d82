//! A background agent has the settings of the moment at which somebody asked for it.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{StepExt as _, script, text, wait_until};

use crate::fleet::{Fleet, bash};

/// A fleet with one place, which an agent takes that waits for its model.
fn busy() -> (Fleet, String) {
    let fleet = Fleet::new(script![text("all done").forever()]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let first = fleet.bg("the first task", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(1);
    (fleet, first)
}

fn dir(fleet: &Fleet, id: &str) -> PathBuf {
    PathBuf::from(fleet.row(id)["dir"].as_str().unwrap())
}

/// What its last run was allowed.
fn max_turns(fleet: &Fleet, id: &str) -> Value {
    let rights: Value =
        serde_json::from_str(&fleet.place.env.read(dir(fleet, id).join("rights.json"))).unwrap();
    rights["max_turns"].clone()
}

#[test]
fn an_agent_that_waits_in_the_queue_has_the_settings_of_its_asking() {
    let (fleet, first) = busy();
    let path = fleet.place.env.config().join("caliban/settings.toml");
    let sound = fleet.place.env.read(&path);
    fleet.place.env.write(&path, format!("{sound}[limits]\nmax_turns = 7\n"));
    let queued = fleet.bg("the second task", []);
    // What somebody writes meanwhile is not finished.
    fleet.place.env.write(&path, format!("{sound}[limits]\nmax_turns = \n"));
    fleet.place.server.release();
    fleet.run(["agents", "wait", &first, &queued]).ok();
    assert_eq!(fleet.row(&queued)["ending"], json!({"how": "finished"}));
    assert_eq!(max_turns(&fleet, &queued), 7);
    // A run that goes on has the settings of then; where these cannot be used, those of the first one.
    fleet.place.env.write(&path, sound.as_str());
    fleet.place.server.hold();
    let third = fleet.bg("the third task", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(3);
    fleet.run(["resume", &queued, "--prompt", "go on"]).ok();
    fleet.place.env.write(&path, "[[[");
    fleet.place.server.release();
    fleet.run(["agents", "wait", &third, &queued]).ok();
    let row = fleet.row(&queued);
    assert_eq!(json!([row["runs"], row["ending"]]), json!([2, {"how": "finished"}]));
    let log = fleet.place.env.read(dir(&fleet, &queued).join("worker.log"));
    assert!(log.contains("it goes on with the settings of its first start"), "{log}");
}

#[test]
fn a_task_that_is_begun_anew_has_the_settings_of_now() {
    let fleet = Fleet::new(script![bash("true"), text("all done").forever()]);
    let path = fleet.place.env.config().join("caliban/settings.toml");
    let sound = fleet.place.env.read(&path);
    fleet.place.env.write(&path, format!("{sound}[limits]\nmax_turns = 7\n"));
    let id = fleet.bg("the task", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(max_turns(&fleet, &id), 7);
    // Its transcript is damaged, so its last run is put aside.
    let dir = dir(&fleet, &id);
    std::fs::remove_file(dir.join("transcript.jsonl")).unwrap();
    fleet.place.env.write(&path, format!("{sound}[limits]\nmax_turns = 9\n"));
    fleet.run(["resume", &id, "--from-scratch"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(max_turns(&fleet, &id), 9);
}

#[test]
fn a15_trust_that_was_taken_back_holds_for_an_agent_that_waits() {
    let (fleet, first) = busy();
    let repo = &fleet.place.repo;
    let hook = "[[hooks.SessionStart]]\ncommand = 'touch \"$CALIBAN_PROJECT_DIR/ran\"'\n";
    fleet.place.env.write(repo.join(".caliban/settings.toml"), hook);
    fleet.run(["trust"]).ok();
    let trusted = fleet.bg("the second task", ["--isolation", "none"]);
    std::fs::remove_file(repo.join(".caliban/settings.toml")).unwrap();
    let (ran, aside) = (repo.join("ran"), repo.join("ran-before"));
    fleet.place.server.release();
    fleet.run(["agents", "wait", &first, &trusted]).ok();
    // The content is of the asking …
    std::fs::rename(&ran, &aside).unwrap();
    fleet.place.server.hold();
    let third = fleet.bg("the third task", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(3);
    fleet.place.env.write(repo.join(".caliban/settings.toml"), hook);
    let waits = fleet.bg("the fourth task", ["--isolation", "none"]);
    std::fs::remove_file(repo.join(".caliban/settings.toml")).unwrap();
    fleet.run(["trust", "remove", "."]).ok();
    fleet.place.server.release();
    fleet.run(["agents", "wait", &third, &waits]).ok();
    // … and the permission is of now.
    assert!(!ran.exists());
    let log = fleet.place.env.read(dir(&fleet, &waits).join("worker.log"));
    assert!(log.contains(".caliban/settings.toml ignored: you have not trusted this repo"), "{log}");
}

#[test]
fn a_respawn_has_the_settings_of_now() {
    let (fleet, first) = busy();
    let path = fleet.place.env.config().join("caliban/settings.toml");
    let sound = fleet.place.env.read(&path);
    fleet.place.env.write(&path, format!("{sound}[limits]\nmax_turns = 7\n"));
    let queued = fleet.bg("the second task", []);
    fleet.place.env.write(&path, format!("{sound}[limits]\nmax_turns = 9\n"));
    let new = fleet.run(["respawn", &queued]).ok().stdout.trim().to_owned();
    fleet.place.env.write(&path, "[[[");
    fleet.place.server.release();
    fleet.run(["agents", "wait", &first, &new]).ok();
    wait_until("it wrote down what it may do", || dir(&fleet, &new).join("rights.json").exists());
    assert_eq!(max_turns(&fleet, &new), 9);
}

#[test]
fn settings_that_are_too_long_for_a_variable_are_handed_over_all_the_same() {
    let (fleet, first) = busy();
    let path = fleet.place.env.config().join("caliban/settings.toml");
    let sound = fleet.place.env.read(&path);
    let long = "# what the user has to say about it\n".repeat(6_000);
    fleet.place.env.write(&path, format!("{sound}[limits]\nmax_turns = 7\n{long}"));
    let queued = fleet.bg("the second task", []);
    fleet.place.env.write(&path, sound.as_str());
    fleet.place.server.release();
    fleet.run(["agents", "wait", &first, &queued]).ok();
    assert_eq!(max_turns(&fleet, &queued), 7);
}
