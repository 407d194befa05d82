//! The command line as people type it.

use std::path::Path;

use super::*;
use crate::settings::{Layer, typed};

fn parsed(line: &[&str]) -> Result<Cli, Early> {
    parse(std::iter::once("caliban").chain(line.iter().copied()).map(OsString::from))
}

/// The error of a wrong command line.
fn wrong(line: &[&str]) -> Failure {
    match parsed(line) {
        Err(Early::Wrong(failure, _)) => failure,
        other => panic!("{line:?}: {other:?}"),
    }
}

fn prompt(line: &[&str]) -> Option<String> {
    parsed(line).unwrap().run.prompt().map(str::to_owned)
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

/// The whole program, and each group of commands.
fn groups() -> Vec<clap::Command> {
    let bare = || clap::Command::new("group");
    vec![
        Cli::command(),
        agents::AgentsCommand::augment_subcommands(bare()),
        config::ConfigCommand::augment_subcommands(bare()),
        daemon::DaemonCommand::augment_subcommands(bare()),
        sessions::SessionsCommand::augment_subcommands(bare()),
        trust::TrustCommand::augment_subcommands(bare()),
        worktrees::WorktreesCommand::augment_subcommands(bare()),
        worktrees::RescueCommand::augment_subcommands(bare()),
    ]
}

#[test]
fn nothing_is_made_of_a_command_that_was_not_given() {
    for group in groups() {
        for command in group.get_subcommands() {
            let made = (command.get_arguments().count(), command.get_subcommands().count());
            assert_eq!(made, (0, 0), "{}", command.get_name());
        }
    }
}

#[test]
fn a_command_describes_itself_as_the_list_of_commands_does() {
    let told = |group: &clap::Command| -> Vec<(String, Option<String>)> {
        let words = |sub: &clap::Command| sub.get_about().map(ToString::to_string);
        group.get_subcommands().map(|sub| (sub.get_name().to_owned(), words(sub))).collect()
    };
    for mut group in groups() {
        let before = told(&group);
        group.build();
        let after: Vec<_> = told(&group).into_iter().filter(|(name, _)| name != "help").collect();
        assert_eq!(after, before);
    }
}

#[test]
fn a_commands_own_flags_are_offered_before_those_of_every_command() {
    fn last(command: &clap::Command) -> Vec<Vec<&str>> {
        let ids: Vec<&str> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        let mut found = vec![ids[ids.len() - 3..].to_vec()];
        found.extend(command.get_subcommands().flat_map(last));
        found
    }
    for ids in whole().get_subcommands().flat_map(last) {
        assert_eq!(ids, ["cd", "debug", "help"]);
    }
}

#[test]
fn a_prompt_can_stand_anywhere_and_be_the_name_of_a_command() {
    let hi = Some("hi".to_owned());
    assert_eq!(prompt(&["hi"]), hi);
    assert_eq!(prompt(&["-p", "hi"]), hi);
    assert_eq!(prompt(&["hi", "-p"]), hi);
    assert_eq!(prompt(&["-p", "--model", "m", "hi"]), hi);
    assert_eq!(prompt(&["--model", "m", "-p", "hi", "--max-turns", "3"]), hi);
    assert_eq!(prompt(&["-p", "doctor"]), Some("doctor".to_owned()));
    assert_eq!(prompt(&["-p", "sessions"]), Some("sessions".to_owned()));
    assert_eq!(prompt(&["-p", "--", "-x is broken"]), Some("-x is broken".to_owned()));
    assert_eq!(prompt(&["-p"]), None);
    assert!(matches!(parsed(&["doctor"]).unwrap().command, Some(Command::Doctor(_))));
}

#[test]
fn two_prompts_are_a_usage_error() {
    let error = wrong(&["-p", "fix", "it"]);
    assert!(error.to_string().contains("found two prompts, `fix` and `it`"), "{error}");
}

#[test]
fn flags_of_a_run_are_refused_before_another_command() {
    for (line, flag) in [
        (&["--model", "m", "config", "show"][..], "--model"),
        (&["-p", "--", "hi", "doctor"], ""),
        (&["--continue", "sessions", "list"], "--continue"),
        (&["--output-format", "json", "doctor"], "--output-format"),
    ] {
        match parsed(line) {
            Err(error) => assert!(error.to_string().contains(flag), "{error}"),
            Ok(cli) => panic!("{line:?} was taken for {cli:?}"),
        }
    }
    assert_eq!(parsed(&["-C", "/", "doctor"]).unwrap().everywhere.cd, Some("/".into()));
    assert_eq!(parsed(&["doctor", "-C", "/"]).unwrap().everywhere.cd, Some("/".into()));
}

#[test]
fn a_short_verb_behind_a_flag_of_a_run_is_no_prompt() {
    for line in [&["--model", "m", "list"][..], &["--max-turns", "3", "list"], &["--verbose", "list", "--"]] {
        let error = wrong(line);
        assert_eq!(error.message, "flags of a run cannot stand before `list`");
        assert_eq!(error.hint.unwrap(), "caliban list …; a prompt of this one word goes behind -p");
    }
    let list = Some("list".to_owned());
    for line in [
        &["--", "list"][..],
        &["--model", "m", "--", "list"],
        &["-p", "--model", "m", "list"],
        &["--bg", "list"],
    ] {
        assert_eq!(prompt(line), list, "{line:?}");
    }
}

#[test]
fn an_unknown_provider_is_a_usage_error_with_a_close_match() {
    let error = wrong(&["--provider", "antropic", "-p", "hi"]);
    assert!(error.message.contains("openai-chat, gemini"), "{error}");
    assert_eq!(error.hint.unwrap(), "a similar value exists: 'anthropic'");
}

#[test]
fn every_agent_flag_becomes_a_setting() {
    let cli = parsed(&[
        "--provider",
        "vllm",
        "--model",
        "m",
        "--effort",
        "high",
        "--max-turns",
        "7",
        "--budget-tokens",
        "900",
        "--budget-usd",
        "1.5",
        "--permission-mode",
        "plan",
        "--allow",
        "Read",
        "--allow",
        "Edit",
        "--deny",
        "Bash(rm *)",
        "--add-dir",
        "/srv",
        "--no-sub-agent",
        "-p",
        "hi",
    ])
    .unwrap();
    let expected: crate::settings::Settings = toml::from_str(
        "provider = 'vllm'\nmodel = 'm'\neffort = 'high'\nsub_agents = false\n\
         [limits]\nmax_turns = 7\nbudget_tokens = 900\nbudget_usd = 1.5\n\
         [permissions]\nmode = 'plan'\nallow = ['Read', 'Edit']\ndeny = ['Bash(rm *)']\nadd_dirs = ['/srv']\n",
    )
    .unwrap();
    assert_eq!(typed(&Layer::from(&cli.agent.setup(Path::new("/here")))).unwrap(), expected);
    let script = parsed(&["--script", "demo.json", "-p", "hi"]).unwrap().agent.setup(Path::new("/here"));
    let settings = typed(&Layer::from(&script)).unwrap();
    assert_eq!(settings.provider, Some(caliban_providers::ProviderKind::Scripted));
    assert_eq!(settings.providers.scripted.script, Some("/here/demo.json".into()));
}

#[test]
fn a_script_for_another_provider_is_refused() {
    for line in [
        &["--script", "x.json", "--provider", "openai", "-p", "hi"][..],
        &["acp", "--script", "x.json", "--provider", "openai"],
        &["config", "show", "--script", "x.json", "--provider", "openai"],
    ] {
        let error = wrong(line);
        assert!(error.to_string().contains("--script is for --provider scripted"), "{error}");
    }
    parsed(&["--script", "x.json", "--provider", "scripted", "-p", "hi"]).unwrap();
}

#[test]
fn amounts_that_make_no_sense_are_refused() {
    for line in [
        ["--budget-usd", "-1"],
        ["--budget-usd", "nan"],
        ["--max-turns", "0"],
        ["--budget-tokens", "0"],
        ["--effort", "huge"],
        ["--permission-mode", "yolo"],
        ["--output-format", "xml"],
    ] {
        assert_eq!(wrong(&line).code, crate::report::Code::Usage, "{line:?}");
    }
}

#[test]
fn help_names_the_exit_codes() {
    let Err(Early::Shown(help)) = parsed(&["--help"]) else { panic!("no help") };
    assert_eq!(help.exit_code(), 0);
    let text = help.to_string();
    for line in ["3    done, but calls were refused", "4    a budget or the turn limit", "130  interrupted"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn every_help_has_examples() {
    fn without(command: &clap::Command, path: &str) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let mut found = Vec::new();
        if !help.contains("Examples:\n  ") {
            found.push(path.to_owned());
        }
        found.extend(
            command.get_subcommands().flat_map(|sub| without(sub, &format!("{path} {}", sub.get_name()))),
        );
        found
    }
    assert_eq!(without(&whole(), "caliban"), [""; 0]);
}

#[test]
fn a_word_that_is_nearly_a_command_is_no_prompt() {
    for (line, hint) in [
        (
            &["docter"][..],
            "did you mean `caliban doctor`?\na prompt of one word goes behind -p: caliban -p docter",
        ),
        (&["lits"], "did you mean `caliban list`?\na prompt of one word goes behind -p: caliban -p lits"),
        (&["agnets", "list"], "did you mean `caliban agents list`?"),
        (&["--debug", "-C", "/", "agnets", "list"], "did you mean `caliban agents list`?"),
        (&["sesions", "show", "a b"], "did you mean `caliban sessions show \"a b\"`?"),
        (
            &["login"],
            "keys come from the environment or the settings; `caliban doctor` says which one is missing\na prompt of \
             one word goes behind -p: caliban -p login",
        ),
    ] {
        let failure = wrong(line);
        assert!(failure.message.starts_with("there is no command `"), "{line:?}: {failure}");
        assert_eq!(failure.hint.as_deref(), Some(hint), "{line:?}");
    }
    for word in ["update", "review", "mcp", "exec", "logout", "version"] {
        assert!(wrong(&[word]).hint.is_some_and(|hint| hint.contains("caliban")), "{word}");
    }
    for (word, hint) in [
        ("logni", "keys come from the environment"),
        ("updat", "caliban is updated by"),
        ("stauts", "did you mean `caliban status`?"),
        ("dcotro", "did you mean `caliban doctor`?"),
        ("hlep", "did you mean `caliban help`?"),
        ("reveiw", "git diff | caliban -p"),
    ] {
        assert!(wrong(&[word]).hint.is_some_and(|said| said.starts_with(hint)), "{word}");
    }
    // Nobody shouts a prompt of two letters; and a flag before the word makes it no prompt.
    for (line, hint) in [
        (&["LS"][..], "did you mean `caliban ls`?"),
        (&["List"], "did you mean `caliban list`?"),
        (&["--model", "x", "statsu"], "did you mean `caliban status`?"),
        (&["--model", "x", "login"], "keys come from the environment"),
        (&["--model", "x", "kil"], "did you mean `caliban kill`?"),
    ] {
        assert!(wrong(line).hint.is_some_and(|said| said.starts_with(hint)), "{line:?}");
    }
    // Words of their own, and what is said to be a prompt.
    for line in [
        &["hello"][..],
        &["fix"],
        &["-p", "docter"],
        &["--", "docter"],
        &["docter!"],
        &["fix the docter"],
        &["--model", "x", "fix"],
    ] {
        parsed(line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
    }
    for word in ["refactor", "improve", "explain", "summarize", "continue", "commit", "tests", "cleanup"] {
        parsed(&[word]).unwrap_or_else(|error| panic!("{word}: {error}"));
    }
}

#[test]
fn commands_and_flags_of_other_tools_are_known() {
    for line in [&["ps"][..], &["ls", "--json"], &["status"], &["list", "--json"]] {
        let cli = parsed(line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        assert!(matches!(cli.command, Some(Command::Agents(agents::AgentsCommand::List(_)))), "{line:?}");
    }
    for line in [&["help"][..], &["help", "merge"], &["help", "agents", "list"]] {
        assert!(matches!(parsed(line), Err(Early::Shown(_))), "{line:?}");
    }
    // Behind a flag of a run such a word is no prompt either; behind -p it is one.
    assert!(wrong(&["--model", "x", "status"]).message.contains("status"));
    assert_eq!(parsed(&["-p", "status"]).unwrap().run.prompt(), Some("status"));
    for (flag, hint) in [
        ("--dangerously-skip-permissions", "--permission-mode"),
        ("--yolo", "--permission-mode"),
        ("--append-system-prompt", "--system-prompt-append"),
        ("--worktree", "caliban --bg"),
        ("--mcp-config", "settings"),
    ] {
        let failure = wrong(&["-p", "x", flag]);
        assert!(failure.hint.as_deref().is_some_and(|said| said.contains(hint)), "{flag}: {failure:?}");
    }
    let mode = wrong(&["-p", "x", "--permission-mode", "acceptEdits"]);
    assert!(mode.hint.as_deref().is_some_and(|hint| hint.contains("accept-edits")), "{mode:?}");
    assert_eq!(parsed(&["-m", "opus", "-p", "x"]).unwrap().agent.model.as_deref(), Some("opus"));
    assert!(parsed(&["--resume"]).unwrap().run.chooses_session());
    assert_eq!(parsed(&["--resume", "a3f8"]).unwrap().run.resume.as_deref(), Some("a3f8"));
    let all = parsed(&["stop", "--all"]).unwrap().command;
    assert!(matches!(all, Some(Command::Agents(agents::AgentsCommand::Kill(args))) if args.all));
    assert!(parsed(&["stop"]).is_err() && parsed(&["stop", "--all", "a3f8"]).is_err());
}

#[test]
fn no_help_text_has_backslashes() {
    fn look(command: &mut clap::Command) {
        let help = command.render_long_help().to_string();
        assert!(!help.contains('\\'), "{help}");
        command.get_subcommands_mut().for_each(look);
    }
    look(&mut whole());
}

#[test]
fn a_prompt_without_quotes_is_told_how_to_be_quoted() {
    let failure = wrong(&["fix", "the", "bug"]);
    assert_eq!(failure.message, "found several words, expected a command or one prompt");
    assert_eq!(failure.hint.unwrap(), "a prompt of several words goes in quotes: caliban \"fix the bug\"");
}
