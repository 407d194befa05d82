//! What programs read of a fleet, as files in `tests/golden/`: `--json`, the daemon's routes, the page's API and events, and
//! records on the disk. And records of earlier builds, which are still read.

use std::path::{Path, PathBuf};

use caliban_agent::event::{Answer, Event, Record};
use caliban_contract::records::{self, WorkerStatus};
use serde_json::{Value, json};
use testkit::{Golden, StepExt, script, text, wait_until};

use crate::{
    dashboard::{Dashboard, Stream},
    fleet::{Fleet, bash, write},
    verbs::ask,
};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// An agent that is done and one that asks.
struct Scene {
    fleet: Fleet,
    done: String,
    asks: String,
    golden: Golden,
}

impl Scene {
    fn new() -> Self {
        let fleet = Fleet::new(script![
            write("notes.txt", "one\n").on_first("write it down"),
            text("**written**").on_first("write it down"),
            bash("touch asked-for").on_first("ask for it"),
        ]);
        let done = fleet.bg("write it down", ["--label", "docs", "--permission-mode", "accept-edits"]);
        fleet.run(["agents", "wait", &done]).ok();
        let asks = fleet.bg("ask for it", ["--label", "auth"]);
        fleet.wait_for_ask(&asks);
        let root = fleet.place.env.root().to_str().unwrap().to_owned();
        let words = vec![(root, "ROOT"), (done.clone(), "DONE"), (asks.clone(), "ASKS")];
        let golden = Golden::new(directory(), words);
        Self { fleet, done, asks, golden }
    }

    /// What a verb prints for programs: a value, or a value on each line.
    fn verb(&mut self, name: &str, args: &[&str]) {
        let output = self.fleet.run(args.iter().copied().chain(["--json"])).ok().stdout;
        let value = serde_json::from_str(&output).unwrap_or_else(|_| lines(&output));
        self.golden.check(&format!("cli/{name}"), &value);
    }

    fn route(&mut self, name: &str, path: &str) {
        let (status, value) = ask(&self.fleet, "GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {value}");
        self.golden.check(&format!("daemon/{name}"), &value);
    }
}

fn lines(text: &str) -> Value {
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect()
}

/// Each kind of item once: how many there are is a matter of time.
fn kinds(mut value: Value, list: &str) -> Value {
    if let Some(items) = value[list].as_array_mut() {
        items.truncate(1);
    }
    value
}

#[test]
fn what_verbs_print_for_programs_stays_as_it_is() {
    let mut scene = Scene::new();
    let done = scene.done.clone();
    scene.verb("agents-list", &["agents", "list"]);
    scene.verb("approvals", &["approvals"]);
    scene.verb("daemon-status", &["daemon", "status"]);
    scene.verb("logs", &["logs", &done]);
    scene.verb("agents-diff", &["agents", "diff", &done]);
    scene.verb("agents-wait", &["agents", "wait", &done]);
    scene.verb("schedule-list", &["schedule", "list"]);
    scene.verb("jobs-list", &["jobs", "list"]);
    scene.verb("budget-show", &["budget", "show"]);
    scene.verb("agents-merge", &["agents", "merge", &done, "--commit", "the notes"]);
    scene.golden.finish();
}

#[test]
fn the_daemons_routes_stay_as_they_are() {
    let mut scene = Scene::new();
    let (done, asks) = (scene.done.clone(), scene.asks.clone());
    scene.route("status", "/v1/status");
    scene.route("agents", "/v1/agents");
    scene.route("agent", &format!("/v1/agents/{asks}"));
    scene.route("approvals", "/v1/approvals");
    scene.route("log", &format!("/v1/agents/{done}/log"));
    scene.route("diff", &format!("/v1/agents/{done}/diff"));
    scene.route("review", &format!("/v1/agents/{done}/review"));
    scene.route("schedules", "/v1/schedules");
    let (_, history) = ask(&scene.fleet, "GET", "/v1/history", &Value::Null);
    scene.golden.check("daemon/history", &kinds(history, "changes"));
    let (_, document) = ask(&scene.fleet, "GET", "/openapi.json", &Value::Null);
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    scene.golden.check("daemon/openapi-paths", &json!(paths));
    let which = ask(&scene.fleet, "GET", "/v1/approvals", &Value::Null).1["approvals"][0]["ask"].clone();
    let no = json!({"ask": which["id"], "digest": which["digest"], "reason": "not now"});
    let denied = ask(&scene.fleet, "POST", &format!("/v1/agents/{asks}/deny"), &no);
    scene.golden.check("daemon/deny", &json!(denied));
    let again = ask(&scene.fleet, "POST", &format!("/v1/agents/{asks}/deny"), &no);
    scene.golden.check("daemon/deny-again", &json!(again.0));
    scene.golden.finish();
}

