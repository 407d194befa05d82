//! Going back to a session, forking it or beginning a new one widens nothing that a person has narrowed.

use serde_json::json;
use testkit::{Tmux, script, text, tool};

use crate::{
    commands::says,
    place::Place,
    screen::{leave, start},
};

fn touch(name: &str) -> testkit::script::ScriptStep {
    tool("Bash", json!({"command": format!("touch {name}")}))
}

/// Seen: `unattended`, `/mode plan` and a rewind ran the next command unasked.
#[test]
fn a17_a_narrowed_mode_and_a_denial_survive_rewind_and_new() {
    // Each conversation begins with the first answer.
    let place = Place::new(script![
        text("first answer"),
        touch("made"),
        text("second answer"),
        touch("made"),
        text("third answer")
    ]);
    let tmux = Tmux::start(&place.env, 100, 40);
    start(&tmux, &place, "--permission-mode unattended");
    tmux.wait_for_text("unattended");
    says(&tmux, "hello");
    tmux.wait_for_text("first answer");
    says(&tmux, "/permissions deny Bash(touch made)");
    tmux.wait_for_text("holds for this session");
    says(&tmux, "/mode plan");
    tmux.wait_for("the mode is plan", |screen| screen.contains("plan ·"));
    says(&tmux, "/rewind");
    let screen = tmux.wait_for_text("forked from");
    assert!(screen.contains("plan ·"), "{screen}");
    // The prompt stands in the composer again.
    tmux.wait_for("the draft", |screen| screen.contains("> hello"));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("first answer");
    says(&tmux, "go");
    tmux.wait_for_text("second answer");
    assert!(!place.repo.join("made").exists());
    says(&tmux, "/new");
    tmux.wait_for("a new session", |screen| !screen.contains("second answer") && screen.contains("plan ·"));
    says(&tmux, "hello");
    tmux.wait_for_text("first answer");
    // The denial is still there when the mode is not.
    says(&tmux, "/mode unattended");
    tmux.wait_for_text("/mode unattended again confirms it");
    says(&tmux, "/mode unattended");
    tmux.wait_for("the mode is unattended", |screen| screen.contains("unattended ·"));
    says(&tmux, "go");
    tmux.wait_for_text("second answer");
    assert!(!place.repo.join("made").exists());
    leave(&tmux);
}

#[test]
fn a17_a_session_that_is_resumed_has_the_mode_that_it_had_unless_another_is_said() {
    let place = Place::new(script![
        text("planned"),
        touch("one"),
        text("not done"),
        touch("two"),
        text("done"),
        touch("three"),
        text("kept"),
    ]);
    place.ask("plan it", ["--permission-mode", "plan"]).ok();
    place.ask("do it", ["--continue"]).expect_code(3);
    place.ask("do it", ["--continue", "--permission-mode", "accept-edits"]).ok();
    place.ask("do it", ["--continue"]).ok();
    let made = ["one", "two", "three"].map(|name| place.repo.join(name).exists());
    assert_eq!(made, [false, true, true]);
}

/// `unattended` is never chosen by going back.
#[test]
fn a17_unattended_has_to_be_said_again() {
    let place =
        Place::new(script![text("hello"), tool("Bash", json!({"command": "touch ../outside"})), text("no")]);
    place.ask("hello", ["--permission-mode", "unattended"]).ok();
    place.ask("do it", ["--continue"]).expect_code(3);
    assert!(!place.repo.parent().unwrap().join("outside").exists());
}
