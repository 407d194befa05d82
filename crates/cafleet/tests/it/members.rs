//! m10, m12: members in tmux panes, through the binary and a real tmux, with the fake coding agent.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::panes::Tmux;
use crate::world::{Said, eventually, misused, ok, refused};

/// A Director in its pane, in a session, with fake programs on the path.
pub(crate) struct Team {
    pub(crate) tmux: Tmux,
}

impl Team {
    /// With a deliverer, as users have it, or without, for tests that deliver by hand.
    pub(crate) fn start(with_deliverer: bool) -> Self {
        Self::led_by("claude", with_deliverer)
    }

    fn led_by(director: &str, with_deliverer: bool) -> Self {
        let mut tmux = Tmux::start();
        let bin = tmux.world.path("bin");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cafleet"), bin.join("cafleet")).expect("symlink");
        tmux.world.set("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
        if with_deliverer {
            tmux.world.set("CAFLEET_DELIVERER", "on");
        }
        tmux.session(director);
        tmux.agent(director, "free");
        Self { tmux }
    }

    /// Runs `cafleet --session-id S member VERB --agent-id D …`.
    pub(crate) fn member(&self, verb: &str, more: &[&str]) -> Said {
        self.tmux.world.run(&[&["--session-id", "@S", "member", verb, "--agent-id", "@D"], more].concat())
    }

    pub(crate) fn member_json(&self, verb: &str, more: &[&str]) -> Value {
        let args = [&["--session-id", "@S", "--json", "member", verb, "--agent-id", "@D"], more].concat();
        self.tmux.world.json(&args)
    }

    /// Makes a member; it gets a name for its id.
    pub(crate) fn create(&self, name: &str, more: &[&str]) -> Value {
        let args = [&["--name", name, "--description", "d"], more].concat();
        let made = self.member_json("create", &args);
        self.tmux.world.name(name, made["agent_id"].as_str().expect("id"));
        self.is_free(pane(&made));
        made
    }

    /// Waits until a pane is seen to be free.
    pub(crate) fn is_free(&self, pane: &str) {
        eventually("the pane to be free", || {
            let scan = self.tmux.world.json(&["monitor", "scan", "--json"]);
            let free = |row: &&Value| row["pane_id"] == json!(pane) && row["state"] == json!("free");
            scan.as_array().expect("rows").iter().find(free).map(|_| ())
        });
    }

    pub(crate) fn dir(&self, pane: &str) -> PathBuf {
        self.tmux.world.path("agent").join(pane)
    }

    pub(crate) fn set_mode(&self, pane: &str, mode: &str, drawn: &str) {
        fs::write(self.dir(pane).join("mode"), mode).expect("mode");
        eventually(&format!("{pane} to show {mode}"), || self.screen(pane).contains(drawn).then_some(()));
    }

    pub(crate) fn log_of(&self, pane: &str) -> Vec<String> {
        let log = fs::read_to_string(self.dir(pane).join("log")).unwrap_or_default();
        log.lines().map(|line| self.tmux.world.mask(line)).collect()
    }

    pub(crate) fn screen(&self, pane: &str) -> String {
        let said = self.tmux.tmux(&["capture-pane", "-p", "-t", pane]).output().expect("tmux");
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    pub(crate) fn panes(&self) -> Vec<String> {
        let said = self.tmux.tmux(&["list-panes", "-a", "-F", "#{pane_id}"]).output().expect("tmux");
        String::from_utf8_lossy(&said.stdout).lines().map(str::to_owned).collect()
    }

    pub(crate) fn agents(&self) -> Vec<String> {
        let args = ["--session-id", "@S", "--json", "agent", "list", "--agent-id", "@D"];
        let list = self.tmux.world.json(&args);
        list.as_array()
            .expect("list")
            .iter()
            .map(|row| row["name"].as_str().expect("name").to_owned())
            .collect()
    }
}

pub(crate) fn pane(made: &Value) -> &str {
    made["placement"]["tmux_pane_id"].as_str().expect("pane")
}

#[test]
fn m10_a_member_starts_in_a_pane_beside_its_director_and_does_not_take_the_focus() {
    let team = Team::start(false);
    let said =
        team.member("create", &["--name", "rev", "--description", "reviews", "--", "review", "what I send"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(replace_id8(&said.out), "<id8> rev backend=claude pane=%1\n");
    assert_eq!(team.panes(), ["%0", "%1"]);
    assert_eq!(team.tmux.ask("#{pane_active}"), "1", "the Director's pane keeps the focus");
    team.create("other", &["--", "x"]);
    assert_eq!(team.tmux.ask("#{pane_active}"), "1", "also when there are more");
    let edges = |pane: &str| {
        let format = "#{pane_at_left}#{pane_at_top}#{pane_at_right}#{pane_at_bottom}";
        let said = team.tmux.tmux(&["display-message", "-p", "-t", pane, format]).output().expect("tmux");
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    };
    // main-vertical: the Director on the left, whole height, the members on the right, the latest on top.
    assert_eq!(["%0", "%1", "%2"].map(edges), ["1101", "0011", "0110"]);
    eventually("its arguments", || team.dir("%1").join("cwd").exists().then_some(()));
    let started = fs::read_to_string(team.dir("%1").join("arguments")).expect("arguments");
    assert_eq!(started, "--permission-mode dontAsk --name rev -- review what I send");
    assert_eq!(team.agents(), ["Director", "Administrator", "bob", "rev", "other"]);
    let list = team.member("list", &[]);
    let words: Vec<&str> = list.out.lines().nth(1).expect("head").split_whitespace().collect();
    assert_eq!(list.out.lines().next(), Some("2 members:"));
    assert_eq!(
        words,
        ["agent_id", "name", "status", "backend", "session", "window_id", "pane_id", "created_at"]
    );
    let row: Vec<&str> = list.out.lines().nth(2).expect("row").split_whitespace().skip(1).collect();
    assert_eq!(row, ["rev", "active", "claude", "main", "@0", "%1", "<ts>"]);
}

fn replace_id8(text: &str) -> String {
    let rest = text.get(8..).unwrap_or_default();
    assert!(text.bytes().take(8).all(|byte| byte.is_ascii_hexdigit()), "{text}");
    format!("<id8>{rest}")
}

#[test]
fn m10_a_members_backend_is_its_directors_unless_it_is_named() {
    let team = Team::led_by("codex", false);
    let backend = |made: &Value| made["placement"]["coding_agent"].clone();
    assert_eq!(backend(&team.create("one", &["--", "x"])), json!("codex"));
    assert_eq!(backend(&team.create("two", &["--coding-agent", "claude", "--", "x"])), json!("claude"));
    let started = fs::read_to_string(team.dir("%1").join("arguments")).expect("arguments");
    assert!(started.starts_with("--ask-for-approval never --sandbox workspace-write "), "{started}");
}

#[test]
fn m10_json_of_members() {
    let team = Team::start(false);
    let made =
        team.create("rev", &["--coding-agent", "codex", "--model", "gpt-5", "--effort", "high", "--", "x"]);
    assert_eq!(
        team.tmux.world.mask(&made.to_string()),
        "{\"agent_id\":\"<rev>\",\"number\":4,\"name\":\"rev\",\"registered_at\":\"<ts>\",\"placement\":{\"director_agent_id\":\
         \"<D>\",\"tmux_session\":\"main\",\"tmux_window_id\":\"@0\",\"tmux_pane_id\":\"%1\",\"coding_agent\":\"codex\",\
         \"created_at\":\"<ts>\"}}"
    );
    let started = fs::read_to_string(team.dir("%1").join("arguments")).expect("arguments");
    assert_eq!(
        team.tmux.world.mask(&started),
        "--ask-for-approval never --sandbox workspace-write --add-dir <dir>/home/.local/share/cafleet --model gpt-5 \
         --config model_reasoning_effort=\"high\" -- x"
    );
    let refused = team.member(
        "create",
        &["--name", "gem", "--description", "d", "--coding-agent", "gemini", "--effort", "high"],
    );
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("gemini cannot be told how hard to think"), "{refused:?}");
    let row = &team.member_json("list", &["--activity"])[0];
    // The number that a Director reads is taken for the id.
    let number = row["number"].to_string();
    assert_eq!(team.member("capture", &["--member-id", &number, "--lines", "1"]).code, 0, "{row}");
    assert_eq!(
        (&row["name"], &row["description"], &row["status"], &row["last_sent"], &row["idle"]),
        (&json!("rev"), &json!("d"), &json!("active"), &json!(null), &json!(null))
    );
    let none = team.member("list", &["--activity"]);
    assert!(
        none.out.lines().nth(2).expect("row").ends_with("rev   active  -          -          -         -"),
        "{none:?}"
    );
    team.tmux.world.send("T", "rev", "D", "ready");
    let row = &team.member_json("list", &["--activity"])[0];
    assert_eq!((row["last_sent"].is_string(), row["idle"].is_i64()), (true, true), "{row}");
}

#[test]
fn m10_a_member_without_words_hears_the_ids_and_the_poll_command() {
    let team = Team::start(false);
    team.create("rev", &[]);
    let started =
        team.tmux.world.mask(&fs::read_to_string(team.dir("%1").join("arguments")).expect("arguments"));
    for words in ["cafleet --session-id <S> message poll --agent-id <rev>", "your Director is <D>"] {
        assert!(started.contains(words), "{started}");
    }
    let file = team.tmux.world.path("prompt");
    fs::write(&file, "I am {agent_id} of {{x}}").expect("write");
    team.create("two", &["--prompt-file", file.to_str().expect("path")]);
    let started =
        team.tmux.world.mask(&fs::read_to_string(team.dir("%2").join("arguments")).expect("arguments"));
    assert!(started.ends_with("-- I am <two> of {x}"), "{started}");
}

#[test]
fn m10_a_command_line_that_is_wrong_leaves_nothing() {
    let team = Team::start(false);
    let usage = "cafleet member create [OPTIONS] PROMPT";
    let wrong = |message: &str| misused(usage, "cafleet member create", message);
    let create =
        |more: &[&str]| team.member("create", &[&["--name", "rev", "--description", "d"], more].concat());
    assert_eq!(
        create(&["--", "hello {name}"]),
        wrong("Invalid value for 'PROMPT': unknown placeholder '{name}'; a literal brace is doubled.")
    );
    assert_eq!(
        create(&["--prompt-file", "relative"]),
        wrong("Invalid value for '--prompt-file': 'relative' is not an absolute path.")
    );
    assert_eq!(
        create(&["--coding-agent", "vim"]),
        wrong(
            "Invalid value for '--coding-agent': 'vim' is not one of 'claude', 'codex', 'caliban', 'gemini', \
             'opencode', 'command:\"…\"'."
        )
    );
    assert_eq!(
        create(&["--coding-agent", "gemini"]),
        Said {
            code: 1,
            out: String::new(),
            err: "Error: binary gemini not found on PATH\nhint: install it: npm install -g @google/gemini-cli\n".into()
        }
    );
    assert_eq!(
        create(&["--cwd", "/nowhere"]),
        refused("cannot work in /nowhere: No such file or directory (os error 2)")
    );
    assert_eq!(
        team.tmux.world.run(&[
            "--session-id",
            "@S",
            "member",
            "create",
            "--agent-id",
            "@ADMIN",
            "--name",
            "x",
            "--description",
            "d"
        ]),
        refused(
            "agent <ADMIN> cannot be a Director: it must be an active agent of the session and not the Administrator."
        )
    );
    assert_eq!(
        team.member("create", &["--name", "administrator", "--description", "d"]),
        refused("the name 'administrator' is reserved for the built-in agent; choose another")
    );
    assert_eq!((team.panes(), team.agents().len()), (vec!["%0".to_owned()], 3));
}

#[test]
fn m10_all_member_commands_need_tmux() {
    let mut team = Team::start(false);
    team.create("rev", &[]);
    team.tmux.world.set("TMUX", "");
    let id: &[&str] = &["--member-id", "@rev"];
    let words = refused("cafleet member commands must be run inside a tmux session");
    assert_eq!(team.member("create", &["--name", "x", "--description", "d"]), words);
    assert_eq!(team.member("list", &[]), words);
    for (verb, more) in [
        ("delete", &[][..]),
        ("capture", &[]),
        ("send-input", &["--choice", "1"]),
        ("exec", &["ls"]),
        ("ping", &[]),
    ] {
        assert_eq!(team.member(verb, &[id, more].concat()), words, "{verb}");
    }
}

#[test]
fn m10_only_the_owning_director_commands_a_member() {
    let team = Team::start(false);
    team.create("rev", &[]);
    for (verb, more) in [
        ("delete", &["--force"][..]),
        ("capture", &[]),
        ("send-input", &["--choice", "1"]),
        ("exec", &["ls"]),
        ("ping", &[]),
    ] {
        let run = |by: &str, member: &str| {
            let args =
                [&["--session-id", "@S", "member", verb, "--agent-id", by, "--member-id", member], more]
                    .concat();
            team.tmux.world.run(&args)
        };
        assert_eq!(
            run("@bob", "@rev"),
            refused("agent <rev> is not a member of your team (director_agent_id=<D>)."),
            "{verb}"
        );
        let instead = if verb == "delete" { "; use `cafleet agent deregister` for it" } else { "" };
        assert_eq!(
            run("@D", "@bob"),
            refused(&format!("agent <bob> was not spawned via `cafleet member create`{instead}.")),
            "{verb}"
        );
        assert_eq!(run("@D", "ffffffff"), refused("Agent ffffffff not found"), "{verb}");
    }
    assert_eq!(team.panes(), ["%0", "%1"]);
}

#[test]
fn m10_capture_gives_exactly_the_last_lines() {
    let team = Team::start(false);
    let made = team.create("rev", &["--", "x"]);
    team.tmux.world.send("T", "D", "rev", "line");
    eventually("the answer", || team.screen(pane(&made)).contains("Understood").then_some(()));
    let last = |lines: &str| team.member("capture", &["--member-id", "@rev", "--lines", lines]).out;
    assert_eq!(last("1"), "  ? for help\n");
    let three = last("3");
    assert_eq!(three.lines().count(), 3, "{three}");
    assert!(three.lines().nth(1).is_some_and(|line| line.starts_with('─')), "{three}");
    let json = team.member_json("capture", &["--member-id", "@rev", "--tail", "1"]);
    assert_eq!(
        team.tmux.world.mask(&json.to_string()),
        "{\"member_agent_id\":\"<rev>\",\"pane_id\":\"%1\",\"lines\":1,\"content\":\"  ? for help\"}"
    );
    // The hint in the input line is dim; only --ansi says so.
    let input = |ansi: &str| {
        let said = team.member("capture", &["--member-id", "@rev", "--lines", "3", ansi]);
        said.out.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(input("--no-ansi"), "❯ Try \"fix the bug\"");
    let with_looks = input("--ansi");
    assert!(with_looks.starts_with("❯ \u{1b}[2mTry \"fix the bug\""), "{with_looks:?}");
    assert_eq!(
        team.member("capture", &["--member-id", "@rev", "--lines", "0"]),
        refused("--lines must be positive, not 0")
    );
    team.tmux.tmux(&["kill-pane", "-t", "%1"]).status().expect("tmux");
    assert_eq!(
        team.member("capture", &["--member-id", "@rev"]),
        refused("capture failed: there is no pane %1 any more")
    );
}

#[test]
fn m10_send_input_answers_a_question_and_refuses_any_other_pane() {
    let team = Team::start(false);
    team.create("rev", &["--", "x"]);
    let send = |more: &[&str]| team.member("send-input", &[&["--member-id", "@rev"], more].concat());
    assert_eq!(
        send(&["--choice", "1"]),
        Said {
            code: 1,
            out: String::new(),
            err: "Error: the pane shows no question (free); nothing was sent\nhint: look with 'cafleet member capture'; a \
                  message goes with 'cafleet message send'\n"
                .into()
        }
    );
    team.set_mode("%1", "question", "Which color?");
    assert_eq!(send(&["--choice", "2"]), ok("Sent choice to <rev8> pane=%1"));
    eventually("the choice", || (!team.log_of("%1").is_empty()).then_some(()));
    assert_eq!(team.log_of("%1"), ["chose 2"]);
    team.set_mode("%1", "question", "Which color?");
    let json = team.member_json("send-input", &["--member-id", "@rev", "--freetext", "mauve; really"]);
    assert_eq!(
        team.tmux.world.mask(&json.to_string()),
        "{\"member_agent_id\":\"<rev>\",\"pane_id\":\"%1\",\"action\":\"freetext\",\"value\":\"mauve; really\"}"
    );
    eventually("the answer", || (team.log_of("%1").len() == 3).then_some(()));
    assert_eq!(team.log_of("%1")[1..], ["chose 4", "answered \"mauve; really\""]);
    team.set_mode("%1", "dialog", "proceed?");
    assert_eq!(send(&["--choice", "3"]), refused("the question has no choice 3; nothing was sent"));
    assert_eq!(team.log_of("%1").len(), 3);
    // Wrong command lines.
    let usage = "cafleet member send-input [OPTIONS]";
    let wrong = |message: &str| misused(usage, "cafleet member send-input", message);
    for (more, message) in [
        (
            &["--freetext", "a\nb"][..],
            "Invalid value for '--freetext': it must be one line that is not empty.",
        ),
        (&["--freetext", " !ls"], "Invalid value for '--freetext': it must not begin with '!'."),
        (&["--choice", "1", "--freetext", "x"], "'--choice' cannot be used with '--freetext'."),
    ] {
        assert_eq!(send(more), wrong(message), "{more:?}");
    }
    assert_eq!(send(&["--choice", "4"]).code, 2);
    assert_eq!(send(&[]).code, 2);
}

#[test]
fn m10_ping_types_the_members_own_poll_command_or_says_why_not() {
    let team = Team::start(false);
    team.create("rev", &["--", "x"]);
    let ping = |more: &[&str]| team.member("ping", &[&["--member-id", "@rev"], more].concat());
    assert_eq!(ping(&[]), ok("Pinged <rev8> pane=%1"));
    eventually("the ping", || (!team.log_of("%1").is_empty()).then_some(()));
    assert_eq!(team.log_of("%1"), ["submitted \"cafleet --session-id <S> message poll --agent-id <rev> \""]);
    team.set_mode("%1", "busy", "esc to interrupt");
    assert_eq!(ping(&[]), ok("Skipped <rev8>: it is at work"));
    assert_eq!(
        team.tmux.world.mask(&team.member_json("ping", &["--member-id", "@rev"]).to_string()),
        "{\"member_agent_id\":\"<rev>\",\"pane_id\":\"%1\",\"sent\":false,\"skipped\":\"it is at work\"}"
    );
    team.set_mode("%1", "dialog", "proceed?");
    let quiet = ping(&["--quiet"]);
    assert_eq!((quiet.code, quiet.out.as_str()), (0, "<rev8>\n"));
    assert_eq!(team.log_of("%1").len(), 1, "no key while it works or asks");
}

#[test]
fn m10_delete_asks_a_member_to_leave_and_waits_for_its_pane() {
    let team = Team::start(false);
    team.create("rev", &["--", "x"]);
    assert_eq!(
        team.member("delete", &["--member-id", "@rev"]),
        ok("Member deleted.\n  agent_id: <rev>\n  pane_id:  %1 (closed)")
    );
    assert_eq!(team.log_of("%1"), ["submitted \"/exit\""]);
    assert_eq!((team.panes(), team.member("list", &[])), (vec!["%0".to_owned()], ok("0 members.")));
    assert_eq!(team.member("delete", &["--member-id", "@rev"]), refused("Agent <rev> not found"));
}

#[test]
fn m10_delete_closes_a_pane_that_tmux_keeps_after_its_program() {
    let team = Team::start(false);
    team.tmux.tmux(&["set-option", "-g", "remain-on-exit", "on"]).status().expect("tmux");
    team.create("rev", &["--", "x"]);
    assert_eq!(team.member("delete", &["--member-id", "rev"]).code, 0);
    assert_eq!(team.panes(), ["%0"]);
}

#[test]
fn m10_delete_never_types_into_a_dialog_and_force_closes_the_pane() {
    let team = Team::start(false);
    team.create("rev", &["--", "x"]);
    team.set_mode("%1", "dialog", "proceed?");
    let said = team.member("delete", &["--member-id", "@rev"]);
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert!(said.err.contains("Do you want to proceed?"), "{}", said.err);
    assert!(
        said.err.ends_with(
            "Error: member <rev> did not leave within 15 s: it waits for an answer from its user; it is still \
             registered (pane %1 (timeout))\nhint: answer its question with 'member send-input', or close it with \
             'member delete --force'\n"
        ),
        "{}",
        said.err
    );
    assert_eq!(team.log_of("%1"), Vec::<String>::new());
    assert_eq!(
        team.member_json("delete", &["--member-id", "@rev", "--force"]).to_string(),
        format!("{{\"agent_id\":\"{}\",\"pane_status\":\"killed\"}}", team.tmux.world.id("rev"))
    );
    assert_eq!((team.panes(), team.agents().len()), (vec!["%0".to_owned()], 3));
}

#[test]
fn m10_force_on_a_pane_that_is_gone_just_deregisters_and_kills_no_other_pane() {
    let team = Team::start(false);
    team.create("rev", &["--", "x"]);
    // The pane's number is there again, with another process in it.
    team.tmux.tmux(&["respawn-pane", "-k", "-t", "%1", "sleep 1000"]).status().expect("tmux");
    assert_eq!(
        team.member("delete", &["--member-id", "@rev", "-f"]),
        ok("Member deleted (--force).\n  agent_id: <rev>\n  pane_id:  %1 (closed)")
    );
    assert_eq!(team.panes(), ["%0", "%1"], "a stranger's pane stays");
}

#[test]
fn m10_a_member_command_is_any_program_and_nothing_is_typed_into_it() {
    let team = Team::start(false);
    let script = team.tmux.world.path("bin/echoer");
    fs::write(&script, "#!/bin/sh\necho \"prompt: $1\"\nexec cat\n").expect("script");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    let made = team.member_json(
        "create",
        &["--name", "any", "--description", "d", "--coding-agent", "command:echoer", "--", "do it"],
    );
    team.tmux.world.name("any", made["agent_id"].as_str().expect("id"));
    eventually("the program", || team.screen("%1").contains("prompt: do it").then_some(()));
    team.tmux.world.send("T", "D", "any", "rm -rf /");
    assert_eq!(
        team.tmux.delivery("T"),
        json!({"state": "held", "note": "nothing is typed into it; it reads by polling"})
    );
    assert_eq!(
        team.member("exec", &["--member-id", "@any", "ls"]),
        Said {
            code: 1,
            out: String::new(),
            err: "Error: a member that runs command takes no commands\nhint: send it a message instead\n"
                .into()
        }
    );
    assert_eq!(
        team.member("delete", &["--member-id", "@any"]),
        ok("Member deleted.\n  agent_id: <any>\n  pane_id:  %1 (closed)")
    );
    assert!(!team.screen("%0").contains("rm -rf"));
}

#[test]
fn m10_a_member_can_work_in_a_worktree_of_its_own() {
    let team = Team::start(false);
    let repo = team.tmux.world.path("repo");
    fs::create_dir_all(&repo).expect("mkdir");
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "one"],
    ] {
        let done = team.tmux.world.program("git", args).current_dir(&repo).status().expect("git");
        assert!(done.success());
    }
    team.create("rev", &["--cwd", repo.to_str().expect("path"), "--worktree", "--", "x"]);
    let cwd = fs::read_to_string(team.dir("%1").join("cwd")).expect("cwd");
    assert_eq!(team.tmux.world.mask(&cwd), "<dir>/repo/.caliban/worktrees/rev");
    let branches =
        team.tmux.world.program("git", &["branch", "--list", "caliban/*"]).current_dir(&repo).output();
    assert_eq!(String::from_utf8_lossy(&branches.expect("git").stdout).trim(), "+ caliban/rev");
    // As long as the member is registered, no sweep takes it, clean as it is; afterwards one may.
    let swept = || {
        let caliban = testkit::Env::new().cmd("caliban").get_program().to_owned();
        let args = ["worktrees", "sweep"];
        let done = team.tmux.world.program(caliban, &args).current_dir(&repo).output().expect("caliban");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        !repo.join(".caliban/worktrees/rev").exists()
    };
    assert!(!swept(), "it is held");
    let deleted = team.member("delete", &["--member-id", "@rev"]);
    assert_eq!(deleted.code, 0, "{deleted:?}");
    assert!(swept(), "it is let go");
}

/// What a short command starts needs no key; the member's own program gets those of its pane.
#[test]
fn a12_git_of_a_new_members_worktree_inherits_no_key_and_the_member_has_its_own() {
    let mut team = Team::start(false);
    let (repo, seen) = (team.tmux.world.path("repo"), team.tmux.world.path("seen-by-git"));
    let wrapper = team.tmux.world.path("bin/git");
    let text =
        format!("#!/bin/sh\nenv >> {}\nPATH=/usr/local/bin:/usr/bin:/bin exec git \"$@\"\n", seen.display());
    fs::write(&wrapper, text).expect("wrapper");
    fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    fs::create_dir_all(&repo).expect("mkdir");
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "one"],
    ] {
        let done = team.tmux.world.program("git", args).current_dir(&repo).status().expect("git");
        assert!(done.success());
    }
    let set = team.tmux.tmux(&["set-environment", "-g", "ANTHROPIC_API_KEY", "sk-of-the-pane"]).output();
    assert!(set.expect("tmux").status.success());
    team.tmux.world.set("ANTHROPIC_API_KEY", "sk-of-the-caller");
    fs::write(&seen, "").expect("seen");
    team.create("rev", &["--cwd", repo.to_str().expect("path"), "--worktree", "--", "x"]);
    let ran = fs::read_to_string(&seen).expect("git ran");
    assert!(ran.contains("PATH=") && !ran.contains("sk-of-the-caller"), "{ran}");
    let pid = team.tmux.tmux(&["display-message", "-p", "-t", "%1", "#{pane_pid}"]).output().expect("tmux");
    let pid = String::from_utf8_lossy(&pid.stdout).trim().to_owned();
    let environment = fs::read(format!("/proc/{pid}/environ")).expect("environ");
    assert!(String::from_utf8_lossy(&environment).contains("sk-of-the-pane"));
}

