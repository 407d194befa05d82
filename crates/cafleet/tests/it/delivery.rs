//! m08, m10, a08: what the deliverer does by itself, and each pane in which nothing may be typed.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::members::{Team, pane};
use crate::world::{eventually, ok, refused};

fn state(team: &Team, task: &str) -> String {
    team.tmux.delivery(task)["state"].as_str().unwrap_or_default().to_owned()
}

fn confirmed(team: &Team, task: &str) {
    eventually(&format!("{task} to be confirmed"), || (state(team, task) == "confirmed").then_some(()));
}

/// The process that delivers, as doctor says it.
fn deliverer(team: &Team) -> Option<i64> {
    let doctor = team.tmux.world.json(&["--json", "doctor"]);
    doctor["sessions"][0]["deliverer"]["pid"].as_i64()
}

#[test]
fn m08_a_message_to_a_working_member_arrives_when_it_rests_with_nobodys_command() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "busy", "esc to interrupt");
    for name in ["ONE", "TWO", "THREE"] {
        team.tmux.world.send(name, "D", "rev", name);
    }
    assert_eq!(team.tmux.delivery("ONE"), json!({"state": "held", "note": "it is at work"}));
    team.set_mode("%1", "free", "? for help");
    for name in ["ONE", "TWO", "THREE"] {
        confirmed(&team, name);
    }
    let line = |name: &str| format!("submitted \"[cafleet msg <{name}8> from <D8> <ts>]\\n{name} \"");
    assert_eq!(
        team.log_of("%1"),
        [line("ONE"), line("TWO"), line("THREE")],
        "each with its own header, in order"
    );
}

/// Each of these panes took a body, an answer or a draft from the old program.
#[test]
fn a08_never_a_key_into_a_dialog_a_search_field_a_draft_or_a_screen_that_is_not_known() {
    let team = Team::start(true);
    team.create("claude", &["--", "x"]);
    team.create("codex", &["--coding-agent", "codex", "--", "x"]);
    let panes = [("claude", "%1"), ("codex", "%2")];
    for (mode, drawn, why) in [
        ("dialog", "proceed?", "it waits for an answer from its user"),
        ("question", "Which color?", "it waits for an answer from its user"),
        ("search", "reverse-i-search", "its keys go elsewhere: a search field, a picker or a list is open"),
        ("draft", "half a thought", "there is a draft in its input line"),
        ("busy", "esc to interrupt", "it is at work"),
        // What was said before may look like an input line; it is held in any case.
        ("mute", "just text", ""),
    ] {
        for (name, pane) in panes {
            let before = team.log_of(pane);
            team.set_mode(pane, mode, drawn);
            let task = format!("{mode}-{name}");
            team.tmux.world.send(&task, "D", name, "rm -rf /");
            eventually(&format!("{task} to be held"), || {
                let delivery = team.tmux.delivery(&task);
                (delivery["state"] == json!("held") && (why.is_empty() || delivery["note"] == json!(why)))
                    .then_some(())
            });
            // The deliverer has looked again, and again left the pane alone.
            let scans = || team.tmux.world.json(&["monitor", "scan", "--json"]).to_string();
            assert_eq!((scans().is_empty(), team.log_of(pane)), (false, before.clone()), "{task}");
            team.set_mode(pane, "free", "? for help");
            confirmed(&team, &task);
            let log = team.log_of(pane);
            assert_eq!(log.len(), before.len() + 1, "{task}: {log:?}");
            assert!(
                log.last().is_some_and(|line| line.contains("submitted") && line.contains("rm -rf")),
                "{log:?}"
            );
        }
    }
}

