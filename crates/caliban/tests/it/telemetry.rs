//! Spans for an OpenTelemetry collector, from the foreground, from a sub-agent and from the fleet.

use serde_json::{Value, json};
use testkit::{ModelServer, StepExt as _, script, text, tool, wait_until};

use crate::fleet::{Fleet, bash};

/// All spans that a collector was sent.
fn spans(collector: &ModelServer) -> Vec<Value> {
    let sent = collector.requests().into_iter().filter(|request| request.path == "/v1/traces");
    let spans = |request: testkit::Recorded| {
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("x-tenant"), Some("me"));
        request.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    };
    sent.flat_map(spans).collect()
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

fn attribute(span: &Value, key: &str) -> Value {
    let all = span["attributes"].as_array().unwrap();
    all.iter()
        .find(|attribute| attribute["key"] == key)
        .map(|found| found["value"].clone())
        .unwrap_or_default()
}

#[test]
fn turns_requests_and_calls_are_spans_of_one_trace() {
    let collector = ModelServer::start(script![]);
    let fleet = Fleet::new(script![
        bash("echo hello").on("the task"),
        tool("AgentTool", json!({"prompt": "help me"})).on("hello"),
        text("helped").on("help me"),
        text("the answer"),
    ]);
    let run = fleet.place.caliban().args(["-p", "the task", "--allow", "Bash", "--allow", "AgentTool"]);
    let run = run
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=me");
    assert_eq!(run.output().ok().stdout, "the answer\n");
    // They were sent before the program ended.
    let spans = spans(&collector);
    let call = named(&spans, "execute_tool Bash");
    let turn = spans.iter().find(|span| span["spanId"] == call["parentSpanId"]).unwrap();
    assert_eq!(turn["name"], "invoke_agent caliban");
    assert_eq!(attribute(call, "process.exit.code"), json!({"intValue": "0"}));
    let turns: Vec<&Value> =
        spans.iter().filter(|span| span["name"].as_str().unwrap().starts_with("invoke_agent")).collect();
    assert_eq!(turns.len(), 2, "the agent and its helper: {spans:#?}");
    assert!(spans.iter().all(|span| span["traceId"] == turn["traceId"]), "{spans:#?}");
    let requests = spans.iter().filter(|span| span["kind"] == 3).count();
    assert_eq!(requests, 4, "{spans:#?}");
    assert!(!json!(spans).to_string().contains("echo hello"));
}

#[test]
fn an_agent_of_the_fleet_sends_spans_to_the_collector_of_whoever_started_it() {
    let collector = ModelServer::start(script![]);
    let fleet = Fleet::new(script![text("done").forever()]);
    let started = fleet.place.caliban().args(["--bg", "the task", "--label", "mine"]);
    let started = started
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=me");
    let id = crate::fleet::id_of(&started.output().ok());
    fleet.run(["agents", "wait", &id]).ok();
    wait_until("its turn is sent", || {
        spans(&collector).iter().any(|span| span["name"] == "invoke_agent mine")
    });
}

#[test]
fn a_collector_that_is_away_changes_nothing_and_grpc_is_said_to_be_none_of_ours() {
    let closed = testkit::ClosedPort::new();
    let fleet = Fleet::new(script![text("the answer").forever()]);
    let run = |more: &[(&str, &str)]| {
        let run =
            fleet.place.caliban().args(["-p", "the task"]).env("OTEL_EXPORTER_OTLP_ENDPOINT", closed.url());
        run.envs(more.iter().copied()).output().ok()
    };
    let away = run(&[]);
    assert_eq!((away.stdout.as_str(), away.stderr.as_str()), ("the answer\n", ""));
    let grpc = run(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert!(grpc.stderr.contains("no spans are sent"), "{}", grpc.stderr);
}
