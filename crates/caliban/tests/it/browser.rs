//! The dashboard in a real browser: every page at three widths, light and dark, by mouse and by keys.
//!
//! One browser for all of a test's pages. What a page says on the console, a refused request or a thrown error fails the test.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Browser, BrowserTab, StepExt, script, text, tool, wait_until};

use crate::dashboard::Dashboard;
use crate::fleet::{Fleet, bash, write};

/// Every page by its path; `{agent}` stands for an agent.
const PAGES: [(&str, &str); 9] = [
    ("/", ".group"),
    ("/agent/{agent}", ".transcript .it"),
    ("/asks", ".ask"),
    ("/new", ".new-form"),
    ("/broker", "h1"),
    ("/spend", "h1"),
    ("/evening", "h1"),
    ("/search", ".search-box"),
    ("/settings", ".settings"),
];

/// The rules of axe-core whose findings are serious enough to fail.
const AXE: &str = "axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations\
    .filter((it) => it.impact === 'serious' || it.impact === 'critical')\
    .map((it) => it.id + ': ' + it.nodes.map((node) => node.target.join(' ')).join(', ')))";

/// Opens the link and waits for the first agents.
fn sign_in(page: &BrowserTab<'_>, dashboard: &Dashboard) {
    page.goto(&dashboard.link);
    page.see("[role=status]", "live");
    assert_eq!(page.eval("location.hash"), "", "the token is out of the address");
}

fn open(page: &BrowserTab<'_>, dashboard: &Dashboard, path: &str) {
    page.goto(&format!("http://{}{path}", dashboard.host));
}

/// An agent that asks, one that has changed a file, one that is done.
fn busy() -> Fleet {
    let long: Vec<String> = (0..400).map(|line| format!("echo line {line} of a long call")).collect();
    Fleet::new(script![
        write("greeting.txt", "a longer greeting\nwith <b>two</b> lines\n").on_first("write the greeting"),
        text("The greeting is *written*.\n\n```rust\nfn main() {}\n```\n").on_first("write the greeting"),
        bash("touch asked-for").on_first("ask me"),
        text("thank you").on_first("ask me"),
        bash(&format!("{}\ntouch the-end", long.join("\n"))).on_first("ask much"),
        text("so be it").on_first("ask much"),
        tool("Bash", json!({"command": "true"})).on_first("never"),
    ])
}

