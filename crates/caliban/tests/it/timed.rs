//! Priorities, times, time-outs, schedules and quiet hours, from the command line to the model's server.

use jiff::{ToSpan as _, Zoned};
use serde_json::{Value, json};
use testkit::{StepExt, script, text, wait_until};

use crate::fleet::{Fleet, bash, id_of};

/// Quiet hours from an hour ago to an hour ahead, on the machine's clock.
fn quiet_now() -> String {
    let now = Zoned::now();
    let at = |hours: i64| now.checked_add(hours.hours()).unwrap().strftime("%H:%M").to_string();
    format!("{}-{}", at(-1), at(1))
}

fn user_settings(fleet: &Fleet, text: &str) {
    let path = fleet.place.env.config().join("caliban/settings.toml");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("{before}\n{text}\n")).unwrap();
}

#[test]
fn agents_start_by_priority_and_the_list_says_who_comes_first() {
    let fleet = Fleet::new(script![text("done").forever()]);
    user_settings(&fleet, "[fleet]\nmax_running = 1");
    fleet.place.server.hold();
    let first = fleet.bg("first", []);
    fleet.place.server.wait_for_requests(1);
    let low = fleet.bg("low", ["--priority", "low"]);
    let high = fleet.bg("high", ["--priority", "high"]);
    let row = |id: &str| fleet.row(id);
    assert_eq!(json!([row(&low)["priority"], row(&low)["queued_behind"]]), json!(["low", 1]));
    assert_eq!(json!([row(&high)["priority"], row(&first)["priority"]]), json!(["high", "normal"]));
    let list = fleet.run(["list"]).ok().stdout;
    assert!(list.contains("queued, next to start, priority high"), "{list}");
    assert!(list.contains("queued behind 1, priority low"), "{list}");
    // A person changes their mind.
    let said = fleet.run(["agents", "requeue", &low, "--priority", "high"]).ok().stdout;
    assert_eq!(said, format!("{low}: queued, next to start, priority high\n"));
    fleet.place.server.release();
    for id in [&first, &low, &high] {
        fleet.run(["agents", "wait", id]).ok();
    }
    let asked: Vec<Value> =
        fleet.place.server.requests().iter().map(|request| request.body["messages"][0].clone()).collect();
    let order: Vec<&str> = ["first", "low", "high"]
        .into_iter()
        .filter(|task| asked.iter().any(|message| message.to_string().contains(*task)))
        .collect();
    assert_eq!(order, ["first", "low", "high"]);
    let position = |task: &str| asked.iter().position(|message| message.to_string().contains(task)).unwrap();
    assert!(position("low") < position("high"), "the one that was moved up was spawned first");
    let refused = fleet.run(["--bg", "x", "--priority", "urgent"]).expect_code(2);
    assert!(refused.stderr.contains("low, normal, high"), "{}", refused.stderr);
}

#[test]
fn a11_what_a_command_of_an_agent_starts_comes_no_earlier_than_the_agent_and_is_not_planned() {
    let fleet = Fleet::new(script![]);
    let env = &fleet.place.env;
    let program = env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    let steps = env.work().join("steps.json");
    let go = json!({"name": "Bash", "input": {"command": "sh go.sh"}});
    let script = json!({"steps": [
        {"when": {"first_prompt_contains": "PARENT"}, "tool_calls": [go]},
        {"when": {"first_prompt_contains": "PARENT"}, "text": "over"},
        {"when": {"first_prompt_contains": "CHILD"}, "text": "helped", "repeat": true},
    ]});
    env.write(&steps, script.to_string());
    let bg = format!("{program} --bg CHILD --isolation none --script {}", steps.display());
    env.write(
        fleet.place.repo.join("go.sh"),
        format!(
            "{bg} --label child --priority high --ignore-quiet-hours\n{bg} --at +2h\n{bg} --every 1h\n\
             {program} agents requeue child --priority high\ntrue\n"
        ),
    );
    let steps = steps.to_str().unwrap();
    let flags = ["--bg", "PARENT", "--isolation", "none", "--script", steps, "--allow", "Bash(sh go.sh)"];
    let parent = id_of(&fleet.run(flags.into_iter().chain(["--priority", "low"])).ok());
    fleet.run(["agents", "wait", &parent]).ok();
    let told = fleet.run(["logs", &parent, "--json"]).ok().stdout;
    assert!(told.contains(&format!("agent {parent} cannot plan an agent: a person does")), "{told}");
    let words = format!("a process of agent {parent} cannot decide when agents start: a person does");
    assert_eq!(told.matches(&words).count(), 2, "{told}");
    let rows = fleet.rows();
    let labels: Vec<&Value> = rows.iter().map(|row| &row["label"]).collect();
    assert_eq!(labels, [&Value::Null, &json!("child")], "{told}");
    assert_eq!((&rows[1]["parent"], &rows[1]["priority"]), (&json!(parent), &json!("low")));
    let spec = env.read(rows[1]["dir"].as_str().unwrap().to_owned() + "/spec.json");
    assert!(!spec.contains("ignores_quiet_hours"), "{spec}");
    assert!(fleet.run(["schedule", "list"]).ok().stdout.starts_with("No schedules."));
}