/// A double fork with an empty environment leads out of the pane's tree; the mark stays.
#[test]
fn a11_a_member_that_leaves_its_tree_is_still_no_person() {
    let team = Team::start(false);
    let (cafleet, out) = (env!("CARGO_BIN_EXE_cafleet"), team.tmux.world.path("out"));
    let database = team.tmux.world.database();
    let script = team.tmux.world.path("bin/leaver");
    let text = format!(
        "#!/bin/sh\n(setsid env -i TMUX=$TMUX TMUX_PANE=$TMUX_PANE CAFLEET_DATABASE_URL=sqlite:///{database} sh -c ' \
         while [ $(ps -o ppid= -p $$) -ne 1 ]; do sleep 0.05; done; \
         {cafleet} --session-id {s} message poll --agent-id '$1' > {out}.part 2>&1; unset TMUX TMUX_PANE; \
         {cafleet} --session-id {s} message send --agent-id {d} --to {bob} --text x >> {out}.part 2>&1; \
         {cafleet} --session-id {s} message send --agent-id '$1' --to {bob} --text x >> {out}.part 2>&1; \
         mv {out}.part {out}' &)\nexec sleep 600\n",
        database = database.display(),
        out = out.display(),
        s = team.tmux.world.id("S"),
        d = team.tmux.world.id("D"),
        bob = team.tmux.world.id("bob"),
    );
    fs::write(&script, text).expect("script");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    let args =
        ["--name", "any", "--description", "d", "--coding-agent", "command:leaver", "--", "{agent_id}"];
    let made = team.member_json("create", &args);
    team.tmux.world.name("any", made["agent_id"].as_str().expect("id"));
    let said = eventually("its command to end", || fs::read_to_string(&out).ok());
    let whose = "Error: this process belongs to a fleet agent that cannot be told from its processes";
    let expected = format!(
        "No messages found.\n{whose} and cannot act as <D>; ask a person to do it\n{whose} and cannot act as <any>; ask a \
         person to do it\n"
    );
    assert_eq!(team.tmux.world.mask(&said), expected, "its own mailbox it has where it names its pane");
    assert_eq!(team.tmux.world.mailbox("bob"), Vec::<Value>::new());
}

