//! A model's server that is away, silent or cut off: agents wait, and what was sent counts.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{ClosedPort, ModelServer, Protocol, StepExt, script, text, wait_until};

use crate::{fleet::Fleet, place::Place};

fn settings(place: &Place, retry: &str) {
    place.env.write(place.env.config().join("caliban/settings.toml"), format!("[retry]\n{retry}"));
}

fn total(usage: &Value) -> u64 {
    usage.as_object().unwrap().values().filter_map(Value::as_u64).sum()
}

#[test]
fn r24_a_gateway_that_is_restarted_fails_no_agent_and_the_wait_is_shown() {
    let closed = ClosedPort::new();
    let mut place = Place::with(ModelServer::start(script![]), Protocol::Anthropic);
    settings(&place, "attempts = 1\noutage_seconds = 120\n");
    place.env.set("ANTHROPIC_BASE_URL", closed.url());
    let fleet = Fleet { place };
    let ids = ["one", "two"].map(|task| fleet.bg(task, []));
    for id in &ids {
        wait_until("it waits for the model", || fleet.row(id)["waiting_for"]["for"] == "model");
        let row = fleet.row(id);
        assert!(row["waiting_for"]["until_at"].is_string(), "{row:#}");
        let doing = row["doing"].as_str().unwrap();
        assert!(doing.starts_with("waits for the model, tries again in "), "{doing}");
        assert!(doing.ends_with("connection refused"), "{doing}");
        assert_eq!(row["state"], "running");
    }
    let port = closed.port();
    drop(closed);
    let server = ModelServer::builder(script![text("at last").forever()]).port(port).start();
    for id in &ids {
        fleet.run(["agents", "wait", id]).ok();
        assert_eq!(fleet.row(id)["last_text"], "at last");
        let logs = fleet.run(["logs", id]).ok().stdout;
        assert!(logs.contains("at last"), "{logs}");
    }
    assert_eq!(server.model_requests().len(), 2);
}

#[test]
fn r24_connections_that_are_reset_are_made_again_for_longer_than_attempts_last() {
    let place = Place::new(script![text("at last").refuse().times(3)]);
    settings(&place, "attempts = 1\nprint_outage_seconds = 60\n");
    let output = place.ask("hello", []).ok();
    assert_eq!(output.stdout, "at last\n");
    assert!(output.stderr.contains("closed the connection without an answer"), "{}", output.stderr);
}

#[test]
fn a_command_that_somebody_waits_for_gives_up_sooner_and_says_for_how_long_it_tried() {
    let closed = ClosedPort::new();
    let mut place = Place::new(script![]);
    place.env.set("ANTHROPIC_BASE_URL", closed.url());
    settings(&place, "outage_seconds = 6000\nprint_outage_seconds = 1\n");
    let output = place.ask("hello", []).expect_code(1);
    assert!(output.stderr.contains("(tried for 1 s): nothing answers at "), "{}", output.stderr);
    assert!(output.stderr.contains("\nhint: "), "{}", output.stderr);
}

#[test]
fn a_server_that_never_begins_to_answer_is_silent_for_no_longer_than_the_stall_limit() {
    let place = Place::new(script![text("never").forever()]);
    settings(&place, "attempts = 2\nstall_seconds = 1\n");
    place.server.hold();
    let output = place.ask("hello", []).expect_code(1);
    assert!(output.stderr.contains("sent nothing for 1 s (2 attempts)"), "{}", output.stderr);
    assert_eq!(place.server.model_requests().len(), 2);
}

#[test]
fn r20_streams_that_are_cut_count_as_far_as_they_came() {
    let step = || text("all of it").in_chunks(3).costs(5_000, 10).cut(0).times(4);
    let place = Place::new(script![step()]);
    settings(&place, "attempts = 9\n");
    let limited = place.ask("hello", ["--output-format", "json", "--budget-tokens", "7000"]);
    let result: Value = limited.expect_code(4).json();
    assert!(result["error"].as_str().unwrap().contains("budget"), "{result:#}");
    assert!(total(&result["usage"]) >= 5_000 && total(&result["usage"]) <= 7_000, "{result:#}");
    assert_eq!(place.server.model_requests().len(), 1, "the second one would have been too much");

    let place = Place::new(script![step()]);
    settings(&place, "attempts = 9\n");
    let result: Value = place.ask("hello", ["--output-format", "json"]).ok().json();
    assert!(total(&result["usage"]) >= 25_000, "{result:#}");
    // A resume finds the same.
    let listed: Value = place.verb(["sessions", "list", "--json"]).ok().json();
    assert_eq!(listed[0]["tokens"], total(&result["usage"]), "{listed:#}");
}

#[test]
fn r20_a_worker_that_is_killed_in_a_stream_has_spent_what_the_stream_said() {
    let step = text("all of it").in_chunks(3).costs(4_500, 10).stall(1).times(9);
    let fleet = Fleet::new(script![step]);
    let id = fleet.bg("the task", ["--budget-tokens", "11000"]);
    let mut shown = 0;
    for round in 1..=2 {
        fleet.place.server.wait_for_requests(round);
        let transcript = std::path::PathBuf::from(fleet.row(&id)["dir"].as_str().unwrap());
        let counted = || {
            let text = fleet.place.env.read(transcript.join("transcript.jsonl"));
            text.matches("\"event\":\"counted\"").count() >= round
        };
        wait_until("the stream has said what it takes", counted);
        wait_until("the status says so", || {
            let status = fleet.place.env.read(transcript.join("status.json"));
            serde_json::from_str::<Value>(&status).is_ok_and(|status| status["in_flight"]["input"] == 4_500)
        });
        let pid = fleet.row(&id)["pid"].as_i64().unwrap();
        kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
        fleet.wait_for(&id, "crashed");
        let now = total(&fleet.row(&id)["usage"]);
        assert!(now >= shown + 4_500, "{now} after {shown}");
        shown = now;
        if round == 1 {
            fleet.run(["resume", &id]).ok();
            wait_until("it runs again", || fleet.state(&id) == "running");
            assert!(total(&fleet.row(&id)["usage"]) >= shown, "shown tokens never go down");
        }
    }
    // What is left is not enough for another one.
    fleet.run(["resume", &id]);
    wait_until("it has ended", || ["failed", "crashed"].contains(&fleet.state(&id).as_str()));
    assert!(total(&fleet.row(&id)["usage"]) >= shown);
    assert_eq!(fleet.place.server.model_requests().len(), 2, "{:#}", fleet.row(&id));
}

#[test]
fn a_resume_with_a_cheaper_model_does_not_change_what_was_paid() {
    let script = script![text("one").costs(1_000, 100), text("two").costs(1_000, 100)];
    let server = ModelServer::builder(script).known_models(["claude-opus-5", "claude-haiku-4-5"]).start();
    let place = Place::with(server, Protocol::Anthropic);
    place.ask("hello", []).ok();
    let cost = || {
        let session: Value =
            serde_json::from_str(&place.env.read(place.session().join("session.json"))).unwrap();
        session["micro_usd"].clone()
    };
    assert_eq!(cost(), json!(7_500));
    let args = ["--provider", "anthropic", "--model", "claude-haiku-4-5", "--continue", "-p", "more"];
    place.verb(args).ok();
    assert_eq!(cost(), json!(7_500 + 1_500));
}
