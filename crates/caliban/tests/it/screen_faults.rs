//! The screen when something else has the terminal, when the program is killed, and without the alternate screen.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::{StepExt as _, Tmux, script, text, tool, wait_until};

use crate::{
    fleet::Fleet,
    place::Place,
    screen::{assert_restored, leave, open, pid, start},
};

/// Everything that is in the terminal and its scrollback.
fn scrollback(tmux: &Tmux<'_>) -> String {
    tmux.tmux(&["capture-pane", "-p", "-J", "-S", "-", "-t", "main"])
}

#[test]
fn the_editor_does_not_keep_the_agent_from_its_work_and_ctrl_c_in_it_is_for_the_editor() {
    let mut place = Place::new(script![text("worked meanwhile")]);
    let editor = place.env.root().join("editor.sh");
    place.env.write(&editor, "#!/bin/sh\necho in the editor\nsleep 1000\n");
    place.env.set("EDITOR", format!("sh {}", editor.display()));
    place.server.hold();
    let tmux = open(&place, "'begin'");
    place.server.wait_for_requests(1);
    tmux.wait_for_text("waiting for the model");
    tmux.send_keys(&["C-g"]);
    tmux.wait_for_text("in the editor");
    place.server.release();
    wait_until("the turn ends while the editor is open", || {
        place.transcript().iter().any(|record| record["event"] == "turn_ended")
    });
    tmux.send_keys(&["C-c"]);
    let screen = tmux.wait_for_text("worked meanwhile");
    assert!(screen.contains("the draft is as it was"), "{screen}");
    leave(&tmux);
    assert_restored(&tmux);
}

#[test]
fn attached_it_outlives_the_daemon_and_says_when_the_agent_is_gone() {
    let fleet = Fleet::new(script![text("first answer"), text("second answer")]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    let tmux = Tmux::start(&fleet.place.env, 100, 30);
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    let repo = fleet.place.repo.display();
    tmux.send_text(&format!("cd {repo} && {program} attach {id}; echo left with $?"));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("first answer");
    let status = fleet.run(["daemon", "status", "--json"]).ok().json::<serde_json::Value>();
    let daemon = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(daemon).unwrap(), Signal::KILL).unwrap();
    tmux.wait_for_text("> Describe a task");
    tmux.send_keys(&["and now?", "Enter"]);
    tmux.wait_for_text("second answer");
    tmux.wait_for_text("> Describe a task");
    fleet.run(["kill", &id]).ok();
    tmux.wait_for_text("Ctrl+D leaves; what you typed stays here");
    tmux.send_keys(&["too late", "Enter"]);
    tmux.wait_for_text("the agent is gone: nothing was sent");
    tmux.send_keys(&["C-c", "C-d"]);
    tmux.wait_for_text("left with");
    assert_restored(&tmux);
}

#[test]
fn r17_continue_goes_on_with_a_turn_that_was_cut_short() {
    let place = Place::new(script![text("never"), text("after all")]);
    place.server.hold();
    let tmux = open(&place, "'do it'");
    place.server.wait_for_requests(1);
    kill_process(pid(&place), Signal::KILL).unwrap();
    tmux.wait_for_text("left with 137");
    place.server.release();
    // Nobody has put the terminal back: Enter would be no end of a line.
    tmux.send_keys(&["stty sane; clear", "C-j"]);
    tmux.wait_for("the terminal is reset", |screen| !screen.contains("left with"));
    start(&tmux, &place, "--continue");
    let screen = tmux.wait_for_text("after all");
    assert_eq!(screen.matches("> do it").count(), 1, "{screen}");
    leave(&tmux);
}

#[test]
fn the_first_session_of_a_repo_remembers_what_was_typed() {
    let place = Place::new(script![text("one"), text("two")]);
    let tmux = open(&place, "");
    tmux.wait_for_text("Describe a task");
    tmux.send_keys(&["precious words", "Enter"]);
    tmux.wait_for_text("one");
    leave(&tmux);
    tmux.send_keys(&["clear", "Enter"]);
    tmux.wait_for("the screen is clear", |screen| !screen.contains("left with"));
    start(&tmux, &place, "");
    tmux.wait_for_text("Describe a task");
    tmux.send_keys(&["Up"]);
    tmux.wait_for_text("> precious words");
    tmux.send_keys(&["C-c", "C-c", "C-c"]);
    tmux.wait_for_text("left with 0");
}