#[test]
fn an_agent_that_takes_too_long_times_out_with_its_work_kept_and_goes_on_when_resumed() {
    let fleet = Fleet::new(script![bash("echo kept > file"), bash("true"), text("done")]);
    let server = &fleet.place.server;
    server.hold();
    let flags = ["--permission-mode", "unattended", "--timeout", "1h"];
    let id = fleet.bg("the task", flags);
    server.wait_for_requests(1);
    let row = fleet.row(&id);
    assert_eq!(row["timeout_ms"], json!(3_600_000));
    assert!(row["time_left_ms"].as_u64().unwrap() > 3_500_000, "{row:#}");
    // As if it had begun an hour ago.
    let dir = row["dir"].as_str().unwrap().to_owned();
    let mut begun: Value = serde_json::from_str(&fleet.place.env.read(dir.clone() + "/begun.json")).unwrap();
    begun["boot_id"] = json!("another boot");
    begun["at"] = json!(begun["at"].as_u64().unwrap() - 3_600_000);
    std::fs::write(dir + "/begun.json", begun.to_string()).unwrap();
    fleet.run(["daemon", "restart"]).ok();
    let waited = fleet.run(["agents", "wait", &id]).expect_code(4);
    assert!(waited.stdout.contains("timed out after 1h"), "{}", waited.stdout);
    let row = fleet.row(&id);
    assert_eq!(
        json!([row["state"], row["ending"]]),
        json!(["failed", {"how": "timed_out", "after_ms": 3_600_000}])
    );
    server.release();
    fleet.run(["resume", &id, "--timeout", "2h"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let row = fleet.row(&id);
    assert_eq!(json!([row["state"], row["timeout_ms"]]), json!(["done", 7_200_000]));
    let refused = fleet.run(["--bg", "x", "--timeout", "0"]).expect_code(2);
    assert!(refused.stderr.contains("expected a time above 0"), "{}", refused.stderr);
}

#[test]
fn an_agent_with_a_time_is_listed_with_it_and_starts_at_once_when_it_is_told_to() {
    let fleet = Fleet::new(script![text("done")]);
    let out = fleet.run(["--bg", "later", "--label", "later", "--at", "2030-01-02 07:30"]).ok();
    let id = id_of(&out);
    assert!(out.stderr.contains("starts at 2030-01-02 07:30, then works"), "{}", out.stderr);
    let row = fleet.row(&id);
    assert_eq!(row["queued_for"]["for"], "time");
    assert_eq!(row["doing"], "queued, starts at 2030-01-02 07:30");
    let planned = fleet.run(["schedule", "list"]).ok().stdout;
    assert!(planned.contains("later  once   2030-01-02 07:30"), "{planned}");
    fleet.run(["agents", "requeue", "later", "--now"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let refused = fleet.run(["--bg", "x", "--at", "2020-01-01 07:00"]).expect_code(2);
    assert!(refused.stderr.contains("is over"), "{}", refused.stderr);
}

#[test]
fn a_schedule_is_made_listed_run_paused_and_removed() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let none = fleet.run(["schedule", "list"]).ok().stdout;
    assert!(none.starts_with("No schedules. Make one: caliban --bg"), "{none}");
    let made = fleet.run(["--bg", "tidy up the code", "--every", "mon-fri 07:00,19:00"]).ok();
    assert_eq!(made.stdout, "tidy-up-the\n");
    assert!(made.stderr.contains("runs every mon-fri 07:00,19:00, next "), "{}", made.stderr);
    let made = fleet.run(["spawn", "--prompt", "check", "--label", "check", "--every", "6h", "--json"]).ok();
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!(json!([made["name"], made["every"], made["runs"]]), json!(["check", "6h", 0]));
    let id = fleet.run(["schedule", "run", "check"]).ok().stdout.trim().to_owned();
    fleet.run(["agents", "wait", &id]).ok();
    let row = fleet.row(&id);
    assert_eq!(json!([row["label"], row["schedule"]["number"]]), json!(["check-1", 1]));
    // What it works on is what is there when it starts.
    let spec = fleet.place.env.read(row["dir"].as_str().unwrap().to_owned() + "/spec.json");
    assert!(!spec.contains("base_commit"), "{spec}");
    let list = fleet.run(["schedule", "list"]).ok().stdout;
    let mut lines = list.lines();
    assert_eq!(
        lines.next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["NAME", "EVERY", "NEXT", "RUNS", "LAST"]
    );
    assert!(lines.next().unwrap().ends_with(&format!("  1     agent {id}")), "{list}");
    assert_eq!(fleet.run(["schedule", "pause", "check"]).ok().stdout, "check: paused\n");
    let shown: Value =
        serde_json::from_str(&fleet.run(["schedule", "show", "check", "--json"]).ok().stdout).unwrap();
    assert_eq!(json!([shown["paused"], shown["prompt"]]), json!([true, "check"]));
    assert!(fleet.run(["schedule", "continue", "check"]).ok().stdout.starts_with("check: next run "));
    assert_eq!(fleet.run(["schedule", "rm", "check"]).ok().stdout, "check: removed; its agents stay\n");
    let gone = fleet.run(["schedule", "show", "check"]).expect_code(1);
    assert!(gone.stderr.contains("there is no schedule 'check'"), "{}", gone.stderr);
    assert_eq!(fleet.row(&id)["state"], "done");
    let refused = fleet.run(["--bg", "x", "--every", "30s"]).expect_code(2);
    assert!(refused.stderr.contains("at least a minute"), "{}", refused.stderr);
}

#[test]
fn in_quiet_hours_agents_in_the_background_ask_nothing_and_people_are_not_kept_waiting() {
    let fleet = Fleet::new(script![text("done").forever()]);
    // This daemon knows of no quiet hours: the agent keeps them by itself.
    fleet.run(["daemon", "restart"]).ok();
    user_settings(&fleet, &format!("[fleet]\nquiet_hours = \"{}\"", quiet_now()));
    let id = fleet.bg("the task", []);
    wait_until("it waits", || fleet.row(&id)["waiting_for"]["for"] == "quiet_hours");
    assert!(fleet.row(&id)["doing"].as_str().unwrap().starts_with("quiet until "), "{:#}", fleet.row(&id));
    // A person's prompt, and those for whom they do not hold, go on.
    fleet.run(["-p", "now"]).ok();
    let high = fleet.bg("urgent", ["--priority", "high"]);
    let free = fleet.bg("anyway", ["--ignore-quiet-hours"]);
    for id in [&high, &free] {
        fleet.run(["agents", "wait", id]).ok();
    }
    assert_eq!(fleet.place.server.requests().len(), 3);
    assert_eq!(fleet.state(&id), "running");
    // The next daemon knows, and does not even start one.
    fleet.run(["daemon", "restart"]).ok();
    let queued = fleet.bg("another", []);
    let row = fleet.row(&queued);
    assert_eq!(row["queued_for"]["for"], "quiet_hours");
    assert!(row["doing"].as_str().unwrap().starts_with("queued, quiet until "), "{row:#}");
    assert_eq!(fleet.place.server.requests().len(), 3);
    let wrong = fleet.place.env.config().join("caliban/settings.toml");
    std::fs::write(&wrong, "[fleet]\nquiet_hours = \"late\"\n").unwrap();
    let refused = fleet.run(["-p", "x"]).expect_code(1);
    assert!(refused.stderr.contains("is no range of times"), "{}", refused.stderr);
}
