//! The keys that leave an attached terminal, and what is pasted into it.

use std::path::PathBuf;

use testkit::{StepExt as _, Tmux, script, text, wait_until};

use crate::fleet::Fleet;

/// A terminal in the repo that is attached to the agent, when it shows this.
fn terminal<'e>(fleet: &'e Fleet, id: &str, shown: &str) -> Tmux<'e> {
    let tmux = Tmux::start(&fleet.place.env, 110, 40);
    attach(fleet, &tmux, id, shown);
    tmux
}

fn attach(fleet: &Fleet, tmux: &Tmux<'_>, id: &str, shown: &str) {
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    tmux.send_text(&format!(
        "cd {} && {program} attach --plain {id}; echo left with $?",
        fleet.place.repo.display()
    ));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text(shown);
}

fn transcript(fleet: &Fleet, id: &str) -> String {
    fleet.place.env.read(PathBuf::from(fleet.row(id)["dir"].as_str().unwrap()).join("transcript.jsonl"))
}

/// An agent that waits for its model.
fn at_work() -> (Fleet, String) {
    let fleet = Fleet::new(script![text("all done").forever()]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    (fleet, id)
}

#[test]
fn f10_ctrl_d_on_a_half_typed_line_leaves_and_sends_nothing() {
    let (fleet, id) = at_work();
    let tmux = terminal(&fleet, &id, "> the task");
    tmux.send_text("half a thought");
    tmux.wait_for_text("\nhalf a thought");
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("left with 0");
    let screen = tmux.capture();
    assert!(screen.contains("\nit was not told this: half a thought\n"), "{screen}");
    assert!(screen.contains(&format!("\ndetached; agent {id} goes on\n")), "{screen}");
    assert!(!transcript(&fleet, &id).contains("half a thought"));
    assert_eq!(fleet.state(&id), "running");
    fleet.run(["kill", &id]).ok();
}

#[test]
fn f10_what_is_pasted_is_one_message_however_its_last_line_ends() {
    let (fleet, id) = at_work();
    let tmux = terminal(&fleet, &id, "> the task");
    for (pasted, first) in [("one\ntwo", "one"), ("line one\nline two\nline three", "line one")] {
        tmux.paste(pasted);
        let last = pasted.lines().last().unwrap();
        tmux.wait_for_text(&format!("\n{last}"));
        tmux.send_keys(&["Enter"]);
        let begun = format!("\"text\":\"{first}");
        wait_until("it is on the disk", || transcript(&fleet, &id).contains(&begun));
        let whole = serde_json::to_string(pasted).unwrap();
        assert!(
            transcript(&fleet, &id).contains(&format!("\"text\":{whole}")),
            "{}",
            transcript(&fleet, &id)
        );
    }
    // What stands behind a paste can still be left where it is.
    tmux.paste("never\nsent");
    tmux.wait_for_text("\nsent");
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("left with 0");
    assert!(!transcript(&fleet, &id).contains("never"), "{}", tmux.capture());
    let screen = tmux.capture();
    assert!(screen.contains("\nsent\nit was not told this: never"), "{screen}");
    fleet.run(["kill", &id]).ok();
}

#[test]
fn f10_every_key_that_leaves_does_so_for_a_queued_agent_too() {
    let (fleet, first) = at_work();
    let queued = fleet.bg("another task", []);
    // One terminal, cleared between the rounds.
    let tmux = Tmux::start(&fleet.place.env, 110, 40);
    for (typed, key, told) in [
        ("", "C-c", ""),
        ("", "C-d", ""),
        ("half a thought", "C-d", "\nit was not told this: half a thought\n"),
    ] {
        attach(&fleet, &tmux, &queued, "queued, next to start; waiting (Ctrl+D leaves)");
        if !typed.is_empty() {
            tmux.send_text(typed);
            tmux.wait_for_text(&format!("\n{typed}"));
        }
        tmux.send_keys(&[key]);
        tmux.wait_for_text("left with 0");
        let screen = tmux.capture();
        assert!(screen.contains(told), "{screen}");
        assert!(screen.contains(&format!("detached; agent {queued} still waits for its start")), "{screen}");
        assert!(!screen.contains("it will hear that"), "{screen}");
        tmux.send_keys(&["clear", "Enter"]);
        tmux.wait_for("the screen is clear", |screen| !screen.contains("left with 0"));
    }
    fleet.run(["kill", &first, &queued]).ok();
}

#[test]
fn f10_who_leaves_while_a_command_runs_is_not_told_that_it_was_not_heard() {
    let answer = |number: usize| text(format!("answer {number} {}", "x".repeat(2_000)));
    let fleet = Fleet::new(script![answer(1), answer(2), answer(3), text("the summary")]);
    let settings = fleet.place.env.config().join("caliban/settings.toml");
    let text = fleet.place.env.read(&settings);
    fleet.place.env.write(settings, format!("context_window = 5000\n{text}"));
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    for message in ["go on", "more"] {
        fleet.run(["agents", "send", &id, message]).ok();
        fleet.run(["agents", "wait", &id]).ok();
    }
    let before = fleet.place.server.model_requests().len();
    fleet.place.server.hold();
    let tmux = terminal(&fleet, &id, "> more");
    tmux.send_keys(&["/compact", "Enter"]);
    fleet.place.server.wait_for_requests(before + 1);
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("left with 0");
    let screen = tmux.capture();
    assert!(!screen.contains("it was not told") && !screen.contains("waiting until"), "{screen}");
    assert!(screen.contains(&format!("\ndetached; agent {id} goes on\n")), "{screen}");
    fleet.place.server.release();
    wait_until("it is carried out", || transcript(&fleet, &id).contains("the summary"));
    fleet.run(["kill", &id]).ok();
}