#[test]
fn a08_a_shell_in_a_members_pane_gets_no_key() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    // The agent is stopped and a shell has the terminal: the pane's first process is still the agent.
    let bait = team.tmux.world.path("pwned");
    team.set_mode("%1", "draft", "half a thought");
    team.tmux.tmux(&["respawn-pane", "-k", "-t", "%1", "exec sh"]).status().expect("tmux");
    team.tmux.world.send("T", "D", "rev", &format!("x\ntouch {}", bait.display()));
    assert_eq!(
        team.tmux.delivery("T"),
        json!({"state": "failed", "note": "the pane has another process now"})
    );
    assert!(!bait.exists());
}

#[test]
fn m08_an_enter_that_was_lost_is_pressed_again_and_the_message_comes_once() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "deaf", "? for help");
    team.tmux.world.send("T", "D", "rev", "twice?");
    confirmed(&team, "T");
    assert_eq!(team.log_of("%1"), ["submitted \"[cafleet msg <T8> from <D8> <ts>]\\ntwice? \""]);
}

#[test]
fn m08_one_message_is_one_submit_where_there_is_no_bracketed_paste() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "plain", "? for help");
    team.tmux.world.send("T", "D", "rev", "header and body");
    confirmed(&team, "T");
    assert_eq!(team.log_of("%1"), ["submitted \"[cafleet msg <T8> from <D8> <ts>]\\nheader and body \""]);
}

#[test]
fn m08_an_acknowledged_message_is_never_typed() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "dialog", "proceed?");
    team.tmux.world.send("ACKED", "D", "rev", "old");
    team.tmux.world.send("NEW", "D", "rev", "new");
    let ack = ["--session-id", "@S", "message", "ack", "--agent-id", "@rev", "--task-id", "@ACKED"];
    assert_eq!(team.tmux.world.run(&ack).code, 0);
    team.set_mode("%1", "free", "? for help");
    confirmed(&team, "NEW");
    assert_eq!(team.log_of("%1"), ["submitted \"[cafleet msg <NEW8> from <D8> <ts>]\\nnew \""]);
}

#[test]
fn m08_there_is_one_deliverer_and_it_leaves_with_the_session() {
    let team = Team::start(true);
    let first = eventually("the deliverer", || deliverer(&team));
    // Any number of commands that leave work owed start no second one.
    team.tmux.mode("busy");
    team.tmux.showing("busy");
    for n in 0..5 {
        team.tmux.world.send(&format!("T{n}"), "bob", "D", "x");
    }
    let second = team.tmux.world.run(&["--session-id", "@S", "deliver-run"]);
    assert_eq!(second, ok("another process delivers for this session"));
    assert_eq!(deliverer(&team), Some(first));
    // A killed one is replaced by the next command that leaves something.
    let killed = std::process::Command::new("kill").args(["-9", &first.to_string()]).status().expect("kill");
    assert!(killed.success());
    team.tmux.world.send("NEXT", "bob", "D", "x");
    let next = eventually("another deliverer", || deliverer(&team).filter(|pid| *pid != first));
    assert_eq!(team.tmux.world.run(&["session", "delete", "@S"]).code, 0);
    eventually("it to leave", || {
        (!std::path::Path::new(&format!("/proc/{next}/exe")).exists()).then_some(())
    });
}

#[test]
fn m08_a_deliverer_leaves_with_the_directors_pane_and_where_tmux_cannot_be_reached() {
    let mut team = Team::start(true);
    team.create("rev", &["--", "x"]);
    let pid = eventually("the deliverer", || deliverer(&team));
    team.tmux.tmux(&["kill-pane", "-t", "%0"]).status().expect("tmux");
    eventually("it to leave", || (!std::path::Path::new(&format!("/proc/{pid}/exe")).exists()).then_some(()));
    let run = |team: &Team| team.tmux.world.run(&["--session-id", "@S", "deliver-run"]);
    assert_eq!(run(&team), ok("the Director's pane is gone"));
    team.tmux.world.set("PATH", "/nonexistent");
    assert_eq!(run(&team), ok("tmux cannot be reached from here"), "it never looks live");
}

