//! Complaints about other dashboards that are not about looks: approvals that get lost, and one repo at a time.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{Browser, StepExt, script, script::Script, text, wait_until};

use crate::dashboard::Dashboard;
use crate::fleet::{Fleet, bash, id_of};

#[test]
fn a_server_killed_right_after_the_click_has_answered_once_or_still_asks() {
    let fleet = Fleet::new(script![
        bash("touch asked-for").on_first("the task"),
        text("thank you").on_first("the task"),
    ]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let mut dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    let asks =
        |dashboard: &Dashboard| dashboard.get("/api/v1/asks").json()["asks"].as_array().unwrap().clone();
    wait_until("the question is there", || asks(&dashboard).len() == 1);
    let ask = asks(&dashboard)[0].clone();
    let body = json!({"ask": ask["id"], "digest": ask["digest"]});
    let (host, token, length) = (&dashboard.host, &dashboard.token, body.to_string().len());
    let clicked = dashboard.stream(&format!(
        "POST {path}/approve HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    dashboard.server.take().unwrap().kill();
    drop(clicked);
    let again = Dashboard::start(&fleet);
    let is_done = || again.get(&path).json()["status"] == "done";
    wait_until("it is answered, or still asks", || is_done() || asks(&again).len() == 1);
    if !is_done() {
        // The same question with the same call; an answer that is still on its way is said.
        let answer = again.post(&format!("{path}/approve"), &body);
        assert!([200, 409].contains(&answer.status), "{}", answer.body);
    }
    fleet.run(["agents", "wait", &id]).ok();
    assert!(fleet.worktree(&id).join("asked-for").exists());
    wait_until("the dashboard has its end", is_done);
    let page = again.get(&format!("{path}/transcript")).json();
    let items = page["records"].as_array().unwrap();
    let of = |kind: &str, field: &str| -> Vec<Value> {
        items.iter().filter(|it| it["kind"] == kind).map(|it| it[field].clone()).collect()
    };
    assert_eq!(
        (of("ask", "answer"), of("call", "state")),
        (vec![json!("once")], vec![json!("done")]),
        "{page:#}"
    );
}

#[test]
fn five_questions_of_three_repos_are_answered_without_leaving_the_page() {
    let step = |name: &str| bash(&format!("touch {name}")).on_first(name);
    let names = ["task-one", "task-two", "task-three", "task-four", "task-five"];
    let steps = names.iter().flat_map(|name| [step(name), text("thank you").on_first(*name)]);
    let fleet = Fleet::new(Script { steps: steps.collect() });
    let env = &fleet.place.env;
    let repos = [fleet.place.repo.clone(), env.repo(), env.repo()];
    let args = fleet.place.server.args(fleet.place.protocol);
    let spawn = |name: &str, repo: &Path| {
        id_of(&env.start("caliban", &args).args(["--bg", name, "--label", name]).dir(repo).output().ok())
    };
    let agents: Vec<(usize, String)> =
        names.iter().enumerate().map(|(n, name)| (n % 3, spawn(name, &repos[n % 3]))).collect();
    let dashboard = Dashboard::start(&fleet);
    let open = || dashboard.get("/api/v1/asks").json()["asks"].as_array().unwrap().len();
    wait_until("all five ask", || open() == 5);
    let browser = Browser::start(env);
    let page = browser.page();
    page.size(1600, 900);
    page.goto(&dashboard.link);
    page.see("[role=status]", "live");
    page.eval("window.loaded = 'once'");
    page.press("g");
    page.press("a");
    page.wait("document.querySelectorAll('.ask-list li').length === 5");
    // The next question comes by itself, and can be answered a second after it came.
    wait_until("all are answered", || {
        page.eval("document.querySelector('.ask-foot .primary:not(:disabled)')?.click()");
        page.eval("document.querySelector('.ask') === null") == true
    });
    page.see(".state", "Nobody asks for anything");
    assert_eq!(page.eval("window.loaded"), "once");
    for ((repo, id), name) in agents.iter().zip(names) {
        env.run_in(&repos[*repo], ["agents", "wait", id]).ok();
        assert!(repos[*repo].join(".caliban/worktrees").join(id).join(name).exists(), "{name}");
    }
    assert_eq!(page.complaints(), Vec::<String>::new());
}
