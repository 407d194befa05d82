//! `caliban attach` (f10, f19): live, with history, from several places, and gone without a trace.

use serde_json::json;
use testkit::{Spawned, StepExt, Tmux, script, text, tool, wait_until};

use crate::fleet::{Fleet, bash};

fn attach(fleet: &Fleet, id: &str) -> Spawned {
    fleet.place.env.start("caliban", ["attach", id]).dir(&fleet.place.repo).spawn()
}

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

#[test]
fn f10_ctrl_d_detaches_and_the_agent_goes_on() {
    let fleet = Fleet::new(script![text("all done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("> the task");
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("left with 0");
    assert!(tmux.capture().contains(&format!("detached; agent {id} goes on")), "{}", tmux.capture());
    assert_eq!(fleet.state(&id), "running");
    fleet.place.server.release();
    fleet.run(["agents", "wait", &id]).ok();
}

#[test]
fn f10_leaving_in_the_middle_of_a_line_begins_a_new_one() {
    let fleet = Fleet::new(script![text("half a line")]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    let tmux = terminal(&fleet, &id);
    tmux.send_text("/help");
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("/status: Show the session");
    assert!(tmux.capture().contains("\n/cancel: Stop the turn\n"), "{}", tmux.capture());
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("left with 0");
    assert!(tmux.capture().contains(&format!("\ndetached; agent {id} goes on\n")), "{}", tmux.capture());
    fleet.run(["kill", &id]).ok();
}

#[test]
fn f10_what_is_typed_steers_the_agent() {
    let fleet = Fleet::new(script![tool("Read", json!({"file_path": "README.md"})), text("all done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let tmux = terminal(&fleet, &id);
    tmux.send_text("mind the tests");
    tmux.send_keys(&["Enter"]);
    wait_until("the message is recorded", || {
        fleet
            .place
            .env
            .read(fleet.row(&id)["dir"].as_str().unwrap().to_owned() + "/transcript.jsonl")
            .contains("mind the tests")
    });
    fleet.place.server.release();
    tmux.wait_for_text("all done");
    tmux.wait_for_text("-- done: finished");
    tmux.wait_for_text("left with 0");
    assert!(fleet.place.server.model_requests()[1].body["messages"].to_string().contains("mind the tests"));
}

#[test]
fn a_question_can_be_answered_where_one_is_attached() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("y = yes");
    assert!(tmux.capture().contains("? Bash touch asked-for"), "{}", tmux.capture());
    tmux.send_text("y");
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("-- done: finished");
    assert!(fleet.worktree(&id).join("asked-for").exists());
}

#[test]
fn f10_f19_without_a_terminal_it_streams_to_the_end_for_any_number() {
    let fleet = Fleet::new(script![
        text("a first word").and_tool("Read", json!({"file_path": "README.md"})),
        text("the last word"),
    ]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--label", "both"]);
    fleet.place.server.wait_for_requests(1);
    let (mut one, mut two) = (attach(&fleet, &id), attach(&fleet, "both"));
    one.wait_for_stdout("> the task");
    two.wait_for_stdout("> the task");
    fleet.place.server.release();
    let (one, two) = (one.wait().ok(), two.wait().ok());
    assert_eq!(one.stdout, two.stdout);
    for part in ["a first word", "• Read", "the last word", "-- done: finished; 2 turns"] {
        assert!(one.stdout.contains(part), "{part} is not in {}", one.stdout);
    }
}

#[test]
fn a_finished_agent_is_replayed_and_it_is_said_how_it_ended() {
    let fleet = Fleet::new(script![text("the answer")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let output = fleet.run(["agents", "attach", &id]).ok();
    for part in ["user> the task", "the answer", "-- done: finished; 1 turn,"] {
        assert!(output.stdout.contains(part), "{part} is not in {}", output.stdout);
    }
    assert!(output.stderr.contains(&format!("caliban resume {id}")), "{}", output.stderr);
}

#[test]
fn one_that_waits_for_its_start_is_waited_for() {
    let fleet = Fleet::new(script![text("the answer").forever()]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let first = fleet.bg("the first", []);
    fleet.place.server.wait_for_requests(1);
    let second = fleet.bg("the second", []);
    let mut attached = attach(&fleet, &second);
    attached.wait_for_stderr("queued, next to start; waiting");
    fleet.place.server.release();
    let output = attached.wait().ok();
    assert!(
        output.stdout.contains("the answer") && output.stdout.contains("-- done: finished"),
        "{}",
        output.stdout
    );
    fleet.run(["agents", "wait", &first]).ok();
}

#[test]
fn two_attached_people_see_the_first_answer() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let mut watcher = attach(&fleet, &id);
    watcher.wait_for_stdout("? Bash touch asked-for");
    fleet.run(["approve", &id]).ok();
    let output = watcher.wait().ok();
    assert!(output.stdout.contains("(answered elsewhere)"), "{}", output.stdout);
    assert!(output.stdout.contains("all done"), "{}", output.stdout);
}

#[test]
fn while_something_is_asked_commands_are_commands_and_a_capital_yes_is_a_yes() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("y = yes");
    tmux.send_keys(&["/help", "Enter"]);
    tmux.wait_for_text("/status: Show the session");
    tmux.send_keys(&["/foo", "Enter"]);
    tmux.wait_for_text("there is no command /foo; /help lists them. Nothing was sent");
    assert!(!fleet.row(&id)["asks"].as_array().unwrap().is_empty());
    tmux.send_keys(&["Yes", "Enter"]);
    tmux.wait_for_text("-- done: finished");
    assert!(fleet.worktree(&id).join("asked-for").exists());
}

#[test]
fn cancel_works_while_something_is_asked() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("never")]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for_ask(&id);
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("y = yes");
    tmux.send_keys(&["/cancel", "Enter"]);
    tmux.wait_for_text("-- turn over: interrupted --");
    fleet.wait_for(&id, "idle");
    assert!(!fleet.worktree(&id).join("asked-for").exists());
    assert_eq!(fleet.place.server.model_requests().len(), 1);
    fleet.run(["kill", &id]).ok();
}

#[test]
fn pasted_lines_are_one_message() {
    let fleet = Fleet::new(script![text("hello"), text("I see")]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    let tmux = terminal(&fleet, &id);
    tmux.wait_for_text("hello");
    tmux.paste("one\ntwo\nthree\n");
    tmux.wait_for_text("I see");
    let transcript =
        fleet.place.env.read(fleet.row(&id)["dir"].as_str().unwrap().to_owned() + "/transcript.jsonl");
    assert!(transcript.contains(r"one\ntwo\nthree"), "{transcript}");
    fleet.run(["kill", &id]).ok();
}

#[test]
fn what_is_typed_to_a_queued_agent_is_heard_when_it_starts() {
    let fleet = Fleet::new(script![text("the answer").forever()]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let first = fleet.bg("the first", []);
    fleet.place.server.wait_for_requests(1);
    let second = fleet.bg("the second", ["--interactive"]);
    let tmux = Tmux::start(&fleet.place.env, 110, 40);
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    tmux.send_text(&format!("cd {} && {program} attach --plain {second}", fleet.place.repo.display()));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("waiting (Ctrl+D leaves)");
    tmux.send_keys(&["mind the gap", "Enter"]);
    tmux.wait_for_text("it will hear that when it has started");
    fleet.place.server.release();
    fleet.run(["agents", "wait", &first]).ok();
    wait_until("it has heard it", || {
        fleet
            .place
            .server
            .model_requests()
            .iter()
            .any(|request| request.body["messages"].to_string().contains("mind the gap"))
    });
    fleet.run(["kill", &second]).ok();
}

#[test]
fn whoever_talks_to_a_stopped_process_is_told_so() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let dir = fleet.row(&id)["dir"].as_str().unwrap().to_owned();
    let shim: serde_json::Value = serde_json::from_str(&fleet.place.env.read(dir + "/shim.json")).unwrap();
    let worker = i32::try_from(shim["worker_pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(worker).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let said = fleet.run(["agents", "send", &id, "hello"]).expect_code(1);
    let words = format!("was not given the message: its process (pid {worker}) is stopped");
    assert!(said.stderr.contains(&words) && said.stderr.contains("kill -CONT"), "{}", said.stderr);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    fleet.run(["approve", &id]).ok();
    fleet.run(["agents", "wait", &id]).ok();
}
