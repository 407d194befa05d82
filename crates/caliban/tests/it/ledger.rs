//! Limits that hold for a whole fleet: the day, raising while others run, what a killed worker has spent.

use serde_json::{Value, json};
use testkit::{StepExt, script, text, wait_until};

use crate::fleet::Fleet;

fn shown(fleet: &Fleet, pool: &str) -> Value {
    let pools: Vec<Value> = fleet.run(["budget", "show", "--json"]).ok().json();
    pools.iter().find(|shown| shown["pool"] == pool).unwrap_or_else(|| panic!("{pools:#?}")).clone()
}

#[test]
fn r20_a_limit_of_the_day_holds_for_all_agents_and_a_raise_holds_at_once() {
    let fleet = Fleet::new(script![
        text("one is done").costs(25_000, 0).on_first("task one"),
        text("two is done").costs(4_000, 0).on_first("task two"),
    ]);
    fleet.settings("[budget]\nper_day = { tokens = 26000 }\n");
    let one = fleet.bg("task one", ["--label", "first"]);
    fleet.run(["agents", "wait", &one]).ok();
    let two = fleet.bg("task two", ["--budget-tokens", "90000"]);
    fleet.run(["agents", "wait", &two]).expect_code(4);
    let ending = fleet.row(&two)["ending"].to_string();
    assert!(
        ending.contains("the token budget of all agents for today is used up: 25000 of 26000"),
        "{ending}"
    );
    let logs = fleet.run(["logs", &one]).ok().stdout;
    assert!(
        logs.contains("is nearly used up") || shown(&fleet, "all agents today")["tokens"] == 25_000,
        "{logs}"
    );
    let told = fleet.run(["budget", "set", "day", "--tokens", "80000"]).ok().stdout;
    assert_eq!(told, "all agents, each day: at most 80000 tokens\n");
    fleet.run(["resume", &two]).ok();
    fleet.run(["agents", "wait", &two]).ok();
    assert_eq!(fleet.row(&two)["last_text"], "two is done");
    let today = shown(&fleet, "all agents today");
    assert_eq!(
        json!([today["tokens"], today["in_flight_tokens"], today["limit_tokens"], today["limit_from"]]),
        json!([29_000, 0, 80_000, "set"])
    );
    let history =
        |by: &str| -> Vec<Value> { fleet.run(["budget", "history", "--by", by, "--json"]).ok().json() };
    let of = |rows: Vec<Value>, name: &str| -> Vec<Value> {
        rows.iter().map(|row| json!([row[name], row["tokens"], row["requests"]])).collect()
    };
    let mut agents = of(history("agent"), "agent");
    agents.sort_by_key(ToString::to_string);
    let mut expected = vec![json!([one, 25_000, 1]), json!([two, 4_000, 1])];
    expected.sort_by_key(ToString::to_string);
    assert_eq!(agents, expected);
    assert_eq!(of(history("label"), "label"), [json!([null, 4_000, 1]), json!(["first", 25_000, 1])]);
    fleet.run(["budget", "set", "day", "--unset"]).ok();
    assert_eq!(shown(&fleet, "all agents today")["limit_from"], "settings");
}

#[test]
fn r20_an_agents_limit_is_raised_with_budget_set_and_it_goes_on() {
    let fleet = Fleet::new(script![text("done").costs(3_000, 0)]);
    let id = fleet.bg("the task", ["--budget-tokens", "500"]);
    fleet.run(["agents", "wait", &id]).expect_code(4);
    fleet.run(["resume", &id]).expect_code(1);
    let told = fleet.run(["budget", "set", &id, "--tokens", "50000"]).ok().stdout;
    assert_eq!(told, format!("agent {id} and all that it started: at most 50000 tokens\n"));
    fleet.run(["resume", &id]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let shown: Vec<Value> = fleet.run(["budget", "show", &id, "--json"]).ok().json();
    assert_eq!(json!([shown[0]["tokens"], shown[0]["limit_tokens"]]), json!([3_000, 50_000]));
}

#[test]
fn r20_what_a_worker_was_killed_over_is_spent() {
    let fleet = Fleet::new(script![text("never").forever()]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let held = shown(&fleet, "all agents today");
    assert_eq!(held["tokens"], 0, "{held}");
    let reserved = held["in_flight_tokens"].as_u64().unwrap();
    assert!(reserved > 0, "{held}");
    let pid = fleet.row(&id)["pid"].as_i64().unwrap();
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
    wait_until("the agent has ended", || fleet.state(&id) == "crashed");
    let spent = shown(&fleet, "all agents today");
    assert_eq!((&spent["tokens"], &spent["in_flight_tokens"]), (&json!(reserved), &json!(0)), "{spent}");
    fleet.place.server.release();
}