/// Stops `member create` after the member was stored and before its pane is there, and kills it.
#[test]
fn m10_a_create_that_is_killed_is_undone_by_the_next_command() {
    let mut team = Team::start(false);
    let (reached, path) =
        (team.tmux.world.path("reached"), team.tmux.world.path("bin").display().to_string());
    let stop = format!("case \"$*\" in *split-window*) touch {}; exec sleep 1000;; esac", reached.display());
    let stopping = tmux_before(&team, &stop);
    team.tmux.world.set("PATH", stopping);
    let mut create = team.tmux.world.command(&[
        "--session-id",
        "@S",
        "member",
        "create",
        "--agent-id",
        "@D",
        "--name",
        "rev",
        "--description",
        "d",
    ]);
    let mut create = create.stdout(Stdio::null()).spawn().expect("create");
    eventually("the split", || reached.exists().then_some(()));
    assert_eq!(team.agents().len(), 4, "the member is stored, without a pane");
    // While its maker lives it is pending, and nobody undoes it.
    assert!(team.member("list", &[]).out.contains("(pending)"));
    let list = team.member_json("list", &[]);
    team.tmux.world.name("rev", list[0]["agent_id"].as_str().expect("id"));
    assert_eq!(
        team.member("ping", &["--member-id", "@rev"]),
        ok("Skipped <rev8>: it has no pane yet (pending placement)"),
        "exit 0, in words"
    );
    create.kill().expect("kill");
    create.wait().expect("wait");
    team.tmux.world.set("PATH", format!("{path}:/usr/bin:/bin"));
    assert_eq!(team.member("list", &[]), ok("0 members."));
    assert_eq!((team.agents().len(), team.panes().len()), (3, 1));
}

