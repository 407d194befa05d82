//! What is long: transcripts, diffs, and times without a server or without a reader.

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{Browser, BrowserTab, StepExt, script, script::Script, text, wait_until};

use crate::dashboard::{Dashboard, Stream, asks_of_page};
use crate::fleet::{Fleet, bash, write};

/// The transcript of an agent that has ended, to which records can be added as if it had worked on.
struct Book {
    path: PathBuf,
    reply: Value,
    next: u64,
}

impl Book {
    /// The agent must have said one reply.
    fn of(fleet: &Fleet, id: &str) -> Self {
        let path = PathBuf::from(fleet.row(id)["dir"].as_str().unwrap()).join("transcript.jsonl");
        let records: Vec<Value> =
            fleet.place.env.read(&path).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let reply = records.iter().find(|record| record["event"] == "reply").unwrap().clone();
        let next = records.last().unwrap()["seq"].as_u64().unwrap() + 1;
        Self { path, reply, next }
    }

    /// Adds replies up to this record.
    fn write_to(&mut self, last: u64, words: impl Fn(u64) -> String) {
        let mut all = String::new();
        while self.next <= last {
            let mut record = self.reply.clone();
            record["seq"] = json!(self.next);
            let blocks = record["message"]["blocks"].as_array_mut().unwrap();
            blocks.iter_mut().find(|block| block["type"] == "text").unwrap()["text"] =
                json!(words(self.next));
            all += &format!("{record}\n");
            self.next += 1;
        }
        let mut file = std::fs::OpenOptions::new().append(true).open(&self.path).unwrap();
        file.write_all(all.as_bytes()).unwrap();
    }
}

fn signed_in<'a>(browser: &'a Browser, dashboard: &Dashboard) -> BrowserTab<'a> {
    let page = browser.page();
    page.size(1600, 900);
    page.goto(&dashboard.link);
    page.see("[role=status]", "live");
    page
}

/// The text of the first element of this kind that is within the list's window.
fn first_seen(list: &str, of: &str) -> String {
    format!(
        "(() => {{ const list = document.querySelector('{list}'); const at = list.getBoundingClientRect(); \
         return [...list.querySelectorAll('{of}')].find((it) => it.getBoundingClientRect().bottom > at.top + 1)?.textContent; }})()"
    )
}

