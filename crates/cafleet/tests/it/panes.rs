//! m08, m11, a08: previews in tmux panes.

use std::fs;
use std::process::Command;

use caliban_store::broker::{Broker, CreateSession, PaneIdentity, Placement, Speaker};
use caliban_store::{HostId, Stamp, StoreUrl};
use serde_json::{Value, json};

use crate::world::{World, eventually, ok, refused};

/// A world inside a tmux server of its own, whose first pane runs a shell.
pub(crate) struct Tmux {
    pub(crate) world: World,
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // Our own server, by its own socket; also after a test that took tmux off the path.
        self.world.set("PATH", "/usr/local/bin:/usr/bin:/bin");
        let _ = self.tmux(&["kill-server"]).output();
    }
}

impl Tmux {
    pub(crate) fn start() -> Self {
        let mut world = World::new();
        for dir in ["agent", "bin", "home"] {
            fs::create_dir_all(world.path(dir)).expect("mkdir");
        }
        for name in ["claude", "codex"] {
            world.fake_program(name);
        }
        world.set("FAKE_AGENT_DIR", world.path("agent").to_str().expect("path"));
        world.set("TERM", "screen");
        // A test that wants a deliverer says so.
        world.set("CAFLEET_DELIVERER", "off");
        let mut tmux = Self { world };
        tmux.new_server();
        let variable = format!("{},{},0", tmux.world.path("tmux.sock").display(), tmux.ask("#{pid}"));
        tmux.world.set("TMUX", variable);
        tmux.world.set("TMUX_PANE", "%0");
        tmux
    }

