//! What is typed at an attached terminal gets to where it was meant to go, or it is said that it did not.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{StepExt as _, Tmux, script, text, wait_until};

use crate::fleet::{Fleet, bash};

/// A terminal in the repo, with the agent attached.
fn terminal<'e>(fleet: &'e Fleet, id: &str) -> Tmux<'e> {
    let tmux = Tmux::start(&fleet.place.env, 110, 40);
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    tmux.send_text(&format!(
        "cd {} && {program} attach --plain {id}; echo left with $?",
        fleet.place.repo.display()
    ));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("Ctrl+D leaves it running");
    tmux
}

fn transcript(fleet: &Fleet, id: &str) -> String {
    fleet.place.env.read(PathBuf::from(fleet.row(id)["dir"].as_str().unwrap()).join("transcript.jsonl"))
}

/// Whether the question is so old that nobody could mean another one.
fn is_read(fleet: &Fleet) -> bool {
    let listed = fleet.run(["approvals"]).ok().stdout;
    listed.contains("s ago") && !listed.contains("  0s ago") && !listed.contains("  1s ago")
}

#[test]
fn f10_a_message_right_before_leaving_is_heard() {
    let fleet = Fleet::new(script![text("all done").forever()]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("> the task");
    tmux.send_keys(&["mind the tests", "Enter", "C-d"]);
    tmux.wait_for_text("left with 0");
    assert!(transcript(&fleet, &id).contains("mind the tests"), "{}", tmux.capture());
    fleet.place.server.release();
    fleet.run(["agents", "wait", &id]).ok();
}

#[test]
fn f10_an_answer_right_before_leaving_counts() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("y = yes");
    tmux.send_keys(&["y", "Enter", "C-d"]);
    tmux.wait_for_text("left with 0");
    assert!(transcript(&fleet, &id).contains("ask_answered"), "{}", tmux.capture());
    fleet.run(["agents", "wait", &id]).ok();
    assert!(fleet.worktree(&id).join("asked-for").exists());
}

#[test]
fn f10_a_line_that_was_begun_before_a_question_is_no_answer_to_it() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("> the task");
    tmux.send_text("yes");
    tmux.wait_for_text("\nyes");
    fleet.place.server.release();
    // What was being typed stands on a line of its own.
    tmux.wait_for_text("\nyes\n? Bash touch asked-for\n");
    wait_until("the question can have been read", || is_read(&fleet));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("begun before the question was shown, so it is no answer");
    assert!(!fleet.row(&id)["asks"].as_array().unwrap().is_empty(), "{}", tmux.capture());
    assert!(!fleet.worktree(&id).join("asked-for").exists());
    // Nothing is lost, and what is typed from now on is an answer.
    tmux.send_keys(&["/say", "Enter"]);
    wait_until("it is said", || transcript(&fleet, &id).contains(r#""text":"yes""#));
    tmux.send_keys(&["y", "Enter"]);
    tmux.wait_for_text("-- done: finished");
    assert!(fleet.worktree(&id).join("asked-for").exists());
}

#[test]
fn f10_a_line_that_comes_with_the_question_is_no_answer_to_it() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("> the task");
    tmux.send_text("use the other file");
    fleet.place.server.release();
    tmux.wait_for_text("y = yes");
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("so it is no answer");
    assert!(!fleet.row(&id)["asks"].as_array().unwrap().is_empty(), "{}", tmux.capture());
    // Whoever leaves it there is told.
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("left with 0");
    let screen = tmux.capture();
    assert!(screen.contains("it was not told this: use the other file"), "{screen}");
    fleet.run(["kill", &id]).ok();
}

#[test]
fn f19_an_answer_that_comes_too_late_is_not_a_message() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done"), text("as you like")]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for_ask(&id);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("y = yes");
    fleet.run(["approve", &id]).ok();
    tmux.wait_for_text("(answered elsewhere)");
    tmux.send_keys(&["n", "Enter"]);
    tmux.wait_for_text("nothing is asked any more, so this was not sent");
    fleet.wait_for(&id, "idle");
    assert_eq!(fleet.place.server.model_requests().len(), 2, "{}", tmux.capture());
    tmux.send_keys(&["/say no thanks", "Enter"]);
    tmux.wait_for_text("as you like");
    let requests = fleet.place.server.model_requests();
    assert!(requests[2].body["messages"].to_string().contains(r#""no thanks""#), "{}", requests[2].body);
    fleet.run(["kill", &id]).ok();
}

#[test]
fn what_an_agent_that_hangs_up_did_not_hear_is_said() {
    let fleet = Fleet::new(script![text("never")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("> the task");
    let shim = PathBuf::from(fleet.row(&id)["dir"].as_str().unwrap()).join("shim.json");
    let shim: serde_json::Value = serde_json::from_str(&fleet.place.env.read(shim)).unwrap();
    let worker = Pid::from_raw(i32::try_from(shim["worker_pid"].as_i64().unwrap()).unwrap()).unwrap();
    kill_process(worker, Signal::STOP).unwrap();
    tmux.send_keys(&["one more thing", "Enter"]);
    tmux.wait_for_text("one more thing\n");
    kill_process(worker, Signal::KILL).unwrap();
    tmux.wait_for_text("left with 0");
    let screen = tmux.capture();
    assert!(screen.contains("it did not hear this: one more thing"), "{screen}");
}

#[test]
fn who_types_while_an_answer_comes_sees_the_next_one_on_its_own_line() {
    let fleet = Fleet::new(script![text("the first answer"), text("the second answer")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("> the task");
    tmux.send_keys(&["and more", "Enter"]);
    wait_until("it is on the disk", || transcript(&fleet, &id).contains("and more"));
    fleet.place.server.release();
    tmux.wait_for_text("-- done: finished");
    let screen = tmux.capture();
    assert!(screen.contains("\nthe first answer\nthe second answer\n"), "{screen}");
}

#[test]
fn a16_a_call_that_was_not_shown_whole_is_not_allowed_at_a_plain_terminal() {
    let long = format!("echo {} && touch the-tail", "x".repeat(5000));
    let huge = format!("echo {} && touch unseen", "x".repeat(70_000));
    let fleet = Fleet::new(script![bash(&long), bash(&huge), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let tmux = Tmux::start(&fleet.place.env, 250, 60);
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    tmux.send_text(&format!("cd {} && {program} attach --plain {id}", fleet.place.repo.display()));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("v = view all of it first");
    tmux.send_keys(&["y", "Enter"]);
    tmux.wait_for_text("a part of the call is not shown: v shows all of it, then y allows it");
    assert!(!transcript(&fleet, &id).contains("ask_answered"));
    tmux.send_keys(&["v", "Enter"]);
    tmux.wait_for_text("y = yes");
    wait_until("the question can have been read", || is_read(&fleet));
    tmux.send_keys(&["y", "Enter"]);
    wait_until("it has run", || fleet.worktree(&id).join("the-tail").exists());
    // The agent itself cuts what is longer than 64 KiB: it cannot be viewed here.
    tmux.wait_for_text("too long to be shown here");
    wait_until("the question can have been read", || is_read(&fleet));
    tmux.send_keys(&["y", "Enter"]);
    tmux.wait_for("it is not allowed", |screen| screen.matches("too long to be shown here").count() > 1);
    assert!(!fleet.row(&id)["asks"].as_array().unwrap().is_empty());
    tmux.send_keys(&["n", "Enter"]);
    fleet.run(["agents", "wait", &id]).ok();
    assert!(!fleet.worktree(&id).join("unseen").exists());
}
