//! Background agents of a session that work in worktrees, write what others write, or go on in the fleet.

use rustix::process::{Signal, kill_process};
use serde_json::json;
use testkit::{StepExt as _, Tmux, script, text, tool, wait_until};

use crate::{
    bg::{Editor, of, settings},
    commands::says,
    fleet::{Fleet, bash, write},
    place::Place,
    screen::{pid, start},
};

#[test]
fn a_kept_background_agent_goes_on_in_the_fleet_with_its_conversation() {
    let fleet = Fleet::new(script![
        text("finished in the fleet").on("You are an agent of the fleet"),
        bash("echo begun > begun; sleep 1000").on_first("the side task"),
    ]);
    settings(&fleet.place, "");
    let mut editor = Editor::open(&fleet.place);
    assert_eq!(editor.command("/bg keep 0"), "there is no background agent 0; `/bg list` shows them");
    editor.command("/bg the side task");
    wait_until("its command runs", || fleet.place.repo.join("begun").exists());
    let kept = editor.command("/bg keep 0");
    let id = fleet.rows()[0]["id"].as_str().unwrap().to_owned();
    assert!(kept.ends_with(&format!("Background agent 0 is agent {id} of the fleet from now on.")), "{kept}");
    let sleeps = || fleet.place.env.processes().iter().any(|(_, line)| line.contains("sleep 1000"));
    assert!(!sleeps(), "its command is gone when the answer comes");
    wait_until("it is no background agent any more", || editor.rows().is_empty());
    let (_, title, _) = editor.notices().pop().unwrap();
    assert_eq!(
        title,
        format!("background agent 0 goes on in the fleet as agent {id}: `caliban attach {id}`")
    );
    fleet.wait_for(&id, "done");
    let row = fleet.row(&id);
    assert_eq!(
        (&row["last_text"], &row["prompt"]),
        (&json!("finished in the fleet"), &json!("the side task"))
    );
    let last = of(&fleet.place, "the side task").pop().unwrap().body["messages"].to_string();
    assert!(last.contains("echo begun > begun") && last.contains("You are an agent of the fleet"), "{last}");
    // It does not end with the session.
    editor.quit();
    assert_eq!(fleet.state(&id), "done");
    fleet.run(["daemon", "stop"]).ok();
}

#[test]
fn b06_in_a_terminal_agents_that_are_kept_go_on_when_the_screen_is_left() {
    let fleet = Fleet::new(script![
        text("finished in the fleet").on("You are an agent of the fleet"),
        bash("echo begun > begun; sleep 1000").on_first("the side task"),
    ]);
    settings(&fleet.place, "");
    let tmux = Tmux::start(&fleet.place.env, 100, 30);
    start(&tmux, &fleet.place, "");
    says(&tmux, "/bg the side task");
    wait_until("its command runs", || fleet.place.repo.join("begun").exists());
    says(&tmux, "/quit");
    tmux.wait_for_text("keep them: they go on in the fleet");
    tmux.send_keys(&["s"]);
    tmux.wait_for("the question is gone", |screen| !screen.contains("keep them"));
    assert_eq!(fleet.rows().len(), 0, "staying changes nothing");
    says(&tmux, "/quit");
    tmux.wait_for_text("keep them: they go on in the fleet");
    tmux.send_keys(&["k"]);
    tmux.wait_for_text("left with 0");
    let id = fleet.rows()[0]["id"].as_str().unwrap().to_owned();
    fleet.wait_for(&id, "done");
    assert_eq!(fleet.row(&id)["last_text"], "finished in the fleet");
    fleet.run(["daemon", "stop"]).ok();
}

#[test]
fn b11_a_terminal_that_hangs_up_ends_them() {
    let place = Place::new(script![bash("echo begun > begun; sleep 1000").on_first("the side task")]);
    settings(&place, "");
    let tmux = Tmux::start(&place.env, 100, 30);
    start(&tmux, &place, "");
    says(&tmux, "/bg the side task");
    wait_until("its command runs", || place.repo.join("begun").exists());
    kill_process(pid(&place), Signal::HUP).unwrap();
    tmux.wait_for_text("left with 130");
    let sleeps = || place.env.processes().iter().any(|(_, line)| line.contains("sleep 1000"));
    assert!(!sleeps(), "nothing is left of it when the screen is");
    let records = place.transcript();
    let last = records.iter().rfind(|record| record["event"] == "background").unwrap();
    assert_eq!(last["status"], "killed");
}

#[test]
fn a_background_agent_that_nobody_would_take_works_on() {
    let fleet = Fleet::new(script![bash("echo begun > begun; sleep 1000").on_first("the side task")]);
    settings(&fleet.place, "");
    let mut editor = Editor::open(&fleet.place);
    editor.command("/bg the side task");
    wait_until("its command runs", || fleet.place.repo.join("begun").exists());
    settings(&fleet.place, "no_such_setting = 1\n");
    let refused = editor.command("/bg keep 0");
    assert!(refused.starts_with("background agent 0 was not handed to the fleet: "), "{refused}");
    assert_eq!(editor.rows()[0]["status"], "running");
    assert_eq!(editor.command("/bg kill 0"), "Background agent 0 is stopped.");
    editor.quit();
}

