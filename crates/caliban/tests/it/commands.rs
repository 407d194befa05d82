//! Slash commands of a session: on the screen, and the verbs of the command line that are the same.

use serde_json::{Value, json};
use testkit::{StepExt as _, Tmux, script, text, tool, wait_until};

use crate::{
    place::Place,
    screen::{leave, open, start},
};

/// A session in which tools have written a file in two turns.
fn two_turns() -> Place {
    let write = |content: &str| tool("Write", json!({"file_path": "a.txt", "content": content}));
    let read = tool("Read", json!({"file_path": "a.txt"}));
    let place =
        Place::new(script![write("one\n"), text("first done"), read, write("two\n"), text("second done")]);
    place.ask("write one", ["--permission-mode", "accept-edits"]).ok();
    place.ask("write two", ["--permission-mode", "accept-edits", "--continue"]).ok();
    assert_eq!(place.env.read(place.repo.join("a.txt")), "two\n");
    place
}

/// What the model was last told, whole.
fn heard(place: &Place) -> String {
    let requests = place.server.requests();
    requests.iter().rev().find(|request| request.protocol.is_some()).unwrap().body.to_string()
}

pub(crate) fn says(tmux: &Tmux<'_>, line: &str) {
    tmux.wait_for_text("> Describe a task");
    tmux.send_text(line);
    tmux.wait_for("it is typed", |screen| screen.contains(&format!("> {line}")));
    tmux.send_keys(&["Enter"]);
}

#[test]
fn r19_rewind_brings_files_and_conversation_back_and_the_old_session_stays() {
    let place = two_turns();
    let old = place.session_id();
    let before = place.env.read(place.session().join("transcript.jsonl"));
    let forked: Value = place.verb(["sessions", "rewind", &old, "--json"]).ok().json();
    assert_eq!(forked["prompt"], "write two");
    assert_eq!(place.env.read(place.repo.join("a.txt")), "one\n");
    assert_eq!(place.env.read(place.session_dir(&old).join("transcript.jsonl")), before);
    let new = forked["id"].as_str().unwrap();
    let shown = place.verb(["sessions", "replay", new]).ok().stdout;
    assert!(shown.contains("first done") && !shown.contains("write two"), "{shown}");
    // Once more, from the copy: the file did not exist before.
    place.verb(["sessions", "rewind", new]).ok();
    assert!(!place.repo.join("a.txt").exists());
}

#[test]
fn a_fork_leaves_the_files_and_goes_on_by_itself() {
    let place = two_turns();
    let old = place.session_id();
    let forked: Value = place.verb(["sessions", "fork", &old, "--before", "2", "--json"]).ok().json();
    assert_eq!(place.env.read(place.repo.join("a.txt")), "two\n");
    let new = forked["id"].as_str().unwrap();
    let whole = place.verb(["sessions", "fork", &old]).ok().stdout;
    assert!(whole.contains("goes on from there"), "{whole}");
    let wrong = place.verb(["sessions", "fork", new, "--before", "2"]).expect_code(2);
    assert!(wrong.stderr.contains("has no prompt 2") && wrong.stderr.contains("1  write one"));
}

#[test]
fn undo_diff_and_rewind_in_a_session() {
    let write = |content: &str| tool("Write", json!({"file_path": "a.txt", "content": content}));
    let place = Place::new(script![
        write("one\n"),
        text("first done"),
        write("two\n"),
        text("second done"),
        text("I see that it is undone"),
    ]);
    let tmux = Tmux::start(&place.env, 100, 30);
    start(&tmux, &place, "--permission-mode accept-edits");
    tmux.wait_for_text("accept-edits");
    says(&tmux, "write one");
    tmux.wait_for_text("first done");
    says(&tmux, "write two");
    tmux.wait_for_text("second done");
    says(&tmux, "/diff");
    let screen = tmux.wait_for_text("+++ b/a.txt");
    assert!(screen.contains("+two") && !screen.contains("+one"), "{screen}");
    says(&tmux, "/undo");
    tmux.wait_for_text("as it was: a.txt");
    assert_eq!(place.env.read(place.repo.join("a.txt")), "one\n");
    says(&tmux, "go on");
    tmux.wait_for_text("I see that it is undone");
    let heard = heard(&place);
    assert!(heard.contains("the user has undone your last changes"), "{heard}");
    // Esc Esc, the first prompt, Enter.
    tmux.wait_for_text("> Describe a task");
    tmux.send_keys(&["Escape"]);
    tmux.wait_for_text("Esc again goes back");
    tmux.send_keys(&["Escape"]);
    tmux.wait_for_text("1  write one");
    tmux.send_keys(&["Up", "Up", "Enter"]);
    let screen = tmux.wait_for_text("the conversation was taken back");
    assert!(screen.contains("> write one") && !screen.contains("first done"), "{screen}");
    wait_until("the file is gone, as it was before", || !place.repo.join("a.txt").exists());
    assert_eq!(place.sessions().len(), 2);
    tmux.send_keys(&["C-c", "C-c", "C-c"]);
    tmux.wait_for_text("left with 0");
}

