//! r11: what a person sees of an agent whose disk is full.

use std::path::PathBuf;

use serde_json::json;
use testkit::{SmallDisk, StepExt as _, script, text, tool, wait_until};

use crate::{fleet::Fleet, place::Place};

/// A small file system of its own; none, and the test is skipped, when we may not mount one.
pub(crate) struct Small(SmallDisk);

impl Small {
    pub(crate) fn mount(at: PathBuf) -> Option<Self> {
        SmallDisk::mount(at, "4m").map(Self)
    }

    /// Takes all the room that there is.
    pub(crate) fn fill(&self) -> PathBuf {
        self.0.fill()
    }
}

#[test]
fn r11_an_agent_whose_disk_is_full_says_so_and_goes_on_when_there_is_room() {
    // More than what is left in the last page of a file.
    let answer = format!("{} the end", "many words ".repeat(3000));
    let fleet = Fleet::new(script![text(answer)]);
    let Some(small) = Small::mount(fleet.place.env.data()) else { return };
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(1);
    let mut attached = fleet.place.env.start("caliban", ["attach", &id]).dir(&fleet.place.repo).spawn();
    attached.wait_for_stdout("> the task");
    let filler = small.fill();
    fleet.place.server.release();
    wait_until("it says that the disk is full", || {
        fleet.row(&id)["doing"].as_str().unwrap().starts_with("disk full: waiting for room")
    });
    let row = fleet.row(&id);
    assert_eq!(
        (&row["state"], &row["waiting_for"], &row["needs_you"]),
        (&json!("running"), &json!(null), &json!(false))
    );
    let list = fleet.run(["agents", "list"]).ok();
    assert!(list.stdout.contains("disk full: waiting for room"), "{}", list.stdout);
    attached.wait_for_stdout("disk full: waiting for room");
    std::fs::remove_file(filler).unwrap();
    fleet.run(["agents", "wait", &id]).ok();
    let output = attached.wait().ok();
    assert_eq!(output.stdout.matches("disk full").count(), 1, "{}", output.stdout);
    assert!(output.stdout.contains("the end"), "{}", output.stdout);
}

/// The answer fits into the last page of the transcript; what it took does not fit into the ledger's log.
#[test]
fn r11_an_agent_whose_ledger_has_no_room_waits_as_its_transcript_does() {
    let fleet = Fleet::new(script![tool("Bash", json!({"command": "true"})), text("all done")]);
    let Some(small) = Small::mount(fleet.place.env.data()) else { return };
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(1);
    let filler = small.fill();
    fleet.place.server.release();
    wait_until("it says that the disk is full", || {
        let row = fleet.row(&id);
        let doing = row["doing"].as_str().unwrap_or_default();
        assert_ne!(row["state"], "failed", "{row}");
        doing.starts_with("disk full: waiting for room")
    });
    let status = fleet.run(["daemon", "status"]).ok().stdout;
    assert!(status.contains("the disk is full"), "{status}");
    std::fs::remove_file(filler).unwrap();
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.state(&id), "done");
}

#[test]
fn r11_four_agents_with_worktrees_wait_while_the_data_disk_is_full() {
    // More than what is left in the last page of a file, and than the room that records of their own leave.
    let answer = format!("{} the end", "many words ".repeat(20_000));
    let fleet = Fleet::new(script![text(answer).forever()]);
    let Some(small) = SmallDisk::mount(fleet.place.env.data(), "16m") else { return };
    fleet.place.server.hold();
    let ids: Vec<String> = (0..4).map(|n| fleet.bg(&format!("task {n}"), [])).collect();
    fleet.place.server.wait_for_requests(4);
    let filler = small.fill();
    fleet.place.server.release();
    for id in &ids {
        wait_until("it says that the disk is full", || {
            let row = fleet.row(id);
            assert_ne!(row["state"], "failed", "{row}");
            row["doing"].as_str().unwrap_or_default().starts_with("disk full: waiting for room")
        });
    }
    std::fs::remove_file(filler).unwrap();
    for id in &ids {
        fleet.run(["agents", "wait", id]).ok();
        assert_eq!(fleet.state(id), "done");
    }
}