    pub(crate) fn new_server(&self) {
        let made = self
            .tmux(&["-f", "/dev/null", "new-session", "-d", "-s", "main", "-x", "120", "-y", "40", "exec sh"])
            .output();
        let made = made.expect("tmux");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    pub(crate) fn tmux(&self, args: &[&str]) -> Command {
        let mut command = self.world.program("tmux", &["-u", "-S"]);
        command.arg(self.world.path("tmux.sock")).args(args).env_remove("TMUX");
        command
    }

    pub(crate) fn ask(&self, format: &str) -> String {
        let said = self.tmux(&["display-message", "-p", "-t", "%0", format]).output().expect("tmux");
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    }

    /// Starts a fake agent in the pane's shell and waits until it shows what it should.
    pub(crate) fn agent(&self, name: &str, mode: &str) {
        self.mode(mode);
        let line = self.world.path("bin").join(name).display().to_string();
        let typed = self.tmux(&["send-keys", "-t", "%0", &line, "Enter"]).status().expect("tmux");
        assert!(typed.success());
        self.showing(mode);
    }

    pub(crate) fn mode(&self, mode: &str) {
        fs::write(self.world.path("agent/mode"), mode).expect("mode");
    }

    pub(crate) fn showing(&self, mode: &str) {
        let drawn = match mode {
            "mute" => "just text",
            "dialog" => "Do you want to proceed?",
            "draft" => "half a thought",
            "search" => "reverse-i-search",
            "busy" => "esc to interrupt",
            _ => "? for help",
        };
        eventually(&format!("the agent to show {mode}"), || {
            let shown = fs::read_to_string(self.world.path("agent/shown")).ok()?;
            (shown == mode && self.screen().contains(drawn)).then_some(())
        });
    }

    pub(crate) fn screen(&self) -> String {
        let said = self.tmux(&["capture-pane", "-p", "-t", "%0"]).output().expect("tmux");
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    /// Types into the pane as its user would.
    pub(crate) fn keys(&self, keys: &[&str]) {
        let typed = self.tmux(&[&["send-keys", "-t", "%0"][..], keys].concat()).status().expect("tmux");
        assert!(typed.success());
    }

    /// What the agent got, line by line.
    pub(crate) fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.world.path("agent/log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// A session whose Director sits in the pane, and an agent `bob` without one.
    pub(crate) fn session(&self, coding_agent: &str) {
        let made = self.world.json(&["session", "create", "--coding-agent", coding_agent, "--json"]);
        self.world.name_session(&made);
        self.world.agent("bob");
    }

    fn deliver(&self) -> crate::world::Said {
        self.world.run(&["--session-id", "@S", "message", "deliver", "--agent-id", "@bob"])
    }

    pub(crate) fn delivery(&self, task: &str) -> Value {
        let task = format!("@{task}");
        let shown = self.world.json(&[
            "--session-id",
            "@S",
            "--json",
            "message",
            "show",
            "--agent-id",
            "@bob",
            "--task-id",
            &task,
            "--full",
        ]);
        shown["task"]["delivery"].clone()
    }
}

fn held(note: &str) -> Value {
    json!({"state": "held", "note": note})
}

fn failed(note: &str) -> Value {
    json!({"state": "failed", "note": note})
}

#[test]
fn m11_doctor_and_session_create_know_their_pane() {
    let tmux = Tmux::start();
    assert_eq!(
        tmux.world.run(&["doctor"]),
        ok("tmux:\n  session_name: main\n  window_id: @0\n  pane_id: %0\n  TMUX_PANE: %0")
    );
    assert_eq!(
        tmux.world.run(&["--json", "doctor"]),
        ok(
            "{\"tmux\":{\"session_name\":\"main\",\"window_id\":\"@0\",\"pane_id\":\"%0\",\"tmux_pane_env\":\"%0\"}}"
        )
    );
    let made = tmux.world.json(&["session", "create", "--label", "my-project", "--json"]);
    assert_eq!(
        tmux.world.mask(&made["director"]["placement"].to_string()),
        "{\"director_agent_id\":null,\"tmux_session\":\"main\",\"tmux_window_id\":\"@0\",\"tmux_pane_id\":\"%0\",\
         \"coding_agent\":\"claude\",\"created_at\":\"<ts>\"}"
    );
    let full = tmux.world.run(&["session", "create", "--full"]);
    assert!(full.out.contains("\npane:          main:@0:%0\n"), "{}", full.out);
    assert_eq!(tmux.world.run(&["session", "create"]), ok("<id>\n<id>"));
    let mut tmux = tmux;
    tmux.world.set("TMUX_PANE", "%77");
    assert_eq!(tmux.world.run(&["doctor"]), refused("tmux: there is no pane %77"));
    tmux.world.set("TMUX_PANE", "");
    assert_eq!(tmux.world.run(&["doctor"]), refused("TMUX_PANE is not set to a pane id"));
}

#[test]
fn m08_a_preview_is_typed_and_taken() {
    for name in ["claude", "codex"] {
        let tmux = Tmux::start();
        tmux.session(name);
        tmux.agent(name, "free");
        let sent = tmux.world.send("T", "bob", "D", "Did the API schema change?");
        assert_eq!(
            (&sent["notification_sent"], &sent["delivery"]),
            (&json!(true), &json!({"state": "confirmed", "note": null})),
            "{name}: {}",
            tmux.screen()
        );
        let log: Vec<String> = tmux.log().iter().map(|line| tmux.world.mask(line)).collect();
        assert_eq!(
            log,
            ["submitted \"[cafleet msg <T8> from <bob8> <ts>]\\nDid the API schema change? \""],
            "{name}"
        );
        assert_eq!(tmux.world.mailbox("D").len(), 1, "it is in the queue in any case");
    }
}

#[test]
fn m08_nothing_is_typed_for_oneself_or_for_an_agent_without_a_pane() {
    let tmux = Tmux::start();
    tmux.session("claude");
    tmux.agent("claude", "free");
    for (from, to) in [("D", "D"), ("D", "bob")] {
        let sent = tmux.world.send("T", from, to, "quiet");
        assert_eq!(
            (&sent["notification_sent"], &sent["delivery"]["state"]),
            (&json!(false), &json!("stored")),
            "{from} {to}"
        );
    }
    assert_eq!(tmux.deliver(), ok("delivered=0 held=0"));
    assert_eq!(tmux.log(), Vec::<String>::new());
}

#[test]
fn a08_a_shell_in_the_pane_gets_no_key_and_the_message_is_held() {
    let tmux = Tmux::start();
    tmux.session("claude");
    let bait = tmux.world.path("pwned");
    let body = format!("x\n touch {}\n", bait.display());
    let sent = tmux.world.run(&[
        "--session-id",
        "@S",
        "message",
        "send",
        "--agent-id",
        "@bob",
        "--to",
        "@D",
        "--text",
        &body,
        "--quiet",
    ]);
    assert_eq!(
        (sent.code, sent.err.as_str()),
        (
            0,
            "note: preview held: claude is not the pane's foreground program; the message is in the queue and is typed \
             when the pane is free\n"
        )
    );
    tmux.world.name("T", tmux.world.mailbox("D")[0]["task_id"].as_str().expect("id"));
    assert_eq!(tmux.delivery("T"), held("claude is not the pane's foreground program"));
    // Whatever was typed into the shell before this line would run before it.
    let mark = tmux.world.path("mark");
    tmux.tmux(&["send-keys", "-t", "%0", &format!("echo done > {}", mark.display()), "Enter"])
        .status()
        .expect("tmux");
    eventually("the shell", || fs::read_to_string(&mark).is_ok_and(|text| text == "done\n").then_some(()));
    assert!(!bait.exists());
    // The held message is typed once the agent is there, and only once.
    tmux.agent("claude", "free");
    assert_eq!(tmux.deliver(), ok("delivered=1 held=0"));
    assert_eq!(tmux.delivery("T"), json!({"state": "confirmed", "note": null}));
    assert_eq!(tmux.deliver(), ok("delivered=0 held=0"));
    assert_eq!(tmux.log().len(), 1, "{:?}", tmux.log());
}

#[test]
fn a08_hostile_bodies_arrive_as_one_inert_line() {
    let mut tmux = Tmux::start();
    tmux.world.set("CAFLEET_MAX_TEXT_LEN", "1000");
    tmux.session("claude");
    tmux.agent("claude", "free");
    let bodies = [
        ("!touch pwned\r\nsecond\rthird", "!touch pwned⏎second⏎third "),
        ("/exit", "/exit "),
        ("\u{3}\u{4}\u{1a}\u{1b}", "␃␄␚␛ "),
        ("a\u{1b}[201~\r!id\u{1b}[200~", "a␛[201~⏎!id␛[200~ "),
        ("\u{9b}201~\u{7f}\t\u{8}", "<U+009B>201~␡ ␈ "),
        ("ends in ; and a backslash \\", "ends in ; and a backslash \\ "),
        ("#{pane_id} #(touch pwned) $(touch pwned) `x`", "#{pane_id} #(touch pwned) $(touch pwned) `x` "),
        ("grüße 😀 \u{202e}", "grüße 😀 <U+202E> "),
    ];
    for (body, typed) in bodies {
        let file = tmux.world.path("body");
        fs::write(&file, body).expect("write");
        let sent = tmux.world.json(&[
            "--session-id",
            "@S",
            "--json",
            "message",
            "send",
            "--agent-id",
            "@bob",
            "--to",
            "@D",
            "--text-file",
            "body",
            "--full",
        ]);
        let id = sent["task"]["task_id"].as_str().expect("id").to_owned();
        let stamp = sent["task"]["status_timestamp"].as_str().expect("ts").to_owned();
        assert_eq!(sent["notification_sent"], json!(true), "{body:?}");
        let text = format!("[cafleet msg {} from {} {stamp}]\n{typed}", &id[..8], &tmux.world.id("bob")[..8]);
        eventually("the submission", || (!tmux.log().is_empty()).then_some(()));
        assert_eq!(tmux.log(), [format!("submitted {text:?}")], "{body:?}");
        fs::remove_file(tmux.world.path("agent/log")).expect("remove");
        assert_eq!(sent["task"]["text"], json!(body), "the stored body is whole");
    }
    assert!(!tmux.world.path("pwned").exists());
}

#[test]
fn m08_dialogs_drafts_and_unknown_screens_hold_a_message_until_the_pane_is_free() {
    for (name, mode, why) in [
        ("claude", "dialog", "it waits for an answer from its user"),
        ("claude", "draft", "there is a draft in its input line"),
        ("claude", "mute", "its input line is not to be seen"),
        ("codex", "dialog", "it waits for an answer from its user"),
    ] {
        let tmux = Tmux::start();
        tmux.session(name);
        tmux.agent(name, mode);
        tmux.world.send("ONE", "bob", "D", "first");
        tmux.world.send("TWO", "bob", "D", "second");
        assert_eq!((tmux.delivery("ONE"), tmux.delivery("TWO")), (held(why), held(why)), "{name} {mode}");
        let said = tmux.deliver();
        assert_eq!(
            (said.out.as_str(), said.err),
            ("delivered=0 held=2\n", format!("note: held: {why}\n")),
            "{name} {mode}"
        );
        assert_eq!(tmux.log(), Vec::<String>::new(), "{name} {mode}: no key, above all no Enter");
        tmux.mode("free");
        tmux.showing("free");
        // The next send takes what was held along, in order.
        tmux.world.send("THREE", "bob", "D", "third");
        let log: Vec<String> = tmux.log().iter().map(|line| tmux.world.mask(line)).collect();
        assert_eq!(
            log,
            [
                "submitted \"[cafleet msg <ONE8> from <bob8> <ts>]\\nfirst \"",
                "submitted \"[cafleet msg <TWO8> from <bob8> <ts>]\\nsecond \"",
                "submitted \"[cafleet msg <THREE8> from <bob8> <ts>]\\nthird \"",
            ],
            "{name} {mode}"
        );
    }
}

#[test]
fn r10_nothing_is_delivered_after_a_cancel_or_an_ack_that_won() {
    let tmux = Tmux::start();
    tmux.session("claude");
    tmux.agent("claude", "dialog");
    for name in ["CANCELED", "ACKED", "KEPT"] {
        tmux.world.send(name, "bob", "D", name);
    }
    tmux.world.json(&[
        "--session-id",
        "@S",
        "--json",
        "message",
        "cancel",
        "--agent-id",
        "@bob",
        "--task-id",
        "@CANCELED",
    ]);
    tmux.world.json(&[
        "--session-id",
        "@S",
        "--json",
        "message",
        "ack",
        "--agent-id",
        "@D",
        "--task-id",
        "@ACKED",
    ]);
    tmux.mode("free");
    tmux.showing("free");
    assert_eq!(tmux.deliver(), ok("delivered=1 held=0"));
    let log: Vec<String> = tmux.log().iter().map(|line| tmux.world.mask(line)).collect();
    assert_eq!(log, ["submitted \"[cafleet msg <KEPT8> from <bob8> <ts>]\\nKEPT \""]);
}

/// Puts a `tmux` before the real one that runs these lines first.
fn tmux_with(tmux: &mut Tmux, lines: &str) {
    use std::os::unix::fs::PermissionsExt;
    let (dir, path) = (tmux.world.path("before"), "/usr/local/bin:/usr/bin:/bin");
    fs::create_dir_all(&dir).expect("directory");
    let script = format!("#!/bin/sh\n{lines}\nPATH={path} exec tmux \"$@\"\n");
    fs::write(dir.join("tmux"), script).expect("script");
    fs::set_permissions(dir.join("tmux"), fs::Permissions::from_mode(0o755)).expect("mode");
    tmux.world.set("PATH", format!("{}:{path}", dir.display()));
}

#[test]
fn r10_a_cancel_while_the_pane_is_looked_at_wins() {
    let mut tmux = Tmux::start();
    tmux.session("claude");
    tmux.agent("claude", "draft");
    tmux.world.send("T", "bob", "D", "too late");
    tmux.mode("free");
    tmux.showing("free");
    // The one who delivers knows of the message, and waits for tmux.
    let (called, go) = (tmux.world.path("called"), tmux.world.path("go"));
    tmux_with(
        &mut tmux,
        &format!("touch {}; while ! test -e {}; do :; done", called.display(), go.display()),
    );
    let mut deliver = tmux.world.command(&["--session-id", "@S", "message", "deliver", "--agent-id", "@bob"]);
    let deliver = deliver.stdout(std::process::Stdio::piped()).spawn().expect("deliver");
    eventually("the look at the pane", || called.exists().then_some(()));
    let cancel = ["--session-id", "@S", "message", "cancel", "--agent-id", "@bob", "--task-id", "@T"];
    assert_eq!(tmux.world.run(&cancel).code, 0);
    fs::write(&go, "").expect("go");
    let said = tmux.world.said(&deliver.wait_with_output().expect("delivered"));
    assert_eq!((said.out.as_str(), tmux.log()), ("delivered=0 held=0\n", vec![]));
}

#[test]
fn a08_a_dialog_that_comes_between_look_and_typing_gets_no_key() {
    let mut tmux = Tmux::start();
    tmux.session("claude");
    tmux.agent("claude", "free");
    let mode = tmux.world.path("agent/mode").display().to_string();
    // tmux itself looks once more when it types; its socket is the third argument.
    tmux_with(
        &mut tmux,
        &format!(
            "case \"$*\" in *load-buffer*) printf dialog > {mode}; \
             until PATH=/usr/local/bin:/usr/bin:/bin tmux -S \"$3\" capture-pane -p -t %0 | grep -q proceed; do :; done;; \
             esac"
        ),
    );
    tmux.world.send("T", "bob", "D", "no answer to that");
    assert_eq!(tmux.log(), Vec::<String>::new());
    assert_eq!(tmux.delivery("T"), held("it waits for an answer from its user"));
}

#[test]
fn r10_a_message_that_tmux_refuses_holds_those_behind_it() {
    let mut tmux = Tmux::start();
    tmux.session("claude");
    tmux.agent("claude", "draft");
    tmux.world.send("T1", "bob", "D", "first");
    tmux.world.send("T2", "bob", "D", "second");
    tmux.mode("free");
    tmux.showing("free");
    // As when the screen moves between look and paste, as often as it is tried.
    let pastes = tmux.world.path("pastes").display().to_string();
    tmux_with(
        &mut tmux,
        &format!(
            "case \"$*\" in *load-buffer*) echo >> {pastes}; \
             if test $(wc -l < {pastes}) -le 3; then cat > /dev/null; echo refused; exit; fi;; esac"
        ),
    );
    assert_eq!(tmux.deliver().out, "delivered=0 held=2\n");
    assert_eq!(tmux.log(), Vec::<String>::new());
    assert_eq!(tmux.delivery("T1"), held("the pane changed just before typing"));
    assert_eq!(tmux.delivery("T2"), held("an earlier message is held"));
    assert_eq!(tmux.deliver().out, "delivered=2 held=0\n");
    let typed: Vec<bool> = tmux.log().iter().map(|line| line.contains("first")).collect();
    assert_eq!(typed, [true, false]);
}

#[test]
fn m08_the_status_file_of_claude_counts() {
    let tmux = Tmux::start();
    tmux.session("claude");
    tmux.agent("claude", "free");
    // The foreground process is the fake agent; its file says that a dialog is open.
    let shell: i32 = tmux.ask("#{pane_pid}").parse().expect("pid");
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("children");
    let agent = children.split_whitespace().next().expect("a child").to_owned();
    let dir = tmux.world.path("home/.claude/sessions");
    fs::create_dir_all(&dir).expect("mkdir");
    fs::write(dir.join(format!("{agent}.json")), "{\"status\":\"waiting\"}").expect("write");
    tmux.world.send("T", "bob", "D", "x");
    assert_eq!(tmux.delivery("T"), held("it waits for an answer from its user"));
    fs::write(dir.join(format!("{agent}.json")), "{\"status\":\"busy\"}").expect("write");
    assert_eq!(tmux.deliver().out, "delivered=0 held=1\n");
    assert_eq!(tmux.delivery("T"), held("it is at work"));
    fs::write(dir.join(format!("{agent}.json")), "{\"status\":\"idle\"}").expect("write");
    assert_eq!(tmux.deliver(), ok("delivered=1 held=0"));
}

#[test]
fn m08_nothing_is_typed_while_a_person_reads_back_in_copy_mode() {
    let tmux = Tmux::start();
    tmux.session("claude");
    tmux.agent("claude", "free");
    tmux.tmux(&["copy-mode", "-t", "%0"]).status().expect("tmux");
    assert_eq!(tmux.ask("#{pane_in_mode}"), "1");
    tmux.world.send("T", "bob", "D", "x");
    assert_eq!(tmux.delivery("T"), held("the pane is in copy mode"));
    assert_eq!((tmux.log(), tmux.ask("#{pane_in_mode}")), (vec![], "1".to_owned()));
    tmux.tmux(&["send-keys", "-t", "%0", "-X", "cancel"]).status().expect("tmux");
    assert_eq!(tmux.deliver(), ok("delivered=1 held=0"));
    assert_eq!(tmux.log().len(), 1);
}

#[test]
fn m08_a_pane_that_is_gone_or_is_another_one_gets_nothing() {
    let tmux = Tmux::start();
    // A second pane keeps the server alive.
    tmux.tmux(&["split-window", "-d", "-t", "%0", "sleep 1000"]).status().expect("tmux");
    tmux.session("claude");
    tmux.tmux(&["respawn-pane", "-k", "-t", "%0", "exec sh"]).status().expect("tmux");
    tmux.agent("claude", "free");
    tmux.world.send("T", "bob", "D", "x");
    assert_eq!(tmux.delivery("T"), failed("the pane has another process now"));
    tmux.tmux(&["kill-pane", "-t", "%0"]).status().expect("tmux");
    let sent = tmux.world.send("T2", "bob", "D", "x");
    assert_eq!(tmux.delivery("T2"), failed("there is no pane %0 any more"));
    assert_eq!(sent["notification_sent"], json!(false));
    assert_eq!(tmux.log(), Vec::<String>::new());
    assert_eq!(tmux.world.mailbox("D").len(), 2, "they are in the queue in any case");
}

#[test]
fn m08_another_server_on_the_same_socket_gets_nothing() {
    let tmux = Tmux::start();
    tmux.session("claude");
    tmux.tmux(&["kill-server"]).status().expect("tmux");
    eventually("the server to end", || {
        let up = tmux.tmux(&["display-message", "-p", "up"]).output().expect("tmux");
        (!up.status.success()).then_some(())
    });
    tmux.world.send("T", "bob", "D", "x");
    let gone = tmux.delivery("T");
    assert_eq!(gone["state"], json!("failed"), "{gone}");
    tmux.new_server();
    tmux.agent("claude", "free");
    tmux.world.send("T2", "bob", "D", "x");
    assert_eq!(tmux.delivery("T2"), failed("another tmux server has the socket now"));
    assert_eq!(tmux.log(), Vec::<String>::new());
}

#[test]
fn m08_without_tmux_on_the_path_the_message_is_stored_all_the_same() {
    let mut tmux = Tmux::start();
    tmux.session("claude");
    tmux.world.set("PATH", "/nonexistent");
    let sent = tmux.world.send("T", "bob", "D", "x");
    assert_eq!(
        (&sent["notification_sent"], &sent["delivery"]),
        (&json!(false), &held("tmux is not on PATH"))
    );
    // It tells what else it knows.
    let said = tmux.world.run(&["doctor"]);
    assert!(said.code == 0 && said.out.contains("trouble: tmux is not on PATH"), "{said:?}");
    tmux.world.set("PATH", "/usr/local/bin:/usr/bin:/bin");
}

#[test]
fn m09_a_broadcast_counts_recipients_and_notified() {
    let tmux = Tmux::start();
    tmux.session("claude");
    tmux.world.agent("carol");
    tmux.agent("claude", "free");
    let said = tmux.world.json(&[
        "--session-id",
        "@S",
        "--json",
        "message",
        "broadcast",
        "--agent-id",
        "@bob",
        "--text",
        "all",
    ]);
    assert_eq!((&said[0]["recipients"], &said[0]["notifications_sent_count"]), (&json!(2), &json!(1)));
    assert_eq!(tmux.log(), Vec::<String>::new(), "it returned before anything was typed");
    assert_eq!(tmux.deliver(), ok("delivered=1 held=0"));
    assert_eq!(tmux.log().len(), 1);
}

#[test]
fn concurrent_senders_type_one_after_the_other() {
    let tmux = Tmux::start();
    tmux.session("claude");
    tmux.agent("claude", "free");
    let children: Vec<_> = (0..6)
        .map(|n| {
            let text = format!("m{n}");
            let mut command = tmux.world.command(&[
                "--session-id",
                "@S",
                "message",
                "send",
                "--agent-id",
                "@bob",
                "--to",
                "@D",
                "--text",
                &text,
                "--quiet",
            ]);
            command.stdout(std::process::Stdio::piped()).spawn().expect("spawn")
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().expect("output").status.success());
    }
    let log = tmux.log();
    assert_eq!(log.len(), 6, "{log:?}");
    let typed: Vec<String> = log
        .iter()
        .map(|line| line.split("\\n").nth(1).unwrap_or_default().trim_end_matches([' ', '"']).to_owned())
        .collect();
    let mut queue: Vec<String> =
        tmux.world.mailbox("D").iter().map(|task| task["text"].as_str().expect("text").to_owned()).collect();
    queue.reverse();
    assert_eq!(typed, queue, "typed whole, once, and in the store's order");
}

#[test]
fn m08_a_numbered_line_in_the_talk_holds_nothing() {
    let tmux = Tmux::start();
    tmux.session("claude");
    tmux.agent("claude", "free");
    // What a user entered before looks like a choice of a dialog, but the input line is below it.
    tmux.tmux(&["send-keys", "-t", "%0", "1. Yes", "Enter"]).status().expect("tmux");
    eventually("the entry", || tmux.screen().contains("> 1. Yes").then_some(()));
    tmux.showing("free");
    tmux.world.send("T", "bob", "D", "x");
    assert_eq!(tmux.delivery("T"), json!({"state": "confirmed", "note": null}));
}

/// Without the check the pane would be looked for here, not be found, and the preview would be given up for good.
#[test]
fn m08_a_pane_of_another_machine_holds_its_preview() {
    let world = World::new();
    let placement = Placement {
        host: HostId::of("another machine"),
        director: None,
        tmux_session: "main".to_owned(),
        tmux_window: "@1".to_owned(),
        tmux_pane: Some("%0".to_owned()),
        coding_agent: "claude".to_owned(),
        created_at: Stamp::now(),
        identity: Some(PaneIdentity {
            socket: "/nowhere/tmux.sock".to_owned(),
            server_pid: 1,
            pane_pid: 1,
            pane_started: "boot/1".to_owned(),
        }),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let url = StoreUrl::sqlite(world.database());
        let mut broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
        let new = CreateSession { label: None, placement: Some(placement) };
        let made = broker.create_session(&new, Stamp::now()).await.expect("create");
        world.name("S", &made.session.id.to_string());
        world.name("D", &made.director.id.to_string());
        broker.close().await;
    });
    world.agent("bob");
    let sent = world.send("T", "bob", "D", "hello");
    assert_eq!(sent["delivery"], json!({"state": "held", "note": "its pane is on another machine"}));
}
