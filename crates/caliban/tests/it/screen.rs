//! The terminal UI in a real terminal: type, stream, approve, resize, leave. After that the terminal is as it was.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{StepExt as _, Tmux, script, text, tool, wait_until};

use crate::{
    fleet::{Fleet, bash},
    place::Place,
};

/// A terminal in the repo in which the screen was opened with these arguments.
pub(crate) fn open<'p>(place: &'p Place, args: &str) -> Tmux<'p> {
    let tmux = Tmux::start(&place.env, 100, 30);
    start(&tmux, place, args);
    tmux.wait_for_text("default");
    tmux
}

pub(crate) fn start(tmux: &Tmux<'_>, place: &Place, args: &str) {
    let program = place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    let provider = place.server.args(place.protocol).join(" ");
    let repo = place.repo.display();
    tmux.send_text(&format!("cd {repo} && {program} {provider} {args}; echo left with $?"));
    tmux.send_keys(&["Enter"]);
}

/// What the terminal has switched on: alternate screen, mouse, paste, cursor.
pub(crate) fn modes(tmux: &Tmux<'_>) -> String {
    let format = "#{alternate_on} #{mouse_any_flag} #{mouse_sgr_flag} #{cursor_flag}";
    tmux.tmux(&["display-message", "-p", "-t", "main", format])
}

fn events(place: &Place, name: &str) -> Vec<Value> {
    place.transcript().into_iter().filter(|record| record["event"] == name).collect()
}

/// The pid of the caliban that shows the screen.
pub(crate) fn pid(place: &Place) -> Pid {
    let mut found = None;
    wait_until("caliban runs", || {
        let processes = place.env.processes();
        found = processes.into_iter().find(|(_, line)| line.contains("/caliban ") && !line.contains("sh -c"));
        found.is_some()
    });
    Pid::from_raw(i32::try_from(found.unwrap().0).unwrap()).unwrap()
}

/// Waits until a key counts for the question that is shown; the dialog says when it does not.
pub(crate) fn wait_until_read(tmux: &Tmux<'_>) {
    tmux.wait_for("the question was read", |screen| {
        screen.contains("y allow once") && !screen.contains("(wait a moment)")
    });
}

/// Leaves a session in which nothing goes on.
pub(crate) fn leave(tmux: &Tmux<'_>) -> String {
    tmux.wait_for_text("> Describe a task");
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("left with 0")
}

pub(crate) fn assert_restored(tmux: &Tmux<'_>) {
    assert_eq!(modes(tmux), "0 0 0 1");
    // The shell echoes what is typed, and a line is a line: raw mode is off.
    tmux.send_keys(&["echo re\"\"stored", "Enter"]);
    // What is typed before the shell has said its prompt stands before the prompt.
    tmux.wait_for("the shell answers", |screen| {
        screen.lines().any(|line| line.trim_start_matches("$ ") == "restored")
    });
}

#[test]
fn a_session_in_a_terminal() {
    let place = Place::new(script![
        text("# Hello\n\nI can see **you**.\n\n- one\n- two\n").in_chunks(5),
        tool("Bash", json!({"command": "touch made"})).and_text("I will make it."),
        text("It is made."),
    ]);
    let tmux = open(&place, "");
    assert_eq!(modes(&tmux), "1 1 1 1");
    tmux.send_keys(&["who is there?", "Enter"]);
    let screen = tmux.wait_for_text("• two");
    assert!(screen.contains("> who is there?") && screen.contains("I can see you."), "{screen}");
    tmux.send_keys(&["make it", "Enter"]);
    tmux.wait_for_text("1 question (Tab)");
    assert!(!place.repo.join("made").exists());
    tmux.send_keys(&["Tab"]);
    let screen = tmux.wait_for_text("y allow once");
    assert!(screen.contains("touch made"), "{screen}");
    wait_until_read(&tmux);
    tmux.send_keys(&["y"]);
    tmux.wait_for_text("It is made.");
    assert!(place.repo.join("made").exists());
    assert_eq!(events(&place, "ask_answered")[0]["answer"], "once");
    for (columns, rows) in [("60", "20"), ("140", "45"), ("40", "16"), ("300", "60"), ("100", "30")] {
        tmux.tmux(&["resize-window", "-t", "main", "-x", columns, "-y", rows]);
        let screen =
            tmux.wait_for("it fits", |screen| screen.contains("It is made.") && screen.contains("default"));
        assert_eq!(screen.matches("It is made.").count(), 1, "{screen}");
    }
    let screen = leave(&tmux);
    assert!(screen.contains("It is made."), "the conversation stays on the terminal: {screen}");
    assert!(screen.contains("`caliban --continue` goes on with it"), "{screen}");
    assert_restored(&tmux);
}

