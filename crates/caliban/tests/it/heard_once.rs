//! What is said at a resume is heard once, whenever the worker is killed.

use serde_json::{Value, json};
use testkit::{StepExt, script, text, wait_until};

use crate::fleet::{Fleet, id_of};

/// The directory of an agent.
pub(crate) fn directory(fleet: &Fleet, id: &str) -> std::path::PathBuf {
    let repos = std::fs::read_dir(fleet.place.env.data().join("caliban/repos")).unwrap();
    let mut found = repos.map(|repo| repo.unwrap().path().join("agents").join(id)).filter(|dir| dir.is_dir());
    found.next().unwrap()
}

fn kill(pid: &Value) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid.as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// How often each of these is in what the model was asked last.
fn counts(fleet: &Fleet, words: &[&str]) -> Vec<usize> {
    let heard = fleet.place.server.model_requests().pop().unwrap().body["messages"].to_string();
    words.iter().map(|word| heard.matches(word).count()).collect()
}

#[test]
fn what_was_recorded_when_the_worker_was_killed_is_not_said_again() {
    let fleet = Fleet::new(script![text("hello").forever()]);
    let id = fleet.bg("the task", ["--isolation", "none"]);
    fleet.wait_for(&id, "done");
    fleet.place.server.hold();
    fleet.run(["resume", &id, "--prompt", "first word"]).ok();
    fleet.place.server.wait_for_requests(2);
    // It has heard it. The instant in which that is recorded and the order is still there is made to last.
    let dir = directory(&fleet, &id);
    assert!(!dir.join("resume.json").exists());
    let nonce = fleet.place.env.read(dir.join("launch.json"));
    let nonce = serde_json::from_str::<Value>(&nonce).unwrap()["nonce"].as_str().unwrap().to_owned();
    let order = json!({
        "nonce": nonce,
        "messages": [{"id": format!("resume-{nonce}"), "text": "first word"}],
    });
    fleet.place.env.write(dir.join("resume.json"), order.to_string());
    kill(&fleet.row(&id)["pid"]);
    fleet.wait_for(&id, "crashed");
    fleet.place.server.release();
    fleet.run(["resume", &id, "--prompt", "second word"]).ok();
    fleet.wait_for(&id, "done");
    assert_eq!(counts(&fleet, &["the task", "first word", "second word"]), [1, 1, 1]);
    wait_until("nothing waits to be heard", || !dir.join("resume.json").exists());
}

#[test]
fn what_was_not_recorded_when_the_worker_was_killed_is_said_once_with_what_is_said_next() {
    let fleet = Fleet::new(script![text("hello").forever()]);
    let place = fleet.place.repo.join("place");
    std::fs::create_dir(&place).unwrap();
    let spawn = fleet.place.caliban().args(["--bg", "the task", "--isolation", "none"]);
    let id = id_of(&spawn.dir(&place).output().ok());
    fleet.wait_for(&id, "done");
    // Runs that end before a worker can have heard anything.
    std::fs::remove_dir(&place).unwrap();
    for word in ["first word", "second word"] {
        fleet.run(["resume", &id, "--prompt", word]).ok();
        fleet.wait_for(&id, "failed");
    }
    std::fs::create_dir(&place).unwrap();
    fleet.run(["resume", &id, "--prompt", "third word"]).ok();
    fleet.wait_for(&id, "done");
    assert_eq!(counts(&fleet, &["the task", "first word", "second word", "third word"]), [1, 1, 1, 1]);
    let told = directory(&fleet, &id).join("resume.json");
    wait_until("nothing waits to be heard", || !told.exists());
}

#[test]
fn what_is_said_at_a_resume_is_in_the_first_request_to_the_model_behind_the_task() {
    let fleet = Fleet::new(script![text("hello").forever()]);
    let ready = fleet.place.env.home().join("ready");
    fleet.settings(&format!("[worktrees]\nsetup = \"test -e '{}'\"\n", ready.display()));
    let id = fleet.bg("mend everything", []);
    fleet.wait_for(&id, "failed");
    std::fs::write(&ready, "").unwrap();
    fleet.run(["resume", &id, "--prompt", "but not the docs"]).ok();
    fleet.wait_for(&id, "done");
    let asked = fleet.place.server.model_requests();
    let first = asked[0].body["messages"].to_string();
    let places: Vec<_> = ["mend everything", "but not the docs"].map(|word| first.find(word)).into();
    assert!(places[0].is_some() && places[0] < places[1], "{first}");
    assert_eq!(asked.len(), 1, "it was asked once, with all of it");
    assert_eq!(counts(&fleet, &["mend everything", "but not the docs"]), [1, 1]);
}