/// A sender that cannot reach tmux does not give a message up.
#[test]
fn m08_a_sandboxed_sender_leaves_the_message_to_the_deliverer() {
    let mut team = Team::start(true);
    team.create("rev", &["--", "x"]);
    eventually("the deliverer", || deliverer(&team));
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", team.tmux.world.path("bin").display());
    team.tmux.world.set("PATH", "/nonexistent");
    team.tmux.world.send("T", "bob", "rev", "from the sandbox");
    team.tmux.world.set("PATH", path);
    confirmed(&team, "T");
    assert_eq!(team.log_of("%1").len(), 1);
}

#[test]
fn m08_an_overdue_hold_and_a_silent_member_become_notices_and_nothing_is_forced() {
    let mut team = Team::start(false);
    team.tmux.world.set("CAFLEET_NOTICE_AFTER", "0");
    team.tmux.world.set("CAFLEET_DELIVERER", "on");
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "dialog", "proceed?");
    team.tmux.world.send("T", "bob", "rev", "overdue");
    let notices = |who: &str| -> Vec<String> {
        let all = team.tmux.world.mailbox(who);
        let from = json!(team.tmux.world.id("ADMIN"));
        let ours = all.iter().filter(|task| task["from_agent_id"] == from);
        ours.map(|task| team.tmux.world.mask(task["text"].as_str().unwrap_or_default())).collect()
    };
    eventually("both notices for both", || {
        (["D", "ADMIN"].iter().all(|who| notices(who).len() == 2)).then_some(())
    });
    let mut told = notices("D");
    told.sort();
    assert!(told[0].starts_with("a message for rev (<rev8>) is held for "), "{told:?}");
    assert!(told[0].ends_with(
        "it waits for an answer from its user. It is in the queue and is typed when the pane is free."
    ));
    assert!(told[1].starts_with("member rev (<rev8>) has said nothing for "), "{told:?}");
    assert_eq!(team.log_of("%1"), Vec::<String>::new(), "no Esc, no Enter, no text");
    team.set_mode("%1", "free", "? for help");
    confirmed(&team, "T");
}

#[test]
fn m08_a_typed_message_that_vanishes_is_never_confirmed_and_becomes_a_notice() {
    let mut team = Team::start(false);
    team.tmux.world.set("CAFLEET_NOTICE_AFTER", "0");
    team.tmux.world.set("CAFLEET_DELIVERER", "on");
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "forgets", "? for help");
    team.tmux.world.send("T", "bob", "rev", "where is it?");
    eventually("the notice", || {
        let all = team.tmux.world.mailbox("D");
        let words = "message <T8> for rev (<rev8>) is ";
        let told = |task: &&Value| {
            let text = team.tmux.world.mask(task["text"].as_str().unwrap_or_default());
            text.starts_with(words) && text.contains("was typed, and is not seen to be taken")
        };
        all.iter().find(told).map(|_| ())
    });
    assert_eq!(state(&team, "T"), "typed");
    // Nor is it typed again.
    team.set_mode("%1", "free", "? for help");
    team.tmux.world.send("NEXT", "bob", "rev", "next");
    confirmed(&team, "NEXT");
    assert_eq!(team.log_of("%1"), ["submitted \"[cafleet msg <NEXT8> from <bob8> <ts>]\\nnext \""]);
}

