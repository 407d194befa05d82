//! What the fleet's commands say: JSON that a terminal may see, hints, and who is waited for.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{Env, StepExt as _, script, status, text, wait_until};

use crate::fleet::{Fleet, bash, id_of};

#[test]
fn a09_json_for_scripts_does_nothing_to_a_terminal() {
    const EVIL: &str = "a\u{9b}2J\u{202e}b\u{7f}";
    let fleet = Fleet::new(script![text("all done")]);
    let id = fleet.bg(EVIL, []);
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.row(&id)["prompt"], EVIL);
    let kind = fleet.place.env.config().join("caliban/agents/odd.md");
    fleet.place.env.write(kind, format!("---\ndescription: {EVIL}\n---\nBe odd.\n"));
    for args in [
        &["agents", "list", "--json"][..],
        &["sessions", "show", &id, "--json"],
        &["agents", "types", "--json"],
    ] {
        let printed = fleet.run(args.iter().copied()).ok().stdout;
        assert!(printed.contains("a\\u009b2J\\u202eb\\u007f"), "{args:?}: {printed}");
        assert!(!printed.contains(['\u{9b}', '\u{202e}', '\u{7f}']), "{args:?}: {printed}");
    }
}

#[test]
fn a16_a_question_that_the_list_showed_can_be_approved_by_its_agents_name() {
    let fleet = Fleet::new(script![bash("touch one"), bash("touch two"), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    fleet.run(["approve", &id]).ok();
    wait_until("the list shows the next", || fleet.run(["agents", "list"]).ok().stdout.contains("touch two"));
    assert_eq!(fleet.run(["approve", &id]).ok().stdout, format!("allowed for {id}: Bash touch two\n"));
    fleet.run(["agents", "wait", &id]).ok();
}

#[test]
fn flags_that_contradict_each_other_are_explained_by_the_usage_of_their_command() {
    let env = Env::new();
    for (args, usage) in [
        (
            &["agents", "spawn", "--prompt", "x", "--isolation", "none", "--base", "main"][..],
            "Usage: caliban agents spawn",
        ),
        (&["--bg", "x", "--isolation", "none", "--base", "main"], "Usage: caliban [OPTIONS]"),
        (&["doctor", "--provider", "openai", "--script", "s"], "Usage: caliban doctor"),
    ] {
        let refused = env.run(args).expect_code(2).stderr;
        assert!(refused.starts_with("error: ") && refused.contains(usage), "{refused}");
    }
}

#[test]
fn an_ambiguous_label_is_told_with_the_ids_to_choose_from() {
    let fleet = Fleet::new(script![text("one"), text("two")]);
    // A label is that of the one who lives; when none does, it is everybody's who had it.
    let ids = ["the task", "another task"].map(|task| {
        let id = fleet.bg(task, ["--label", "twin"]);
        fleet.run(["agents", "wait", &id]).ok();
        id
    });
    let refused = fleet.run(["logs", "twin"]).expect_code(1).stderr;
    let listed = format!("{} (twin), {} (twin)", ids[0], ids[1]);
    assert!(refused.contains(&listed) && refused.contains("\nhint: say which by its id"), "{refused}");
    // What is kept of it can be read by its label as well, while that is nobody else's.
    let own = fleet.run(["rm", &ids[0]]).ok();
    assert_eq!(own.stderr, "");
    for verb in ["show", "audit", "replay"] {
        fleet.run(["sessions", verb, "twin"]).ok();
    }
    let unknown = fleet.run(["sessions", "show", "nobody"]).expect_code(1).stderr;
    assert!(unknown.contains("there is no session \"nobody\""), "{unknown}");
}

#[test]
fn a_merge_that_cannot_be_is_told_with_what_to_do() {
    let fleet = Fleet::new(script![bash("echo new > new.txt"), text("done")]);
    let id = fleet.bg("the task", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &id]).ok();
    let refused = fleet.run(["agents", "merge", &id, "--into", "nope"]).expect_code(2).stderr;
    assert_eq!(
        refused,
        "error: there is no branch 'nope'\nhint: git branch lists them; git branch nope makes it from what is checked out here\n"
    );
    let nobody = fleet.place.env.start("caliban", ["agents", "merge", &id, "--commit", "all of it"]);
    let nobody = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"]
        .into_iter()
        .fold(nobody, |run, name| run.env(name, ""));
    let refused = nobody.dir(&fleet.place.repo).output().expect_code(1).stderr;
    assert!(
        refused.starts_with(
            "error: git does not know who you are\nhint: tell git who you are: git config --global"
        ),
        "{refused}"
    );
}

#[test]
fn a_message_to_an_agent_that_has_not_begun_is_refused_with_what_to_do() {
    let fleet = Fleet::new(script![text("one"), text("two")]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let first = fleet.bg("the task", []);
    let queued = fleet.bg("another task", []);
    let refused = fleet.run(["agents", "send", &queued, "mind the tests"]).expect_code(1).stderr;
    assert_eq!(
        refused,
        format!(
            "error: agent {queued} waits for a place\n\
             hint: it has not begun, and was not told; caliban attach {queued} keeps what you type until it hears it\n"
        )
    );
    fleet.run(["kill", &first, &queued]).ok();
}

/// The daemon's process.
fn daemon(fleet: &Fleet) -> (i32, Pid) {
    let status: Value = fleet.run(["daemon", "status", "--json"]).ok().json();
    let pid = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
    (pid, Pid::from_raw(pid).unwrap())
}

#[test]
fn whoever_waits_for_a_daemon_that_does_not_answer_is_told() {
    let fleet = Fleet::new(script![text("never")]);
    fleet.run(["agents", "list"]).ok();
    let (number, daemon) = daemon(&fleet);
    kill_process(daemon, Signal::STOP).unwrap();
    let start = |args: [&str; 2]| fleet.place.env.start("caliban", args).dir(&fleet.place.repo).spawn();
    for args in [["daemon", "status"], ["agents", "list"], ["daemon", "restart"]] {
        let mut waits = start(args);
        waits.wait_for_stderr(&format!("waiting for the daemon (pid {number}), which does not answer"));
        kill_process(daemon, Signal::CONT).unwrap();
        waits.wait().ok();
        if args[1] != "restart" {
            kill_process(daemon, Signal::STOP).unwrap();
        }
    }
    fleet.run(["daemon", "stop"]).ok();
}

#[test]
fn who_needs_a_person_is_told_by_what_they_need() {
    let fleet = Fleet::new(script![
        bash("touch asked-for").on_first("the asking task"),
        text("all done").on_first("the waiting task"),
    ]);
    let asks = fleet.bg("the asking task", []);
    let waits = fleet.bg("the waiting task", ["--interactive"]);
    fleet.wait_for_ask(&asks);
    fleet.wait_for(&waits, "idle");
    let listed = fleet.run(["agents", "list"]).ok().stdout;
    // One that is idle waits for nobody.
    assert!(listed.ends_with("\n1 agent needs you: caliban approvals lists what it asks\n"), "{listed}");
    fleet.run(["deny", &asks, "--reason", "no thanks"]).ok();
    wait_until("it is in the log", || fleet.run(["logs", &asks]).ok().stdout.contains("answered"));
    let logs = fleet.run(["logs", &asks]).ok().stdout;
    assert!(logs.contains("answered: no, 'no thanks'\n"), "{logs}");
    fleet.run(["kill", &asks, &waits]).ok();
}

#[test]
fn r19_the_list_of_worktrees_says_which_an_agent_counts_on() {
    let fleet = Fleet::new(script![text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    wait_until("its process has left", || {
        let listed: Value = fleet.run(["worktrees", "list", "--json"]).ok().json();
        listed[0]["usage"] == "free"
    });
    let listed = fleet.run(["worktrees", "list"]).ok().stdout;
    let line = listed.lines().find(|line| line.starts_with(&id)).unwrap();
    assert_eq!(line.split_whitespace().nth(1), Some("held"), "{listed}");
}

#[test]
fn who_starts_without_the_agent_that_it_was_to_follow_says_so() {
    let fleet = Fleet::new(script![status(400).body("{}"), text("all done"), text("all done"),]);
    fleet.place.server.hold();
    let first = fleet.bg("the task", []);
    let after = |flags: &[&str]| {
        let run = fleet.place.caliban().args(["--bg", "what comes then", "--after", &first]);
        id_of(&run.args(flags).output().ok())
    };
    let (one, two) = (after(&[]), after(&[]));
    fleet.place.server.release();
    for id in [&first, &one, &two] {
        fleet.wait_for(id, "failed");
    }
    let words = format!("it was to start after {first}, which has ended failed: it starts without it\n");
    for verb in ["respawn", "resume"] {
        let id = if verb == "respawn" { &one } else { &two };
        let again = fleet.run([verb, id]).ok();
        assert!(again.stderr.contains(&words), "{}", again.stderr);
    }
}

#[test]
fn examples_and_short_verbs_are_offered() {
    let env = Env::new();
    for verb in ["status", "stop", "restart", "logs"] {
        let help = env.run(["daemon", verb, "--help"]).ok().stdout;
        assert!(help.contains(&format!("Examples:\n  caliban daemon {verb}")), "{help}");
    }
    let help = env.run(["attach", "--help"]).ok().stdout;
    assert!(help.contains("Examples:\n  caliban attach\n  caliban attach a3f8"), "{help}");
    let help = env.run(["resume", "--help"]).ok().stdout;
    assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains(
        "From now on: end after this many model requests, from its beginning; with --interactive, for each message"
    ), "{help}");
    let offered = env.run(["__complete", "1", "--", "caliban", ""]).ok().stdout;
    for verb in ["diff", "list", "merge", "send", "spawn", "wait"] {
        assert!(
            offered.lines().any(|line| line.starts_with(&format!("{verb}\t"))),
            "{verb} is not in {offered}"
        );
    }
    // They are not in the list of commands, which is long enough.
    let help = env.run(["--help"]).ok().stdout;
    assert!(!help.lines().any(|line| line.trim_start().starts_with("merge ")), "{help}");
}

#[test]
fn who_does_not_start_at_once_is_said_to_wait_and_for_what() {
    let fleet = Fleet::new(script![text("done").forever()]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    let ended = fleet.bg("the first", []);
    fleet.run(["agents", "wait", &ended]).ok();
    fleet.place.server.hold();
    let busy = fleet.bg("the second", []);
    fleet.place.server.wait_for_requests(2);
    let start = |more: &[&str]| {
        let output = fleet.place.caliban().args(["--bg", "a task"]).args(more).output().ok();
        (id_of(&output), output.stderr)
    };
    let (next, said) = start(&[]);
    let place = |id: &str| format!("on branch caliban/{id} in {}", fleet.worktree(id).display());
    let watch = |id: &str| format!("watch it: caliban attach {id}\n");
    assert_eq!(
        said,
        format!("waits for a place (next to start), then works {}\n{}", place(&next), watch(&next))
    );
    let (after, said) = start(&["--after", &busy]);
    assert_eq!(said, format!("waits for {busy}, then works {}\n{}", place(&after), watch(&after)));
    let said = fleet.run(["resume", &ended]).ok().stderr;
    assert_eq!(said, format!("waits for a place (next to start); {}", watch(&ended)));
    // One that never came to its worktree has changed nothing.
    fleet.run(["kill", &next]).ok();
    for verb in ["diff", "merge"] {
        assert_eq!(
            fleet.run(["agents", verb, &next]).expect_code(1).stderr,
            format!(
                "error: agent {next} ended before its worktree was there: it has changed nothing\n\
                 hint: caliban resume {next} lets it begin\n"
            )
        );
    }
    fleet.place.server.release();
    fleet.run(["agents", "wait", &busy, &after, &ended]).ok();
}

#[test]
fn an_agent_without_a_label_is_listed_with_its_task() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let id = fleet.bg("find the bug in the parser\nand mend it", []);
    fleet.run(["agents", "wait", &id]).ok();
    let list = fleet.run(["agents", "list"]).ok().stdout;
    assert!(list.contains(&format!("{id}  find the bug in the parser  done")), "{list}");
}

/// A directory outside git, and a repo without a commit: no worktree can be made, and that is said before anything is done.
#[test]
fn an_agent_that_works_in_your_own_directory_says_so_before_its_id() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let env = &fleet.place.env;
    for (name, is_repo) in [("plain", false), ("empty", true)] {
        let dir = env.work().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        if is_repo {
            env.git(&dir, &["init", "-q"]);
        }
        let caliban = env.cmd("caliban").get_program().to_owned();
        let mut shell = env.program("sh");
        shell.args(["-c", "exec \"$0\" --bg 'the task' \"$@\" 2>&1"]).arg(caliban);
        shell.args(fleet.place.server.args(fleet.place.protocol)).current_dir(&dir);
        let said = shell.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        let said = String::from_utf8(said.stdout).unwrap();
        let dir_line = said.lines().position(|line| line.contains("it works in your own directory"));
        let rows: serde_json::Value = env.run_in(&dir, ["agents", "list", "--json"]).ok().json();
        let id = rows[0]["id"].as_str().unwrap();
        let id_line = said.lines().position(|line| line.contains(id));
        assert!(dir_line.is_some() && dir_line < id_line, "{said}");
        env.run_in(&dir, ["agents", "wait", id]).ok();
        env.run_in(&dir, ["daemon", "stop"]).ok();
    }
}
