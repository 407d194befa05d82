//! A repo that is moved or deleted while agents run: they can be reached, and nobody is left to guess where they are.

use std::fs;

use serde_json::{Value, json};
use testkit::{Output, StepExt, script, text, wait_until};

use crate::fleet::{Fleet, bash};

/// A repo with an agent that asks, and where it was moved to.
fn moved() -> (Fleet, String, std::path::PathBuf) {
    let fleet = Fleet::new(script![
        bash("touch asked-for").on_first("the task"),
        text("thank you").on_first("the task"),
        text("hello"),
    ]);
    let id = fleet.bg("the task", ["--label", "asker"]);
    fleet.wait_for_ask(&id);
    let new = fleet.place.repo.with_file_name("elsewhere");
    fs::rename(&fleet.place.repo, &new).unwrap();
    (fleet, id, new)
}

fn note(output: &Output) -> Vec<&str> {
    output.stderr.lines().filter(|line| line.starts_with("note: ")).collect()
}

#[test]
fn in_a_moved_repo_it_is_said_where_its_agents_are() {
    let (fleet, id, new) = moved();
    let (env, old) = (&fleet.place.env, fleet.place.repo.display());
    let said = format!(
        "note: this repo was at {old}, and 1 agent of it belongs there: caliban -C {old} agents list shows it"
    );
    let list = env.run_in(&new, ["agents", "list"]).ok();
    assert_eq!(list.stdout, "No agents. Start one: caliban --bg \"<task>\"\n");
    assert_eq!(note(&list), [&said]);
    assert_eq!(note(&env.run_in(&new, ["agents", "list", "--json"]).ok()), [&said]);
    assert_eq!(note(&env.run_in(&new, ["approvals"]).ok()), [&said]);
    assert_eq!(note(&env.run_in(&new, ["kill", &id]).expect_code(1)), [&said]);
    assert_eq!(note(&env.run_in(&new, ["daemon", "status"]).ok()), [&said]);
    // One that has nothing to do with it is not told, as long as nobody of it is lost.
    let other = env.work();
    let list = env.run_in(&other, ["agents", "list"]).ok();
    let lost = format!(
        "note: {old} is gone, and 1 agent of it runs: if that repo was moved, move it back; \
         caliban -C {old} agents list shows it meanwhile"
    );
    assert_eq!(note(&list), [&lost]);
    env.run_in(&new, ["-C", &old.to_string(), "kill", &id]).ok();
    assert_eq!(note(&env.run_in(&other, ["agents", "list"]).ok()), Vec::<&str>::new());
    assert_eq!(note(&env.run_in(&new, ["agents", "list"]).ok()), [&said]);
    // Back where it was, all is as it was.
    fs::rename(&new, &fleet.place.repo).unwrap();
    assert_eq!(fleet.state(&id), "killed");
}

#[test]
fn the_agents_of_a_moved_repo_are_reached_by_its_old_path() {
    let (fleet, id, new) = moved();
    let (env, old) = (&fleet.place.env, fleet.place.repo.display().to_string());
    let there = |args: &[&str]| env.run_in(&new, ["-C", old.as_str()].iter().chain(args));
    let rows = || -> Vec<Value> { there(&["agents", "list", "--json"]).ok().json() };
    assert_eq!((rows().len(), &rows()[0]["id"], &rows()[0]["state"]), (1, &json!(id), &json!("running")));
    // Also without its daemon, and from what was a directory of it.
    there(&["daemon", "stop"]).ok();
    let below = format!("{old}/src");
    let open: Vec<Value> = env.run_in(&new, ["-C", below.as_str(), "approvals", "--json"]).ok().json();
    assert_eq!((open.len(), &open[0]["what"]), (1, &json!("Bash touch asked-for")));
    there(&["deny", "1"]).ok();
    there(&["agents", "wait", &id]).ok();
    assert!(there(&["logs", &id]).ok().stdout.contains("thank you"));
    for verb in [&["agents", "diff", &id][..], &["agents", "merge", &id], &["resume", &id], &["respawn", &id]]
    {
        let refused = there(verb).expect_code(1);
        let words = format!(
            "error: the repo {old} is not there any more, and this needs it\n\
             hint: move it back to that place; list, attach, logs, send, wait, approvals, kill and rm work without it\n"
        );
        assert_eq!(refused.stderr, words, "{verb:?}");
    }
    let refused = there(&["--bg", "more"]).expect_code(2);
    assert_eq!(
        refused.stderr,
        format!(
            "error: cannot work in {old}: no such file or directory\n\
             hint: agents of that repo can still be reached: caliban -C {old} agents list\n"
        )
    );
    there(&["rm", &id]).ok();
    assert_eq!(rows(), Vec::<Value>::new());
    // Its work is where the repo is.
    assert!(new.join(".caliban/worktrees").join(&id).exists());
}

#[test]
fn a_directory_that_never_had_agents_is_said_to_be_missing() {
    let fleet = Fleet::new(script![text("hello")]);
    let nowhere = fleet.place.env.work().join("nowhere");
    let output = fleet.run(["-C", nowhere.to_str().unwrap(), "agents", "list"]).expect_code(2);
    let said = format!(
        "error: cannot work in {}: no such file or directory\n\
         hint: -C takes a directory that is there; a relative one starts here\n",
        nowhere.display()
    );
    assert_eq!(output.stderr, said);
}

#[test]
fn a_repo_that_was_deleted_and_made_again_is_not_taken_for_the_old_one() {
    let fleet = Fleet::new(script![text("hello")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    fleet.run(["daemon", "stop"]).ok();
    let env = &fleet.place.env;
    fs::remove_dir_all(&fleet.place.repo).unwrap();
    let other = env.repo();
    wait_until("it is another directory", || other.exists());
    assert_eq!(note(&env.run_in(&other, ["agents", "list"]).ok()), Vec::<&str>::new());
    // Its agents are there all the same.
    let there: Vec<Value> = env
        .run_in(&other, ["-C", fleet.place.repo.to_str().unwrap(), "agents", "list", "--json"])
        .ok()
        .json();
    assert_eq!(there[0]["id"], json!(id));
}
