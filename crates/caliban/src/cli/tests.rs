//! The command line as people type it.

use std::path::Path;

use super::*;
use crate::settings::{Layer, typed};

fn parsed(line: &[&str]) -> Result<Cli, clap::Error> {
    parse(std::iter::once("caliban").chain(line.iter().copied()).map(OsString::from))
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
    let error = parsed(&["-p", "fix", "it"]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
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
        let error = parsed(line).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let said = "flags of a run cannot stand before `list`: caliban list …";
        assert!(error.to_string().contains(said), "{error}");
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
    let error = parsed(&["--provider", "antropic", "-p", "hi"]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    assert!(text.contains("openai-chat, gemini") && text.contains("'anthropic'"), "{text}");
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
        let error = parsed(line).unwrap_err();
        assert_eq!(error.exit_code(), 2);
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
        assert_eq!(parsed(&line).unwrap_err().exit_code(), 2, "{line:?}");
    }
}

#[test]
fn help_names_the_exit_codes() {
    let help = parsed(&["--help"]).unwrap_err();
    assert_eq!(help.exit_code(), 0);
    let text = help.to_string();
    for line in ["3    done, but calls were refused", "4    a budget or the turn limit", "130  interrupted"] {
        assert!(text.contains(line), "{text}");
    }
}
