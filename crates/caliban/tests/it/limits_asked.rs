//! A limit at which a person is asked, questions that end by themselves, and what a repo may say about spending.

use serde_json::{Value, json};
use testkit::{StepExt, script, text, wait_until};

use crate::fleet::{Fleet, bash};

const DAY: &str = "[budget]\nper_day = { tokens = 26000 }\non_limit = \"ask\"\n";

/// One agent has spent nearly all that there is for a day.
fn spent(more: &str) -> Fleet {
    let fleet = Fleet::new(script![
        text("one is done").costs(25_000, 0).on_first("task one"),
        text("two is done").costs(4_000, 0).on_first("task two"),
        text("three is done").costs(1_000, 0).on_first("task three"),
    ]);
    fleet.settings(&format!("{DAY}{more}"));
    let one = fleet.bg("task one", []);
    fleet.run(["agents", "wait", &one]).ok();
    fleet
}

fn open(fleet: &Fleet) -> Vec<Value> {
    fleet.run(["approvals", "--json"]).ok().json()
}

fn kill_worker(fleet: &Fleet, id: &str) {
    let pid = i32::try_from(fleet.row(id)["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_until("it has crashed", || fleet.state(id) == "crashed");
}

#[test]
fn r20_at_a_limit_a_person_is_asked_and_a_yes_raises_it_for_today() {
    let fleet = spent("");
    let two = fleet.bg("task two", ["--label", "second"]);
    fleet.wait_for_ask(&two);
    let asked = open(&fleet);
    assert_eq!((asked.len(), &asked[0]["name"]), (1, &json!("Budget")), "{asked:#?}");
    let question = "Budget The token budget of all agents for today is used up (25000 of 26000 tokens spent): \
                    go on with 13000 tokens more, 39000 tokens in all?";
    assert_eq!(asked[0]["what"], question);
    assert_eq!(fleet.place.server.model_requests().len(), 1, "nothing was sent meanwhile");
    // A kill of the worker loses nothing: it asks again, and the limit is what it was.
    kill_worker(&fleet, &two);
    fleet.run(["resume", &two]).ok();
    fleet.wait_for_ask(&two);
    fleet.run(["approve", &two]).ok();
    fleet.run(["agents", "wait", &two]).ok();
    assert_eq!(fleet.row(&two)["last_text"], "two is done");
    assert_eq!(fleet.place.server.model_requests().len(), 2, "the same request, once");
    let pools: Vec<Value> = fleet.run(["budget", "show", "--json"]).ok().json();
    let today = json!([pools[0]["tokens"], pools[0]["limit_tokens"], pools[0]["limit_from"]]);
    assert_eq!(today, json!([29_000, 39_000, "set"]));
}

#[test]
fn r20_a_no_at_a_limit_ends_the_agent_with_its_budget_exceeded() {
    let fleet = spent("");
    let two = fleet.bg("task two", []);
    fleet.wait_for_ask(&two);
    fleet.run(["deny", &two]).ok();
    fleet.run(["agents", "wait", &two]).expect_code(4);
    let ending = fleet.row(&two)["ending"].to_string();
    assert!(ending.contains("the token budget of all agents for today is used up"), "{ending}");
    // A resume comes to the limit again, and asks again.
    fleet.run(["resume", &two]).ok();
    fleet.wait_for_ask(&two);
    fleet.run(["approve", &two]).ok();
    fleet.run(["agents", "wait", &two]).ok();
}

#[test]
fn r20_of_two_agents_at_one_limit_one_asks_and_both_have_the_answer() {
    let fleet = spent("");
    let two = fleet.bg("task two", []);
    fleet.wait_for_ask(&two);
    let three = fleet.bg("task three", []);
    wait_until("it waits for the other's answer", || {
        let doing = fleet.row(&three)["doing"].to_string();
        doing.contains(&format!("the budget is used up: waits for your answer to {two}"))
    });
    assert_eq!(open(&fleet).len(), 1);
    fleet.run(["approve", &two]).ok();
    fleet.run(["agents", "wait", &two, &three]).ok();
    assert_eq!(fleet.row(&three)["last_text"], "three is done");
}

#[test]
fn r20_the_agents_own_budget_is_asked_about_too_and_a_raise_stays() {
    let fleet = Fleet::new(script![text("done").costs(3_000, 0)]);
    fleet.settings("[budget]\non_limit = \"ask\"\n");
    let id = fleet.bg("the task", ["--budget-tokens", "500"]);
    fleet.wait_for_ask(&id);
    let what = open(&fleet)[0]["what"].to_string();
    assert!(what.contains(&format!("The token budget of {id} and those it started is used up")), "{what}");
    fleet.run(["approve", &id]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let shown: Vec<Value> = fleet.run(["budget", "show", &id, "--json"]).ok().json();
    assert!(shown[0]["limit_tokens"].as_u64().unwrap() > 500, "{shown:#?}");
}

#[test]
fn r24_a_question_that_nobody_answers_is_refused_in_words_and_the_agent_goes_on() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("then without")]);
    fleet.settings("[approvals]\ntimeout_seconds = 1\n");
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.row(&id)["last_text"], "then without");
    assert!(!fleet.worktree(&id).join("asked-for").exists());
    let heard = fleet.place.server.model_requests()[1].body["messages"].to_string();
    assert!(heard.contains("nobody answered within 1 second"), "{heard}");
}

