//! What the fleet's verbs print for programs: refusals of a merge, and one kind of times everywhere.

use serde_json::{Value, json};
use testkit::{Output, StepExt, script, text};

use crate::fleet::{Fleet, bash, write};

const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

/// A merge that is refused, with the same words and the same code as without `--json`.
#[track_caller]
fn refused(fleet: &Fleet, id: &str, more: &[&str], code: i32) -> Value {
    let merge = |json: &[&str]| -> Output {
        fleet.run(["agents", "merge", id].iter().chain(more).chain(json).copied()).expect_code(code)
    };
    let (plain, told) = (merge(&[]), merge(&["--json"]));
    assert_eq!((plain.stdout.as_str(), &plain.stderr), ("", &told.stderr));
    let json: Value = told.json();
    let error = json["error"].as_str().unwrap();
    assert!(plain.stderr.starts_with(&format!("error: {error}\n")), "{}", plain.stderr);
    json
}

#[test]
fn a_merge_that_is_refused_is_told_as_an_object() {
    let fleet = Fleet::new(script![
        bash("echo agents > README.md && git commit -qam mine").on_first("the conflict"),
        text("done").on_first("the conflict"),
        bash("echo 1 > one && git add one && git commit -qm one").on_first("the rest"),
        write("left.txt", "left\n").on_first("the rest"),
        text("done").on_first("the rest"),
    ]);
    let id = fleet.bg("the conflict", UNATTENDED);
    let rest = fleet.bg("the rest", UNATTENDED);
    fleet.run(["agents", "wait", &id, &rest]).ok();

    fleet.place.env.write(fleet.place.repo.join("README.md"), "in the way\n");
    assert_eq!(
        refused(&fleet, &id, &[], 1),
        json!({"agent": id, "branch": format!("caliban/{id}"), "into": "main", "how": "refused",
               "reason": "in_the_way", "files": ["README.md"],
               "error": "the merge would touch files that are not committed here: README.md",
               "hint": "commit them first, or put them aside; nothing was changed"})
    );
    let git = |args: &[&str]| fleet.place.env.git(&fleet.place.repo, args);
    git(&["add", "README.md"]);
    let staged = refused(&fleet, &id, &[], 1);
    assert_eq!((&staged["reason"], &staged["files"]), (&json!("staged"), &json!(["README.md"])));
    git(&["commit", "-qm", "the user's"]);
    assert_eq!(
        refused(&fleet, &id, &[], 1),
        json!({"agent": id, "branch": format!("caliban/{id}"), "into": "main", "how": "refused",
               "reason": "conflicts", "files": ["README.md"],
               "error": format!("caliban/{id} does not merge into main: conflicts in README.md"),
               "hint": format!("nothing was changed; merge by hand with `git merge caliban/{id}`, \
                                or let the agent rebase its work")})
    );
    let left = refused(&fleet, &rest, &[], 1);
    assert_eq!((&left["reason"], &left["files"]), (&json!("uncommitted"), &json!(["left.txt"])));
    let nowhere = refused(&fleet, &rest, &["--into", "nowhere"], 2);
    assert_eq!(
        (&nowhere["agent"], &nowhere["reason"], &nowhere["into"], &nowhere["files"]),
        (&json!(rest), &json!("usage"), &json!("nowhere"), &json!([]))
    );
    let empty = refused(&fleet, &rest, &["-m", " "], 2);
    assert_eq!((&empty["agent"], &empty["reason"]), (&Value::Null, &json!("usage")));
    let unknown = refused(&fleet, "nobody", &[], 1);
    assert_eq!((&unknown["agent"], &unknown["reason"]), (&Value::Null, &json!("not_found")));
    fleet.place.env.write(fleet.place.repo.join(".git/MERGE_HEAD"), git(&["rev-parse", "HEAD"]));
    let unfinished = refused(&fleet, &rest, &["--commit", "the rest"], 1);
    assert_eq!(unfinished["reason"], "unfinished");
}

#[test]
fn a_merge_of_an_agent_that_is_at_work_says_so_to_programs() {
    let fleet = Fleet::new(script![text("done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    assert_eq!(
        refused(&fleet, &id, &[], 1),
        json!({"agent": id, "branch": null, "into": null, "how": "refused", "reason": "at_work", "files": [],
               "error": format!("agent {id} is still at work"),
               "hint": format!("wait for it: caliban agents wait {id}")})
    );
    fleet.run(["kill", &id]).ok();
}

/// Every time in it: instants are RFC 3339 in UTC and called `*_at`, durations whole milliseconds called `*_ms`.
fn times(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|value| times(value, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_right = match name.as_str() {
                    "time" | "created" | "updated" | "saved" | "until" | "until_ms" => false,
                    _ if name.ends_with("_at") => value.as_str().is_some_and(is_utc),
                    _ if name.ends_with("_ms") => value.is_u64(),
                    _ => {
                        times(value, found);
                        continue;
                    }
                };
                assert!(is_right, "{name}: {value}");
                found.push(name.clone());
            }
        }
        _ => {}
    }
}

