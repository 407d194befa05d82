//! What would let an agent fail at once is refused when it is asked for.

use serde_json::Value;
use testkit::{ModelServer, Protocol, StepExt, script, text};

use crate::{
    fleet::{Fleet, id_of},
    place::Place,
};

#[test]
fn a_budget_in_dollars_for_a_model_without_a_price_is_refused_at_the_spawn_and_at_a_resume() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let words = "error: the price of 'test-model' is not known, so a budget in dollars cannot be held\n";
    let flag = fleet.place.caliban().args(["--bg", "the task", "--budget-usd", "1"]).output().expect_code(2);
    assert_eq!(flag.stderr, format!("{words}hint: give --budget-tokens instead\n"));
    assert_eq!(fleet.rows(), Vec::<Value>::new());
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let args = ["--provider", "anthropic", "--model", "test-model", "--bg", "the task"];
    let named = fleet.place.env.start("caliban", args).dir(&fleet.place.repo).output().ok();
    let named = id_of(&named);
    fleet.run(["agents", "wait", &named]).ok();
    let again = fleet.run(["resume", &named, "--budget-usd", "1"]).expect_code(2);
    assert!(again.stderr.starts_with(words), "{}", again.stderr);
    fleet.settings("[limits]\nbudget_usd = 1.0\n");
    let setting = fleet.place.caliban().args(["--bg", "the task"]).output().expect_code(2);
    let hint = "hint: unset limits.budget_usd for it, and give --budget-tokens instead\n";
    assert_eq!(setting.stderr, format!("{words}{hint}"));
    // One that is known is none of this.
    let server = ModelServer::builder(script![text("done")]).known_models(["claude-opus-5"]).start();
    let fleet = Fleet { place: Place::with(server, Protocol::Anthropic) };
    let id = fleet.bg("the task", ["--budget-usd", "1"]);
    fleet.run(["agents", "wait", &id]).ok();
}

#[test]
fn tools_of_the_broker_can_be_named_when_the_settings_give_a_mailbox() {
    let fleet = Fleet::new(script![text("done")]);
    let refused = fleet.place.caliban().args(["--bg", "the task", "--tools", "BrokerSend"]).output();
    assert!(refused.expect_code(2).stderr.contains("there is no tool 'BrokerSend'"));
    let made = fleet.place.env.start("cafleet", ["session", "create", "--no-tmux", "--json"]).output().ok();
    let session = made.json::<Value>()["session_id"].as_str().unwrap().to_owned();
    fleet.settings(&format!("[fleet]\nbroker_session = \"{session}\"\n"));
    let id = fleet.bg("the task", ["--label", "mine", "--tools", "BrokerSend"]);
    fleet.run(["agents", "wait", &id]).ok();
    let requests = fleet.place.server.model_requests();
    let tools = requests[0].body["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["BrokerSend"]);
}