#[test]
fn a_prompt_on_the_command_line_and_continue() {
    let place = Place::new(script![text("the first answer"), text("the second answer")]);
    let tmux = open(&place, "'the first question'");
    tmux.wait_for_text("the first answer");
    tmux.wait_for_text("> Describe a task");
    tmux.send_keys(&["C-c", "C-c"]);
    tmux.wait_for_text("left with 0");
    tmux.send_keys(&["clear", "Enter"]);
    tmux.wait_for("the screen is clear", |screen| !screen.contains("left with"));
    start(&tmux, &place, "--continue 'the second question'");
    let screen = tmux.wait_for_text("the second answer");
    assert!(screen.contains("> the first question") && screen.contains("the first answer"), "{screen}");
    assert_eq!(place.sessions().len(), 1);
    leave(&tmux);
}

#[test]
fn t09_a_signal_restores_every_mode() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let place = Place::new(script![text("never")]);
        place.server.hold();
        let tmux = open(&place, "'wait for it'");
        place.server.wait_for_requests(1);
        tmux.send_text("a draft");
        tmux.wait_for_text("> a draft");
        kill_process(pid(&place), signal).unwrap();
        let screen = tmux.wait_for_text("left with 130");
        assert!(screen.contains("this was not sent: a draft"), "{screen}");
        assert_restored(&tmux);
        place.server.release();
    }
}

#[test]
fn t10_nothing_strange_is_typed_at_the_start_and_after_the_end() {
    let place = Place::new(script![]);
    let tmux = open(&place, "");
    let screen = tmux.wait_for_text("Describe a task");
    assert!(screen.contains("\n> Describe a task"), "the composer is empty: {screen}");
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("left with 0");
    tmux.send_keys(&["echo end", "Enter"]);
    let screen = tmux.wait_for_text("\nend\n");
    assert!(screen.contains("$ echo end\n"), "{screen}");
}

#[test]
fn t21_new_lines_in_a_terminal_and_a_paste_that_sends_nothing() {
    let place = Place::new(script![text("seen")]);
    let tmux = open(&place, "");
    tmux.send_keys(&["one", "C-j", "two", "M-Enter", "three\\", "Enter"]);
    tmux.paste("four\nfive\n");
    tmux.wait_for_text("five");
    assert!(place.server.requests().is_empty(), "a paste sends nothing");
    tmux.send_keys(&["six", "Enter"]);
    tmux.wait_for_text("seen");
    let prompt = events(&place, "prompt").remove(0);
    assert!(prompt.to_string().contains(r"one\ntwo\nthree\nfour\nfive\nsix"), "{prompt:#}");
    leave(&tmux);
}

#[test]
fn t20_a_paste_without_its_end_recovers() {
    let place = Place::new(script![text("seen")]);
    let tmux = open(&place, "");
    tmux.wait_for_text("Describe a task");
    tmux.send_text("\x1b[200~its end got lost\n");
    tmux.wait_for_text("its end got lost");
    tmux.send_keys(&["and keys", "Space", "work", "Enter"]);
    tmux.wait_for_text("seen");
    let prompt = events(&place, "prompt").remove(0);
    assert!(prompt.to_string().contains(r"its end got lost\nand keys work"), "{prompt:#}");
    leave(&tmux);
}

#[test]
fn it_can_be_suspended_and_interrupted() {
    let place = Place::new(script![text("never"), text("after all")]);
    place.server.hold();
    let tmux = open(&place, "'take your time'");
    place.server.wait_for_requests(1);
    tmux.wait_for_text("waiting for the model");
    tmux.send_keys(&["C-z"]);
    tmux.wait_for("the shell is back", |screen| screen.contains("Stopped") || screen.contains("left with"));
    assert!(modes(&tmux).starts_with("0 0 0"), "{}", modes(&tmux));
    tmux.send_keys(&["fg", "Enter"]);
    tmux.wait_for_text("waiting for the model");
    assert!(modes(&tmux).starts_with('1'));
    tmux.send_keys(&["Escape"]);
    tmux.wait_for_text("interrupted");
    place.server.release();
    tmux.send_keys(&["again", "Enter"]);
    tmux.wait_for("there is an answer", |screen| screen.contains("never") || screen.contains("after all"));
    tmux.wait_for_text("> Describe a task");
    tmux.send_keys(&["C-d"]);
    // The shell has said `left with` when it was stopped.
    tmux.wait_for_text("goes on with it");
    assert_restored(&tmux);
}

#[test]
fn attach_is_the_same_screen() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let tmux = Tmux::start(&fleet.place.env, 100, 30);
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    let repo = fleet.place.repo.display();
    tmux.send_text(&format!("cd {repo} && {program} attach {id}; echo left with $?"));
    tmux.send_keys(&["Enter"]);
    let screen = tmux.wait_for_text("1 question (Tab)");
    assert!(screen.contains("> the task") && screen.contains(&format!("attached to {id}")), "{screen}");
    tmux.send_keys(&["Tab"]);
    wait_until_read(&tmux);
    tmux.send_keys(&["y"]);
    tmux.wait_for_text("all done");
    assert!(Path::new(&fleet.worktree(&id)).join("asked-for").exists());
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("left with 0");
    assert_eq!(modes(&tmux), "0 0 0 1");
}
