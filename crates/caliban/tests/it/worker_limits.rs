//! Turns, tokens and dollars of background agents: how they are counted, what is said, and what a resume may do.

use serde_json::json;
use testkit::{ModelServer, Protocol, StepExt, script, text, tool, wait_until};

use crate::{
    fleet::{Fleet, bash},
    place::Place,
};

const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

#[test]
fn a_resume_that_is_refused_leaves_the_limits_as_they_were() {
    let fleet = Fleet::new(script![bash("true"), bash("true"), text("done"), text("again")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", UNATTENDED);
    fleet.place.server.wait_for_requests(1);
    let refused = fleet.run(["resume", &id, "--max-turns", "1", "--budget-tokens", "1"]).expect_code(1);
    assert!(refused.stderr.contains("it has not ended"), "{}", refused.stderr);
    fleet.place.server.release();
    fleet.run(["agents", "wait", &id]).ok();
    fleet.run(["resume", &id, "--prompt", "more"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(json!([fleet.row(&id)["turns"], fleet.row(&id)["last_text"]]), json!([4, "again"]));
}

#[test]
fn turns_count_from_the_beginning_and_a_resume_that_could_do_none_is_refused() {
    let fleet = Fleet::new(script![bash("true").forever()]);
    let id = fleet.bg("the task", [UNATTENDED[0], UNATTENDED[1], "--max-turns", "2"]);
    fleet.run(["agents", "wait", &id]).expect_code(4);
    assert_eq!(fleet.row(&id)["turns"], json!(2));
    for more in [&[][..], &["--prompt", "go on"], &["--max-turns", "1"], &["--max-turns", "2"]] {
        let refused = fleet.run(["resume", &id].into_iter().chain(more.iter().copied())).expect_code(1);
        let limit = if more.contains(&"1") { "1 turn" } else { "2 turns" };
        let words =
            format!("error: agent {id} has had 2 turns, and its limit is {limit}, from its beginning\n");
        assert_eq!(
            refused.stderr,
            format!("{words}hint: raise it: caliban resume {id} --max-turns 4\n"),
            "{more:?}"
        );
    }
    assert_eq!(fleet.state(&id), "failed");
    fleet.run(["resume", &id, "--max-turns", "3"]).ok();
    fleet.run(["agents", "wait", &id]).expect_code(4);
    let row = fleet.row(&id);
    assert_eq!(json!([row["turns"], row["ending"]]), json!([3, {"how": "turn_limit", "limit": 3}]));
    // A refused one did not lower what an earlier one raised.
    fleet.run(["resume", &id, "--max-turns", "2"]).expect_code(1);
    fleet.run(["resume", &id, "--max-turns", "5"]).ok();
    fleet.run(["agents", "wait", &id]).expect_code(4);
    assert_eq!(fleet.row(&id)["turns"], json!(5));
}

#[test]
fn a_resume_without_a_budget_for_anything_is_refused() {
    let fleet = Fleet::new(script![bash("true").costs(15_000, 5_000).forever()]);
    let id = fleet.bg("the task", [UNATTENDED[0], UNATTENDED[1], "--budget-tokens", "30000"]);
    fleet.run(["agents", "wait", &id]).expect_code(4);
    for (more, why, enough) in [
        (&[][..], "has ended: budget exceeded: the token budget of", "60000"),
        (&["--budget-tokens", "20000"], "has spent 20000 tokens, and its budget is 20000, from its", "40000"),
    ] {
        let refused = fleet.run(["resume", &id].into_iter().chain(more.iter().copied())).expect_code(1);
        assert!(refused.stderr.starts_with(&format!("error: agent {id} {why} ")), "{}", refused.stderr);
        let hint = format!("\nhint: raise it: caliban resume {id} --budget-tokens {enough}\n");
        assert!(refused.stderr.ends_with(&hint), "{}", refused.stderr);
    }
    fleet.run(["resume", &id, "--budget-tokens", "50000"]).ok();
    fleet.run(["agents", "wait", &id]).expect_code(4);
    assert_eq!(fleet.row(&id)["turns"], json!(2));
}

#[test]
fn an_interactive_agent_that_reaches_a_limit_says_so_and_can_be_taken_up_again() {
    let fleet = Fleet::new(script![
        bash("true"),
        bash("true"),
        text("and again").on("once more").forever(),
        text("hello").forever()
    ]);
    let flags = [UNATTENDED[0], UNATTENDED[1], "--interactive", "--max-turns", "2"];
    let id = fleet.bg("the task", flags);
    let waited = fleet.run(["agents", "wait", &id]).expect_code(4);
    assert_eq!(waited.stdout, format!("{id}  failed  turn limit (2) reached\n"));
    let row = fleet.row(&id);
    // The daemon looks at its work meanwhile.
    let doing = row["doing"].as_str().unwrap().replace(", nothing changed", "");
    assert_eq!(json!([doing, row["turns"]]), json!(["turn limit (2) reached", 2]));
    let logs = fleet.run(["logs", &id]).ok().stdout;
    assert!(logs.contains("\n-- failed: turn limit (2) reached; "), "{logs}");
    // Somebody speaks to it: each message has its own turns.
    fleet.run(["resume", &id, "--prompt", "go on"]).ok();
    fleet.wait_for(&id, "idle");
    fleet.run(["agents", "send", &id, "once more"]).ok();
    wait_until("it has answered", || fleet.row(&id)["last_text"] == "and again");
    fleet.run(["agents", "wait", &id]).ok();
}

#[test]
fn the_cost_follows_the_tokens_and_stays_when_the_agent_is_killed() {
    let script = script![
        bash("while [ ! -e go ]; do sleep 0.1; done").costs(1000, 100),
        text("done").costs(1000, 100)
    ];
    let server = ModelServer::builder(script).known_models(["claude-opus-5"]).start();
    let fleet = Fleet { place: Place::with(server, Protocol::Anthropic) };
    let id = fleet.bg("the task", UNATTENDED);
    wait_until("the command runs", || fleet.row(&id)["doing"].as_str().unwrap().starts_with("Bash while"));
    // 1000 × $5 and 100 × $25 for a million.
    assert_eq!(fleet.row(&id)["micro_usd"], json!(7500));
    fleet.run(["kill", &id]).ok();
    assert_eq!(fleet.row(&id)["micro_usd"], json!(7500));
    fleet.place.env.write(fleet.worktree(&id).join("go"), "");
    fleet.run(["resume", &id]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.row(&id)["micro_usd"], json!(15_000));
}

#[test]
fn a_list_counts_the_tokens_of_sub_agents_as_it_counts_their_cost() {
    let fleet = Fleet::new(script![
        text("seen").on_first("look around"),
        tool("AgentTool", json!({"prompt": "look around"})).on_first("the task"),
        text("done").on_first("the task"),
    ]);
    let id = fleet.bg("the task", UNATTENDED);
    fleet.run(["agents", "wait", &id]).ok();
    let row = fleet.row(&id);
    let file = std::path::Path::new(row["dir"].as_str().unwrap()).join("session.json");
    let session: serde_json::Value = serde_json::from_str(&fleet.place.env.read(file)).unwrap();
    assert_eq!((&row["usage"], &row["turns"]), (&session["usage"], &json!(2)), "{row:#}");
    let logs = fleet.run(["logs", &id]).ok().stdout;
    let total: u64 = row["usage"].as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
    let shown = format!("2 turns, {:.1}k tokens", total as f64 / 1e3);
    assert!(logs.contains(&shown), "{shown}: {logs}");
}
