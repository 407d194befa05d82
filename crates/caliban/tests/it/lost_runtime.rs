//! The fleet when its runtime directory goes away, when shells differ in their environment, and when the daemon is
//! stopped while somebody waits.

use serde_json::{Value, json};
use testkit::{Output, StepExt, script, text};

use crate::fleet::{Fleet, bash};

impl Fleet {
    fn daemon_pid(&self) -> Value {
        self.run(["daemon", "status", "--json"]).ok().json::<Value>()["pid"].clone()
    }

    /// A verb in a shell that differs in one variable.
    fn run_with<'a>(&self, name: &str, value: &str, args: impl IntoIterator<Item = &'a str>) -> Output {
        self.place.env.start("caliban", args).dir(&self.place.repo).env(name, value).output()
    }
}

/// One agent that asks, one that waits for a message.
fn two() -> (Fleet, String, String) {
    let fleet = Fleet::new(script![
        bash("touch asked").on_first("the asking task"),
        text("asked and done").on_first("the asking task"),
        text("hello").on_first("the talking task"),
        text("still here").on_first("the talking task"),
    ]);
    let asks = fleet.bg("the asking task", []);
    let talks = fleet.bg("the talking task", ["--interactive"]);
    fleet.wait_for_ask(&asks);
    fleet.wait_for(&talks, "idle");
    (fleet, asks, talks)
}

#[test]
fn a_fleet_whose_runtime_directory_was_wiped_is_reached_as_before() {
    let (fleet, asks, talks) = two();
    let pid = fleet.daemon_pid();
    // As systemd does when the last session ends; a tmp cleaner does the same to the other place.
    std::fs::remove_dir_all(fleet.place.env.runtime()).unwrap();
    assert_eq!(fleet.daemon_pid(), pid);
    assert_eq!(fleet.rows().len(), 2);
    fleet.run(["agents", "send", &talks, "are you there?"]).ok();
    fleet.run(["approve", "1"]).ok();
    fleet.run(["agents", "wait", &asks, &talks]).ok();
    let said = |id: &str| fleet.row(id)["last_text"].clone();
    assert_eq!((said(&asks), said(&talks)), (json!("asked and done"), json!("still here")));
    assert_eq!(fleet.daemon_pid(), pid);
    std::fs::remove_dir_all(fleet.place.env.runtime()).unwrap();
    assert_eq!(fleet.run(["daemon", "stop"]).ok().stdout, "The daemon has left; agents go on.\n");
    fleet.run(["daemon", "status"]).expect_code(1);
    let before = fleet.run(["daemon", "restart"]).ok().stdout;
    std::fs::remove_dir_all(fleet.place.env.runtime()).unwrap();
    let after = fleet.run(["daemon", "restart"]).ok().stdout;
    assert!(before.starts_with("A daemon runs with pid ") && after.starts_with("A daemon runs with pid "));
    assert_ne!(before, after);
    assert_eq!(fleet.row(&talks)["state"], json!("idle"));
}

#[test]
fn shells_with_another_runtime_directory_reach_the_same_fleet() {
    let (fleet, asks, talks) = two();
    // cron, sudo, ssh: no XDG_RUNTIME_DIR, or another TMPDIR on top.
    let cron = |args: &[&str]| fleet.run_with("XDG_RUNTIME_DIR", "", args.iter().copied());
    let status: Value = cron(&["daemon", "status", "--json"]).ok().json();
    assert_eq!(status["pid"], fleet.daemon_pid());
    cron(&["agents", "send", &talks, "from cron"]).ok();
    cron(&["approve", "1"]).ok();
    cron(&["agents", "wait", &asks, &talks]).ok();
    assert_eq!(fleet.row(&talks)["last_text"], json!("still here"));
    assert_eq!(cron(&["daemon", "stop"]).ok().stdout, "The daemon has left; agents go on.\n");
    // The next one is started there, and is found from here.
    let status: Value = {
        cron(&["agents", "list"]).ok();
        cron(&["daemon", "status", "--json"]).ok().json()
    };
    assert_eq!(status["pid"], fleet.daemon_pid());
}

#[test]
fn a_shell_with_other_data_is_told_so() {
    let (fleet, _, _) = two();
    let other = fleet.place.env.root().join("elsewhere");
    let refused = fleet.run_with("XDG_DATA_HOME", other.to_str().unwrap(), ["agents", "list"]).expect_code(1);
    let (ours, theirs) = (fleet.place.env.data(), other);
    for dir in [ours, theirs] {
        assert!(refused.stderr.contains(dir.to_str().unwrap()), "{}", refused.stderr);
    }
    assert_eq!(fleet.rows().len(), 2);
}

#[test]
fn f17_a_stop_ends_those_who_wait_with_a_word_and_a_restart_does_not() {
    let (fleet, asks, _) = two();
    let wait = || {
        let mut wait =
            fleet.place.env.start("caliban", ["agents", "wait", &asks]).dir(&fleet.place.repo).spawn();
        wait.wait_for_stderr("needs you");
        wait
    };
    let waits = wait();
    assert_eq!(fleet.run(["daemon", "stop"]).ok().stdout, "The daemon has left; agents go on.\n");
    let output = waits.wait().expect_code(1);
    assert!(
        output.stderr.ends_with(
            "error: the daemon was stopped while we waited; agents that run go on\n\
             hint: wait again: that starts the next daemon\n"
        ),
        "{}",
        output.stderr
    );
    // Nobody has started another.
    fleet.run(["daemon", "status"]).expect_code(1);
    let waits = wait();
    fleet.run(["daemon", "restart"]).ok();
    fleet.run(["approve", "1"]).ok();
    assert_eq!(waits.wait().ok().stdout, format!("{asks}  done  finished\n"));
}

#[test]
fn a_stop_says_who_waits_for_the_next_daemon() {
    let fleet = Fleet::new(script![text("one").on_first("one"), text("two").on_first("two")]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    fleet.bg("one", []);
    fleet.place.server.wait_for_requests(1);
    let waits = fleet.bg("two", []);
    assert_eq!(
        fleet.run(["daemon", "stop"]).ok().stdout,
        "The daemon has left; agents that run go on. 1 agent waits for a start, which only a daemon can give: the \
         next command that needs one starts it (caliban agents list, for one).\n"
    );
    fleet.place.server.release();
    fleet.run(["agents", "wait", &waits]).ok();
}

#[test]
fn eight_questions_in_the_evening_do_not_stop_the_queue() {
    let fleet = Fleet::new(script![bash("touch asked").on_first("asks"), text("worked").on_first("works")]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    let asks = fleet.bg("asks", []);
    fleet.wait_for_ask(&asks);
    let works = fleet.bg("works", []);
    fleet.run(["agents", "wait", &works]).ok();
    assert_eq!((fleet.state(&asks).as_str(), fleet.state(&works).as_str()), ("running", "done"));
}
