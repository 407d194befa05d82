//! `Idempotency-Key`: what is asked for twice happens once, also when the server was killed in between.

use serde_json::{Value, json};
use testkit::{Browser, StepExt, script, text, wait_until};

use crate::dashboard::{Answer, Dashboard};
use crate::fleet::Fleet;

impl Dashboard {
    fn post_once(&self, path: &str, key: &str, body: &Value) -> Answer {
        self.effect("POST", path, &[("Idempotency-Key", key)], body)
    }

    fn effect(&self, method: &str, path: &str, more: &[(&str, &str)], body: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let mut headers = vec![("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        headers.extend(more);
        self.with(method, path, &headers, &body.to_string())
    }

    /// Another server in its place, which knows nothing of this one's memory.
    fn killed_and_again(mut self, fleet: &Fleet) -> Self {
        let port = self.host.rsplit(':').next().unwrap().to_owned();
        self.server.take().unwrap().kill();
        Self::start_at(fleet, &port)
    }
}

impl Answer {
    fn is_replayed(&self) -> bool {
        self.head.to_ascii_lowercase().contains("idempotency-replayed: true")
    }
}

/// Sends the request three times: twice to one server, once to the next one. All answers are the first one.
fn thrice(dashboard: Dashboard, fleet: &Fleet, path: &str, key: &str, body: &Value) -> (Dashboard, Value) {
    let first = dashboard.post_once(path, key, body);
    assert!([200, 201].contains(&first.status), "{path}: {}", first.body);
    let second = dashboard.post_once(path, key, body);
    assert_eq!((second.status, second.json()), (first.status, first.json()), "{path}");
    assert_eq!((first.is_replayed(), second.is_replayed()), (false, true), "{path}");
    let dashboard = dashboard.killed_and_again(fleet);
    // The next server has to find the repo first.
    let mut third = dashboard.post_once(path, key, body);
    wait_until("the next server answers", || {
        let is_found = third.status != 404;
        if !is_found {
            third = dashboard.post_once(path, key, body);
        }
        is_found
    });
    assert_eq!(third.status, first.status, "{path}: {}", third.body);
    (dashboard, first.json())
}

#[test]
fn what_is_asked_for_twice_with_one_key_happens_once_though_the_server_was_killed() {
    let fleet = Fleet::new(script![
        text("known").on_first("a first one"),
        text("I wait").on_first("the task"),
        text("heard").on_first("the task"),
        text("gone on").on_first("the task"),
        text("anew").on_first("the task"),
        text("twice").on_first("the task"),
        text("twice").on_first("the task"),
    ]);
    let known = fleet.bg("a first one", []);
    fleet.run(["agents", "wait", &known]).ok();
    let dashboard = Dashboard::start(&fleet);
    let agents = dashboard.agent(&known).rsplit_once('/').unwrap().0.to_owned();
    let ids = |dashboard: &Dashboard| -> Vec<String> {
        let all = dashboard.get("/api/v1/fleet").json();
        let mut ids: Vec<String> = all["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    };
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let task = json!({"prompt": "the task", "interactive": true});
    let (dashboard, made) = thrice(dashboard, &fleet, &agents, "start it", &task);
    let id = made["id"].as_str().unwrap().to_owned();
    let path = dashboard.agent(&id);
    assert_eq!(ids(&dashboard), sorted(vec![known.clone(), id.clone()]));
    // A key is one request's.
    dashboard.post_once(&agents, "start it", &task);
    let other = dashboard.post_once(&agents, "start it", &json!({"prompt": "another task"}));
    assert_eq!(other.code(), (422, "key_taken".to_owned()), "{}", other.body);
    assert_eq!(dashboard.post_once(&agents, &"x".repeat(200), &task).status, 400);

    fleet.wait_for(&id, "idle");
    let (dashboard, _) =
        thrice(dashboard, &fleet, &format!("{path}/send"), "say it", &json!({"text": "go on"}));
    let replies = |dashboard: &Dashboard, words: &str| {
        let page = dashboard.get(&format!("{path}/transcript")).json();
        let items = page["records"].as_array().unwrap();
        items.iter().filter(|it| it["kind"] == "prompt" && it["blocks"].to_string().contains(words)).count()
    };
    wait_until("it has heard", || replies(&dashboard, "go on") > 0);
    fleet.wait_for(&id, "idle");
    assert_eq!(replies(&dashboard, "go on"), 1);

    fleet.run(["kill", &id]).ok();
    let (dashboard, _) =
        thrice(dashboard, &fleet, &format!("{path}/resume"), "resume it", &json!({"prompt": "once more"}));
    fleet.wait_for(&id, "idle");
    assert_eq!(replies(&dashboard, "once more"), 1);

    let (dashboard, anew) = thrice(dashboard, &fleet, &format!("{path}/respawn"), "again", &json!({}));
    let next = anew["id"].as_str().unwrap().to_owned();
    fleet.wait_for(&next, "idle");
    assert_eq!(ids(&dashboard), sorted(vec![known.clone(), next.clone()]));

    // A removal that is asked for again has the same answer, and is no "there is no such agent".
    let path = dashboard.agent(&known);
    let remove =
        |dashboard: &Dashboard| dashboard.effect("DELETE", &path, &[("Idempotency-Key", "rm")], &json!({}));
    let removed = remove(&dashboard);
    assert_eq!(removed.status, 200, "{}", removed.body);
    let dashboard = dashboard.killed_and_again(&fleet);
    dashboard.agent(&next);
    let again = remove(&dashboard);
    assert_eq!((again.status, again.json()), (200, removed.json()));
    assert_eq!(ids(&dashboard), [next]);
}

#[test]
fn a_message_of_the_broker_with_one_key_is_stored_once_though_the_server_was_killed() {
    let fleet = Fleet::new(script![]);
    let env = &fleet.place.env;
    let made =
        env.start("cafleet", ["--json", "session", "create", "--no-tmux", "--label", "ship"]).output().ok();
    let made: Value = made.json();
    let session = made["session_id"].as_str().unwrap().to_owned();
    let register =
        ["--session-id", &session, "agent", "register", "--name", "tests", "--description", "Tests"];
    let registered = env.start("cafleet", register).output().ok();
    let id = registered.stdout.lines().find_map(|line| line.strip_prefix("agent_id: ")).unwrap().to_owned();
    let mut dashboard = Dashboard::start(&fleet);
    let room = format!("/api/v1/broker/sessions/{session}");
    let administrator = |dashboard: &Dashboard| {
        let all = dashboard.get("/api/v1/broker/sessions").json();
        all["sessions"][0]["administrator_agent_id"].as_str().unwrap().to_owned()
    };
    let from = administrator(&dashboard);
    for (key, body) in
        [("one", json!({"to": id, "text": "to one"})), ("all", json!({"to": "*", "text": "to all"}))]
    {
        let first;
        (dashboard, first) = thrice(dashboard, &fleet, &format!("{room}/send"), key, &body);
        let third = dashboard.post_once(&format!("{room}/send"), key, &body);
        assert_eq!(third.json()["task_id"], first["task_id"], "{}", third.body);
    }
    // The routes of the original take the key too.
    let headers = [("X-Session-Id", session.as_str()), ("Idempotency-Key", "ui")];
    let body = json!({"from_agent_id": from, "to_agent_id": id, "text": "the old way"});
    let send = |dashboard: &Dashboard| dashboard.effect("POST", "/ui/api/messages/send", &headers, &body);
    let first = send(&dashboard);
    assert_eq!(first.status, 200, "{}", first.body);
    let dashboard = dashboard.killed_and_again(&fleet);
    let again = send(&dashboard);
    assert_eq!((again.status, again.json()), (200, first.json()));
    let entries = dashboard.get(&room).json()["entries"].as_array().unwrap().clone();
    let said: Vec<&str> = entries.iter().map(|entry| entry["text"].as_str().unwrap()).collect();
    assert_eq!(said, ["to one", "to all", "the old way"]);
}

#[test]
fn a_click_whose_answer_is_lost_starts_one_agent_when_it_is_repeated() {
    let fleet = Fleet::new(script![text("known").on_first("a first one"), text("new").on_first("the task")]);
    let known = fleet.bg("a first one", []);
    fleet.run(["agents", "wait", &known]).ok();
    let dashboard = Dashboard::start(&fleet);
    dashboard.agent(&known);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(1600, 900);
    page.goto(&dashboard.link);
    page.see("[role=status]", "live");
    page.goto(&format!("http://{}/new", dashboard.host));
    page.wait("document.querySelector('.new-form textarea')");
    page.click(".new-form textarea");
    page.type_text("the task");
    // The server hears the first click, and the page does not hear the server.
    page.eval(
        "window.lost = 0; const real = window.fetch; window.fetch = async (...how) => { const answer = await real(...how); \
         if (how[1]?.method === 'POST' && window.lost++ === 0) throw new TypeError('lost'); return answer; }; true",
    );
    page.click(".new-form .primary");
    page.see(".toasts", "cannot be reached");
    page.click(".new-form .primary");
    page.wait("location.pathname.startsWith('/agent/')");
    page.see(".transcript", "new");
    assert_eq!(page.eval("window.lost"), 2);
    let agents = dashboard.get("/api/v1/fleet").json()["agents"].as_array().unwrap().len();
    assert_eq!(agents, 2);
}