#[test]
fn r24_the_end_of_a_question_survives_kills_of_daemon_and_worker() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("thank you")]);
    fleet.settings("[approvals]\ntimeout_seconds = 7200\n");
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let end = || open(&fleet)[0]["expires_at"].clone();
    let first = end();
    assert!(first.is_string(), "{first}");
    let listed = fleet.run(["approvals"]).ok().stdout;
    assert!(listed.contains("refused in 1h 59m"), "{listed}");
    let status: Value = fleet.run(["daemon", "status", "--json"]).ok().json();
    let pid = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    fleet.wait_for_ask(&id);
    assert_eq!(end(), first);
    kill_worker(&fleet, &id);
    fleet.run(["resume", &id]).ok();
    fleet.wait_for_ask(&id);
    assert_eq!(end(), first);
    fleet.run(["approve", &id]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    assert!(fleet.worktree(&id).join("asked-for").exists());
}

#[test]
fn r20_a_repos_settings_can_only_narrow_what_may_be_spent() {
    let fleet = spent("[fleet]\nmax_running_user = 3\nquiet_hours = \"04:00-04:01\"\n");
    let repo = &fleet.place.repo;
    let wider = "[budget]\nper_day = { tokens = 90000000 }\nper_agent = { tokens = 800 }\n\
                 [fleet]\nmax_running_user = 90\nquiet_hours = \"03:00-03:01\"\n";
    fleet.place.env.write(repo.join(".caliban/settings.toml"), wider);
    fleet.run(["trust"]).ok();
    let pools: Vec<Value> = fleet.run(["budget", "show", "--json"]).ok().json();
    assert_eq!(pools[0]["limit_tokens"], 26_000, "{pools:#?}");
    let two = fleet.bg("task two", []);
    fleet.wait_for_ask(&two);
    let what = open(&fleet)[0]["what"].to_string();
    assert!(what.contains("of 800 tokens"), "the narrower one holds: {what}");
    fleet.run(["kill", &two]).ok();
    // What is left out is said.
    let said = fleet.run(["config", "show"]).ok();
    let all = format!("{}{}", said.stderr, said.stdout);
    for key in [
        "budget.per_day.tokens = 90000000",
        "fleet.max_running_user = 90",
        "fleet.quiet_hours = \"03:00-03:01\"",
    ] {
        assert!(all.contains(&format!("the repo's {key} is left out")), "{key}: {all}");
    }
}

#[test]
fn r20_at_four_fifths_of_a_limit_the_lists_show_it_and_notify_runs_once() {
    let fleet = Fleet::new(script![bash("true"), text("done")]);
    let told = fleet.place.env.root().join("told");
    let notify = format!("echo \"$CALIBAN_EVENT $CALIBAN_TEXT\" >> {}", told.display());
    fleet.settings(&format!("[fleet]\nnotify = {}\n", json!(notify)));
    fleet.place.server.hold();
    // The first request takes about 3,100 tokens.
    let id = fleet.bg("the task", ["--budget-tokens", "3500", "--allow", "Bash"]);
    wait_until("the row says it", || fleet.row(&id)["near_limit"].is_object());
    let near = fleet.row(&id)["near_limit"].clone();
    let percent = near["percent"].as_u64().unwrap();
    assert!((80..=100).contains(&percent), "{near}");
    assert_eq!(json!([near["whose"], near["kind"], near["limit"]]), json!(["its budget", "tokens", 3_500]));
    let list = fleet.run(["agents", "list"]).ok().stdout;
    assert!(list.contains(&format!("{percent} % of its budget · ")), "{list}");
    fleet.place.server.release();
    fleet.run(["agents", "wait", &id]);
    let lines = || std::fs::read_to_string(&told).unwrap_or_default();
    wait_until("the end was told, too", || lines().lines().count() > 1);
    let budget = format!("budget the budget of {id} and those it started is nearly used up: ");
    let of_budget: Vec<String> =
        lines().lines().filter(|line| line.starts_with("budget")).map(str::to_owned).collect();
    assert!(of_budget.len() == 1 && of_budget[0].starts_with(&budget), "{of_budget:?}");
}
