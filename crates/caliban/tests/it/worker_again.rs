//! Agents that are taken up again from another shell.

use testkit::{ModelServer, Protocol, StepExt, script, text};

use crate::{fleet::Fleet, place::Place};

#[test]
fn what_another_shell_does_not_have_stays_as_it_was() {
    let server = ModelServer::builder(script![text("done").forever()]).require_key("the-first-key").start();
    let mut fleet = Fleet { place: Place::with(server, Protocol::Anthropic) };
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    // A shell with a secret of its own, and without the key.
    fleet.place.env.unset("ANTHROPIC_API_KEY");
    fleet.place.env.set("OPENAI_API_KEY", "another-key");
    fleet.run(["resume", &id, "--prompt", "more"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let again = fleet.run(["respawn", &id]).ok().stdout.trim().to_owned();
    fleet.run(["agents", "wait", &again]).ok();
    // One that has a newer key brings it.
    fleet.place.env.set("ANTHROPIC_API_KEY", "a-newer-key");
    fleet.run(["resume", &again, "--prompt", "more"]).ok();
    fleet.run(["agents", "wait", &again]).expect_code(1);
    let keys: Vec<_> = fleet
        .place
        .server
        .model_requests()
        .iter()
        .map(|it| it.header("x-api-key").unwrap().to_owned())
        .collect();
    assert_eq!(keys, ["the-first-key", "the-first-key", "the-first-key", "a-newer-key"]);
}

#[test]
fn a12_what_an_earlier_shell_kept_from_an_agent_it_still_does_not_write_down() {
    let mut fleet = Fleet::new(script![text("done"), text("it is canary-deploy-19af, they say")]);
    fleet.place.env.set("DEPLOY_PASSWORD", "canary-deploy-19af");
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    fleet.place.env.unset("DEPLOY_PASSWORD");
    fleet.place.env.set("OTHER_PASSWORD", "another-canary-77");
    fleet.run(["resume", &id, "--prompt", "more"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.row(&id)["last_text"], "it is [redacted:DEPLOY_PASSWORD], they say");
}