#[test]
fn m10_a_database_that_goes_away_in_the_middle_of_create_leaves_nothing() {
    let team = Team::start(false);
    let (data, away) = (team.tmux.world.path("home/.local/share/cafleet"), team.tmux.world.path("away"));
    // When the pane is made, the member is stored, and its first process still has to find it.
    let lines = format!("case \"$*\" in *split-window*) mv {} {};; esac", data.display(), away.display());
    let path = tmux_before(&team, &lines);
    let mut create = team.tmux.world.command(&[
        "--session-id",
        "@S",
        "member",
        "create",
        "--agent-id",
        "@D",
        "--name",
        "rev",
        "--description",
        "d",
    ]);
    let said = team.tmux.world.said(&create.env("PATH", path).output().expect("create"));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("was deleted, cut or replaced while it was in use"), "{said:?}");
    assert_eq!(team.panes(), ["%0"], "no pane");
    // The database that is there now is a new one, and nothing is in it.
    assert_eq!(team.tmux.world.run(&["session", "list"]).out, "No sessions found.\n");
    fs::remove_dir_all(&data).expect("remove");
    fs::rename(&away, &data).expect("back");
    // It could not be told that the member is none: the next command about members does that.
    assert_eq!(team.member("list", &[]), ok("0 members."));
    assert_eq!(team.agents(), ["Director", "Administrator", "bob"]);
}

