//! Who looks on goes on looking when the daemon leaves: `logs -f`, `list --watch`, `attach` of one that is queued.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{Spawned, StepExt as _, script, text, wait_until};

use crate::fleet::{Fleet, bash};

fn start(fleet: &Fleet, args: &[&str]) -> Spawned {
    fleet.place.env.start("caliban", args).dir(&fleet.place.repo).spawn()
}

/// The daemon's pid; none when there is none. Starts none.
fn daemon(fleet: &Fleet) -> Option<i64> {
    let status = fleet.run(["daemon", "status", "--json"]);
    (status.code == 0).then(|| status.json::<Value>()["pid"].as_i64().unwrap())
}

/// Kills the daemon, and waits for the one that somebody who looks on starts.
fn kill_daemon(fleet: &Fleet) {
    let old = daemon(fleet).unwrap();
    kill_process(Pid::from_raw(i32::try_from(old).unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_until("there is another daemon", || daemon(fleet).is_some_and(|new| new != old));
}

/// A fleet with an agent that waits for its model.
fn working() -> (Fleet, String) {
    let fleet = Fleet::new(script![bash("true"), text("the end")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--permission-mode", "unattended"]);
    fleet.place.server.wait_for_requests(1);
    (fleet, id)
}

/// What is followed to the end is what there is at the end.
fn is_whole(fleet: &Fleet, id: &str, follows: [Spawned; 2]) {
    fleet.place.server.release();
    let [text, records] = follows.map(Spawned::wait).map(testkit::Output::ok);
    assert_eq!(text.stdout, fleet.run(["logs", id]).ok().stdout);
    assert!(text.stdout.contains("-- done: finished"), "{}", text.stdout);
    assert_eq!(records.stdout, fleet.run(["logs", id, "-f", "--json"]).ok().stdout);
}

fn follow(fleet: &Fleet, id: &str) -> [Spawned; 2] {
    let mut follows = [start(fleet, &["logs", "-f", id]), start(fleet, &["logs", "-f", "--json", id])];
    for follow in &mut follows {
        follow.wait_for_stdout("the task");
    }
    follows
}

#[test]
fn f11_followed_logs_outlive_a_daemon_that_is_killed() {
    let (fleet, id) = working();
    let follows = follow(&fleet, &id);
    kill_daemon(&fleet);
    is_whole(&fleet, &id, follows);
}

#[test]
fn f11_followed_logs_outlive_a_daemon_that_is_restarted_or_stopped() {
    let (fleet, id) = working();
    let mut follows = follow(&fleet, &id);
    fleet.run(["daemon", "restart"]).ok();
    fleet.run(["daemon", "stop"]).ok();
    for follow in &mut follows {
        follow.wait_for_stderr("the daemon was stopped; the agent goes on");
    }
    assert_eq!(daemon(&fleet), None, "nobody starts one that was stopped while there is nothing to ask it");
    is_whole(&fleet, &id, follows);
}

#[test]
fn f08_a_watched_list_outlives_a_daemon_that_is_killed() {
    let (fleet, id) = working();
    let mut watches = [
        start(&fleet, &["agents", "list", "--watch"]),
        start(&fleet, &["agents", "list", "--watch", "--json"]),
    ];
    for watch in &mut watches {
        watch.wait_for_stdout(&id);
    }
    kill_daemon(&fleet);
    fleet.place.server.release();
    fleet.run(["agents", "wait", &id]).ok();
    watches[0].wait_for_stdout(&format!("{id}  done  finished"));
    watches[1].wait_for_stdout(r#""state":"done""#);
    for mut watch in watches {
        watch.signal(Signal::INT);
        let output = watch.wait().ok();
        assert!(output.stdout.lines().filter(|line| line.ends_with("done  finished")).count() < 2);
    }
}

/// How far an agent is: what is shown of it never goes down.
fn progress(row: &Value) -> (u64, bool, u64) {
    let has_ended = ["done", "failed", "crashed", "killed"].contains(&row["state"].as_str().unwrap());
    (row["runs"].as_u64().unwrap(), has_ended, row["turns"].as_u64().unwrap())
}

#[test]
fn f08_a_watched_list_never_goes_back_when_daemons_are_killed() {
    let mut fleet_script = script![];
    for name in ["one", "two", "three"] {
        fleet_script.steps.extend((0..6).map(|_| bash("true").delay(100).on_first(name)));
        fleet_script.steps.push(text("the end").on_first(name));
    }
    let fleet = Fleet::new(fleet_script);
    let mut watch = start(&fleet, &["agents", "list", "--watch", "--json"]);
    let ids = ["one", "two", "three"].map(|name| fleet.bg(name, ["--permission-mode", "unattended"]));
    for _ in 0..8 {
        kill_daemon(&fleet);
    }
    fleet.run(["agents", "wait", &ids[0], &ids[1], &ids[2]]).ok();
    watch.wait_for_stdout("the end");
    kill_daemon(&fleet);
    wait_until("the list has all ends", || fleet.run(["agents", "list", "--json"]).code == 0);
    watch.signal(Signal::INT);
    let rows = watch.wait().ok().json_lines();
    for id in ids {
        let mut before = None;
        for row in rows.iter().filter(|row| row["id"] == id.as_str() && row["removed"].is_null()) {
            let now = Some(progress(row));
            assert!(before <= now, "{id}: {before:?}, then {now:?}");
            before = now;
        }
        assert!(before.is_some(), "{id} was shown");
    }
}

#[test]
fn f10_who_waits_for_a_queued_agent_outlives_a_daemon_that_is_killed() {
    let fleet = Fleet::new(script![text("the answer").forever()]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let first = fleet.bg("the first", []);
    fleet.place.server.wait_for_requests(1);
    let second = fleet.bg("the second", []);
    let mut attached = start(&fleet, &["attach", &second]);
    attached.wait_for_stderr("queued, next to start; waiting");
    kill_daemon(&fleet);
    fleet.place.server.release();
    let output = attached.wait().ok();
    assert!(output.stdout.contains("the answer"), "{}", output.stdout);
    assert!(output.stdout.contains("-- done: finished"), "{}", output.stdout);
    fleet.run(["agents", "wait", &first]).ok();
}
