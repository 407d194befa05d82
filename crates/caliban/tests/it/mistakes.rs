//! What a newcomer mistypes: every mistake is refused with its reason and a hint, before a model is asked.

use testkit::{Tmux, script, text};

use crate::{fleet::Fleet, place::Place};

#[test]
fn a_mistyped_command_line_is_refused_with_a_hint() {
    let place = Place::new(script![text("never")]);
    for (args, code, error, hint) in [
        (&["agnets", "list"][..], 2, "there is no command `agnets`", "did you mean `caliban agents list`?"),
        (&["docter"], 2, "there is no command `docter`", "did you mean `caliban doctor`?"),
        (&["kill"], 2, "the following required arguments were not provided", "Usage: caliban kill <ID>..."),
        (&["agents", "spwan"], 2, "unrecognized subcommand 'spwan'", "'spawn'"),
        (
            &["agents", "list", "--wach"],
            2,
            "unexpected argument '--wach' found",
            "a similar argument exists: '--watch'",
        ),
        (
            &["-p", "hi", "--budget-usd", "-1"],
            2,
            "invalid value '-1' for '--budget-usd <USD>': expected an amount of dollars above 0",
            "--help says what --budget-usd takes",
        ),
        (
            &["resume", "a3f8", "--max-turns", "-1"],
            2,
            "invalid value '-1' for '--max-turns <N>': expected a whole number above 0",
            "--help says what --max-turns takes",
        ),
        (
            &["-p", "hi", "--allow", "Bsh(git *)"],
            2,
            "--allow: rule `Bsh(git *)`: there is no tool `Bsh`",
            "did you mean `Bash`?",
        ),
        (
            &["-p", "hi", "--deny", "Raed"],
            2,
            "--deny: rule `Raed`: there is no tool `Raed`",
            "did you mean `Read`?",
        ),
        (
            &["-p", "hi", "--deny", "Teleport"],
            2,
            "--deny: rule `Teleport`: there is no tool `Teleport`",
            "the tools are Read, Write, Edit, Bash, BashOutput, BashInput, KillShell, Glob, Grep, WebFetch, TodoWrite, AgentTool, and \
             mcp__SERVER__TOOL",
        ),
        (
            &["agents", "spawn", "do it"],
            2,
            "found \"do it\", expected a flag",
            "the prompt goes behind --prompt: caliban agents spawn --prompt \"do it\"",
        ),
        (
            &["spawn", "fix"],
            2,
            "found fix, expected a flag",
            "the prompt goes behind --prompt: caliban agents spawn --prompt fix",
        ),
        (
            &["--interactive", "hi"],
            2,
            "--interactive is for an agent in the background",
            "add --bg: caliban --bg hi --interactive",
        ),
        (
            &["do it", "--label", "x"],
            2,
            "--label is for an agent in the background",
            "add --bg: caliban --bg \"do it\" --label …",
        ),
        (
            &["fix", "the", "bug"],
            2,
            "found several words, expected a command or one prompt",
            "a prompt of several words goes in quotes: caliban \"fix the bug\"",
        ),
        // What is not there is no wrong command line.
        (
            &["sessions", "show", "nobody"],
            1,
            "there is no session \"nobody\"",
            "`caliban sessions list` shows the sessions of this repo, with --all those of every repo",
        ),
        (
            &["-p", "hi", "--resume", "nobody"],
            1,
            "there is no session \"nobody\"",
            "`caliban sessions list` shows the sessions of this repo, with --all those of every repo",
        ),
        (&["logs", "nobody"], 1, "no agent has the id, id prefix or label 'nobody'", "caliban agents list"),
        (&["attach", "nobody"], 1, "no agent has the id, id prefix or label 'nobody'", "caliban agents list"),
        (&["worktrees", "show", "nobody"], 1, "there is no worktree", "caliban worktrees list"),
    ] {
        let refused = place.verb(args.iter().copied()).expect_code(code);
        let first = format!("error: {error}");
        assert!(refused.stderr.starts_with(&first), "{args:?}: {}", refused.stderr);
        let said = refused.stderr.lines().find_map(|line| line.strip_prefix("hint: "));
        assert!(said.is_some_and(|said| said.contains(hint)), "{args:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "", "{args:?}");
    }
    assert!(place.server.model_requests().is_empty(), "no model was asked");
}

#[test]
fn a_rule_of_the_settings_that_names_no_tool_is_an_error_where_it_stands() {
    let place = Place::new(script![text("hello")]);
    let file = place.env.config().join("caliban/settings.toml");
    place.env.write(&file, "[permissions]\ndeny = [\n  \"Read(.env)\",\n  \"Bsh\",\n]\n");
    let refused = place.ask("hi", []).expect_code(1);
    assert_eq!(
        refused.stderr,
        format!(
            "error: {}:4: rule `Bsh`: there is no tool `Bsh`\nhint: did you mean `Bash`?\n",
            file.display()
        )
    );
    // The tools of MCP servers are known only when these run.
    place
        .env
        .write(&file, "[permissions]\ndeny = [\"mcp__github__delete\", \"mcp__other\", \"BrokerSend\"]\n");
    assert_eq!(place.ask("hi", []).ok().stdout, "hello\n");
}

#[test]
fn attach_without_an_agent_names_those_that_there_are() {
    let fleet = Fleet::new(script![text("done")]);
    let refused = fleet.run(["attach"]).expect_code(2);
    assert_eq!(
        refused.stderr,
        "error: say which agent\nhint: no agent is alive here; `caliban agents list` shows those that have ended\n"
    );
    let id = fleet.bg("the task", ["--label", "docs", "--interactive"]);
    fleet.wait_for(&id, "idle");
    let refused = fleet.run(["attach"]).expect_code(2);
    let hint = format!("\nhint: caliban attach {id} (docs): ");
    assert!(refused.stderr.contains(&hint), "{}", refused.stderr);
}

#[test]
fn attach_without_an_agent_on_a_terminal_opens_the_list() {
    let fleet = Fleet::new(script![text("done")]);
    let id = fleet.bg("the task", ["--label", "docs", "--interactive"]);
    fleet.wait_for(&id, "idle");
    let tmux = Tmux::start(&fleet.place.env, 100, 30);
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    tmux.send_text(&format!("cd {} && {program} attach; echo left with $?", fleet.place.repo.display()));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("docs");
    tmux.send_keys(&["q"]);
    tmux.wait_for_text("left with 0");
}