/// A path on which tmux does these lines of shell first.
fn tmux_before(team: &Team, lines: &str) -> String {
    let before = team.tmux.world.path("before");
    fs::create_dir_all(&before).expect("mkdir");
    let script = format!("#!/bin/sh\n{lines}\nPATH=/usr/bin:/bin exec tmux \"$@\"\n");
    fs::write(before.join("tmux"), script).expect("script");
    fs::set_permissions(before.join("tmux"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("mode");
    format!("{}:{}:/usr/bin:/bin", before.display(), team.tmux.world.path("bin").display())
}

#[test]
fn m10_no_room_for_a_pane_leaves_no_member() {
    let team = Team::start(false);
    team.tmux.tmux(&["resize-window", "-t", "@0", "-x", "120", "-y", "2"]).status().expect("tmux");
    let said = team.member("create", &["--name", "rev", "--description", "d", "--", "x"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.err.starts_with(
            "Error: cannot make a pane: no space for new pane. Rolled back registration of <id>.\n"
        ),
        "{}",
        said.err
    );
    assert_eq!((team.agents().len(), team.panes().len()), (3, 1));
}

#[test]
fn m10_a_program_that_cannot_be_executed_leaves_no_member() {
    let team = Team::start(false);
    let file = team.tmux.world.path("bin/opencode");
    fs::write(&file, "#!/nonexistent\n").expect("write");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    let said = team.member("create", &["--name", "rev", "--description", "d", "--coding-agent", "opencode"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.err.contains("did not start") && said.err.contains("Rolled back registration of <id>."),
        "{}",
        said.err
    );
    assert_eq!(team.agents().len(), 3);
    eventually("the pane to close", || (team.panes().len() == 1).then_some(()));
}

#[test]
fn m10_a_program_that_ends_at_once_leaves_no_member() {
    let team = Team::start(false);
    let said =
        team.member("create", &["--name", "rev", "--description", "d", "--coding-agent", "command:false"]);
    // tmux does not always learn how a program ended that ended at once.
    let told = |how: &str| {
        refused(&format!(
            "the member's program did not start in pane %1: {how}. Rolled back registration of <id>."
        ))
    };
    assert!([told("its program ended with code 1"), told("it ended at once")].contains(&said), "{said:?}");
    assert_eq!((team.agents().len(), team.panes().len()), (3, 1));
    // What it said last is told.
    let program = "command:sh -c 'echo no key; exit 7'";
    let said = team.member("create", &["--name", "rev", "--description", "d", "--coding-agent", program]);
    let words = ["its program ended with code 7; its last lines: no key.", "it ended at once"];
    assert!(words.iter().any(|words| said.err.contains(words)), "{said:?}");
    assert_eq!((team.agents().len(), team.panes().len()), (3, 1));
}

#[test]
fn m10_a_member_that_dies_shows_its_exit_code_and_its_last_lines() {
    let team = Team::start(true);
    let program = "command:sh -c 'echo it begins; read line; echo the disk is full; exit 9'";
    let said = team.member("create", &["--name", "rev", "--description", "d", "--coding-agent", program]);
    assert_eq!(said.code, 0, "{said:?}");
    // What is typed before the program reads may be thrown away with the terminal's input: it is typed until it counts.
    let list = eventually("it to be seen as gone", || {
        team.tmux.tmux(&["send-keys", "-t", "%1", "x", "Enter"]).status().expect("tmux");
        let list = team.tmux.world.run(&["doctor"]).out;
        list.contains("its program ended with code 9").then_some(list)
    });
    assert!(list.contains("(its program ended with code 9)"), "{list}");
    let screen = team.member("capture", &["--member-id", "rev"]);
    assert!(screen.out.contains("it begins\n") && screen.out.contains("the disk is full"), "{screen:?}");
    let told = eventually("the Director to hear of it", || {
        let all = team.tmux.world.mailbox("D");
        let texts = all.iter().filter_map(|task| task["text"].as_str());
        texts.filter(|text| text.contains("is gone")).map(str::to_owned).next()
    });
    assert!(
        told.contains("is gone: its program ended with code 9. Its last lines: it begins ⏎ x ⏎ "),
        "{told}"
    );
    assert!(told.contains(" ⏎ the disk is full."), "{told}");
    // A removal closes the dead pane.
    assert_eq!(team.member("delete", &["--member-id", "rev", "--force"]).code, 0);
    assert_eq!(team.panes(), ["%0"]);
}
