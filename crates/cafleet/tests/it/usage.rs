//! m02: where flags stand, and what a wrong command line is told.

use crate::world::{Said, World, misused, ok, refused};

#[track_caller]
fn check(args: &[&str], expected: &Said) {
    assert_eq!(&World::new().run(args), expected, "{args:?}");
}

const NEEDS_SESSION: &str = "--session-id <uuid> is required for this subcommand. Create a session with \
                             'cafleet session create' and pass its id.";

#[test]
fn m02_version_needs_no_session() {
    check(&["--version"], &ok(&format!("cafleet {}", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn m02_global_flags_after_the_subcommand_are_no_such_option() {
    let list = "cafleet agent list [OPTIONS]";
    check(&["agent", "list", "--json"], &misused(list, "cafleet agent list", "No such option: --json"));
    check(
        &["agent", "list", "--session-id", "x"],
        &misused(list, "cafleet agent list", "No such option: --session-id"),
    );
    check(&["agent", "list", "--pretty"], &misused(list, "cafleet agent list", "No such option: --pretty"));
    let root = "cafleet [OPTIONS] COMMAND [ARGS]...";
    check(&["--agent-id", "x", "agent", "list"], &misused(root, "cafleet", "No such option: --agent-id"));
    let group = "cafleet message [OPTIONS] COMMAND [ARGS]...";
    check(&["message", "--json", "poll"], &misused(group, "cafleet message", "No such option: --json"));
}

#[test]
fn m02_missing_options_are_named_in_order() {
    let send = "cafleet message send [OPTIONS]";
    let path = "cafleet message send";
    check(&["message", "send"], &misused(send, path, "Missing option '--agent-id'."));
    check(&["message", "send", "--agent-id", "x"], &misused(send, path, "Missing option '--to'."));
    check(
        &["message", "send", "--agent-id", "x", "--to", "y"],
        &misused(send, path, "Missing option '--text'."),
    );
    check(
        &["message", "broadcast", "--agent-id", "x"],
        &misused(
            "cafleet message broadcast [OPTIONS]",
            "cafleet message broadcast",
            "Missing option '--text'.",
        ),
    );
    check(
        &["message", "ack", "--agent-id", "x"],
        &misused("cafleet message ack [OPTIONS]", "cafleet message ack", "Missing option '--task-id'."),
    );
    check(
        &["agent", "show", "--agent-id", "x"],
        &misused("cafleet agent show [OPTIONS]", "cafleet agent show", "Missing option '--id'."),
    );
    check(
        &["agent", "register", "--name", "x"],
        &misused(
            "cafleet agent register [OPTIONS]",
            "cafleet agent register",
            "Missing option '--description'.",
        ),
    );
    for verb in ["poll", "cancel", "show", "deliver"] {
        let path = format!("cafleet message {verb}");
        check(
            &["message", verb],
            &misused(&format!("{path} [OPTIONS]"), &path, "Missing option '--agent-id'."),
        );
    }
    check(
        &["session", "delete"],
        &misused(
            "cafleet session delete [OPTIONS] SESSION_ID",
            "cafleet session delete",
            "Missing argument 'SESSION_ID'.",
        ),
    );
}

#[test]
fn m02_wrong_values_and_commands_are_usage_errors() {
    let root = "cafleet [OPTIONS] COMMAND [ARGS]...";
    check(&["nothing"], &misused(root, "cafleet", "No such command 'nothing'."));
    check(
        &["--json"],
        &Said {
            code: 2,
            out: String::new(),
            err: "{\"error\":{\"code\":\"usage\",\"message\":\"Missing command.\"}}\n".into(),
        },
    );
    check(
        &["message", "nope"],
        &misused("cafleet message [OPTIONS] COMMAND [ARGS]...", "cafleet message", "No such command 'nope'."),
    );
    check(
        &["session", "create", "--coding-agent", "emacs"],
        &misused(
            "cafleet session create [OPTIONS]",
            "cafleet session create",
            "Invalid value for '--coding-agent': 'emacs' is not one of 'claude', 'codex', 'caliban', 'gemini', 'opencode'.",
        ),
    );
    let poll = ("cafleet message poll [OPTIONS]", "cafleet message poll");
    check(
        &["message", "poll", "--agent-id", "x", "--page-size", "0"],
        &misused(poll.0, poll.1, "Invalid value for '--page-size': '0': 0 is not in 1..=10000."),
    );
    check(
        &["message", "poll", "--agent-id", "x", "--page-size", "many"],
        &misused(poll.0, poll.1, "Invalid value for '--page-size': 'many': invalid digit found in string."),
    );
    check(
        &["message", "poll", "--agent-id", "x", "--since", "yesterday"],
        &misused(
            poll.0,
            poll.1,
            "Invalid value for '--since': 'yesterday' is not an ISO 8601 time such as 2026-03-28T12:00:00+00:00.",
        ),
    );
    check(
        &["message", "poll", "--agent-id"],
        &misused(poll.0, poll.1, "Option '--agent-id' requires an argument."),
    );
    check(
        &["session", "delete", "a", "b"],
        &misused(
            "cafleet session delete [OPTIONS] SESSION_ID",
            "cafleet session delete",
            "Got unexpected extra argument (b)",
        ),
    );
    let send = ["message", "send", "--agent-id", "x", "--to", "y", "--text", "t"];
    check(
        &[&send[..], &["--quiet", "--full"]].concat(),
        &misused(
            "cafleet message send [OPTIONS]",
            "cafleet message send",
            "'--quiet' cannot be used with '--full'.",
        ),
    );
    check(
        &[&send[..], &["--text-file", "f"]].concat(),
        &misused(
            "cafleet message send [OPTIONS]",
            "cafleet message send",
            "'--text' cannot be used with '--text-file'.",
        ),
    );
    check(
        &[&send[..], &["--id", "abcd"]].concat(),
        &misused(
            "cafleet message send [OPTIONS]",
            "cafleet message send",
            "Invalid value for '--id': 'abcd' is not a valid UUID.",
        ),
    );
    check(
        &["agent", "list", "--\u{1b}[31m"],
        &misused("cafleet agent list [OPTIONS]", "cafleet agent list", "No such option: --␛[31m"),
    );
}

#[test]
fn m02_a_missing_session_is_exit_1_with_the_sentence() {
    for args in [
        &["agent", "register", "--name", "a", "--description", "d"][..],
        &["agent", "list", "--agent-id", "x"],
        &["agent", "show", "--agent-id", "x", "--id", "y"],
        &["agent", "deregister", "--agent-id", "x"],
        &["message", "send", "--agent-id", "x", "--to", "y", "--text", "t"],
        &["message", "broadcast", "--agent-id", "x", "--text", "t"],
        &["message", "poll", "--agent-id", "x"],
        &["message", "ack", "--agent-id", "x", "--task-id", "y"],
        &["message", "cancel", "--agent-id", "x", "--task-id", "y"],
        &["message", "show", "--agent-id", "x", "--task-id", "y"],
        &["message", "deliver", "--agent-id", "x"],
    ] {
        check(args, &refused(NEEDS_SESSION));
    }
}

#[test]
fn m02_no_identity_comes_from_the_environment() {
    let mut world = World::with_session();
    world.agent("alice");
    for name in ["CAFLEET_SESSION_ID", "CAFLEET_AGENT_ID", "SESSION_ID", "AGENT_ID"] {
        let id = world.id(if name.contains("AGENT") { "alice" } else { "S" });
        world.set(name, id);
    }
    assert_eq!(world.run(&["message", "poll", "--agent-id", "@alice"]), refused(NEEDS_SESSION));
    assert_eq!(world.run(&["--session-id", "@S", "message", "poll"]).code, 2);
}

#[test]
fn m02_json_errors_are_json_with_the_same_exit_codes() {
    let json = |code: i32, err: &str| Said { code, out: String::new(), err: format!("{err}\n") };
    check(
        &["--json", "agent", "list", "--agent-id", "x"],
        &json(1, &format!("{{\"error\":{{\"code\":\"session_required\",\"message\":\"{NEEDS_SESSION}\"}}}}")),
    );
    check(
        &["--json", "agent", "list"],
        &json(2, "{\"error\":{\"code\":\"usage\",\"message\":\"Missing option '--agent-id'.\"}}"),
    );
    check(
        &["--json", "--pretty", "agent", "nope"],
        &json(
            2,
            "{\n  \"error\": {\n    \"code\": \"usage\",\n    \"message\": \"No such command 'nope'.\"\n  }\n}",
        ),
    );
    check(
        &["session", "show", "--json", "--nope"],
        &json(2, "{\"error\":{\"code\":\"usage\",\"message\":\"No such option: --nope\"}}"),
    );
    check(
        &["session", "show", "nope", "--json"],
        &json(1, "{\"error\":{\"code\":\"session_not_found\",\"message\":\"session 'nope' not found.\"}}"),
    );
}

#[test]
fn m02_session_id_is_accepted_where_it_means_nothing() {
    let world = World::new();
    assert_eq!(world.run(&["--session-id", "x", "session", "list"]), ok("No sessions found."));
    assert_eq!(world.run(&["--session-id", "x", "db", "init"]).code, 0);
    assert_eq!(
        world.run(&["--session-id", "x", "doctor"]),
        refused("cafleet doctor must be run inside a tmux session")
    );
}

#[test]
fn help_is_there_for_every_command_with_an_example_and_without_colour() {
    let world = World::new();
    let paths = every_command(&world);
    assert!(paths.iter().any(|path| *path == ["message", "poll"]), "{paths:?}");
    for path in &paths {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let path = &path[..];
        let said = world.run(&[path, &["--help"]].concat());
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{path:?}");
        assert!(
            said.out.contains(&format!(
                "Usage: {}",
                ["cafleet"].iter().chain(path).copied().collect::<Vec<_>>().join(" ")
            )),
            "{path:?}: {}",
            said.out
        );
        assert!(!said.out.contains('\u{1b}'), "{path:?}");
        assert!(said.out.contains("\nExamples:\n  "), "{path:?} has no example: {}", said.out);
    }
    for group in [&[][..], &["session"], &["agent"], &["message"], &["db"]] {
        let said = world.run(group);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{group:?}");
        assert!(said.err.contains("Usage: cafleet"), "{group:?}: {}", said.err);
    }
}

/// Every command and group that the help names, from the program itself downwards.
pub(crate) fn every_command(world: &World) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    let mut next = 0;
    while let Some(path) = all.get(next).cloned() {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let help = world.run(&words).out;
        let commands = help.split_once("Commands:\n").map(|(_, rest)| rest).unwrap_or_default();
        for line in commands.lines().take_while(|line| line.starts_with("  ")) {
            // A second line of words about a command is indented further.
            if let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) {
                let name = name.split(' ').next().unwrap_or_default().to_owned();
                all.push([&path[..], &[name]].concat());
            }
        }
        next += 1;
    }
    all
}

#[test]
fn completions_name_every_command() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let said = world.run(&["completions", shell]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{shell}");
        for word in every_command(&world).iter().flatten() {
            assert!(said.out.contains(word.as_str()), "{shell} does not complete {word}");
        }
    }
}

/// In bash itself: commands of commands, their flags, and the values of flags.
#[test]
fn completions_go_down_to_the_values() {
    let world = World::new();
    let complete = |line: &str| {
        let script = format!(
            "source <({} completions bash); COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _cafleet cafleet \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            env!("CARGO_BIN_EXE_cafleet")
        );
        let said = world.said(&world.program("bash", &["-c", &script]).output().expect("bash"));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{line}");
        said.out.trim().to_owned()
    };
    assert_eq!(complete("cafleet mes"), "message");
    assert_eq!(complete("cafleet message pol"), "poll");
    assert_eq!(complete("cafleet message poll --page"), "--page-size");
    assert_eq!(complete("cafleet completions ba"), "bash");
    assert!(complete("cafleet session create --coding-agent ''").starts_with("claude codex"));
    assert!(complete("cafleet setup --c").contains("--check"));
}

#[test]
fn the_manual_is_one_page_for_each_command() {
    let world = World::new();
    let page = world.run(&["man"]);
    assert_eq!((page.code, page.err.as_str()), (0, ""));
    assert!(
        page.out.contains(".TH cafleet 1") && page.out.contains("cafleet session create"),
        "{}",
        page.out
    );
    let dir = world.path("man1");
    let said = world.run(&["man", "--dir", dir.to_str().expect("path")]);
    assert_eq!(said, crate::world::ok("Manual pages are in <dir>/man1"));
    for path in every_command(&world) {
        let name = std::iter::once("cafleet".to_owned()).chain(path).collect::<Vec<_>>().join("-");
        assert!(dir.join(format!("{name}.1")).is_file(), "{name}");
    }
    let nowhere = world.run(&["man", "--dir", "/proc/nowhere"]);
    assert_eq!(nowhere.code, 1);
    assert!(
        nowhere.err.starts_with("Error: cannot write the manual pages to /proc/nowhere: "),
        "{}",
        nowhere.err
    );
}