/// `2026-11-16T05:00:18.123Z`, with or without the fraction.
fn is_utc(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let (time, fraction) = shape.split_once('.').unwrap_or((shape.trim_end_matches('Z'), "Z"));
    time == "0000-00-00T00:00:00" && fraction.trim_start_matches('0') == "Z"
}

#[track_caller]
fn times_of(output: Output) -> Vec<String> {
    let mut found = Vec::new();
    for line in output.ok().json_lines() {
        times(&line, &mut found);
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn times_are_of_one_kind_in_all_of_the_fleets_json() {
    let fleet = Fleet::new(script![
        write("one.txt", "1\n").on_first("lands"),
        bash("git add -A && git commit -qm one && echo 2 > two.txt").on_first("lands"),
        text("done").on_first("lands"),
        bash("touch asked-for").on_first("asks"),
    ]);
    let lands = fleet.bg("lands", UNATTENDED);
    fleet.run(["agents", "wait", &lands]).ok();
    let asks = fleet.bg("asks", []);
    fleet.wait_for_ask(&asks);
    let row = ["age_ms", "created_at", "updated_at"];
    let run = |args: &[&str]| times_of(fleet.run(args.iter().copied()));
    assert_eq!(run(&["agents", "list", "--json"]), ["age_ms", "created_at", "opened_at", "updated_at"]);
    assert_eq!(run(&["approvals", "--json"]), ["opened_at"]);
    assert_eq!(run(&["daemon", "status", "--json"]), ["uptime_ms"]);
    assert_eq!(run(&["agents", "wait", &lands, "--json"]), [""; 0]);
    assert_eq!(run(&["agents", "diff", &lands, "--json", "--stat"]), ["authored_at"]);
    assert_eq!(run(&["worktrees", "list", "--json"]), ["created_at"]);
    assert_eq!(run(&["worktrees", "show", &lands, "--json"]), ["created_at"]);
    assert_eq!(run(&["kill", &asks, "--json"]), row);
    fleet.run(["rm", &lands]).ok();
    assert_eq!(run(&["worktrees", "rescue", "list", "--json"]), ["saved_at"]);
    assert_eq!(run(&["resume", &asks, "--json"]), row);
}

/// What the daemon answers to a request, as a page would send it.
fn ask(fleet: &Fleet, path: &str, body: Option<&str>) -> Value {
    let status: Value = fleet.run(["daemon", "status", "--json"]).ok().json();
    let mut curl = std::process::Command::new("curl");
    curl.args(["-s", "--unix-socket", status["socket"].as_str().unwrap()]);
    if let Some(body) = body {
        curl.args(["-H", "content-type: application/json", "--data-binary", body]);
    }
    let output = curl.arg(format!("http://x{path}")).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn f18_a_page_reads_what_an_agent_did_part_by_part() {
    let fleet = Fleet::new(script![text("the answer"), text("more")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let first = ask(&fleet, &format!("/v1/agents/{id}/log"), None);
    let events = |part: &Value| -> Vec<String> {
        let records = part["records"].as_array().unwrap();
        records.iter().map(|record| record["event"].as_str().unwrap_or("?").to_owned()).collect()
    };
    assert_eq!((&first["agent"], events(&first).first().map(String::as_str)), (&json!(id), Some("started")));
    assert!(first.to_string().contains("the answer"), "{first}");
    let next = |part: &Value| ask(&fleet, &format!("/v1/agents/{id}/log?after={}", part["next"]), None);
    let none = next(&first);
    assert_eq!((&none["records"], &none["more"], &none["next"]), (&json!([]), &json!(false), &first["next"]));
    fleet.run(["resume", &id, "--prompt", "go on"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let rest = next(&first);
    assert!(rest.to_string().contains("go on") && !rest.to_string().contains("the answer"), "{rest}");
    let refused = ask(&fleet, &format!("/v1/agents/{id}/log?after=x"), None);
    assert_eq!(refused["error"]["message"], "after is a number");
}

#[test]
fn a_forecast_over_the_daemon_names_what_is_not_committed() {
    let fleet = Fleet::new(script![crate::fleet::write("new.txt", "new\n"), text("done")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let forecast = ask(&fleet, &format!("/v1/agents/{id}/merge"), Some(r#"{"preview": true}"#));
    assert!(forecast.to_string().contains(r#""uncommitted":["new.txt"]"#), "{forecast}");
    let shown = fleet.run(["worktrees", "show", &id]).ok().stdout;
    assert!(shown.contains("\n1 path is in no commit:\n"), "{shown}");
}
