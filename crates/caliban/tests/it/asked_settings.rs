//! A background agent has the settings of the moment at which somebody asked for it.

use serde_json::json;
use testkit::{StepExt as _, script, text, wait_until};

use crate::fleet::Fleet;

/// A fleet with one place, which an agent takes that waits for its model.
fn busy() -> (Fleet, String) {
    let fleet = Fleet::new(script![text("all done").forever()]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let first = fleet.bg("the first task", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(1);
    (fleet, first)
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
    let dir = std::path::PathBuf::from(fleet.row(&queued)["dir"].as_str().unwrap());
    let rights: serde_json::Value =
        serde_json::from_str(&fleet.place.env.read(dir.join("rights.json"))).unwrap();
    assert_eq!(rights["max_turns"], json!(7));
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
    let log = fleet.place.env.read(dir.join("worker.log"));
    assert!(log.contains("it goes on with the settings of its first start"), "{log}");
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
    let dir = std::path::PathBuf::from(fleet.row(&new)["dir"].as_str().unwrap());
    wait_until("it wrote down what it may do", || dir.join("rights.json").exists());
    let rights: serde_json::Value =
        serde_json::from_str(&fleet.place.env.read(dir.join("rights.json"))).unwrap();
    assert_eq!(rights["max_turns"], json!(9));
}
