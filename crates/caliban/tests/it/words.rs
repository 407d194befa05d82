//! Help, version, completions, manual pages and a wrong command line.

use std::path::Path;

use testkit::{Env, ProgramRun, script, text};

use crate::fleet::Fleet;

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
    for shell in ["elvish", "powershell"] {
        let script = env.run(["completions", shell]).ok().stdout;
        assert!(script.contains("permission-mode") && script.contains("worktrees"), "{shell}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = env.run(["completions", shell]).ok().stdout;
        let script = env.write(format!("caliban.{shell}"), script);
        ProgramRun::new(env.program(shell)).args(["-n", script.to_str().unwrap()]).output().ok();
    }
}

/// What a shell itself would offer for the last word of a line.
fn offered(place: &Path, env: &Env, shell: &str, line: &str) -> Vec<String> {
    let script = env.write(format!("caliban.{shell}"), env.run(["completions", shell]).ok().stdout);
    let script = script.display();
    let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
    let (count, words) = (words.len(), words.join(" "));
    let program = match shell {
        "bash" => format!(
            "source '{script}'; COMP_WORDS=({words}); COMP_CWORD={}; _caliban; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            count - 1
        ),
        // Its own functions need a terminal; ours hands the last one what it has found.
        "zsh" => format!(
            "compdef() {{ : }}; _describe() {{ local -a all=(\"${{(@P)3}}\"); print -rl -- ${{all%%:*}} }}; \
             source '{script}'; words=({words}); CURRENT={count}; _caliban"
        ),
        _ => format!("source '{script}'; complete -C '{line}' | string split -f 1 \\t; true"),
    };
    let caliban = env.cmd("caliban").get_program().to_owned();
    let path = format!("{}:/usr/bin:/bin", Path::new(&caliban).parent().unwrap().display());
    let run = ProgramRun::new(env.program(shell)).args(["-c", program.as_str()]).env("PATH", path).dir(place);
    let mut found: Vec<String> = run.output().ok().stdout.lines().map(str::to_owned).collect();
    found.retain(|word| !word.is_empty() && !word.starts_with('-'));
    found.sort();
    found
}

#[test]
fn shells_complete_nested_commands_values_and_ids() {
    let fleet = Fleet::new(script![text("done")]);
    let id = fleet.bg("a task", ["--label", "mine"]);
    fleet.wait_for(&id, "done");
    let (env, repo) = (&fleet.place.env, &fleet.place.repo);
    for shell in ["bash", "zsh", "fish"] {
        let has = |line: &str, expected: &[&str]| {
            let mut wanted: Vec<&str> = expected.to_vec();
            wanted.sort_unstable();
            assert_eq!(offered(repo, env, shell, line), wanted, "{shell}: {line}");
        };
        has("caliban worktrees resc", &["rescue"]);
        has("caliban worktrees rescue ", &["list", "restore", "rm"]);
        has("caliban jobs ", &["list", "stop"]);
        has("caliban --permission-mode ", &["default", "accept-edits", "plan", "unattended", "never-ask"]);
        has("caliban agents spawn --isolation ", &["worktree", "none"]);
        has("caliban attach ", &[&id]);
        has(&format!("caliban agents logs {}", &id[..3]), &[&id]);
        has("caliban list --js", &[]);
    }
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
    let output = ProgramRun::new(env.program("bash")).args(["-c", &line]).output();
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
}

#[test]
fn the_guide_says_of_the_modes_what_every_screen_says() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/permissions.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    for mode in caliban_core::mode::Mode::ALL {
        let row = format!("\n| `{}` | {} |\n", mode.name(), mode.words());
        assert!(guide.contains(&row), "{row} is not in the guide");
    }
}