#[test]
fn a_log_does_not_go_onto_the_screen() {
    let place = Place::new(script![
        tool("AgentTool", json!({"prompt": "look around"})).on_first("a question"),
        text("seen").on_first("look around"),
        text("an answer").on_first("a question"),
    ]);
    let tmux = open(&place, "--debug 'a question'");
    let screen = tmux.wait_for_text("an answer");
    assert!(!screen.contains("DEBUG"), "{screen}");
    leave(&tmux);
    assert!(place.env.read(place.env.data().join("caliban/debug.log")).contains("DEBUG"));
}

#[test]
fn the_agent_view_comes_back_to_the_very_place_and_a_signal_in_it_ends_all() {
    let place = Place::new(script![text("an answer")]);
    let tmux = open(&place, "'a question'");
    tmux.wait_for_text("an answer");
    tmux.wait_for_text("Describe a task");
    tmux.send_text("a draft");
    let before = tmux.wait_for_text("> a draft");
    tmux.send_keys(&["M-a"]);
    tmux.wait_for("the agent view", |screen| !screen.contains("> a draft"));
    tmux.send_keys(&["q"]);
    let after = tmux.wait_for_text("> a draft");
    assert_eq!(after, before);
    tmux.send_keys(&["C-x", "a"]);
    tmux.wait_for("the agent view", |screen| !screen.contains("> a draft"));
    kill_process(pid(&place), Signal::TERM).unwrap();
    let screen = tmux.wait_for_text("left with 130");
    assert!(screen.contains("this was not sent: a draft"), "{screen}");
    assert_restored(&tmux);
    place.verb(["daemon", "stop"]).ok();
}

#[test]
fn t08_without_the_alternate_screen_everything_is_in_the_scrollback_once() {
    let numbered: String = (1..=80).map(|n| format!("line number {n:03}\n\n")).collect();
    let place = Place::new(script![
        text(&numbered).in_chunks(40),
        tool("Bash", json!({"command": "echo out; touch made"})),
        text("It is made."),
    ]);
    let tmux = open(&place, "--no-alt-screen");
    assert!(tmux.tmux(&["display-message", "-p", "-t", "main", "#{alternate_on}"]) == "0");
    tmux.send_keys(&["count", "Enter"]);
    tmux.wait_for("it is done", |screen| {
        screen.contains("line number 080") && screen.contains("Describe a task")
    });
    tmux.send_keys(&["make it", "Enter"]);
    tmux.wait_for_text("1 question (Tab)");
    tmux.send_keys(&["Tab"]);
    tmux.wait_for("it is read", |screen| {
        screen.contains("y allow once") && !screen.contains("(wait a moment)")
    });
    tmux.send_keys(&["y"]);
    tmux.wait_for_text("It is made.");
    leave(&tmux);
    let all = scrollback(&tmux);
    for n in 1..=80 {
        assert_eq!(all.matches(&format!("line number {n:03}")).count(), 1, "{n}: {all}");
    }
    assert_eq!(all.matches("It is made.").count(), 1, "{all}");
    assert_eq!(all.matches("> count").count(), 1, "{all}");
}

#[test]
fn a_screen_reader_gets_labelled_lines() {
    let place = Place::new(script![text("Hello there.")]);
    let tmux = open(&place, "--screen-reader 'who are you?'");
    tmux.wait_for_text("Hello there.");
    leave(&tmux);
    let all = scrollback(&tmux);
    assert!(all.contains("you: who are you?") && all.contains("agent:\nHello there."), "{all}");
}

#[test]
fn t29_plain_mode_emits_no_cursor_moves() {
    let place =
        Place::new(script![tool("Bash", json!({"command": "echo out"})), text("# Done\n\nIt **is** done.")]);
    let tmux = Tmux::start(&place.env, 100, 30);
    let raw = place.env.root().join("raw");
    tmux.tmux(&["pipe-pane", "-t", "main", "-o", &format!("cat > {}", raw.display())]);
    start(&tmux, &place, "--plain --allow 'Bash(echo *)' 'do it'");
    tmux.wait_for_text("left with 0");
    wait_until("all of it is written", || place.env.read(&raw).contains("left with 0"));
    let bytes = place.env.read(&raw);
    for sequence in bytes.split('\u{1b}').skip(1) {
        let rest = sequence.strip_prefix('[').unwrap_or_else(|| panic!("{sequence:?} in {bytes:?}"));
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or_default();
        let is_look = rest[end..].starts_with('m') || rest.starts_with("?2004");
        assert!(is_look, "{sequence:?} in {bytes:?}");
    }
}
