//! A page does what a command line with the same values does: the same request, with the settings of the repo it is about.

use std::fs;

use serde_json::json;
use testkit::{StepExt as _, script, text, wait_until};

use crate::{
    dashboard::Dashboard,
    fleet::{Fleet, id_of},
};

const SECRET: &str = "tok-canary-5d1f0b77";

/// What is kept of a spawn request: the spec, and what the agent is handed beside it.
fn kept(fleet: &Fleet, id: &str) -> (String, String) {
    let row = fleet.row(id);
    let spec = fs::read_to_string(format!("{}/spec.json", row["dir"].as_str().unwrap())).unwrap();
    let handed = caliban_contract::secrets_file(row["socket"].as_str().unwrap().as_ref());
    (spec, fs::read_to_string(handed).unwrap())
}

#[test]
fn a_page_and_a_command_line_make_the_same_spawn_request_byte_for_byte() {
    let fleet = Fleet::new(script![text("one").on_first("the task"), text("two").on_first("the task")]);
    fleet.settings(&format!("\n[bash.env]\nSERVICE_TOKEN = \"{SECRET}\"\n"));
    let prompt = format!("the task, with {SECRET} and @README.md");
    fleet.place.env.write(fleet.place.repo.join("README.md"), "read me");
    let flags = ["--permission-mode=accept-edits", "--max-turns=7", "--isolation=worktree", "--base=HEAD"];
    let typed = id_of(&fleet.run(["agents", "spawn", "--prompt", &prompt].into_iter().chain(flags)).ok());
    let dashboard = Dashboard::start(&fleet);
    let agents = dashboard.agent(&typed).rsplit_once('/').unwrap().0.to_owned();
    let asked = json!({
        "prompt": prompt, "permission_mode": "accept-edits", "max_turns": 7, "isolation": "worktree", "base": "HEAD",
    });
    let made = dashboard.post(&agents, &asked);
    assert_eq!(made.status, 201, "{}", made.body);
    let clicked = made.json()["id"].as_str().unwrap().to_owned();
    let (spec, handed) = kept(&fleet, &typed);
    assert_eq!((&spec, &handed), (&kept(&fleet, &clicked).0, &kept(&fleet, &clicked).1));
    assert!(!spec.contains(SECRET) && handed.contains(SECRET), "{spec}");
    assert!(spec.contains("README.md") && spec.contains("accept-edits"), "{spec}");
}

#[test]
fn a_page_takes_the_settings_of_the_repo_and_its_secrets_out_of_messages() {
    let steps = script![text("first").on_first("the task"), text("again")];
    let fleet = Fleet::new(steps);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    // Changed while the server runs: each request looks anew.
    fleet.settings(&format!("\n[bash.env]\nSERVICE_TOKEN = \"{SECRET}\"\n"));
    let said = dashboard.post(&format!("{path}/send"), &json!({"text": format!("use {SECRET}")}));
    assert_eq!(said.status, 200, "{}", said.body);
    let mut page = String::new();
    wait_until("the message is in the transcript", || {
        page = dashboard.get(&format!("{path}/transcript")).body;
        page.contains("use ")
    });
    assert!(page.contains("use [redacted:SERVICE_TOKEN]") && !page.contains(SECRET), "{page}");
    let form = dashboard.get(&format!("{}/new", path.rsplit_once("/agents").unwrap().0)).json();
    let rows = form["settings"].as_array().unwrap();
    let token = rows.iter().find(|row| row["key"] == "bash.env.SERVICE_TOKEN").unwrap();
    assert_eq!(token["value"], "set");
    let unattended =
        json!({"name": "unattended", "words": "does everything that no rule denies, without a fence"});
    assert_eq!(form["modes"][4], unattended);
    assert!(form["models"]["providers"].is_array() && form["types"].is_array(), "{form}");
}