#[test]
fn b02_in_a_worktree_its_work_is_on_a_branch_and_its_way_is_the_models_and_the_settings() {
    let apart = json!({"task": "the model's task", "isolation": "worktree"});
    let place = Place::new(script![
        tool("spawn_background", apart).on_first("the main task"),
        text("started").on_first("the main task").forever(),
        write("made.txt", "by the side\n").on_first("the side task"),
        text("written").on_first("the side task"),
        write("model.txt", "of the model\n").on_first("the model's task"),
        text("written").on_first("the model's task"),
        write("setting.txt", "of the setting\n").on_first("a third task"),
        text("written").on_first("a third task"),
    ]);
    settings(&place, "");
    let mut editor = Editor::open(&place);
    editor.command("/bg --isolation worktree the side task");
    editor.until_status(0, "completed");
    let told = |editor: &Editor, id: usize| {
        wait_until("its end is told", || {
            editor.notices().iter().filter(|it| it.0 == "completed").count() > id
        });
        editor.notices().into_iter().filter(|it| it.0 == "completed").nth(id).unwrap().1
    };
    let title = told(&editor, 0);
    let branch = title.split("`git merge ").nth(1).unwrap().trim_end_matches('`').to_owned();
    assert!(!place.repo.join("made.txt").exists(), "it did not touch the user's tree");
    assert_eq!(place.env.git(&place.repo, &["show", &format!("{branch}:made.txt")]).trim(), "by the side");
    let main = editor.prompt("the main task");
    editor.answer(main);
    wait_until("the second one has ended", || editor.notices().len() > 3);
    assert_eq!(editor.notices()[3].0, "completed", "{:?}", editor.notices());
    assert!(told(&editor, 1).contains("`git merge "), "{}", told(&editor, 1));
    assert!(!place.repo.join("model.txt").exists());
    editor.quit();
    // The setting, and a word that is stronger than it.
    settings(&place, "[background_agents]\nisolation = \"worktree\"\n");
    let mut editor = Editor::open(&place);
    editor.command("/bg a third task");
    editor.until_status(0, "completed");
    assert!(told(&editor, 0).contains("`git merge ") && !place.repo.join("setting.txt").exists());
    editor.quit();
}

#[test]
fn b02_of_two_that_write_one_file_both_are_told() {
    let place = Place::new(script![
        write("shared.txt", "mine\n").on_first("the main task"),
        text("written").on_first("the main task"),
        tool("Read", json!({"file_path": "shared.txt"})).on_first("the side task"),
        write("shared.txt", "theirs\n").on_first("the side task"),
        text("written, too").on_first("the side task"),
        text("I see").on("what now?"),
    ]);
    settings(&place, "");
    let mut editor = Editor::open(&place);
    let main = editor.prompt("the main task");
    editor.answer(main);
    editor.command("/bg the side task");
    editor.until_status(0, "completed");
    let next = editor.prompt("what now?");
    editor.answer(next);
    let path = place.repo.join("shared.txt").display().to_string();
    let side = of(&place, "the side task").pop().unwrap().body["messages"].to_string();
    assert!(
        side.contains(&format!("[the main agent has changed {path} before you; it is told of this write.")),
        "{side}"
    );
    let main = of(&place, "the main task").pop().unwrap().body["messages"].to_string();
    let told = format!("[background agent 0 has changed {path}, which you have changed, too.");
    assert_eq!(main.matches(&told).count(), 1, "{main}");
    editor.quit();
}

#[test]
fn a_compaction_after_a_persons_background_agent_begins_no_turn() {
    let place = Place::new(script![
        text("first").on_first("the main task"),
        text("side done").on_first("the side task"),
        text("a summary").on_first("the main task").forever(),
    ]);
    settings(&place, "");
    let mut editor = Editor::open(&place);
    let main = editor.prompt("the main task");
    editor.answer(main);
    editor.command("/bg the side task");
    editor.until_status(0, "completed");
    let turns = || place.transcript().iter().filter(|record| record["event"] == "turn_ended").count();
    wait_until("the model's message is on the disk", || {
        place.transcript().iter().any(|record| record["event"] == "queued")
    });
    editor.command("/compact");
    editor.quit();
    assert_eq!(turns(), 1);
}

#[test]
fn b06_who_has_settled_that_agents_are_kept_is_not_asked_at_the_end() {
    let fleet = Fleet::new(script![
        text("finished in the fleet").on("You are an agent of the fleet"),
        bash("echo begun > begun; sleep 1000").on_first("the side task"),
    ]);
    settings(&fleet.place, "[ui]\non_leave = \"keep\"\n");
    let tmux = Tmux::start(&fleet.place.env, 100, 30);
    start(&tmux, &fleet.place, "");
    says(&tmux, "/bg the side task");
    wait_until("its command runs", || fleet.place.repo.join("begun").exists());
    says(&tmux, "/quit");
    tmux.wait_for_text("left with 0");
    let id = fleet.rows()[0]["id"].as_str().unwrap().to_owned();
    fleet.wait_for(&id, "done");
    assert_eq!(fleet.row(&id)["last_text"], "finished in the fleet");
    fleet.run(["daemon", "stop"]).ok();
}
