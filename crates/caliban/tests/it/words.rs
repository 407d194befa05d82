//! Help, version, completions, manual pages and a wrong command line.

use testkit::{Env, Run};

#[test]
fn version_is_one_line() {
    let env = Env::new();
    let expected = format!("caliban {}\n", env!("CARGO_PKG_VERSION"));
    for flag in ["--version", "-V"] {
        assert_eq!(env.run([flag]).ok().stdout, expected);
    }
}

#[test]
fn help_names_the_flags_the_verbs_and_the_exit_codes() {
    let help = Env::new().run(["--help"]).ok().stdout;
    for word in [
        "--print",
        "--output-format",
        "--provider",
        "--model",
        "--effort",
        "--max-turns",
        "--budget-tokens",
        "--budget-usd",
        "--permission-mode",
        "--allow",
        "--deny",
        "--add-dir",
        "--system-prompt-append",
        "--cd",
        "--continue",
        "--resume",
        "--no-sub-agent",
        "--script",
        "--verbose",
        "--debug",
        "sessions",
        "config",
        "doctor",
        "models",
        "trust",
        "completions",
        "man",
        "acp",
        "agents",
        "worktrees",
        "Exit codes:",
        "130  interrupted",
    ] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
}

#[test]
fn help_and_version_need_no_home() {
    let mut env = Env::new();
    env.unset("HOME").unset("XDG_CONFIG_HOME").unset("XDG_DATA_HOME");
    env.run(["--help"]).ok();
    env.run(["--version"]).ok();
    env.run(["completions", "bash"]).ok();
}

#[test]
fn a_wrong_command_line_has_exit_code_2() {
    let env = Env::new();
    let missing = env.work().join("missing");
    for args in [
        &["--modle", "x"][..],
        &["--provider", "antropic", "-p", "x"],
        &["-p", "fix", "it"],
        &["--model", "x", "doctor"],
        &["-C", missing.to_str().unwrap(), "config", "show"],
        &["--continue", "--resume", "1234"],
    ] {
        let failed = env.run(args).expect_code(2);
        assert!(failed.stderr.starts_with("error: "), "{args:?}: {}", failed.stderr);
        assert_eq!(failed.stdout, "", "{args:?}");
    }
    let help = env.run(["sessions"]).expect_code(2).stderr;
    assert!(help.contains("Usage: caliban sessions"), "{help}");
}

#[test]
fn a_prompt_that_is_no_text_is_refused_in_words() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let failed = Env::new().run([OsStr::new("-p"), OsStr::from_bytes(b"fix \xff")]).expect_code(2);
    assert!(failed.stderr.starts_with("error: ") && failed.stderr.contains("UTF-8"), "{}", failed.stderr);
}

#[test]
fn completions_are_there_for_every_shell() {
    let env = Env::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = env.run(["completions", shell]).ok().stdout;
        assert!(script.contains("permission-mode") && script.contains("worktrees"), "{shell}");
    }
    let script = env.write("caliban.bash", env.run(["completions", "bash"]).ok().stdout);
    Run::new(env.program("bash")).args(["-n", script.to_str().unwrap()]).output().ok();
}

#[test]
fn manual_pages_are_printed_and_written() {
    let env = Env::new();
    let page = env.run(["man"]).ok().stdout;
    for part in [".TH caliban 1", "permission\\-mode", "Exit codes"] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    let dir = env.work().join("man");
    env.run(["man", "--dir", dir.to_str().unwrap()]).ok();
    for name in
        ["caliban.1", "caliban-doctor.1", "caliban-config-show.1", "caliban-worktrees-rescue-restore.1"]
    {
        assert!(dir.join(name).is_file(), "{name}");
    }
    let blocked = env.write("file", "");
    let failed = env.run(["man", "--dir", blocked.join("x").to_str().unwrap()]).expect_code(1);
    assert!(failed.stderr.starts_with("error: cannot write the manual pages to "), "{}", failed.stderr);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let env = Env::new();
    let caliban = env.cmd("caliban").get_program().to_owned();
    let line = format!("set -o pipefail; '{}' man | head -n 1", caliban.to_str().unwrap());
    let output = Run::new(env.program("bash")).args(["-c", &line]).output();
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
}