#[test]
fn a_phrase_at_event_31007_is_found_and_the_transcript_opens_there() {
    let fleet = Fleet::new(script![text("the beginning").on_first("the task")]);
    let id = fleet.bg("the task", ["--label", "writer"]);
    fleet.run(["agents", "wait", &id]).ok();
    let mut book = Book::of(&fleet, &id);
    book.write_to(50_000, |seq| match seq {
        31_007 => "here is the needle that one looks for".to_owned(),
        seq => format!("reply number {seq}, hay and nothing but hay"),
    });
    let dashboard = Dashboard::start(&fleet);
    dashboard.agent(&id);
    let browser = Browser::start(&fleet.place.env);
    let page = signed_in(&browser, &dashboard);
    page.goto(&format!("http://{}/search", dashboard.host));
    page.wait("document.querySelector('.search-box input')");
    page.click(".search-box input");
    page.type_text("needle that one looks");
    // The index is made while one waits; the page asks again by itself.
    page.see(".hits li", "needle");
    page.click(".hits li a");
    page.see(".transcript .it", "here is the needle");
    let place = "(() => { const list = document.querySelector('.transcript').getBoundingClientRect(); \
         const it = [...document.querySelectorAll('.transcript .it')].find((it) => it.textContent.includes('the needle')).getBoundingClientRect(); \
         return it.top >= list.top - 1 && it.bottom <= list.bottom + 1; })()";
    page.wait(place);
    // Those around it are there, and only those.
    page.see(".transcript .it", "reply number 31008,");
    assert!(page.eval("document.querySelectorAll('.transcript .it').length").as_i64().unwrap() < 200);
    page.eval("document.querySelector('.transcript').scrollTop -= 300");
    page.see(".transcript .it", "reply number 31006,");
    // What was opened in the middle is not read to its end.
    page.see(".fresh", "to the end");
    page.click(".fresh");
    page.see(".transcript .it", "reply number 50000,");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn a_diff_of_100000_lines_opens_windowed_keys_jump_and_a_change_leaves_it_where_it_is() {
    let fleet = Fleet::new(script![
        write("a.txt", "one\ntwo\n").on_first("the task"),
        text("written").on_first("the task"),
        text("and so on").on_first("the task"),
    ]);
    let id =
        fleet.bg("the task", ["--label", "writer", "--interactive", "--permission-mode", "accept-edits"]);
    fleet.wait_for(&id, "idle");
    let long: String = (0..100_000).map(|line| format!("line {line} of a long file\n")).collect();
    std::fs::write(fleet.worktree(&id).join("long.rs"), long).unwrap();
    std::fs::write(fleet.worktree(&id).join("z.txt"), "last words\n").unwrap();
    let dashboard = Dashboard::start(&fleet);
    dashboard.agent(&id);
    let browser = Browser::start(&fleet.place.env);
    let page = signed_in(&browser, &dashboard);
    page.see(".agent-row", "writer");
    page.click(".agent-row a");
    page.see(".diff", "last words");
    // It is there and folded; its rows are asked for when it is opened.
    let heads = "[...document.querySelectorAll('.dfile .dname')].map((it) => it.textContent)";
    let names = page.eval(heads).to_string();
    assert!(names.contains("long.rs") && names.contains("folded"), "{names}");
    page.eval("[...document.querySelectorAll('.dfile .dname')].find((it) => it.textContent.includes('long.rs')).click()");
    page.see(".dr", "line 20 of a long file");
    let rows = "document.querySelectorAll('.dr').length";
    assert!(page.eval(rows).as_i64().unwrap() < 300);
    // Its middle and its end are as near as its beginning.
    page.eval(
        "(() => { const list = document.querySelector('.diff'); list.scrollTop = list.scrollHeight / 2; })()",
    );
    page.wait(
        "[...document.querySelectorAll('.dr')].some((it) => /line (49|50)[0-9]{3} of/.test(it.textContent))",
    );
    assert!(page.eval(rows).as_i64().unwrap() < 300);
    // Keys go from file to file, also out of a long one.
    let first = first_seen(".list.diff", ".dfile .cut");
    for (key, name) in [("[", "long.rs"), ("]", "z.txt"), ("[", "long.rs"), ("[", "a.txt"), ("[", "a.txt")] {
        page.press(key);
        // The last file ends with the list, and cannot be at its top.
        match name {
            "z.txt" => page.see(".dr", "last words"),
            name => page.wait(&format!("{first} === {}", json!(name))),
        }
    }
    // The agent works on: the page says so, and what one reads stays.
    page.eval(
        "(() => { const list = document.querySelector('.diff'); list.scrollTop = list.scrollHeight / 3; })()",
    );
    page.wait(
        "[...document.querySelectorAll('.dr')].some((it) => /line 33[0-9]{3} of/.test(it.textContent))",
    );
    let row = first_seen(".list.diff", ".dr");
    page.wait(&format!("/line 33[0-9]{{3}} of/.test({row})"));
    let before = page.eval(&row);
    // As many lines as before, and others.
    std::fs::write(fleet.worktree(&id).join("z.txt"), "other words\n").unwrap();
    fleet.run(["agents", "send", &id, "go on"]).ok();
    page.see(".diff-bar", "changed · reload");
    assert_eq!(page.eval(&row), before);
    page.eval("[...document.querySelectorAll('.diff-bar button')].find((it) => it.textContent.includes('reload')).click()");
    page.wait("!document.querySelector('.diff-bar').textContent.includes('reload')");
    page.wait(&format!("{row} === {before}"));
    page.press("]");
    page.see(".dr", "other words");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn tabs_that_read_nothing_do_not_let_the_server_grow_and_others_stay_live() {
    let fleet = Fleet::new(script![text("the beginning").on_first("the task")]);
    let id = fleet.bg("the task", ["--label", "writer"]);
    fleet.run(["agents", "wait", &id]).ok();
    let dashboard = Dashboard::start(&fleet);
    let key = dashboard.get(&dashboard.agent(&id)).json()["key"].as_str().unwrap().to_owned();
    let query = format!("?watch={key}");
    let mut reader = Stream::open(&dashboard, &query, None);
    reader.next(&["watched"]);
    let stalled: Vec<Stream> = (0..10).map(|_| Stream::open(&dashboard, &query, None)).collect();
    let pid = dashboard.server.as_ref().unwrap().pid();
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    let mut book = Book::of(&fleet, &id);
    let mut tell = |records: u64| {
        for _ in 0..records / 25 {
            let seq = book.next + 24;
            book.write_to(seq, |seq| format!("reply number {seq}: {}", "words and words ".repeat(4000)));
            let is_it = |said: &Value| said["item"]["seq"] == seq;
            while !is_it(&reader.next(&["record"]).2) {}
        }
    };
    // What the system keeps for each connection is full, and the server has what it needs.
    tell(150);
    let before = memory();
    tell(350);
    let grown = memory().saturating_sub(before);
    // 350 records of 64 KB for ten tabs would be 220 MB.
    assert!(grown < 60, "the server has grown by {grown} MB");
    drop(stalled);
}

#[test]
fn a_page_goes_on_after_a_long_time_without_a_server_and_nothing_is_there_twice() {
    let fleet = Fleet::new(script![
        bash("while [ ! -e ready ]; do sleep 0.02; done; echo it is over").on_first("the task"),
        text("first reply").on_first("the task"),
        text("second reply").on_first("the task"),
        text("other").on_first("another task"),
    ]);
    let id = fleet.bg("the task", ["--label", "worker", "--interactive", "--permission-mode", "unattended"]);
    let mut dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    let browser = Browser::start(&fleet.place.env);
    let page = signed_in(&browser, &dashboard);
    page.see(".agent-row", "worker");
    page.click(".agent-row a");
    page.see(".transcript", "while [ ! -e ready ]");
    page.click(".composer textarea");
    page.type_text("a draft that stays");
    page.eval("window.loaded = 'once'");
    let port = dashboard.host.rsplit(':').next().unwrap().to_owned();
    dashboard.server.take().unwrap().kill();
    page.see(".bar", "offline since");
    // The page has tried so often that its pauses are as long as they get: after ten minutes it is the same.
    page.eval("import('/base/store.js').then((store) => { window.tries = 0; window.pauses = []; store.link.subscribe((link) => { \
         if (link.state === 'offline') { window.tries += 1; window.pauses.push(link.retryAt - Date.now()); } }); })");
    page.wait("window.tries >= 6");
    let longest = page.eval("Math.max(...window.pauses)");
    assert!(longest.as_f64().unwrap() <= 3000.0, "{longest}");
    // Meanwhile everything goes on.
    std::fs::write(fleet.worktree(&id).join("ready"), "").unwrap();
    fleet.wait_for(&id, "idle");
    fleet.run(["agents", "send", &id, "say more"]).ok();
    wait_until("it has answered", || {
        let said =
            fleet.place.env.read(fleet.row(&id)["dir"].as_str().unwrap().to_owned() + "/transcript.jsonl");
        said.contains("second reply")
    });
    fleet.wait_for(&id, "idle");
    let other = fleet.bg("another task", ["--label", "other"]);
    fleet.run(["agents", "wait", &other]).ok();
    let again = Dashboard::start_at(&fleet, &port);
    page.see("[role=status]", "live");
    page.see(".transcript", "second reply");
    page.see(".transcript .it-call", "it is over");
    page.wait("!document.querySelector('.transcript .it-call.run, .transcript .it-call .run')");
    let total = again.get(&format!("{path}/transcript")).json()["total"].as_u64().unwrap();
    assert_eq!(page.eval("document.querySelectorAll('.transcript .it').length"), total);
    let said = |words: &str| {
        page.eval(&format!(
            "document.querySelector('.transcript').textContent.split({}).length - 1",
            json!(words)
        ))
    };
    assert_eq!((said("first reply"), said("second reply"), said("say more")), (json!(1), json!(1), json!(1)));
    assert_eq!(page.eval("document.querySelector('.composer textarea').value"), "a draft that stays");
    assert_eq!(page.eval("window.loaded"), "once");
    page.press("Escape");
    page.press("g");
    page.press("f");
    page.see(".agent-row", "other");
    assert_eq!(page.eval("document.querySelectorAll('.agent-row').length"), 2);
}

#[test]
fn no_row_goes_or_comes_twice_while_the_server_restarts_and_ten_agents_work() {
    const AGENTS: usize = 10;
    let labels: Vec<String> = (0..AGENTS).map(|n| format!("agent-{n}")).collect();
    let each = |label: &String| {
        let wait = bash("while [ ! -e go ]; do sleep 0.05; done").on_first(label);
        [wait, text("it is done").on_first(label)]
    };
    let fleet = Fleet::new(Script { steps: labels.iter().flat_map(each).collect() });
    fleet.settings(&format!("[fleet]\nmax_running = {AGENTS}\n"));
    let start = |label: &String| fleet.bg(label, ["--label", label, "--permission-mode", "unattended"]);
    let ids: Vec<String> = labels.iter().map(start).collect();
    let mut dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = signed_in(&browser, &dashboard);
    let in_group = |group: &str, count: usize| {
        page.wait(&format!("document.querySelectorAll('#{group} .agent-row').length === {count}"));
    };
    in_group("working", AGENTS);
    wait_until("all of them work", || {
        ids.iter().all(|id| fleet.row(id)["doing"].as_str().is_some_and(|doing| doing.starts_with("Bash")))
    });
    // After each change of the page: which rows there are.
    page.eval(
        "window.lists = new Set(); new MutationObserver(() => window.lists.add([...document.querySelectorAll('.agent-row .hit')]\
         .map((it) => it.textContent).sort().join(' '))).observe(document.getElementById('app'), { subtree: true, childList: true }); true",
    );
    let go = |ids: &[String]| {
        for id in ids {
            std::fs::write(fleet.worktree(id).join("go"), "").unwrap();
        }
    };
    let port = dashboard.host.rsplit(':').next().unwrap().to_owned();
    dashboard.server.take().unwrap().kill();
    page.see(".bar", "offline since");
    go(&ids[..5]);
    for id in &ids[..5] {
        fleet.run(["agents", "wait", id]).ok();
    }
    let _again = Dashboard::start_at(&fleet, &port);
    page.see("[role=status]", "live");
    in_group("finished", 5);
    in_group("working", 5);
    go(&ids[5..]);
    in_group("finished", AGENTS);
    assert_eq!(page.eval("[...window.lists]"), json!([labels.join(" ")]));
}

#[test]
fn a_server_that_starts_tells_everything_at_once_and_a_daemon_that_restarts_tells_nothing_twice() {
    let fleet = Fleet::new(script![
        text("one").on_first("first task"),
        text("two").on_first("second task"),
        text("three").on_first("third task")
    ]);
    let ids: Vec<String> = ["first task", "second task"].iter().map(|task| fleet.bg(task, [])).collect();
    for id in &ids {
        fleet.run(["agents", "wait", id]).ok();
        wait_until("its work is looked at", || !fleet.row(id)["review"].is_null());
    }
    let mut dashboard = Dashboard::start(&fleet);
    let first = Stream::open(&dashboard, "", None).next(&["snapshot"]);
    assert_eq!(first.2["agents"].as_array().unwrap().len(), 2, "{:#}", first.2);
    // The next server does not know the id, says so, and its snapshot has everybody: nothing seems to be gone for a moment.
    let port = dashboard.host.rsplit(':').next().unwrap().to_owned();
    dashboard.server.take().unwrap().kill();
    let dashboard = Dashboard::start_at(&fleet, &port);
    let mut stream = Stream::open(&dashboard, "", Some(&first.1));
    let all = ["snapshot", "reset", "agent", "removed"];
    assert_eq!(stream.next(&all).0, "reset");
    let (name, id, snapshot) = stream.next(&all);
    assert_eq!((name.as_str(), snapshot["agents"].as_array().unwrap().len()), ("snapshot", 2));
    assert_ne!(id, first.1);
    // A daemon that goes and comes back changes no agent: the next that is heard of is a new one.
    fleet.run(["daemon", "restart"]).ok();
    wait_until("the next daemon tells", || {
        dashboard.get("/api/v1/fleet").json()["repos"][0]["daemon"] == true
    });
    let third = fleet.bg("third task", []);
    let (name, _, mut agent) = stream.next(&all);
    assert_eq!((name.as_str(), &agent["id"]), ("agent", &json!(third)), "{agent:#}");
    // The server may hear of the new daemon only when the agent is done: then there is one event.
    while agent["status"] != "done" {
        agent = stream.next(&all).2;
    }
    // Behind the id of the snapshot the same stream goes on, without a reset.
    let mut again = Stream::open(&dashboard, "", Some(&id));
    let (name, _, agent) = again.next(&all);
    assert_eq!((name.as_str(), &agent["id"]), ("agent", &json!(third)), "{agent:#}");
}

#[test]
fn a16_a_call_that_no_page_shows_whole_is_not_allowed_over_http() {
    let fleet = Fleet::new(script![
        write("/elsewhere/long.txt", &"x".repeat(300_000)).on_first("the task"),
        text("done").on_first("the task"),
    ]);
    let dashboard = Dashboard::start(&fleet);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let path = dashboard.agent(&id);
    let ask = asks_of_page(&dashboard, 1).remove(0);
    assert_eq!(ask["is_cut"], true);
    let answer = json!({"ask": ask["id"], "digest": ask["digest"]});
    assert_eq!(dashboard.post(&format!("{path}/approve"), &answer).code(), (409, "not_shown".to_owned()));
    assert_eq!(fleet.row(&id)["asks"][0]["id"], ask["id"], "it is still open");
    assert_eq!(dashboard.post(&format!("{path}/deny"), &answer).status, 200);
    fleet.run(["agents", "wait", &id]).ok();
    let last = fleet.place.server.model_requests().pop().unwrap().body.to_string();
    assert!(last.contains("the user rejected this call"), "{last}");
}