/// It waits for its worktree: nobody has heard the message yet, and that is said at once.
#[test]
fn r05_a_message_to_an_agent_that_waits_for_its_worktree_is_answered() {
    let Some((fleet, small)) = small_repo(script![text("all done").forever()]) else { return };
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let first = fleet.bg("the first task", []);
    fleet.place.server.wait_for_requests(1);
    let waiting = fleet.bg("the second task", []);
    let filler = small.fill();
    fleet.place.server.release();
    fleet.run(["agents", "wait", &first]).ok();
    wait_until("it waits for room", || {
        fleet.row(&waiting)["doing"].as_str().unwrap().starts_with("disk full: waiting for room")
    });
    // The disk is still full when the answer comes.
    let said = fleet.run(["agents", "send", &waiting, "hello"]).expect_code(1);
    let words = format!("error: agent {waiting} was not given the message: disk full: waiting for room");
    assert!(said.stderr.starts_with(&words), "{}", said.stderr);
    assert!(said.stderr.ends_with("hint: make room, then send it again\n"), "{}", said.stderr);
    std::fs::remove_file(filler).unwrap();
    fleet.run(["agents", "wait", &waiting]).ok();
    let transcript = fleet
        .place
        .env
        .read(std::path::Path::new(fleet.row(&waiting)["dir"].as_str().unwrap()).join("transcript.jsonl"));
    assert!(!transcript.contains("hello"), "{transcript}");
}