#[test]
fn the_model_the_effort_and_a_rule_are_changed_in_a_session() {
    let place = Place::new(script![
        text("answered"),
        tool("Bash", json!({"command": "touch made"})),
        text("it is there")
    ]);
    let tmux = open(&place, "");
    says(&tmux, "/model nonsense");
    tmux.wait_for_text("the provider has no model nonsense");
    says(&tmux, "/model claude-haiku-4-5");
    tmux.wait_for_text("claude-haiku-4-5 answers");
    says(&tmux, "/effort high");
    tmux.wait_for_text("claude-haiku-4-5, effort high");
    says(&tmux, "/permissions allow Bash(touch *)");
    tmux.wait_for_text("holds for this session");
    says(&tmux, "/permissions deny Raed");
    tmux.wait_for_text("there is no tool `Raed`");
    says(&tmux, "hello");
    tmux.wait_for_text("answered");
    assert!(heard(&place).contains(r#""model":"claude-haiku-4-5""#), "{}", heard(&place));
    says(&tmux, "make it");
    tmux.wait_for_text("it is there");
    wait_until("the rule has allowed it", || place.repo.join("made").exists());
    says(&tmux, "/permissions");
    tmux.wait_for_text("allow Bash(touch *)  (/permissions)");
    leave(&tmux);
}

#[test]
fn a15_commands_of_a_repo_are_there_when_it_is_trusted_and_arguments_reach_the_model() {
    let place = Place::new(script![text("fixed")]);
    place.env.write(
        place.repo.join(".claude/commands/fix.md"),
        "---\ndescription: Fix it\n---\nFix issue $ARGUMENTS now.\n",
    );
    let tmux = open(&place, "");
    says(&tmux, "/fix 12");
    tmux.wait_for_text("there is no command /fix");
    tmux.send_keys(&["C-c", "C-c", "C-c"]);
    tmux.wait_for_text("left with 0");
    place.verb(["trust"]).ok();
    tmux.send_keys(&["clear", "Enter"]);
    tmux.wait_for("the screen is clear", |screen| !screen.contains("left with"));
    start(&tmux, &place, "");
    tmux.wait_for_text("default");
    says(&tmux, "/fix 12");
    tmux.wait_for_text("fixed");
    let heard = heard(&place);
    assert!(heard.contains("Fix issue 12 now."), "{heard}");
    leave(&tmux);
}

/// Seen: `-p "/fix 12"` sent those very words to the model.
#[test]
fn commands_that_people_wrote_are_there_in_scripts_and_in_the_background() {
    for directory in [".claude/commands", ".caliban/commands"] {
        let place = Place::new(script![text("fixed").forever()]);
        place.env.write(place.repo.join(directory).join("fix.md"), "Fix issue $ARGUMENTS now.\n");
        place.verb(["trust"]).ok();
        place.ask("/fix 12", []).ok();
        place.caliban().args(["--bg", "/fix 13", "--isolation", "none"]).output().ok();
        wait_until("the background agent asks", || place.server.model_requests().len() > 1);
        let sent: Vec<String> =
            place.server.model_requests().iter().map(|request| request.body.to_string()).collect();
        assert!(sent[0].contains("Fix issue 12 now.") && !sent[0].contains("/fix"), "{}", sent[0]);
        assert!(sent[1].contains("Fix issue 13 now.") && !sent[1].contains("/fix"), "{}", sent[1]);
        place.verb(["daemon", "stop"]).ok();
    }
}

/// Seen: only a run that ends with its turn told the model.
#[test]
fn a_short_name_of_a_model_is_its_newest_and_an_ended_command_is_told_with_a_later_message() {
    let job = json!({"command": "echo trained", "run_in_background": true});
    let place = Place::new(script![tool("Bash", job), text("it runs"), text("heard").forever()]);
    let tmux = open(&place, "--allow 'Bash(echo *)'");
    says(&tmux, "/model claude-sonnet-4-6");
    tmux.wait_for_text("claude-sonnet-4-6 answers");
    says(&tmux, "/model opus");
    tmux.wait_for_text("claude-opus-");
    says(&tmux, "train it");
    tmux.wait_for_text("it runs");
    assert!(heard(&place).contains(r#""model":"claude-opus-"#), "{}", heard(&place));
    wait_until("the model hears that the command has ended", || {
        let before = place.server.model_requests().len();
        says(&tmux, "and?");
        wait_until("it is asked", || place.server.model_requests().len() > before);
        let last = place.server.model_requests().last().unwrap().body.to_string();
        last.contains("Background commands have ended") && last.contains("trained")
    });
    leave(&tmux);
}

#[test]
fn a_shell_command_runs_as_the_person_and_is_told_with_the_next_message() {
    let place = Place::new(script![text("I have read it").in_chunks(3)]);
    let tmux = open(&place, "");
    says(&tmux, "!pwd; echo to-stderr >&2; exit 3");
    let screen = tmux.wait_for_text("\n    to-stderr");
    assert!(
        screen.contains(&*place.repo.file_name().unwrap().to_string_lossy()) && screen.contains("to-stderr")
    );
    assert!(place.server.requests().is_empty(), "nothing is sent by itself");
    says(&tmux, "look");
    tmux.wait_for_text("I have read it");
    let heard = heard(&place);
    assert!(heard.contains("the user ran a command") && heard.contains("to-stderr"), "{heard}");
    leave(&tmux);
}