#[test]
fn m10_exec_types_one_fixed_line_and_records_exit_code_and_output() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    let command = "printf 'one\\ntwo\\n'; echo err >&2; exit 3";
    let said = team.member("exec", &["--member-id", "@rev", command, "--wait"]);
    let (first, rest) = said.out.split_once('\n').expect("lines");
    assert!(first.starts_with("exec ") && first.ends_with(" exit=3"), "{said:?}");
    assert_eq!((said.code, rest, said.err.as_str()), (0, "one\ntwo\nerr\n", ""));
    let line = format!("submitted \"! {} exec-run <id>\"", env!("CARGO_BIN_EXE_cafleet"));
    assert_eq!(team.log_of("%1"), [line], "nothing of the command is typed");
    // The Director has a notice, and can read it again.
    let notice = eventually("the notice", || {
        let all = team.tmux.world.mailbox("D");
        all.iter().find_map(|task| {
            task["text"].as_str().filter(|text| text.starts_with("exec ")).map(str::to_owned)
        })
    });
    assert!(notice.contains("ended: exit code 3."), "{notice}");
    let id = first.split(' ').nth(1).expect("id").to_owned();
    let again = team.member_json("exec", &["--member-id", "@rev", "--result", &id]);
    assert_eq!(
        (&again["state"], &again["exit_code"], &again["output"], &again["command"]),
        (&json!("done"), &json!(3), &json!("one\ntwo\nerr\n"), &json!(command))
    );
    // It runs once.
    let whole = again["exec_id"].as_str().expect("id");
    assert_eq!(
        team.tmux.world.run(&["exec-run", whole]),
        refused(&format!("command {id} is done and is not run again"))
    );
}

#[test]
fn m10_exec_takes_several_lines_from_a_file_and_its_command_line_is_checked() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    fs::write(team.tmux.world.path("job"), "x=1\nfor i in 1 2; do\n  echo $x$i\ndone\n").expect("write");
    let said = team.member("exec", &["--member-id", "@rev", "--file", "job", "--wait"]);
    assert!(said.out.ends_with(" exit=0\n11\n12\n"), "{said:?}");
    let usage =
        "Usage: cafleet member exec [OPTIONS] COMMAND\nTry 'cafleet member exec --help' for help.\n\n";
    for (more, message) in [
        (&[" "][..], "Invalid value for 'COMMAND': it must not be empty."),
        (&["a\nb"], "Invalid value for 'COMMAND': it must be one line; use --file for several."),
        (&[], "Missing argument 'COMMAND'."),
    ] {
        let said = team.member("exec", &[&["--member-id", "@rev"], more].concat());
        assert_eq!((said.code, said.err), (2, format!("{usage}Error: {message}\n")), "{more:?}");
    }
    assert_eq!(
        team.member("exec", &["--member-id", "@rev", "--result", "ffffffff"]),
        refused("there is no exec ffffffff of yours")
    );
}

#[test]
fn m10_exec_waits_for_a_free_pane_and_messages_wait_for_exec() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "busy", "esc to interrupt");
    let gate = team.tmux.world.path("gate");
    let command = format!("while ! test -e {}; do sleep 0.02; done", gate.display());
    let asked = team.member_json("exec", &["--member-id", "@rev", &command]);
    assert_eq!(asked["state"], json!("queued"), "{asked}");
    team.tmux.world.send("T", "D", "rev", "after it");
    team.set_mode("%1", "free", "? for help");
    let id = asked["exec_id"].as_str().expect("id");
    let now = || team.member_json("exec", &["--member-id", "@rev", "--result", id])["state"].clone();
    eventually("it to run", || (now() == json!("running")).then_some(()));
    eventually("the message to wait for it", || {
        let note = team.tmux.delivery("T")["note"].clone();
        note.as_str().is_some_and(|note| note.starts_with("a command runs in it")).then_some(())
    });
    fs::write(&gate, "").expect("gate");
    eventually("its end", || (now() == json!("done")).then_some(()));
    confirmed(&team, "T");
    let kinds: Vec<bool> = team.log_of("%1").iter().map(|line| line.contains("exec-run")).collect();
    assert_eq!(kinds, [true, false]);
}

