//! `agents list --all-repos`: every fleet of the data directory, without waking any.

use serde_json::{Value, json};
use testkit::{script, text, wait_until};

use crate::fleet::{Fleet, id_of};

#[test]
fn the_agents_of_all_repos_are_listed_and_no_daemon_is_started() {
    let fleet = Fleet::new(script![text("done")]);
    let env = &fleet.place.env;
    let other = env.repo();
    let here = fleet.bg("in the first", ["--label", "first"]);
    let args = fleet.place.server.args(fleet.place.protocol);
    let bg = env.start("caliban", &args).args(["--bg", "in the second", "--label", "second"]).dir(&other);
    let there = id_of(&bg.output().ok());
    fleet.run(["agents", "wait", &here]).ok();
    env.run_in(&other, ["agents", "wait", &there]).ok();
    for repo in [&fleet.place.repo, &other] {
        wait_until("its work is looked at", || {
            let rows: Vec<Value> = env.run_in(repo, ["agents", "list", "--json"]).ok().json();
            rows.iter().all(|row| !row["review"].is_null())
        });
    }
    env.run_in(&other, ["daemon", "stop"]).ok();

    let outside = env.work();
    let list =
        |more: &[&str]| env.run_in(&outside, ["agents", "list", "--all-repos"].iter().chain(more)).ok();
    let told = |rows: &[Value]| -> Vec<Value> {
        let field = |row: &Value, name: &str| row[name].clone();
        let names = ["repo", "id", "label", "state", "daemon", "doing"];
        rows.iter().map(|row| names.iter().map(|name| field(row, name)).collect()).collect()
    };
    let rows: Vec<Value> = list(&["--json"]).json();
    assert_eq!(
        told(&rows),
        [
            json!([fleet.place.repo, here, "first", "done", true, "finished, nothing changed"]),
            json!([other, there, "second", "done", false, "finished, nothing changed"]),
        ]
    );
    // What a daemon says and what is read without one are the same, but for that.
    let mut direct: Vec<Value> = env.run_in(&other, ["agents", "list", "--json"]).ok().json();
    env.run_in(&other, ["daemon", "stop"]).ok();
    let mut read = rows[1].clone();
    for row in [&mut read, &mut direct[0]] {
        row.as_object_mut().unwrap().retain(|name, _| !["age_ms", "repo", "daemon"].contains(&name.as_str()));
    }
    assert_eq!(read, direct[0]);

    let text = list(&[]).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], fleet.place.repo.to_str().unwrap(), "{text}");
    assert!(lines[2].contains(&here), "{text}");
    assert_eq!(lines[3], format!("{} (no daemon: as it was left)", other.display()), "{text}");
    assert!(lines[5].contains(&there), "{text}");
    // Neither there nor where we are.
    for dir in [&other, &outside] {
        env.run_in(dir, ["daemon", "status"]).expect_code(1);
    }
    let both = env.run_in(&outside, ["agents", "list", "--all-repos", "--watch"]).expect_code(2);
    assert!(both.stderr.contains("--watch"), "{}", both.stderr);
}

#[test]
fn a_registry_that_cannot_be_read_hides_no_other() {
    let fleet = Fleet::new(script![text("done")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let repos = fleet.place.env.data().join("caliban/repos");
    fleet.place.env.write(repos.join("0123456789abcdef/repo"), "/gone\n");
    fleet.place.env.write(repos.join("0123456789abcdef/fleet.db"), "this is no database");
    let output = fleet.run(["agents", "list", "--all-repos", "--json"]).ok();
    let rows: Vec<Value> = output.json();
    assert_eq!((rows.len(), &rows[0]["id"]), (1, &json!(id)));
    assert!(output.stderr.contains("0123456789abcdef"), "{}", output.stderr);
    assert_eq!(fleet.place.env.read(repos.join("0123456789abcdef/fleet.db")), "this is no database");
}

#[test]
fn an_agent_without_a_daemon_is_told_by_what_it_left_and_its_registry_is_not_touched() {
    let fleet = Fleet::new(script![text("done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    fleet.wait_for(&id, "running");
    let status: Value = fleet.run(["daemon", "status", "--json"]).ok().json();
    let kill = format!("kill -9 {}", status["pid"]);
    testkit::ProgramRun::new(fleet.place.env.program("sh")).args(["-c", &kill]).output().ok();
    let base = std::path::PathBuf::from(status["base"].as_str().unwrap());
    let registry = || -> Vec<(String, Vec<u8>)> {
        let entries = std::fs::read_dir(&base).unwrap().map(|entry| entry.unwrap());
        let files = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("fleet.db"));
        let mut files: Vec<_> = files
            .map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let runtime = || std::fs::read_dir(fleet.place.env.runtime().join("caliban")).unwrap().count();
    let before = (registry(), runtime());
    let row = || -> (Value, Value, Value) {
        let rows: Vec<Value> = fleet.run(["agents", "list", "--all-repos", "--json"]).ok().json();
        (rows[0]["id"].clone(), rows[0]["state"].clone(), rows[0]["daemon"].clone())
    };
    testkit::wait_until("the daemon is gone", || row().2 == json!(false));
    assert_eq!(row(), (json!(id), json!("running"), json!(false)));
    fleet.place.server.release();
    testkit::wait_until("it is seen to have ended", || row().1 == "done");
    // Neither the store, nor its log, nor our own directory have more than they had.
    assert_eq!((registry(), runtime()), before);
}