#[test]
fn the_pages_api_and_its_events_stay_as_they_are() {
    let mut scene = Scene::new();
    let dashboard = Dashboard::start(&scene.fleet);
    let [done, asks] = [&scene.done, &scene.asks].map(|id| dashboard.agent(id));
    let repo = done.split('/').nth(4).unwrap().to_owned();
    wait_until("the ledger was read", || {
        dashboard.get("/api/v1/fleet").json()["today"]["tokens"].as_u64() > Some(0)
    });
    let routes = [
        ("fleet", "/api/v1/fleet".to_owned()),
        ("asks", "/api/v1/asks".to_owned()),
        ("agent", asks.clone()),
        ("diff", format!("{done}/diff")),
        ("transcript", format!("{done}/transcript")),
        ("usage", format!("{done}/usage")),
        ("new", format!("/api/v1/repos/{repo}/new")),
        ("spend", "/api/v1/spend".to_owned()),
    ];
    for (name, path) in routes {
        let answer = dashboard.get(&path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let mut value = answer.json();
        if let Some(agents) = value.get_mut("agents").and_then(Value::as_array_mut) {
            // They are in the order of their ids, which are random.
            agents.sort_by_key(|agent| agent["label"].to_string());
        }
        scene.golden.check(&format!("page/{name}"), &value);
    }
    let timeline = dashboard.get("/api/v1/timeline").json();
    let agents = timeline["agents"].as_array().unwrap();
    let asking = agents.iter().find(|agent| agent["id"] == scene.asks.as_str()).unwrap();
    scene.golden.check("page/timeline-agent", &kinds(asking.clone(), "spans"));
    let mut stream = Stream::open(&dashboard, "", None);
    let which = dashboard.get("/api/v1/asks").json()["asks"][0].clone();
    let no = json!({"ask": which["id"], "digest": which["digest"], "reason": "not now"});
    assert_eq!(dashboard.post(&format!("{asks}/deny"), &no).status, 200);
    for name in ["ask_closed", "counts"] {
        let (_, _, data) = stream.next(&[name]);
        scene.golden.check(&format!("page/event-{name}"), &data);
    }
    scene.golden.finish();
}

#[test]
fn records_on_the_disk_stay_as_they_are() {
    let mut scene = Scene::new();
    let [done, asks] =
        [&scene.done, &scene.asks].map(|id| PathBuf::from(scene.fleet.row(id)["dir"].as_str().unwrap()));
    let read =
        |path: PathBuf| std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    scene.golden.check("disk/transcript", &lines(&read(done.join("transcript.jsonl"))));
    for name in ["spec", "shim", "status"] {
        let record: Value = serde_json::from_str(&read(asks.join(format!("{name}.json")))).unwrap();
        scene.golden.check(&format!("disk/{name}"), &record);
    }
    let end: Value = serde_json::from_str(&read(done.join("status.json"))).unwrap();
    scene.golden.check("disk/status-of-the-end", &end);
    scene.golden.finish();
}

#[test]
fn r22_records_of_earlier_builds_are_read() {
    let status: WorkerStatus = records::read(&directory().join("old"), records::STATUS).unwrap();
    let ask = &status.asks[0];
    // It does not say how much is left out, but that something is.
    assert_eq!((ask.hidden, ask.excerpt().hidden, ask.by.as_deref()), (None, 1, None));
    let text = std::fs::read_to_string(directory().join("old/transcript.jsonl")).unwrap();
    let records: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answers: Vec<&Answer> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::AskAnswered { given, .. } => {
                assert_eq!(given.by, None);
                Some(&given.answer)
            }
            _ => None,
        })
        .collect();
    assert!(matches!(answers[..], [Answer::Always, Answer::No(Some(_)), Answer::Keep(_)]), "{answers:?}");
}
