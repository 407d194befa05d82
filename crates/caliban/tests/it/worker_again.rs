//! Agents that are taken up again from another shell.

use testkit::{ModelServer, Protocol, StepExt, script, text};

use crate::{
    fleet::{Fleet, bash},
    place::Place,
};

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

#[test]
fn r17_a_transcript_that_lost_its_turns_is_not_gone_on_with_and_nothing_runs_twice() {
    // Outside of the repo: what has changed there is part of what the agent is told first.
    let work = || bash("echo x >> ../counter");
    for damage in ["empty", "missing", "cut"] {
        let fleet = Fleet::new(script![work(), work(), text("done"), work(), text("anew")]);
        let id = fleet.bg("the task", ["--permission-mode", "unattended", "--isolation", "none"]);
        fleet.run(["agents", "wait", &id]).ok();
        let dir = std::path::PathBuf::from(fleet.row(&id)["dir"].as_str().unwrap());
        let transcript = dir.join("transcript.jsonl");
        match damage {
            "empty" => std::fs::write(&transcript, "").unwrap(),
            "missing" => std::fs::remove_file(&transcript).unwrap(),
            _ => {
                let text = fleet.place.env.read(&transcript);
                let first: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
                std::fs::write(&transcript, first).unwrap();
            }
        }
        let refused = fleet.run(["resume", &id]).expect_code(1);
        assert!(refused.stderr.contains("cannot go on where it was"), "{damage}: {}", refused.stderr);
        assert!(refused.stderr.contains("0 of the agent's 3 turns"), "{damage}: {}", refused.stderr);
        let counter = || fleet.place.env.read(fleet.place.repo.join("../counter")).lines().count();
        assert_eq!(counter(), 2, "{damage}");
        fleet.run(["resume", &id, "--from-scratch"]).ok();
        fleet.run(["agents", "wait", &id]).ok();
        assert_eq!((counter(), &fleet.row(&id)["last_text"]), (3, &serde_json::json!("anew")), "{damage}");
        fleet.run(["resume", &id, "--from-scratch"]).expect_code(2);
    }
}

#[test]
fn r17_a_worker_refuses_a_damaged_transcript_that_no_command_has_looked_at() {
    let fleet = Fleet::new(script![bash("echo x >> counter"), text("done"), bash("echo x >> counter")]);
    let id = fleet.bg("the task", ["--permission-mode", "unattended", "--isolation", "none"]);
    fleet.run(["agents", "wait", &id]).ok();
    let row = fleet.row(&id);
    std::fs::write(format!("{}/transcript.jsonl", row["dir"].as_str().unwrap()), "").unwrap();
    // A page asks the daemon itself: the command's own check does not run.
    let status: serde_json::Value = fleet.run(["daemon", "status", "--json"]).ok().json();
    let resumed = std::process::Command::new("curl")
        .args(["-s", "-X", "POST", "--unix-socket", status["socket"].as_str().unwrap()])
        .arg(format!("http://x/v1/agents/{id}/resume"))
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&resumed.stdout).unwrap();
    assert_eq!(answer["id"], serde_json::json!(id), "{answer}");
    fleet.run(["agents", "wait", &id]).expect_code(1);
    let row = fleet.row(&id);
    assert_eq!(row["state"], "failed", "{row:#}");
    assert!(row["doing"].as_str().unwrap().contains("cannot go on where it was"), "{row:#}");
    assert_eq!(fleet.place.env.read(fleet.place.repo.join("counter")).lines().count(), 1);
    assert_eq!(fleet.place.server.model_requests().len(), 2);
}

#[test]
fn r20_beginning_from_scratch_makes_no_budget_new() {
    let steps = || script![bash("true"), text("done"), bash("true"), text("anew")];
    let fleet = Fleet::new(steps());
    let flags = ["--permission-mode", "unattended", "--isolation", "none"];
    let measured = fleet.bg("the task", flags);
    fleet.run(["agents", "wait", &measured]).ok();
    let spent = |id: &str| {
        let usage = fleet.row(id)["usage"].clone();
        usage.as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum::<u64>()
    };
    // What a request may need is held back before it is made: the budget is enough for all requests of the first run, and
    // not for one more.
    let probe = fleet.bg("the task", [flags.as_slice(), &["--budget-tokens", "1"]].concat());
    fleet.run(["agents", "wait", &probe]).expect_code(4);
    let words = fleet.row(&probe)["doing"].as_str().unwrap().to_owned();
    let held_back: u64 = words.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap();
    fleet.place.server.set_script(steps());
    let budget = (spent(&measured) + held_back - 100).to_string();
    let more = ["--permission-mode", "unattended", "--isolation", "none", "--budget-tokens", &budget];
    let id = fleet.bg("the task", more);
    fleet.run(["agents", "wait", &id]).ok();
    std::fs::write(format!("{}/transcript.jsonl", fleet.row(&id)["dir"].as_str().unwrap()), "").unwrap();
    fleet.run(["resume", &id, "--from-scratch"]).ok();
    fleet.run(["agents", "wait", &id]).expect_code(4);
    assert!(fleet.row(&id)["doing"].as_str().unwrap().contains("budget"), "{:#}", fleet.row(&id));
}