#[test]
fn m10_an_exec_whose_process_is_gone_is_closed_and_reported() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    let pid = team.tmux.world.path("pid");
    // The runner is the parent of the shell that runs the command.
    let command = format!("echo $PPID > {}; sleep 1000", pid.display());
    let asked = team.member_json("exec", &["--member-id", "@rev", &command]);
    let runner = eventually("the runner", || {
        fs::read_to_string(&pid).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    });
    let killed = std::process::Command::new("kill").args(["-9", &runner]).status().expect("kill");
    assert!(killed.success());
    let id = asked["exec_id"].as_str().expect("id");
    eventually("it to be closed", || {
        let said = team.member("exec", &["--member-id", "@rev", "--result", id]);
        (said.code == 1 && said.err.ends_with("lost: its process is gone\n")).then_some(())
    });
    eventually("the notice", || {
        let all = team.tmux.world.mailbox("D");
        let lost = |task: &&Value| {
            task["text"].as_str().is_some_and(|text| text.contains("is lost: its process is gone"))
        };
        all.iter().find(lost).map(|_| ())
    });
    // What was left of it goes with the test.
    let shells =
        std::process::Command::new("pgrep").args(["-f", &format!("echo .PPID > {}", pid.display())]).output();
    for shell in String::from_utf8_lossy(&shells.expect("pgrep").stdout).lines() {
        let _ = std::process::Command::new("kill").args(["-9", shell]).status();
    }
}

#[test]
fn m10_an_exec_that_never_began_is_closed_and_reported() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "refuses", "? for help");
    let asked = team.member_json("exec", &["--member-id", "@rev", "true"]);
    let id = asked["exec_id"].as_str().expect("id");
    eventually("it to be closed", || {
        let said = team.member("exec", &["--member-id", "@rev", "--result", id]);
        (said.code == 1 && said.err.ends_with("lost: it was typed and never began\n")).then_some(())
    });
    eventually("the notice", || {
        let all = team.tmux.world.mailbox("D");
        let lost = |task: &&Value| {
            task["text"].as_str().is_some_and(|text| text.contains("is lost: it was typed and never began"))
        };
        all.iter().find(lost).map(|_| ())
    });
    // What waited for it is typed now.
    team.tmux.world.send("T", "D", "rev", "go on");
    confirmed(&team, "T");
}

#[test]
fn m10_an_enter_that_was_lost_after_an_exec_is_pressed_again_and_it_runs_once() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "deaf", "? for help");
    let said = team.member("exec", &["--member-id", "@rev", "echo once", "--wait"]);
    assert!(said.code == 0 && said.out.ends_with(" exit=0\nonce\n"), "{said:?}");
    assert_eq!(team.log_of("%1").len(), 1, "{:?}", team.log_of("%1"));
}

#[test]
fn m10_a_gone_member_is_a_notice() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    team.tmux.tmux(&["kill-pane", "-t", "%1"]).status().expect("tmux");
    eventually("the notice", || {
        let all = team.tmux.world.mailbox("D");
        let gone = |task: &&Value| {
            let text = team.tmux.world.mask(task["text"].as_str().unwrap_or_default());
            text.starts_with("member rev (<rev8>) is gone: there is no pane %1 any more.")
        };
        all.iter().find(gone).map(|_| ())
    });
}

#[test]
fn m11_monitor_shows_all_members_and_delivers_what_is_held() {
    let team = Team::start(false);
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "draft", "half a thought");
    team.tmux.world.send("T", "bob", "rev", "held");
    team.set_mode("%1", "free", "? for help");
    team.is_free("%1");
    let screen = team.tmux.world.run(&["monitor", "--once"]);
    let lines: Vec<Vec<&str>> = screen.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["session", "<S>", "(this", "monitor", "delivers)"]);
    assert_eq!(lines[1], ["agent", "name", "backend", "pane", "state", "unread", "held", "idle", "why"]);
    assert_eq!(lines[2][..5], ["<D8>", "Director", "*", "claude", "%0"]);
    assert_eq!(lines[3][..4], ["<rev8>", "rev", "claude", "%1"]);
    confirmed_by_rounds(&team, "T");
    let scan = team.tmux.world.json(&["monitor", "scan", "--json"]);
    let row = &scan.as_array().expect("rows")[1];
    assert_eq!(
        (
            &row["agent_id"],
            &row["pane_id"],
            &row["backend"],
            &row["is_director"],
            &row["unread"],
            &row["held"]
        ),
        (
            &json!(team.tmux.world.id("rev")),
            &json!("%1"),
            &json!("claude"),
            &json!(false),
            &json!(1),
            &json!(0)
        )
    );
    assert_eq!(row["content_hash"].as_str().map(str::len), Some(16));
    let hash = |scan: &Value| scan[1]["content_hash"].clone();
    team.set_mode("%1", "draft", "half a thought");
    assert_ne!(
        hash(&scan),
        hash(&team.tmux.world.json(&["monitor", "scan", "--json"])),
        "another screen, another hash"
    );
}