#[test]
fn r05_a_message_to_a_stopped_agent_is_refused_in_words() {
    let fleet = Fleet::new(script![text("all done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(1);
    let pid = fleet.row(&id)["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let refused = fleet.run(["agents", "send", &id, "hello"]).expect_code(1);
    // The answer does not wait for the process to go on.
    let stat = fleet.place.env.read(format!("/proc/{pid}/stat"));
    assert!(stat.contains(") T "), "{stat}");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let words = format!("error: agent {id} was not given the message: its process (pid {pid}) is stopped\n");
    let hint = format!(
        "hint: let it go on (kill -CONT {pid}), or `caliban kill {id}` and `caliban resume {id}` it\n"
    );
    assert_eq!(refused.stderr, words + &hint);
    fleet.place.server.release();
    fleet.run(["agents", "wait", &id]).ok();
}

#[test]
fn r25_r20_agents_send_nothing_while_the_ledger_is_gone_and_go_on_with_the_next_one() {
    let fleet = Fleet::new(script![tool("Bash", json!({"command": "true"})), text("all done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(1);
    let ledger = fleet.place.env.data().join("caliban/ledger.db");
    for file in ["db", "db-wal", "db-shm"] {
        std::fs::remove_file(ledger.with_extension(file)).unwrap();
    }
    fleet.place.server.release();
    wait_until("it says that the ledger is gone", || {
        let row = fleet.row(&id);
        row["doing"].as_str().unwrap_or_default().contains("the ledger was deleted or damaged")
    });
    assert_eq!(fleet.place.server.requests().len(), 1, "nothing was sent without a ledger");
    let spent = || fleet.run(["budget", "show", "--json"]).ok().stdout;
    let before = spent();
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.state(&id), "done");
    // What it had spent before counts in the new ledger, too.
    assert_ne!(before, spent());
}

/// A fleet whose repo is on a small disk, and its data on another one.
fn small_repo(script: testkit::script::Script) -> Option<(Fleet, Small)> {
    let mut fleet = Fleet::new(script);
    let env = &fleet.place.env;
    let at = env.root().join("small");
    // None when we may not mount one: that needs root.
    let small = Small::mount(at.clone())?;
    let from = fleet.place.repo.to_str().unwrap().to_owned();
    env.git(&at, &["clone", "--quiet", "--no-hardlinks", &from, "repo"]);
    fleet.place.repo = at.join("repo");
    Some((fleet, small))
}

#[test]
fn r11_agents_wait_for_room_under_the_repo_and_go_on() {
    let Some((fleet, small)) = small_repo(script![text("all done").forever()]) else { return };
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let first = fleet.bg("the first task", []);
    fleet.place.server.wait_for_requests(1);
    let queued = fleet.bg("the second task", []);
    let filler = small.fill();
    fleet.place.server.release();
    fleet.run(["agents", "wait", &first]).ok();
    wait_until("it says that the disk is full", || {
        fleet.row(&queued)["doing"].as_str().unwrap().starts_with("disk full: waiting for room")
    });
    let repo = fleet.place.repo.canonicalize().unwrap();
    let doing = format!("disk full: waiting for room ({})", repo.display());
    assert_eq!(json!([fleet.row(&queued)["state"], fleet.row(&queued)["doing"]]), json!(["running", doing]));
    let list = fleet.run(["agents", "list"]).ok().stdout;
    assert!(list.contains("disk full: waiting for room"), "{list}");
    let status = fleet.run(["daemon", "status"]).ok().stdout;
    assert!(status.contains("the disk is full: 0 KiB are left for"), "{status}");
    // One that is asked for now waits as well, and can be killed and removed meanwhile.
    let killed = fleet.bg("the third task", []);
    fleet.run(["kill", &killed]).ok();
    fleet.run(["rm", &killed]).ok();
    let refused = fleet.run(["respawn", &first]).expect_code(1);
    assert!(refused.stderr.contains("the disk is full"), "{}", refused.stderr);
    // What stays needs no room.
    let kept = fleet.run(["rm", "--keep", &first]).ok();
    assert!(fleet.worktree(&first).is_dir(), "{}", kept.stdout);
    std::fs::remove_file(filler).unwrap();
    fleet.run(["agents", "wait", &queued]).ok();
    assert_eq!(fleet.state(&queued), "done");
    // Also the next daemon's sweep leaves what was kept.
    fleet.run(["daemon", "restart"]).ok();
    fleet.run(["worktrees", "sweep"]).ok();
    assert!(fleet.worktree(&first).is_dir());
}

#[test]
fn r11_a_run_that_finds_the_disk_full_says_so_and_begins_nothing() {
    let place = Place::new(script![text("hello").forever()]);
    let Some(small) = Small::mount(place.env.data()) else { return };
    place.ask("hi", []).ok();
    let sessions = place.sessions();
    let filler = small.fill();
    for format in ["text", "json"] {
        let stderr = place.ask("hi", ["--output-format", format]).expect_code(1).stderr;
        assert!(stderr.starts_with("error: the disk is full (/"), "{stderr}");
        assert!(
            stderr.ends_with("/transcript.jsonl): nothing was begun\nhint: make room, then run it again\n"),
            "{stderr}"
        );
        assert_eq!(place.sessions(), sessions, "what was refused left nothing");
    }
    std::fs::remove_file(filler).unwrap();
    place.ask("hi", ["--continue"]).ok();
}

#[test]
fn r11_a_run_whose_disk_fills_up_says_so_once_and_goes_on_when_there_is_room() {
    let answer = format!("{} the end", "many words ".repeat(3000));
    for format in ["text", "json"] {
        let place = Place::new(script![text(answer.clone())]);
        let Some(small) = Small::mount(place.env.data()) else { return };
        place.server.hold();
        let mut running = place.caliban().args(["-p", "hi", "--output-format", format]).spawn();
        running.close_stdin();
        place.server.wait_for_requests(1);
        let filler = small.fill();
        place.server.release();
        running.wait_for_stderr("waiting for room");
        std::fs::remove_file(filler).unwrap();
        let output = running.wait().ok();
        assert!(output.stdout.contains("the end"), "{format}: {}", output.stdout);
        assert_eq!(output.stderr.matches("the disk is full").count(), 1, "{format}: {}", output.stderr);
        assert!(output.stderr.contains("`caliban --continue` goes on later"), "{format}: {}", output.stderr);
        assert!(output.stderr.contains("there is room again"), "{format}: {}", output.stderr);
    }
}

#[test]
fn r11_where_not_even_a_first_daemon_has_room_it_is_said_what_to_do() {
    let fleet = Fleet::new(script![text("never")]);
    let Some(small) = Small::mount(fleet.place.env.data()) else { return };
    small.fill();
    let refused = fleet.run(["list"]).expect_code(1);
    assert!(refused.stderr.contains("No space left on device"), "{}", refused.stderr);
    let hint = format!("\nhint: make room on the disk of {}", fleet.place.env.data().display());
    assert!(refused.stderr.contains(&hint), "{}", refused.stderr);
}
