//! `/detach`: a session of the screen goes on as an agent of the fleet.

use testkit::{StepExt as _, Tmux, script, text, wait_until};

use crate::{
    commands::says,
    fleet::{Fleet, bash},
    screen::{assert_restored, open, start},
};

#[test]
fn a_session_at_rest_goes_on_in_the_fleet_and_waits_for_a_message() {
    let fleet = Fleet::new(script![text("it was 42").on("what was it?"), text("it is noted")]);
    let tmux = open(&fleet.place, "");
    tmux.send_keys(&["/detach", "Enter"]);
    tmux.wait_for_text("nothing was said yet");
    tmux.send_keys(&["remember 42", "Enter"]);
    tmux.wait_for_text("it is noted");
    tmux.wait_for_text("> Describe a task");
    tmux.send_keys(&["/detach", "Enter"]);
    let screen = tmux.wait_for_text("left with 0");
    assert_restored(&tmux);
    let id = fleet.rows()[0]["id"].as_str().unwrap().to_owned();
    let told = format!("this conversation goes on as agent {id}: `caliban attach {id}`");
    assert!(screen.replace('\n', "").contains(&told), "{screen}");
    fleet.wait_for(&id, "idle");
    assert_eq!(fleet.row(&id)["prompt"], "remember 42");
    fleet.run(["agents", "send", &id, "what was it?"]).ok();
    wait_until("it has answered", || fleet.row(&id)["last_text"] == "it was 42");
    let last = fleet.place.server.model_requests().pop().unwrap().body["messages"].to_string();
    assert!(
        last.contains("remember 42") && last.contains("it is noted") && last.contains("what was it?"),
        "{last}"
    );
    // The old session knows where it went.
    let shown = fleet.run(["sessions", "replay", &fleet.place.session_id()]).ok().stdout;
    assert!(shown.contains(&format!("sent to the fleet: it goes on as agent {id}")), "{shown}");
    fleet.run(["stop", &id]).ok();
    fleet.run(["daemon", "stop"]).ok();
}

#[test]
fn a_session_at_work_goes_on_with_its_work_and_its_background_agents_do_too() {
    let fleet = Fleet::new(script![
        text("the main task is done").on("The user has sent this conversation to the fleet"),
        text("the side task is done").on("You are an agent of the fleet"),
        bash("echo begun > begun; sleep 1000").on_first("the main task"),
        bash("echo begun > side; sleep 2000").on_first("the side task"),
    ]);
    let tmux = Tmux::start(&fleet.place.env, 100, 30);
    start(&tmux, &fleet.place, "--permission-mode unattended 'the main task'");
    wait_until("its command runs", || fleet.place.repo.join("begun").exists());
    tmux.send_keys(&["/bg the side task", "Enter"]);
    wait_until("the other command runs", || fleet.place.repo.join("side").exists());
    tmux.send_keys(&["/detach", "Enter"]);
    let screen = tmux.wait_for_text("left with 0");
    assert!(screen.contains("background agent 0 goes on as agent"), "{screen}");
    assert_restored(&tmux);
    let sleeps = || fleet.place.env.processes().iter().any(|(_, line)| line.contains("sleep 1000"));
    assert!(!sleeps(), "nothing of the session is left");
    wait_until("both are done", || {
        let texts: Vec<String> = fleet.rows().iter().map(|row| row["last_text"].to_string()).collect();
        texts.iter().any(|text| text.contains("the main task is done"))
            && texts.iter().any(|text| text.contains("the side task is done"))
    });
    for row in fleet.rows() {
        let is_main = row["prompt"] == "the main task";
        let (id, state) = (row["id"].as_str().unwrap(), if is_main { "idle" } else { "done" });
        fleet.wait_for(id, state);
        if is_main {
            fleet.run(["stop", id]).ok();
        }
    }
    fleet.run(["daemon", "stop"]).ok();
}

/// 28.2: nothing that a person has narrowed or chosen widens on the way to the fleet.
#[test]
fn a17_a_session_that_is_sent_away_keeps_its_mode_its_rules_and_its_model() {
    let fleet = Fleet::new(script![
        text("it was refused").on("what came of it?"),
        bash("touch made").on("make it"),
        text("it is noted")
    ]);
    let tmux = open(&fleet.place, "");
    for (typed, answer) in [
        ("/model claude-haiku-4-5", "claude-haiku-4-5 answers"),
        ("/permissions deny Bash(touch made)", "holds for this session"),
        ("/mode accept-edits", "accept-edits ·"),
        ("remember 42", "it is noted"),
        ("/detach", "left with 0"),
    ] {
        says(&tmux, typed);
        tmux.wait_for_text(answer);
    }
    let id = fleet.rows()[0]["id"].as_str().unwrap().to_owned();
    fleet.wait_for(&id, "idle");
    fleet.run(["agents", "send", &id, "make it"]).ok();
    wait_until("the call is refused", || {
        let requests = fleet.place.server.model_requests();
        requests.last().unwrap().body["messages"].to_string().contains("tool_result")
    });
    fleet.wait_for(&id, "idle");
    assert!(!fleet.place.repo.join("made").exists());
    assert!(fleet.rows()[0]["asks"].as_array().unwrap().is_empty(), "it is denied, not asked");
    let last = fleet.place.server.model_requests().pop().unwrap();
    assert_eq!(last.body["model"], "claude-haiku-4-5");
    let dir = std::path::PathBuf::from(fleet.row(&id)["dir"].as_str().unwrap());
    assert!(fleet.place.env.read(dir.join("spec.json")).contains("accept-edits"));
    let transcript = fleet.place.env.read(dir.join("transcript.jsonl"));
    assert!(transcript.contains("Bash(touch made)"), "{transcript}");
    fleet.run(["stop", &id]).ok();
    fleet.run(["daemon", "stop"]).ok();
}
