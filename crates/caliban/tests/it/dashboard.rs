//! `caliban dashboard` from outside: the fleet, a transcript, answers, a message, a diff and a merge through its API, live.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{Signal, Spawned, StepExt, script, script::Script, text, wait_until};

use crate::fleet::{Fleet, bash, write};

/// A dashboard that runs, and what a page knows of it.
pub(crate) struct Dashboard {
    pub(crate) server: Option<Spawned>,
    pub(crate) address: String,
    /// `caliban-….localhost:PORT`.
    pub(crate) host: String,
    pub(crate) link: String,
    pub(crate) token: String,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {} {}", self.status, self.body))
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> (u16, String) {
        (self.status, self.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

impl Dashboard {
    pub(crate) fn start(fleet: &Fleet) -> Self {
        Self::start_at(fleet, "0")
    }

    pub(crate) fn start_at(fleet: &Fleet, port: &str) -> Self {
        Self::start_with(fleet, &["--port", port])
    }

    pub(crate) fn start_with(fleet: &Fleet, more: &[&str]) -> Self {
        let args = ["dashboard", "--no-open", "--json"].into_iter().chain(more.iter().copied());
        let mut server = fleet.place.env.start("caliban", args).dir(&fleet.place.repo).spawn();
        server.wait_for_stdout("\n");
        let ready: Value = serde_json::from_str(server.stdout().lines().next().unwrap()).unwrap();
        let host = ready["origin"].as_str().unwrap().split_once("://").unwrap().1.to_owned();
        let port = ready["address"].as_str().unwrap().rsplit(':').next().unwrap();
        let token = std::fs::read_to_string(ready["token_file"].as_str().unwrap()).unwrap();
        Self {
            address: format!("127.0.0.1:{port}"),
            link: ready["url"].as_str().unwrap().to_owned(),
            token: token.trim().to_owned(),
            server: Some(server),
            host,
        }
    }

    pub(crate) fn stream(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Sends exactly this, and reads until the server hangs up.
    pub(crate) fn raw(&self, request: &str) -> Answer {
        let mut all = Vec::new();
        self.stream(request).read_to_end(&mut all).unwrap();
        let all = String::from_utf8_lossy(&all).into_owned();
        let (head, body) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// A request with these further headers.
    pub(crate) fn with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let host =
            headers.iter().find(|(name, _)| *name == "Host").map_or(self.host.as_str(), |(_, host)| host);
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        for (name, value) in headers.iter().filter(|(name, _)| *name != "Host") {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.raw(&request)
    }

    /// A script's request.
    pub(crate) fn get(&self, path: &str) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        self.with("GET", path, &[("Authorization", &bearer)], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        self.with("POST", path, &headers, &body.to_string())
    }

    /// The path of an agent's routes.
    pub(crate) fn agent(&self, id: &str) -> String {
        let mut path = String::new();
        wait_until("the dashboard has the agent", || {
            let fleet = self.get("/api/v1/fleet").json();
            let agents = fleet["agents"].as_array().unwrap().clone();
            let found = agents.iter().find(|agent| agent["id"] == id);
            path = found.map_or(String::new(), |agent| {
                format!("/api/v1/repos/{}/agents/{id}", agent["repo"].as_str().unwrap())
            });
            found.is_some()
        });
        path
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.signal(Signal::TERM);
            server.wait();
        }
    }
}

/// What a stream says, event by event.
pub(crate) struct Stream(BufReader<TcpStream>);

impl Stream {
    pub(crate) fn open(dashboard: &Dashboard, query: &str, last: Option<&str>) -> Self {
        let last = last.map_or(String::new(), |last| format!("Last-Event-ID: {last}\r\n"));
        let (host, token) = (&dashboard.host, &dashboard.token);
        let request = format!(
            "GET /api/v1/events{query} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{last}\r\n"
        );
        Self(BufReader::new(dashboard.stream(&request)))
    }

    /// The next event of one of these names: name, id, data.
    pub(crate) fn next(&mut self, names: &[&str]) -> (String, String, Value) {
        let (mut name, mut id) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim().to_owned();
            } else if let Some(event) = line.strip_prefix("id: ") {
                id = event.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                let said = std::mem::take(&mut id);
                if names.contains(&name.as_str()) {
                    return (name, said, serde_json::from_str(data).unwrap());
                }
            }
        }
    }
}

fn asking() -> Fleet {
    Fleet::new(script![
        bash("touch asked-for").on_first("the task"),
        text("thank **you**").on_first("the task")
    ])
}

#[test]
fn an_agent_that_asks_is_seen_approved_and_done_through_the_dashboard() {
    let fleet = asking();
    let id = fleet.bg("the task", ["--label", "asker"]);
    fleet.wait_for_ask(&id);
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    let mut ask = Value::Null;
    wait_until("the question is there", || {
        ask = dashboard.get("/api/v1/asks").json()["asks"][0].clone();
        ask["tool"] == "Bash"
    });
    assert_eq!((&ask["name"], &ask["agent"]), (&json!("asker"), &json!(id)));
    assert!(ask["call_text"].as_str().unwrap().contains("touch asked-for"), "{ask:#}");
    let all = dashboard.get("/api/v1/fleet").json();
    assert_eq!(
        all["counts"],
        json!({"needs_you": 1, "working": 0, "queued": 0, "finished": 0, "failed": 0, "asks": 1})
    );
    let agent = &all["agents"][0];
    assert_eq!(
        (&agent["status"], &agent["glyph"], &agent["group"]),
        (&json!("asks"), &json!("!"), &json!("needs_you"))
    );
    // Another digest is another call.
    let wrong = dashboard.post(&format!("{path}/approve"), &json!({"ask": ask["id"], "digest": "0000"}));
    assert_eq!(wrong.code(), (409, "not_asked".to_owned()));
    let answer = json!({"ask": ask["id"], "digest": ask["digest"]});
    let approved = dashboard.post(&format!("{path}/approve"), &answer);
    assert_eq!(
        (approved.status, approved.json()),
        (200, json!({"id": id, "ask": ask["id"]})),
        "{}",
        approved.body
    );
    fleet.run(["agents", "wait", &id]).ok();
    assert!(fleet.worktree(&id).join("asked-for").exists());
    // Once.
    assert_eq!(dashboard.post(&format!("{path}/approve"), &answer).status, 409);
    wait_until("the dashboard has its end", || dashboard.get(&path).json()["status"] == "done");
    let page = dashboard.get(&format!("{path}/transcript")).json();
    let items = page["records"].as_array().unwrap();
    let kinds: Vec<&str> = items.iter().map(|item| item["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["start", "prompt", "ask", "call", "reply", "turn_end"], "{page:#}");
    assert_eq!(
        (&items[2]["answer"], &items[3]["state"], &items[3]["name"]),
        (&json!("once"), &json!("done"), &json!("Bash"))
    );
    assert_eq!(items[4]["blocks"], json!([{"b": "p", "in": [["", "thank "], ["b", "you"]]}]));
    let part = dashboard.get(&format!("{path}/transcript?from=1&limit=2")).json();
    assert_eq!(
        (&part["total"], &part["first"], part["records"].as_array().unwrap().len()),
        (&json!(6), &json!(1), 2)
    );
    // What it changed, and landing it.
    let diff = dashboard.get(&format!("{path}/diff")).json();
    assert_eq!(
        (&diff["files"][0]["path"], &diff["review"]["state"]),
        (&json!("asked-for"), &json!("to_review")),
        "{diff:#}"
    );
    let file = dashboard.get(&format!("{path}/diff/file?path=asked-for")).json();
    assert_eq!((&file["binary"], &file["path"]), (&json!(false), &json!("asked-for")), "{file:#}");
    let preview = dashboard.post(&format!("{path}/merge"), &json!({"preview": true})).json();
    assert_eq!(preview["uncommitted"], json!(["asked-for"]), "{preview:#}");
    let merged = dashboard.post(&format!("{path}/merge"), &json!({"commit": "as asked"})).json();
    assert!(["merge", "squash"].contains(&merged["how"].as_str().unwrap()), "{merged:#}");
    assert!(fleet.place.repo.join("asked-for").exists());
    let diff = dashboard.get(&format!("{path}/diff")).json();
    assert_eq!(diff["review"]["state"], json!("merged"), "{diff:#}");
    wait_until("the page has it", || dashboard.get(&path).json()["review_words"] == "merged +0 −0");
}

#[test]
fn events_come_live_and_go_on_behind_the_last_one() {
    let fleet = asking();
    let dashboard = Dashboard::start(&fleet);
    let mut stream = Stream::open(&dashboard, "", None);
    let (_, first, snapshot) = stream.next(&["snapshot"]);
    assert_eq!(snapshot["event"], first.as_str());
    let id = fleet.bg("the task", []);
    let (_, at_ask, ask) = stream.next(&["ask"]);
    assert_eq!(ask["agent"], id.as_str());
    let path = dashboard.agent(&id);
    let answer = json!({"ask": ask["id"], "digest": ask["digest"]});
    assert_eq!(dashboard.post(&format!("{path}/approve"), &answer).status, 200);
    stream.next(&["ask_closed"]);
    while stream.next(&["agent"]).2["status"] != "done" {}
    // A page that comes back is told what it has missed, and nothing twice.
    let mut again = Stream::open(&dashboard, "", Some(&at_ask));
    let (name, ..) = again.next(&["snapshot", "reset", "agent", "ask", "ask_closed"]);
    assert!(name == "agent" || name == "ask_closed", "{name}");
    while again.next(&["agent"]).2["status"] != "done" {}
    // One that was away for too long, or knew another server, begins anew.
    let mut old = Stream::open(&dashboard, "", Some("ffff-1"));
    assert_eq!(old.next(&["snapshot", "reset"]).0, "reset");
    assert_eq!(old.next(&["snapshot", "reset"]).2["agents"][0]["status"], "done");
}

#[test]
fn a_watched_transcript_streams_and_a_message_reaches_the_agent() {
    let fleet =
        Fleet::new(script![text("I wait").on_first("the task"), text("heard it").on_first("the task")]);
    let id = fleet.bg("the task", ["--interactive"]);
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    wait_until("it waits", || dashboard.get(&path).json()["status"] == "waits");
    let key = dashboard.get(&path).json()["key"].as_str().unwrap().to_owned();
    let mut stream = Stream::open(&dashboard, &format!("?watch={key}"), None);
    stream.next(&["snapshot"]);
    stream.next(&["watched"]);
    let sent = dashboard.post(&format!("{path}/send"), &json!({"text": "go on"}));
    assert_eq!((sent.status, &sent.json()["id"]), (200, &json!(id)), "{}", sent.body);
    let said = |item: &Value| item["kind"] == "reply" && item["blocks"].to_string().contains("heard it");
    while !said(&stream.next(&["record"]).2["item"]) {}
    let usage = dashboard.get(&format!("{path}/usage")).json();
    assert_eq!(usage["points"].as_array().unwrap().len(), 2, "{usage:#}");
    let killed = dashboard.post(&format!("{path}/kill"), &json!({}));
    assert_eq!((killed.status, &killed.json()["status"]), (200, &json!("killed")), "{}", killed.body);
    let bearer = format!("Bearer {}", dashboard.token);
    let removed = dashboard.with("DELETE", &path, &[("Authorization", &bearer)], "");
    assert_eq!(removed.status, 200, "{}", removed.body);
    stream.next(&["removed"]);
}

#[test]
fn a_turn_that_runs_is_cancelled_and_the_agent_goes_on_with_the_next_message() {
    let fleet =
        Fleet::new(script![text("never heard").on_first("the task"), text("heard").on_first("the task")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.place.server.wait_for_requests(1);
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    let status = |wanted: &str| wait_until(wanted, || dashboard.get(&path).json()["status"] == wanted);
    status("running");
    let cancelled = dashboard.post(&format!("{path}/cancel"), &json!({}));
    assert_eq!((cancelled.status, cancelled.json()), (200, json!({"id": id})), "{}", cancelled.body);
    // The turn is over while the model is still silent.
    status("waits");
    assert_eq!(fleet.state(&id), "idle");
    // Twice is as good as once.
    assert_eq!(dashboard.post(&format!("{path}/cancel"), &json!({})).status, 200);
    fleet.place.server.release();
    assert_eq!(dashboard.post(&format!("{path}/send"), &json!({"text": "go on"})).status, 200);
    let said = |words: &str| dashboard.get(&format!("{path}/transcript")).body.contains(words);
    wait_until("it answers", || said("heard"));
    fleet.run(["kill", &id]).ok();
    status("killed");
    let late = dashboard.post(&format!("{path}/cancel"), &json!({}));
    assert_eq!((late.code(), late.body.contains("not at work")), ((409, "conflict".to_owned()), true));
    let nobody = path.replace(&id, "00000000");
    assert_eq!(dashboard.post(&format!("{nobody}/cancel"), &json!({})).status, 404);
}

#[test]
fn how_far_one_has_read_is_kept_and_never_goes_back() {
    let fleet = Fleet::new(script![text("one").on_first("the task")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    let page = |dashboard: &Dashboard| dashboard.get(&format!("{path}/transcript")).json();
    let first = page(&dashboard);
    assert_eq!((&first["total"], &first["seen"]), (&json!(4), &Value::Null), "{first:#}");
    let seq = |n: usize| first["records"][n]["seq"].as_u64().unwrap();
    let mark = |seq: u64| {
        let answer = dashboard.post(&format!("{path}/seen"), &json!({ "seq": seq }));
        (answer.status, answer.json()["seq"].as_u64())
    };
    assert_eq!(mark(seq(1)), (200, Some(seq(1))));
    assert_eq!(page(&dashboard)["seen"], 2);
    // Twice is once, back is nowhere, and nobody has read what is not there.
    assert_eq!(mark(seq(1)), (200, Some(seq(1))));
    assert_eq!(mark(seq(0)), (200, Some(seq(1))));
    assert_eq!(page(&dashboard)["seen"], 2);
    assert_eq!(mark(u64::MAX), (200, Some(seq(3))));
    assert_eq!(dashboard.post(&format!("{path}/seen"), &json!({})).status, 400);
    drop(dashboard);
    let again = Dashboard::start(&fleet);
    again.agent(&id);
    assert_eq!(page(&again)["seen"], 4);
}

#[test]
fn a_new_agent_is_spawned_and_what_is_wrong_with_a_request_is_said() {
    let fleet = Fleet::new(script![text("first").on_first("one"), text("second").on_first("two")]);
    let first = fleet.bg("one", []);
    fleet.run(["agents", "wait", &first]).ok();
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&first);
    let agents = path.rsplit_once('/').unwrap().0.to_owned();
    let made = dashboard.post(&agents, &json!({"prompt": "two", "label": "second"}));
    assert_eq!(made.status, 201, "{}", made.body);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let path = dashboard.agent(&id);
    wait_until("it is done", || dashboard.get(&path).json()["status"] == "done");
    let wrong = dashboard.post(&agents, &json!({"prompt": "x", "label": "Not A Slug"}));
    assert_eq!(wrong.code(), (400, "bad_request".to_owned()), "{}", wrong.body);
    assert!(wrong.json()["error"]["hint"].is_string(), "{}", wrong.body);
    assert_eq!(dashboard.post(&agents, &json!({"prompt": ""})).status, 400);
    assert_eq!(dashboard.post(&agents, &json!({"promt": "x"})).status, 400);
}

#[test]
fn reading_starts_no_daemon_and_its_fleet_is_shown_as_it_was_left() {
    let fleet = Fleet::new(script![text("done").on_first("the task")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    fleet.run(["daemon", "stop"]).ok();
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    let all = dashboard.get("/api/v1/fleet").json();
    assert_eq!(
        (&all["repos"][0]["daemon"], &all["agents"][0]["status"]),
        (&json!(false), &json!("done")),
        "{all:#}"
    );
    assert!(all["repos"][0]["recorded_at"].is_string());
    assert_eq!(dashboard.get(&format!("{path}/transcript")).json()["total"], 4);
    assert_eq!(dashboard.get(&format!("{path}/diff")).status, 200);
    let daemon = fleet.run(["daemon", "status"]);
    assert_ne!(daemon.code, 0, "{}{}", daemon.stdout, daemon.stderr);
    // A daemon that comes is listened to.
    fleet.run(["agents", "list"]).ok();
    wait_until("the daemon tells", || dashboard.get("/api/v1/fleet").json()["repos"][0]["daemon"] == true);
}

#[test]
fn an_order_starts_the_daemon_that_is_not_there() {
    let fleet = Fleet::new(script![
        text("done").on_first("the task"),
        text("new").on_first("a new one"),
        text("again")
    ]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    let agents = path.rsplit_once('/').unwrap().0.to_owned();
    fleet.run(["daemon", "stop"]).ok();
    let made = dashboard.post(&agents, &json!({"prompt": "a new one"}));
    assert_eq!(made.status, 201, "{}", made.body);
    fleet.run(["daemon", "stop"]).ok();
    let said = dashboard.post(&format!("{path}/send"), &json!({"text": "and now?"}));
    assert_eq!(
        (said.status, &said.json()["error"]["code"]),
        (409, &json!("ended")),
        "a daemon's answer: {}",
        said.body
    );
    assert_eq!(fleet.run(["daemon", "status"]).code, 0);
}

#[test]
fn a_signed_in_browser_stays_so_when_the_server_is_started_again() {
    let fleet = Fleet::new(script![]);
    let mut dashboard = Dashboard::start(&fleet);
    let token = dashboard.link.rsplit("#t=").next().unwrap().to_owned();
    let json_type = [("Content-Type", "application/json")];
    let signed = dashboard.with("POST", "/auth/link", &json_type, &json!({"token": token}).to_string());
    assert_eq!(signed.status, 200, "{}", signed.body);
    let key = signed.json()["page_key"].as_str().unwrap().to_owned();
    let cookie = signed.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let headers = [("Cookie", cookie.as_str()), ("X-Caliban-Page", key.as_str())];
    assert_eq!(dashboard.with("GET", "/api/v1/me", &headers, "").json()["device"]["this"], true);
    let port = dashboard.host.rsplit(':').next().unwrap().to_owned();
    let mut server = dashboard.server.take().unwrap();
    server.signal(Signal::KILL);
    server.wait();
    dashboard = Dashboard::start_at(&fleet, &port);
    assert_eq!(dashboard.with("GET", "/api/v1/me", &headers, "").status, 200);
    // The same command, where one runs, prints another link of it.
    let more = fleet.run(["dashboard", "--no-open", "--json", "--port", &port]).ok();
    let more: Value = more.json();
    assert_eq!(more["was_running"], true, "{more:#}");
    assert_ne!(more["url"], dashboard.link.as_str());
    assert_eq!(dashboard.with("POST", "/auth/leave", &headers, "").status, 200);
    assert_eq!(dashboard.with("GET", "/api/v1/me", &headers, "").code(), (401, "signed_out".to_owned()));
}

#[test]
fn what_was_said_is_found_and_the_evening_and_its_cost_are_told() {
    let fleet = asking();
    let id = fleet.bg("the task", ["--label", "asker"]);
    fleet.wait_for_ask(&id);
    fleet.run(["approve", "1"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    wait_until("it is done", || dashboard.get(&path).json()["status"] == "done");
    // By a word of its call; the hit opens there.
    let found = dashboard.get("/api/v1/search?q=asked-f").json();
    assert_eq!(
        (&found["agents"][0]["name"], &found["indexing"]),
        (&json!("asker"), &json!(false)),
        "{found:#}"
    );
    let seq = found["agents"][0]["hits"][0]["seq"].as_u64().unwrap();
    assert!(
        found["agents"][0]["hits"][0]["runs"].to_string().contains("[\"hit\",\"asked-for\"]"),
        "{found:#}"
    );
    let page = dashboard.get(&format!("{path}/transcript?seq={seq}&limit=1")).json();
    assert!(page["records"][0].to_string().contains("asked-for"), "{page:#}");
    assert_eq!(dashboard.get("/api/v1/search?q=nobodysaidthis").json()["agents"], json!([]));
    // The index holds nothing of its own: one that is broken is made anew.
    drop(dashboard);
    let index = fleet.place.env.data().join("caliban/web/search.db");
    std::fs::write(&index, "this is no database").unwrap();
    let dashboard = Dashboard::start(&fleet);
    dashboard.agent(&id);
    assert_eq!(dashboard.get("/api/v1/search?q=thank").json()["agents"][0]["name"], "asker");
    let evening = dashboard.get("/api/v1/timeline").json();
    let spans = evening["agents"][0]["spans"].as_array().unwrap();
    let words: Vec<&str> = spans.iter().map(|span| span["status"].as_str().unwrap()).collect();
    assert!(words.contains(&"asks") && words.contains(&"running"), "{evening:#}");
    assert!(evening["agents"][0]["waited_ms"].as_u64().unwrap() > 0, "{evening:#}");
    let spend = dashboard.get("/api/v1/spend").json();
    assert_eq!(
        (&spend["today"]["requests"], &spend["by_agent"][0]["name"]),
        (&json!(2), &json!("asker")),
        "{spend:#}"
    );
    let figures = dashboard.get("/metrics").body;
    assert!(
        figures.contains("status=\"done\"} 1") && figures.contains("# TYPE caliban_agents gauge"),
        "{figures}"
    );
    // What the document names is there.
    let routes = dashboard.with("GET", "/openapi.json", &[], "").json();
    for (route, _) in
        routes["paths"].as_object().unwrap().iter().filter(|(_, verbs)| verbs.get("get").is_some())
    {
        if route.ends_with("/events") {
            continue;
        }
        let answer = dashboard.get(&route.replace(['{', '}'], ""));
        assert!(!answer.body.contains("no_route"), "{route}: {}", answer.body);
    }
}

#[test]
fn a_long_call_is_shown_whole_before_it_is_answered() {
    let middle = "the dangerous part stands in the middle";
    let command =
        format!("touch a; echo {} ; echo {middle}; echo {}; true", "x".repeat(9_000), "y".repeat(9_000));
    let fleet =
        Fleet::new(script![bash(&command).on_first("the task"), text("thank you").on_first("the task")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let dashboard = Dashboard::start(&fleet);
    dashboard.agent(&id);
    let mut asks = Value::Null;
    wait_until("the question is there", || {
        asks = dashboard.get("/api/v1/asks").json()["asks"].clone();
        !asks[0].is_null()
    });
    assert_eq!(asks[0]["is_cut"], false);
    let shown = asks[0]["call_text"].as_str().unwrap();
    assert!(shown.contains(middle) && shown.trim_end().ends_with("true"), "{} characters", shown.len());
}

/// The questions of the page, once there are so many.
pub(crate) fn asks_of_page(dashboard: &Dashboard, count: usize) -> Vec<Value> {
    let mut asks = Vec::new();
    wait_until("the questions are there", || {
        asks = dashboard.get("/api/v1/asks").json()["asks"].as_array().cloned().unwrap_or_default();
        asks.len() == count
    });
    asks
}

#[test]
fn a16_a_page_says_of_every_call_whether_it_shows_it_whole() {
    // A row has no room for all of these together, and the page none for the last one.
    let long = |name: &str, count: usize| format!("touch {name}; echo {}; end {name}", "漢".repeat(count));
    let names = ["a", "b", "c"];
    let helper = |name: &str| ("AgentTool", json!({"prompt": format!("helper {name}")}));
    let first = testkit::tools(names.map(helper)).on_first("the task");
    let helpers = names.map(|name| bash(&long(name, 3_900)).on_first(format!("helper {name}")));
    let huge = write("/elsewhere/huge", &long("huge", 100 * 1024)).on_first("the huge one");
    let fleet = Fleet::new(Script { steps: [first, huge].into_iter().chain(helpers).collect() });
    let ids = ["the task", "the huge one"].map(|task| fleet.bg(task, []));
    ids.iter().for_each(|id| fleet.wait_for_ask(id));
    let dashboard = Dashboard::start(&fleet);
    ids.iter().for_each(|id| {
        dashboard.agent(id);
    });
    for ask in asks_of_page(&dashboard, names.len() + 1) {
        let shown = ask["call_text"].as_str().unwrap().trim_end();
        let is_huge = shown.contains("touch huge");
        assert_eq!(ask["is_cut"], json!(is_huge), "{} characters", shown.len());
        assert_eq!(shown.lines().any(|line| line.contains("; end ")), !is_huge, "{} characters", shown.len());
    }
}

#[test]
fn a16_a_long_call_of_a_sub_agent_is_shown_whole() {
    let command = format!("touch a; echo {}; the middle; echo {}", "x".repeat(9_000), "y".repeat(9_000));
    let fleet = Fleet::new(script![
        testkit::tool("AgentTool", json!({"prompt": "the helper's task", "label": "explore"}))
            .on_first("the task"),
        bash(&command).on_first("the helper's task"),
        text("the helper is done").on_first("the helper's task"),
        text("all done").on_first("the task"),
    ]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    let ask = asks_of_page(&dashboard, 1).remove(0);
    assert_eq!((&ask["is_cut"], &ask["by"]), (&json!(false), &json!("explore")));
    assert!(ask["call_text"].as_str().unwrap().contains("; the middle; "));
    let answer = json!({"ask": ask["id"], "digest": ask["digest"]});
    let approved = dashboard.post(&format!("{path}/approve"), &answer);
    assert_eq!(approved.status, 200, "{}", approved.body);
    fleet.run(["agents", "wait", &id]).ok();
    assert!(fleet.worktree(&id).join("a").exists());
}

#[test]
fn a_session_of_the_foreground_has_its_first_prompt_for_a_name_on_the_spend_page() {
    let fleet = Fleet::new(script![text("an answer").costs(1_000, 10)]);
    fleet.run(["-p", "explain the parser\nplease"]).ok();
    let dashboard = Dashboard::start(&fleet);
    let spend = dashboard.get("/api/v1/spend").json();
    let first = &spend["by_agent"][0];
    assert_eq!(
        (&first["name"], &first["kind"]),
        (&json!("explain the parser"), &json!("sessions")),
        "{spend:#}"
    );
}

#[test]
fn the_spend_page_has_the_budget_of_the_settings() {
    let fleet = Fleet::new(script![]);
    fleet.settings("[budget]\nper_day = { usd = 20 }\n");
    let dashboard = Dashboard::start(&fleet);
    wait_until("the budget is there", || {
        dashboard.get("/api/v1/spend").json()["budget"] == json!({"limit_micro_usd": 20_000_000})
    });
}

#[test]
fn r20_the_top_bar_has_what_the_ledger_has_and_asks_have_their_end_and_path() {
    let fleet = Fleet::new(script![
        text("one is done").costs(4_000, 100).on_first("task one"),
        testkit::tool("AgentTool", json!({"prompt": "the helper's task", "label": "explore"}))
            .on_first("task two"),
        bash("make release").on_first("the helper's task"),
    ]);
    fleet.settings("[budget]\nper_day = { tokens = 90000 }\n[approvals]\ntimeout_seconds = 7200\n");
    let dashboard = Dashboard::start(&fleet);
    let today = || {
        let today = dashboard.get("/api/v1/fleet").json()["today"].clone();
        json!([today["tokens"], today["budget_tokens"], today["budget_micro_usd"]])
    };
    wait_until("the settings' budget is known", || today() == json!([0, 90_000, null]));
    let one = fleet.bg("task one", []);
    fleet.run(["agents", "wait", &one]).ok();
    wait_until("what was spent is known", || today() == json!([4_100, 90_000, null]));
    // A removed agent has spent it all the same.
    fleet.run(["rm", &one]).ok();
    fleet.run(["budget", "set", "day", "--tokens", "80000"]).ok();
    wait_until("what a person has set is known", || today() == json!([4_100, 80_000, null]));
    fleet.run(["budget", "set", "day", "--unset"]).ok();
    wait_until("the settings hold again", || today() == json!([4_100, 90_000, null]));
    let two = fleet.bg("task two", ["--label", "auth"]);
    fleet.wait_for_ask(&two);
    let asks = || dashboard.get("/api/v1/asks").json()["asks"].clone();
    wait_until("it is asked", || !asks().as_array().unwrap().is_empty());
    let ask = asks()[0].clone();
    assert_eq!(json!([ask["name"], ask["by"], ask["above"]]), json!(["auth", "explore", []]));
    assert!(ask["expires_at"].is_string(), "{ask}");
    fleet.run(["kill", &two]).ok();
}

#[test]
fn r24_the_evening_is_drawn_from_states_that_daemons_recorded_and_survives_them() {
    let fleet = Fleet::new(script![
        bash("touch asked-for").status(429).retry_after("2").on_first("the task"),
        text("thank you").on_first("the task"),
    ]);
    let dashboard = Dashboard::start(&fleet);
    let id = fleet.bg("the task", ["--label", "auth"]);
    fleet.wait_for_ask(&id);
    fleet.run(["approve", &id]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let of = || -> Vec<Value> {
        let all = dashboard.get("/api/v1/timeline").json()["agents"].clone();
        let agent = all.as_array().unwrap().iter().find(|agent| agent["id"] == id.as_str()).cloned();
        let spans = agent.map(|agent| agent["spans"].as_array().unwrap().clone()).unwrap_or_default();
        spans.into_iter().map(|span| span["status"].clone()).collect()
    };
    wait_until("the end is recorded", || {
        let told = dashboard.get("/api/v1/timeline").json();
        told["agents"][0]["ended"] == "done"
    });
    let states = of();
    // A wait for the limit is not in the transcript, and is in the table.
    for state in ["queued", "limited", "asks", "running"] {
        assert!(states.iter().any(|found| found == state), "{state} is not among {states:?}");
    }
    // The next daemon has the same past.
    fleet.run(["daemon", "restart"]).ok();
    wait_until("the next daemon tells it", || of() == states);
}

#[test]
fn the_evening_tells_who_wrote_to_whom_and_who_waited_for_whom() {
    let fleet = Fleet::new(script![
        text("I wait").on_first("first task"),
        text("heard").on_first("first task"),
        text("I wait too").on_first("second task"),
        text("heard too").on_first("second task"),
        text("at last").on_first("third task"),
        text("done").on_first("before it"),
    ]);
    let env = &fleet.place.env;
    let made: Value = env
        .start("cafleet", ["--json", "session", "create", "--no-tmux", "--label", "ship"])
        .output()
        .ok()
        .json();
    let session = made["session_id"].as_str().unwrap().to_owned();
    let member = |task, label| fleet.bg(task, ["--label", label, "--interactive", "--session", &session]);
    let (one, two) = (member("first task", "one"), member("second task", "two"));
    for id in [&one, &two] {
        fleet.wait_for(id, "idle");
    }
    let before = fleet.bg("before it", []);
    let after = fleet.bg("third task", ["--after", &before]);
    fleet.run(["agents", "wait", &before, &after]).ok();
    let dashboard = Dashboard::start(&fleet);
    let room = dashboard.get(&format!("/api/v1/broker/sessions/{session}")).json();
    let mailbox = |name: &str| {
        let found = room["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap();
        found["agent_id"].as_str().unwrap().to_owned()
    };
    let (from, to) = (mailbox("one"), mailbox("two"));
    let words = ["message", "send", "--agent-id", &from, "--to", &to, "--text", "are you there?"];
    env.start("cafleet", ["--session-id", &session]).args(words).output().ok();
    let key = |id: &str| dashboard.get(&dashboard.agent(id)).json()["key"].as_str().unwrap().to_owned();
    let evening = dashboard.get("/api/v1/timeline").json();
    let messages = evening["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1, "{evening:#}");
    assert_eq!((&messages[0]["from"], &messages[0]["to"]), (&json!(key(&one)), &json!(key(&two))));
    // Whom it waited for is told when that one has ended, too.
    let agents = evening["agents"].as_array().unwrap();
    let waited = agents.iter().find(|agent| agent["id"] == after.as_str()).unwrap();
    assert_eq!((&waited["after"], &waited["ended"]), (&json!([before]), &json!("done")), "{waited:#}");
}