/// Each call of the monitor takes a step.
fn confirmed_by_rounds(team: &Team, task: &str) {
    eventually("the monitor to deliver", || {
        team.tmux.world.run(&["monitor", "--once"]);
        (state(team, task) == "confirmed").then_some(())
    });
}

#[test]
fn m09_a_broadcast_to_many_panes_returns_after_the_commit_and_previews_follow() {
    let team = Team::start(true);
    team.tmux.tmux(&["resize-window", "-t", "@0", "-x", "160", "-y", "200"]).status().expect("tmux");
    let names: Vec<String> = (0..8).map(|n| format!("m{n}")).collect();
    for name in &names {
        team.create(name, &["--", "x"]);
    }
    let senders: Vec<_> = (0..4)
        .map(|n| {
            let to = format!("@m{n}");
            let args = [
                "--session-id",
                "@S",
                "message",
                "send",
                "--agent-id",
                "@bob",
                "--to",
                &to,
                "--text",
                "meanwhile",
                "--quiet",
            ];
            team.tmux.world.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("send")
        })
        .collect();
    let said = team.tmux.world.json(&[
        "--session-id",
        "@S",
        "--json",
        "message",
        "broadcast",
        "--agent-id",
        "@D",
        "--text",
        "all",
    ]);
    assert_eq!((&said[0]["recipients"], &said[0]["notifications_sent_count"]), (&json!(9), &json!(8)));
    for sender in senders {
        let done = sender.wait_with_output().expect("sender");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    for (at, name) in names.iter().enumerate() {
        let pane = format!("%{}", at + 1);
        let expected = if at < 4 { 2 } else { 1 };
        eventually(&format!("{name} to have all"), || (team.log_of(&pane).len() >= expected).then_some(()));
        let log = team.log_of(&pane);
        assert_eq!(log.iter().filter(|line| line.contains("all ")).count(), 1, "{log:?}");
    }
}

/// What a fake agent in chaos got, against what the store says. The long run is `cargo xtask soak members`.
#[test]
fn m08_in_chaos_no_message_is_lost_doubled_or_executed() {
    chaos(12, "5", Duration::from_secs(50));
}

#[test]
#[ignore = "the long run of the chaos: cargo xtask soak members"]
fn m08_a_thousand_deliveries_in_chaos() {
    chaos(200, "60", Duration::from_secs(900));
}

/// Five members, each with so many messages. All lose Enters, are busy, ask, search and have drafts; one dies in the middle of
/// pastes and is recovered, one becomes a shell and comes back, two are put into copy mode, and one ends as a shell.
fn chaos(each: usize, notice_after: &str, limit: Duration) {
    let mut team = Team::start(false);
    team.tmux.world.set("CAFLEET_NOTICE_AFTER", notice_after);
    team.tmux.world.set("CAFLEET_DELIVERER", "on");
    team.tmux.tmux(&["resize-window", "-t", "@0", "-x", "160", "-y", "120"]).status().expect("tmux");
    let moods = ["", "", " shell", "", " mortal"];
    let mut members: Vec<Chaotic> = (0..moods.len())
        .map(|n| {
            let name = format!("m{n}");
            let backend = if n % 2 == 0 { "claude" } else { "codex" };
            let made = team.create(&name, &["--coding-agent", backend, "--", "x"]);
            let mut member = Chaotic { name, mood: moods[n], panes: Vec::new() };
            member.settle_in(&team, pane(&made));
            member
        })
        .collect();
    let bait = team.tmux.world.path("pwned");
    for n in 0..each {
        for member in &members {
            let text = format!("n{n}; touch {}", bait.display());
            let to = format!("@{}", member.name);
            let args = [
                "--session-id",
                "@S",
                "message",
                "send",
                "--agent-id",
                "@bob",
                "--to",
                &to,
                "--text",
                &text,
                "--quiet",
            ];
            let sent = team.tmux.world.command(&args).output().expect("send");
            assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        }
        disturb(&team, &mut members, n);
        if n + 1 == each {
            // One dies, and a shell has its pane.
            team.tmux.tmux(&["respawn-pane", "-k", "-t", "%4", "exec sh"]).status().expect("tmux");
        }
    }
    let give_up = Instant::now() + limit;
    for round in 0.. {
        disturb(&team, &mut members, round);
        let told = team.tmux.world.mailbox("D");
        let is_told = |task: &Value| {
            let id = task["task_id"].as_str().map(|id| id[..8].to_owned()).unwrap_or_default();
            let words = format!("message {id} for ");
            told.iter().any(|notice| notice["text"].as_str().is_some_and(|text| text.starts_with(&words)))
        };
        let mut open = Vec::new();
        for member in &members {
            for task in team.tmux.world.mailbox(&member.name) {
                let is_over = match (task["delivery"]["state"].as_str().unwrap_or_default(), member.mood) {
                    ("confirmed", _) => true,
                    ("failed", mood) => mood == " mortal" || member.name == "m3",
                    // A program that became a shell with the text in its input line: the Director hears of it.
                    ("typed", " shell") => is_told(&task),
                    _ => false,
                };
                if !is_over {
                    open.push((member.name.clone(), task["text"].clone(), task["delivery"].clone()));
                }
            }
        }
        if open.is_empty() {
            break;
        }
        let screens = || {
            let panes = members.iter().filter_map(|member| member.panes.last());
            panes.map(|pane| team.screen(pane)).collect::<Vec<_>>().join("\n======\n")
        };
        assert!(Instant::now() < give_up, "not confirmed: {open:?}\n{}", screens());
        std::thread::sleep(Duration::from_millis(100));
    }
    let number = |text: &str| -> usize {
        let n = text.strip_prefix('n').and_then(|text| text.split(';').next());
        n.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    for member in &members {
        let name = &member.name;
        let log: Vec<String> = member.panes.iter().flat_map(|pane| team.log_of(pane)).collect();
        let (died, log): (Vec<String>, Vec<String>) =
            log.into_iter().partition(|line| line.starts_with("died over "));
        let odd: Vec<&String> =
            log.iter().filter(|line| !line.starts_with("submitted \"[cafleet msg ")).collect();
        assert_eq!(odd, Vec::<&String>::new(), "{name}: only whole messages, and no key elsewhere");
        assert_eq!(died.is_empty(), member.mood != " mortal", "{name}: {died:?}");
        let got: Vec<usize> =
            log.iter().map(|line| number(line.split("]\\n").nth(1).unwrap_or_default())).collect();
        assert!(got.is_sorted_by(|earlier, later| earlier < later), "{name}: each once, in order: {got:?}");
        // What is confirmed arrived, and what arrived and is not confirmed says that it may not have.
        let all = team.tmux.world.mailbox(name);
        assert_eq!(all.len(), each, "{name}");
        for task in &all {
            let arrived = got.contains(&number(task["text"].as_str().unwrap_or_default()));
            let is_confirmed = task["delivery"]["state"] == json!("confirmed");
            assert!(arrived || !is_confirmed, "{name}: silent loss: {task}");
        }
    }
    assert!(!bait.exists(), "nothing was executed");
}

/// A member in chaos.
struct Chaotic {
    name: String,
    mood: &'static str,
    /// The panes that it has had.
    panes: Vec<String>,
}

impl Chaotic {
    /// Starts the chaos in its pane.
    fn settle_in(&mut self, team: &Team, pane: &str) {
        let dir = team.dir(pane);
        eventually("the fake", || dir.join("cwd").exists().then_some(()));
        fs::write(dir.join("works_ms"), "30").expect("works");
        let seed = 7 + self.name.len() + pane.bytes().map(usize::from).sum::<usize>();
        fs::write(dir.join("mode"), format!("chaos {seed}{}", self.mood)).expect("mode");
        self.panes.push(pane.to_owned());
    }
}

/// What comes from outside: people who read back, a member that is started again in its shell, one that is recovered.
fn disturb(team: &Team, members: &mut [Chaotic], round: usize) {
    let tmux = |args: &[&str]| {
        team.tmux.tmux(args).output().expect("tmux");
    };
    for (n, pane) in ["%1", "%2"].iter().enumerate() {
        match (round + n) % 6 {
            0 => tmux(&["copy-mode", "-t", pane]),
            2 => tmux(&["send-keys", "-t", pane, "-X", "cancel"]),
            _ => {}
        }
    }
    for member in members {
        let last = member.panes.last().expect("a pane").clone();
        match member.mood {
            " shell" => {
                let format = ["display-message", "-p", "-t", &last, "#{pane_current_command}"];
                let now = team.tmux.tmux(&format).output().expect("tmux");
                // Dollar and space: the shell waits for a line.
                if now.stdout == b"sh\n" && team.screen(&last).trim_end().ends_with(['$', '#']) {
                    let line = format!("exec {}/claude again", team.tmux.world.path("bin").display());
                    tmux(&["send-keys", "-t", &last, &line, "Enter"]);
                }
            }
            " mortal" if !team.panes().contains(&last) => {
                let recover = format!("@{}", member.name);
                let back = team.member_json("create", &["--recover", &recover]);
                member.settle_in(team, pane(&back));
            }
            _ => {}
        }
    }
}

/// 28.13b: one pane waits for no other. Each paste here waits until another one is under way, too.
#[test]
fn m09_panes_are_typed_into_at_the_same_time() {
    use std::os::unix::fs::PermissionsExt as _;
    let team = Team::start(true);
    let meeting = team.tmux.world.path("meeting");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *load-buffer*) if [ -d {0} ]; then : > {0}/$$; \
         until [ \"$(ls {0} | wc -l)\" -ge 2 ]; do sleep 0.02; done; fi;; esac\nexec /usr/bin/tmux \"$@\"\n",
        meeting.display()
    );
    let tmux = team.tmux.world.path("bin/tmux");
    fs::write(&tmux, script).expect("script");
    fs::set_permissions(&tmux, fs::Permissions::from_mode(0o755)).expect("mode");
    for name in ["one", "two"] {
        team.create(name, &["--", "x"]);
    }
    fs::create_dir(&meeting).expect("meeting");
    let send = ["--session-id", "@S", "message", "broadcast", "--agent-id", "@D", "--text", "all of you"];
    assert_eq!(team.tmux.world.run(&send).code, 0);
    for pane in ["%1", "%2"] {
        eventually(&format!("{pane} to have it"), || {
            team.log_of(pane).iter().any(|line| line.contains("all of you")).then_some(())
        });
    }
}

/// 28.13b: whoever sends waits for no agent where a deliverer sees to what was typed.
#[test]
fn m08_a_send_returns_when_its_message_is_typed_and_the_deliverer_confirms_it() {
    let team = Team::start(true);
    team.create("rev", &["--", "x"]);
    team.tmux.world.send("ONE", "D", "rev", "one");
    confirmed(&team, "ONE");
    eventually("the deliverer to run", || deliverer(&team));
    let sent = team.tmux.world.send("TWO", "D", "rev", "two");
    assert_eq!(sent["delivery"]["state"], "typed", "{sent}");
    confirmed(&team, "TWO");
}