#[test]
fn a13_every_page_at_every_width_light_and_dark_without_a_complaint() {
    let fleet = busy();
    let writer = fleet.bg("write the greeting", ["--label", "writer", "--permission-mode", "accept-edits"]);
    fleet.run(["agents", "wait", &writer]).ok();
    let asker = fleet.bg("ask me", ["--label", "asker"]);
    fleet.wait_for_ask(&asker);
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    sign_in(&page, &dashboard);
    page.see(".agent-row", "writer");
    let key = page.eval("document.querySelector('[id^=row-]').id.slice(4)").as_str().unwrap().to_owned();
    let repo = key.split('/').next().unwrap();
    assert_eq!(page.eval("document.title"), "(1) caliban");
    let axe = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../caliban-web/tests/vendor/axe.min.js"),
    )
    .unwrap();
    let mut wrong: Vec<String> = Vec::new();
    for (width, height, scheme) in [(380, 760, "light"), (900, 900, "dark"), (1600, 900, "light")] {
        page.size(width, height);
        page.scheme(scheme);
        for (path, there) in PAGES {
            let path = path.replace("{agent}", &format!("{repo}/{writer}"));
            open(&page, &dashboard, &path);
            page.wait(&format!("document.querySelector({})", json!(there)));
            page.see("[role=status]", "");
            page.wait("!document.querySelector('.skeleton')");
            let over = page.eval("document.documentElement.scrollWidth - innerWidth");
            if over.as_i64().is_none_or(|over| over > 0) {
                wrong.push(format!("{path} at {width}: {over} px too wide"));
            }
            // Scripts of the debugger are not the page's: the policy does not hold them up.
            page.eval(&axe);
            let found = page.eval(AXE);
            for violation in found.as_array().unwrap() {
                wrong.push(format!("{path} at {width}, {scheme}: {violation}"));
            }
            wrong.extend(page.complaints().into_iter().map(|said| format!("{path} at {width}: {said}")));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    // What the agent wrote is text and nothing else.
    open(&page, &dashboard, &format!("/agent/{repo}/{writer}"));
    page.see(".diff", "with <b>two</b> lines");
    assert_eq!(page.eval("document.querySelectorAll('.diff b').length"), 0);
}

/// Notes what one could click and would miss: what has moved away from under its middle.
const MOVED: &str = "(() => { const places = new Map(); window.moved = new Set(); \
    const look = () => { for (const it of document.querySelectorAll('button, a[href], input, select, textarea, summary')) { \
      if (it.closest('.sr, .list-in')?.matches('.sr')) continue; \
      const now = it.getBoundingClientRect(); const was = places.get(it); \
      if (now.width === 0 || now.bottom < 0 || now.top > innerHeight) { places.delete(it); continue; } \
      if (was) { const [x, y] = [was.x + was.width / 2, was.y + was.height / 2]; \
        if (x < now.left || x > now.right || y < now.top || y > now.bottom) window.moved.add(`${it.tagName} ${it.className} ${it.textContent.slice(0, 40)}`); } \
      places.set(it, now); } requestAnimationFrame(look); }; look(); })()";

#[test]
fn nothing_moves_from_under_the_pointer_while_a_page_loads() {
    let fleet = busy();
    let writer = fleet.bg("write the greeting", ["--label", "writer", "--permission-mode", "accept-edits"]);
    fleet.run(["agents", "wait", &writer]).ok();
    for name in ["a.txt", "z.txt"] {
        std::fs::write(fleet.worktree(&writer).join(name), "one\ntwo\nthree\nfour\n").unwrap();
    }
    let asker = fleet.bg("ask me", ["--label", "asker"]);
    fleet.wait_for_ask(&asker);
    let dashboard = Dashboard::start(&fleet);
    let agent = dashboard.agent(&writer).replace("/api/v1/repos/", "/agent/").replace("/agents/", "/");
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    sign_in(&page, &dashboard);
    page.before_scripts(MOVED);
    // One answer after the other, as on a phone.
    page.slow(Duration::from_millis(100));
    let mut wrong: Vec<String> = Vec::new();
    for (width, height) in [(380, 760), (1600, 900)] {
        page.size(width, height);
        for (path, there) in PAGES {
            let path = path.replace("/agent/{agent}", &agent);
            open(&page, &dashboard, &path);
            page.wait(&format!("document.querySelector({})", json!(there)));
            page.see("[role=status]", if width == 380 { "" } else { "live" });
            match there {
                ".transcript .it" if width == 1600 => page.wait("document.querySelectorAll('.dfile').length === 3 && document.querySelectorAll('.dr.plus').length >= 10"),
                ".settings" => page.see(".settings", "this one"),
                _ => page.wait("!document.querySelector('.skeleton')"),
            }
            let moved = page.eval("[...window.moved]");
            wrong.extend(moved.as_array().unwrap().iter().map(|it| format!("{path} at {width}: {it}")));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_call_is_answered_by_a_click_only_when_its_end_was_seen() {
    let fleet = busy();
    let asker = fleet.bg("ask much", ["--label", "asker"]);
    fleet.wait_for_ask(&asker);
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(380, 760);
    sign_in(&page, &dashboard);
    open(&page, &dashboard, "/asks");
    page.see(".ask-call", "echo line 0 of a long call");
    let allow = "document.querySelector('.ask-foot .primary')";
    // The buttons are seen and dead; the end can be reached, and then the call can be allowed.
    page.see(".ask-why", "scroll to the end");
    assert_eq!(page.eval(&format!("{allow}.disabled")), true);
    let place = page.eval(&format!(
        "(() => {{ const at = {allow}.getBoundingClientRect(); const other = document.querySelector('.ask-foot .danger').getBoundingClientRect(); \
         return {{ seen: at.bottom <= innerHeight && at.top >= 0, tall: at.height >= 44, apart: at.left - other.right >= 32 }}; }})()"
    ));
    assert_eq!(place, json!({"seen": true, "tall": true, "apart": true}));
    page.eval("document.querySelector('.ask-call').scrollTop = 1e9");
    page.wait(&format!("!{allow}.disabled"));
    // Keys answer only with the call focused: typing elsewhere does nothing.
    page.press("Shift+Y");
    assert_eq!(page.eval("document.querySelectorAll('.ask').length"), 1);
    page.click(".ask-foot .primary");
    page.see(".state", "Nobody asks for anything");
    fleet.run(["agents", "wait", &asker]).ok();
    assert!(fleet.worktree(&asker).join("the-end").exists());
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn a_button_that_would_not_answer_looks_like_it() {
    let fleet = busy();
    let asker = fleet.bg("ask me", ["--label", "asker"]);
    fleet.wait_for_ask(&asker);
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(1600, 900);
    sign_in(&page, &dashboard);
    page.see(".agent-row", "asker");
    page.click(".agent-row a");
    let allow = "document.querySelector('.ask-foot .primary')";
    page.wait(&format!("{allow} && !{allow}.disabled"));
    // While one types nothing is answered, and the button says so; a second later it is alive again.
    let typed = format!(
        "(async () => {{ const field = document.querySelector('.composer textarea'); field.value = 'wait'; \
         field.dispatchEvent(new Event('input', {{ bubbles: true }})); \
         await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))); \
         return [{allow}.disabled, getComputedStyle({allow}).cursor, document.querySelector('.ask-why').textContent]; }})()"
    );
    assert_eq!(page.eval(&typed), json!([true, "not-allowed", "you are typing"]));
    page.click(".ask-foot .primary");
    fleet.run(["agents", "wait", &asker]).ok();
    assert!(fleet.worktree(&asker).join("asked-for").exists());
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn with_keys_alone_an_agent_is_found_asked_and_left() {
    let fleet = busy();
    let asker = fleet.bg("ask me", ["--label", "asker"]);
    fleet.wait_for_ask(&asker);
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(1600, 900);
    sign_in(&page, &dashboard);
    page.see(".agent-row", "asker");
    page.press("j");
    page.wait("document.activeElement.textContent === 'asker'");
    page.press("Enter");
    page.see(".agent-head", "asker");
    page.press("Escape");
    page.wait("location.pathname === '/'");
    page.press("Ctrl+k");
    page.wait("document.querySelector('.palette input') === document.activeElement");
    page.type_text("approv");
    page.press("Enter");
    page.see(".ask-call", "touch asked-for");
    page.press("?");
    page.see("[role=dialog]", "go to anything");
    page.press("Escape");
    page.wait("!document.querySelector('[role=dialog]')");
    // The call is focused, its end seen, a second has passed.
    page.press("Enter");
    page.wait("document.activeElement.classList.contains('ask-call')");
    page.wait("!document.querySelector('.ask-foot .primary').disabled");
    page.press("Shift+Y");
    page.see(".state", "Nobody asks for anything");
    fleet.run(["agents", "wait", &asker]).ok();
    assert!(fleet.worktree(&asker).join("asked-for").exists());
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn tabs_share_one_stream_and_live_on_when_the_server_comes_back() {
    let fleet = busy();
    let mut dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    sign_in(&page, &dashboard);
    let tabs: Vec<BrowserTab<'_>> = (0..12).map(|_| page.sibling()).collect();
    // A tab that nobody sees draws nothing.
    for tab in &tabs {
        open(tab, &dashboard, "/");
        tab.front();
        tab.see("[role=status]", "live");
    }
    let writer = fleet.bg("write the greeting", ["--label", "writer", "--permission-mode", "accept-edits"]);
    for tab in &tabs {
        tab.front();
        tab.see(".agent-row", "writer");
    }
    fleet.run(["agents", "wait", &writer]).ok();
    // The server goes: the page says so, keeps what was typed, and goes on by itself.
    page.front();
    open(&page, &dashboard, "/new");
    page.wait("document.querySelector('.new-form textarea')");
    page.click(".new-form textarea");
    page.type_text("a task that is not lost");
    let port = dashboard.host.rsplit(':').next().unwrap().to_owned();
    drop(dashboard.server.take());
    page.see(".bar", "offline since");
    let again = Dashboard::start_at(&fleet, &port);
    page.see("[role=status]", "live");
    assert_eq!(page.eval("document.querySelector('.new-form textarea').value"), "a task that is not lost");
    assert_eq!(again.host, dashboard.host);
}

#[test]
fn a_message_of_the_broker_page_is_stored() {
    let fleet = busy();
    let env = &fleet.place.env;
    let made =
        env.start("cafleet", ["--json", "session", "create", "--no-tmux", "--label", "ship"]).output().ok();
    let made: Value = made.json();
    let session = made["session_id"].as_str().unwrap().to_owned();
    let registered = env
        .start(
            "cafleet",
            ["--session-id", &session, "agent", "register", "--name", "tests", "--description", "Tests"],
        )
        .output()
        .ok();
    let id = registered.stdout.lines().find_map(|line| line.strip_prefix("agent_id: ")).unwrap().to_owned();
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(env);
    let page = browser.page();
    page.size(1600, 900);
    sign_in(&page, &dashboard);
    open(&page, &dashboard, "/broker");
    page.see(".members", "tests");
    page.click("#say");
    page.type_text("@tests <i>please</i> run them");
    page.press("Enter");
    page.see(".entry", "<i>please</i> run them");
    let poll = || {
        env.start(
            "cafleet",
            ["--session-id", &session, "--json", "message", "poll", "--agent-id", &id, "--full"],
        )
        .output()
        .ok()
        .stdout
    };
    wait_until("the message is in the mailbox", || poll().contains("<i>please</i> run them"));
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn what_one_reads_stays_while_the_agent_goes_on_and_a_review_is_one_message() {
    let long: String = (0..120).map(|line| format!("paragraph {line}\n\n")).collect();
    let fleet = Fleet::new(script![
        write("greeting.txt", "one\ntwo\nthree\n").on_first("the task"),
        text(long.clone()).on_first("the task"),
        text(format!("and more\n\n{long}")).on_first("the task"),
        text("reviewed").on_first("the task"),
    ]);
    let id =
        fleet.bg("the task", ["--label", "talker", "--interactive", "--permission-mode", "accept-edits"]);
    fleet.wait_for(&id, "idle");
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(1600, 900);
    sign_in(&page, &dashboard);
    page.see(".agent-row", "talker");
    page.click(".agent-row a");
    // It opens at the end; then one reads further up.
    page.see(".transcript", "paragraph 119");
    page.eval("document.querySelector('.transcript').scrollTop = 900");
    page.see(".fresh", "to the end");
    let top = "(() => { const list = document.querySelector('.transcript'); const at = list.getBoundingClientRect(); \
        const first = [...list.querySelectorAll('.md-p')].find((it) => it.getBoundingClientRect().bottom > at.top); \
        return first.textContent + ' ' + Math.round(first.getBoundingClientRect().top - at.top); })()";
    let before = page.eval(top);
    fleet.run(["agents", "send", &id, "go on"]).ok();
    page.see(".fresh", "new");
    fleet.wait_for(&id, "idle");
    assert_eq!(page.eval(top), before);
    page.click(".fresh");
    page.see(".transcript", "and more");
    // A comment survives a reload and goes out with its line quoted, once.
    page.see(".dr.plus", "two");
    page.click(".dr.plus:not(:first-child) .dc, .dr.plus .dc");
    page.see(".dcomment", "one message");
    page.type_text("say hello instead");
    page.click(".dcomment .primary");
    page.see(".diff-bar", "Send review (1)");
    page.goto(page.eval("location.href").as_str().unwrap());
    page.see(".dcomment", "say hello instead");
    page.click(".diff-bar .primary");
    page.see(".it-prompt", "greeting.txt:1");
    page.see(".it-prompt", "say hello instead");
    fleet.wait_for(&id, "idle");
    let reviews = fleet
        .place
        .server
        .model_requests()
        .iter()
        .filter(|it| it.body.to_string().contains("Review of your changes, 1 comment"))
        .count();
    assert_eq!(reviews, 1);
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn keys_go_from_hunk_to_hunk_and_from_file_to_file() {
    let fleet = Fleet::new(script![text("done").on_first("the task")]);
    // The last line has no end: git adds a remark to its hunk.
    let lines = |changed: &[usize]| {
        let line = |n| format!("line {n}{}", if changed.contains(&n) { " is new" } else { "" });
        (0..120).map(line).collect::<Vec<_>>().join("\n")
    };
    std::fs::write(fleet.place.repo.join("a.txt"), lines(&[])).unwrap();
    std::fs::write(fleet.place.repo.join("b.txt"), lines(&[])).unwrap();
    fleet.place.env.git(&fleet.place.repo, &["add", "."]);
    fleet.place.env.git(&fleet.place.repo, &["commit", "--quiet", "-m", "two files"]);
    let id = fleet.bg("the task", ["--label", "writer", "--interactive"]);
    fleet.wait_for(&id, "idle");
    std::fs::write(fleet.worktree(&id).join("a.txt"), lines(&[20, 60, 119])).unwrap();
    std::fs::write(fleet.worktree(&id).join("b.txt"), lines(&[50, 119])).unwrap();
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    // Hunks are higher than the window, so that the list has to move.
    page.size(1600, 300);
    sign_in(&page, &dashboard);
    page.see(".agent-row", "writer");
    page.click(".agent-row a");
    page.see(".diff", "line 20 is new");
    // The marked row is on the screen and has these words; the line is the first of the hunk.
    let is_at = |words: &str| {
        let words = json!(words);
        page.wait(&format!(
            "(() => {{ const list = document.querySelector('.list.diff').getBoundingClientRect(); \
             const at = [...document.querySelectorAll('.list.diff [aria-current]')]; \
             const box = at[0]?.getBoundingClientRect(); \
             return at.length === 1 && at[0].textContent.includes({words}) && box.top >= list.top - 1 && box.bottom <= list.bottom + 1; }})()"
        ));
    };
    let way = [
        ("j", "@@ -18,"),
        ("j", "@@ -58,"),
        ("j", "@@ -117,"),
        ("j", "@@ -48,"),
        ("j", "@@ -117,"),
        // There is none behind the last.
        ("j", "@@ -117,"),
        ("k", "@@ -48,"),
        ("k", "@@ -117,"),
        ("k", "@@ -58,"),
        ("[", "a.txt"),
        ("k", "a.txt"),
        ("]", "b.txt"),
        ("j", "@@ -48,"),
    ];
    for (key, there) in way {
        page.press(key);
        is_at(there);
    }
    // Side by side it is the same. What is viewed is passed over.
    page.click(".diff-bar .seg .btn:last-child");
    page.wait("document.querySelector('.dr.two')");
    for (key, there) in [("[", "b.txt"), ("k", "@@ -117,"), ("k", "@@ -58,"), ("j", "@@ -117,")] {
        page.press(key);
        is_at(there);
    }
    page.press("v");
    page.wait("document.querySelector('.dviewed input').checked");
    for (key, there) in [("j", "@@ -48,"), ("k", "@@ -48,"), ("[", "b.txt"), ("[", "a.txt")] {
        page.press(key);
        is_at(there);
    }
    page.press("?");
    page.see("[role=dialog]", "hunk after, before");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn one_that_waits_for_another_says_so_by_its_label() {
    let fleet = busy();
    let asker = fleet.bg("ask me", ["--label", "asker"]);
    let unnamed = fleet.bg("ask much", []);
    let waits = fleet.bg("write the greeting", ["--label", "waits", "--after", &asker, "--after", &unnamed]);
    fleet.wait_for_ask(&unnamed);
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(1600, 900);
    sign_in(&page, &dashboard);
    page.see(".agent-row", &format!("queued, starts after asker, {unnamed}"));
    let path = dashboard.agent(&waits).replace("/api/v1/repos/", "/agent/").replace("/agents/", "/");
    open(&page, &dashboard, &path);
    page.see(".agent-doing", &format!("queued, starts after asker, {unnamed}"));
    page.eval("[...document.querySelectorAll('.agent-side [role=tab]')].find((it) => it.textContent === 'Info').click()");
    // One without a label has its task for a name.
    page.see(".facts dd", "asker, ask much");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn a_tab_that_nobody_sees_tells_of_a_question_and_opens_it() {
    let fleet = busy();
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    sign_in(&page, &dashboard);
    // The browser's own notices cannot be seen from here: what the page would show is kept.
    page.eval(
        "document.hasFocus = () => false; window.told = []; \
         window.Notification = class { static permission = 'granted'; constructor(title, more) { this.title = title; this.more = more; window.told.push(this); } close() {} }; \
         localStorage.setItem('caliban.notify', JSON.stringify({ on: true, ask: true, wait: true, failed: true, done: false })); true",
    );
    page.eval("import('/base/prefs.js').then((prefs) => { prefs.notify.value = { ...prefs.notify.value, on: true }; })");
    let asker = fleet.bg("ask me", ["--label", "asker"]);
    fleet.wait_for_ask(&asker);
    page.wait("window.told.length > 0");
    assert_eq!(
        page.eval("[told.length, told[0].title.split(' ')[0], told[0].more.body]"),
        json!([1, "asker", "asks: Bash touch asked-for"])
    );
    page.eval("window.focus = () => {}; told[0].onclick(); true");
    page.see(".ask-call", "touch asked-for");
    page.wait("document.title.startsWith('(1) ')");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn a_page_that_nobody_sees_draws_nothing_and_its_title_still_tells() {
    let fleet = busy();
    let writer = fleet.bg("write the greeting", ["--label", "writer", "--permission-mode", "accept-edits"]);
    fleet.run(["agents", "wait", &writer]).ok();
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    sign_in(&page, &dashboard);
    page.see(".agent-row", "writer");
    page.hide(true);
    page.eval(
        "window.drawn = 0; new MutationObserver(() => (window.drawn += 1)).observe(document.getElementById('app'), \
         { subtree: true, childList: true, characterData: true, attributes: true }); true",
    );
    let asker = fleet.bg("ask me", ["--label", "asker"]);
    fleet.wait_for_ask(&asker);
    page.wait("document.title === '(1) caliban' && document.getElementById('icon').href.endsWith('?n=1')");
    assert_eq!(page.eval("window.drawn"), 0);
    page.hide(false);
    page.see(".agent-row", "asks: Bash touch asked-for");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn r20_at_a_limit_the_dashboard_shows_the_budget_and_a_click_raises_it() {
    let fleet = Fleet::new(script![
        text("one is done").costs(25_000, 0).on_first("task one"),
        tool("AgentTool", json!({"prompt": "the helper's task", "label": "explore"})).on_first("task two"),
        text("helped").costs(1_000, 0).on_first("the helper's task"),
        text("two is done").costs(1_000, 0).on_first("task two"),
    ]);
    fleet.settings(
        "[budget]\nper_day = { tokens = 26000 }\non_limit = \"ask\"\n[approvals]\ntimeout_seconds = 7200\n",
    );
    let one = fleet.bg("task one", ["--label", "first"]);
    fleet.run(["agents", "wait", &one]).ok();
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(1600, 900);
    sign_in(&page, &dashboard);
    page.see(".top .spend", "25k of 26k tokens today");
    let two = fleet.bg("task two", ["--label", "auth"]);
    fleet.wait_for_ask(&two);
    page.see(".agent-row", "asks: Budget");
    open(&page, &dashboard, "/asks");
    page.see(".ask", "go on with 13000 tokens more, 39000 tokens in all?");
    page.see(".ask", "if nobody answers (in 1h)");
    page.wait("!document.querySelector('.ask-foot .primary').disabled");
    page.click(".ask-foot .primary");
    fleet.run(["agents", "wait", &two]).ok();
    page.see(".top .spend", "28k of 39k tokens today");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn a_phone_gets_the_link_as_a_qr_code() {
    let fleet = Fleet::new(script![]);
    let dashboard = Dashboard::start(&fleet);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(380, 760);
    sign_in(&page, &dashboard);
    open(&page, &dashboard, "/settings");
    page.see(".settings", "Make a link");
    page.eval("[...document.querySelectorAll('.settings .btn')].find((it) => it.textContent === 'Make a link').click()");
    page.wait("document.querySelector('.qr path')");
    // The whole code is there, on a screen as wide as a phone's: as many dark modules as its path has, black on white.
    let drawn = page.eval(
        "(() => { const qr = document.querySelector('.qr'); const at = qr.getBoundingClientRect(); \
         const runs = [...qr.querySelector('path').getAttribute('d').matchAll(/M(\\d+) (\\d+)h(\\d+)/g)].map((it) => it.slice(1).map(Number)); \
         const style = getComputedStyle(qr); \
         return { box: qr.getAttribute('viewBox'), finder: runs[0], fits: at.left >= 0 && at.right <= innerWidth && at.width >= 200, square: Math.round(at.width) === Math.round(at.height), colours: [style.fill, style.backgroundColor] }; })()",
    );
    let link = page.eval("document.querySelector('.settings code').textContent");
    let size = 8 + 17 + 4 * version_of(link.as_str().unwrap());
    assert_eq!(
        drawn,
        json!({
            "box": format!("-4 -4 {size} {size}"),
            "finder": [0, 0, 7],
            "fits": true,
            "square": true,
            "colours": ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
        })
    );
    // It is a link that works.
    let phone = browser.page();
    phone.goto(link.as_str().unwrap());
    phone.see("[role=status]", "live");
    assert_eq!((page.complaints(), phone.complaints()), (Vec::<String>::new(), Vec::new()));
}

/// The version of the code that holds so many bytes with the least correction (ISO 18004, table 7).
fn version_of(link: &str) -> usize {
    let capacity = [17, 32, 53, 78, 106, 134, 154, 192];
    1 + capacity.iter().position(|bytes| link.len() <= *bytes).unwrap()
}

#[test]
fn what_is_new_is_still_new_after_a_reload_and_on_another_device() {
    let long: String = (0..80).map(|line| format!("paragraph {line}\n\n")).collect();
    let fleet = Fleet::new(script![
        text(long.clone()).on_first("the task"),
        text(format!("and more\n\n{long}")).on_first("the task"),
    ]);
    let id = fleet.bg("the task", ["--label", "talker", "--interactive"]);
    fleet.wait_for(&id, "idle");
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    let is_all_read = || {
        let page = dashboard.get(&format!("{path}/transcript")).json();
        page["seen"] == page["total"]
    };
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(1600, 900);
    sign_in(&page, &dashboard);
    page.see(".agent-row", "talker");
    page.click(".agent-row a");
    page.see(".transcript", "paragraph 79");
    wait_until("what is on the screen is read", is_all_read);
    page.eval("document.querySelector('.transcript').scrollTop = 300");
    page.see(".fresh", "to the end");
    fleet.run(["agents", "send", &id, "go on"]).ok();
    page.see(".fresh", "new");
    fleet.wait_for(&id, "idle");
    // The message, the prompt that it became, the reply and the end of the turn.
    page.see(".fresh", "4 new");
    let address = page.eval("location.href").as_str().unwrap().to_owned();
    page.goto(&address);
    page.see(".fresh", "4 new");
    let link = dashboard.post("/api/v1/links", &json!({})).json()["url"].as_str().unwrap().to_owned();
    let other = browser.page();
    other.size(380, 760);
    other.goto(&link);
    other.see("[role=status]", "live");
    other.goto(&address);
    other.see(".fresh", "4 new");
    assert!(!is_all_read());
    // Read on one device is read on the other.
    other.click(".fresh");
    wait_until("it is read", is_all_read);
    page.goto(&address);
    page.see(".transcript", "paragraph 79");
    assert_eq!(page.eval("document.querySelectorAll('.fresh').length"), 0);
    assert_eq!((page.complaints(), other.complaints()), (Vec::<String>::new(), Vec::new()));
}

/// Buttons and fields of which a part lies under a notice.
const UNDER_NOTICE: &str = "[...document.querySelectorAll('.toast')].flatMap((toast) => { \
    const it = toast.getBoundingClientRect(); \
    return [...document.querySelectorAll('button, a[href], input, select, textarea')].filter((other) => { \
      if (other.closest('.toast')) return false; \
      const at = other.getBoundingClientRect(); \
      const [left, right, top, bottom] = [Math.max(it.left, at.left), Math.min(it.right, at.right), \
        Math.max(it.top, at.top), Math.min(it.bottom, at.bottom)]; \
      if (left >= right || top >= bottom) return false; \
      const there = document.elementFromPoint((left + right) / 2, (top + bottom) / 2); \
      return there !== null && (other === there || other.contains(there)); \
    }).map((other) => `${other.tagName} ${other.className} ${other.textContent.slice(0, 30)}`); })";

#[test]
fn a_notice_covers_no_button_at_any_width() {
    let fleet = busy();
    let asker = fleet.bg("ask me", ["--label", "asker"]);
    fleet.wait_for_ask(&asker);
    let dashboard = Dashboard::start(&fleet);
    let agent = dashboard.agent(&asker).replace("/api/v1/repos/", "/agent/").replace("/agents/", "/");
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    sign_in(&page, &dashboard);
    let mut wrong: Vec<String> = Vec::new();
    for (width, height) in [(1600, 900), (1200, 800), (800, 800), (360, 700)] {
        page.size(width, height);
        for (path, there) in PAGES {
            let path = path.replace("/agent/{agent}", &agent);
            open(&page, &dashboard, &path);
            page.wait(&format!("document.querySelector({})", json!(there)));
            let say = "import('/parts/toasts.js').then(({ toast }) => { toast('ok', 'It has begun.'); \
                       toast('bad', 'It was not sent: the agent does not take messages now.', 'try it again'); return true; })";
            page.eval(say);
            page.wait("document.querySelectorAll('.toast').length === 2");
            let covered = page.eval(UNDER_NOTICE);
            wrong.extend(covered.as_array().unwrap().iter().map(|it| format!("{path} at {width}: {it}")));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn an_agent_without_a_fence_is_confirmed_before_it_starts() {
    let fleet = busy();
    let known = fleet.bg("write the greeting", ["--permission-mode", "accept-edits"]);
    fleet.run(["agents", "wait", &known]).ok();
    let dashboard = Dashboard::start(&fleet);
    dashboard.agent(&known);
    let browser = Browser::start(&fleet.place.env);
    let page = browser.page();
    page.size(1200, 900);
    sign_in(&page, &dashboard);
    open(&page, &dashboard, "/new");
    page.see("option[value=unattended]", "does everything that no rule denies, without a fence");
    page.click(".new-form textarea");
    page.type_text("write the greeting");
    page.eval(
        "(() => { const it = document.querySelector('option[value=unattended]').closest('select'); it.value = 'unattended'; \
         it.dispatchEvent(new Event('change', { bubbles: true })); return true; })()",
    );
    page.click(".new-form .primary");
    page.see("[role=dialog]", "nobody is asked");
    let agents = || dashboard.get("/api/v1/fleet").json()["agents"].as_array().unwrap().len();
    assert_eq!(agents(), 1);
    page.click("[role=dialog] .danger");
    page.wait("location.pathname.startsWith('/agent/')");
    assert_eq!(agents(), 2);
    assert_eq!(page.complaints(), Vec::<String>::new());
}
