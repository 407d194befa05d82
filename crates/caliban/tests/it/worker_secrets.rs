//! Secrets on the way to background agents (a12): whatever shell they come from, no file of the data directory holds them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use testkit::{StepExt, Tmux, script, text, wait_until};

use crate::fleet::{Fleet, bash};

const CANARY: &str = "canary-91ab3f0d7e";
const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

/// The files below these directories that hold a text.
fn holding(dirs: &[PathBuf], text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in dirs {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                found.extend(holding(&[path], text));
            } else if kind.is_file() {
                let bytes = fs::read(&path).unwrap_or_default();
                if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                    found.push(path);
                }
            }
        }
    }
    found
}

/// Where the program writes what stays.
fn disk(fleet: &Fleet) -> Vec<PathBuf> {
    let env = &fleet.place.env;
    vec![env.data(), env.state(), env.cache(), env.tmp(), env.home()]
}

#[test]
fn a12_the_token_of_a_setup_command_that_fails_is_in_no_file() {
    for (name, value, command) in [
        // It sees the value in its own environment, or in a file.
        ("UV_INDEX_URL", format!("https://{CANARY}@h/simple"), "echo cannot use $UV_INDEX_URL >&2; exit 3"),
        ("DB_PASSWORD", CANARY.to_owned(), "echo cannot use $(cat key) >&2; exit 3"),
    ] {
        let mut fleet = Fleet::new(script![text("never")]);
        fleet.place.env.set(name, &value);
        fleet.settings(&format!("[worktrees]\nsetup = \"{command}\"\n"));
        let repo = fleet.place.repo.clone();
        fleet.place.env.write(repo.join("key"), CANARY);
        fleet.place.env.write(repo.join(".worktreeinclude"), "key\n");
        fleet.place.env.write(repo.join(".gitignore"), "key\n");
        let id = fleet.bg("the task", []);
        fleet.run(["agents", "wait", &id]).expect_code(1);
        let row = fleet.row(&id).to_string();
        assert!(row.contains("cannot use ") && row.contains("[redacted:"), "{row}");
        fleet.run(["daemon", "stop"]).ok();
        assert_eq!(holding(&disk(&fleet), CANARY), Vec::<PathBuf>::new(), "{name}");
    }
}

#[test]
fn a12_a_token_anywhere_in_the_settings_is_on_no_disk_but_in_them() {
    let fleet = Fleet::new(script![text("all done").forever()]);
    let own = fleet.place.env.config().join("caliban/settings.toml");
    fleet.settings(&format!(
        "[mcp.servers.x]\ncommand = 'false'\nargs = ['--token', '{CANARY}']\nenabled = false\n\
         [[hooks.Stop]]\ncommand = 'true {CANARY}'\n"
    ));
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let new = fleet.run(["respawn", &id]).ok().stdout.trim().to_owned();
    fleet.run(["agents", "wait", &new]).ok();
    fleet.run(["daemon", "stop"]).ok();
    assert_eq!(holding(&disk(&fleet), CANARY), Vec::<PathBuf>::new());
    assert!(fleet.place.env.read(own).contains(CANARY));
}

#[test]
fn a12_secrets_under_innocent_names_are_handed_over_and_on_no_disk() {
    let mut fleet = Fleet::new(script![
        bash(
            "echo $UV_INDEX_URL $NIX_CONFIG $CARGO_HTTP_PROXY $CARGO_REGISTRIES_X_INDEX | wc -c > seen; env"
        ),
        text(format!("I saw {CANARY}-one, {CANARY}-two and {CANARY}-four.")),
    ]);
    let variables = [
        ("npm_config__auth", format!("{CANARY}-one")),
        ("NIX_CONFIG", format!("access-tokens = github.com={CANARY}-two")),
        ("UV_INDEX_URL", format!("https://{CANARY}-three@h/simple")),
        ("CARGO_HTTP_PROXY", format!("u:{CANARY}-four@h")),
        ("CARGO_REGISTRIES_X_INDEX", format!("sparse+https://u:{CANARY}-five@h/index/")),
    ];
    for (name, value) in &variables {
        fleet.place.env.set(name, value);
    }
    let id = fleet.bg("the task", UNATTENDED);
    fleet.run(["agents", "wait", &id]).ok();
    // The commands have them, as in the foreground: an index that wants a token works.
    let given: usize = variables[1..].iter().map(|(_, value)| value.len() + 1).sum();
    let seen = fleet.place.env.read(fleet.worktree(&id).join("seen"));
    assert_eq!(seen.trim(), given.to_string());
    let logs = fleet.run(["logs", &id]).ok().stdout;
    let saw = "I saw [redacted:npm_config__auth], [redacted:NIX_CONFIG] and [redacted:CARGO_HTTP_PROXY].";
    assert!(logs.contains(saw), "{logs}");
    fleet.run(["daemon", "stop"]).ok();
    assert_eq!(holding(&disk(&fleet), CANARY), Vec::<PathBuf>::new());
}

#[test]
fn a12_an_ordinary_word_is_in_no_spec_and_the_call_that_has_it_can_be_read() {
    let command = "cp postgres password /tmp/octocat1";
    let mut fleet = Fleet::new(script![bash(command), text("done")]);
    let variables = [
        ("DB_PASSWORD", "postgres"),
        ("CALIBAN_TEST_PROXY", "me:hunter2hunt@proxy-of-ours"),
        ("DATABASE_URL", "mysql://root:password@localhost"),
        ("CARGO_X_URL", "https://octocat1@github.com"),
    ];
    for (name, value) in variables {
        fleet.place.env.set(name, value);
    }
    fleet.settings("[bash]\nenv_allow = ['DB_PASSWORD', 'DATABASE_URL']\n");
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let open: Vec<Value> = fleet.run(["approvals", "--json"]).ok().json();
    assert_eq!(open[0]["call"], format!("Bash {command}"));
    // The settings, which name it, are in the spec; the variable is not.
    for kept in ["\"DB_PASSWORD\":", "root:password@", "hunter2hunt"] {
        assert_eq!(holding(&[fleet.place.env.data()], kept), Vec::<PathBuf>::new(), "{kept}");
    }
}

#[test]
fn a12_a_call_that_was_recorded_with_a_gap_does_not_run_after_a_kill() {
    let mut fleet = Fleet::new(script![bash(&format!("touch x-{CANARY}")), text("I see").forever()]);
    fleet.place.env.set("DB_PASSWORD", CANARY);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    fleet.run(["kill", &id]).ok();
    fleet.run(["resume", &id]).ok();
    fleet.wait_for(&id, "done");
    let asked = fleet.place.server.model_requests().pop().unwrap().body.to_string();
    assert!(asked.contains("make the call again"), "{asked}");
    assert!(!fleet.worktree(&id).join("x-[redacted:DB_PASSWORD]").exists());
}

#[test]
fn a12_a_secret_of_another_shell_that_is_sent_is_heard_and_on_no_disk() {
    let fleet = Fleet::new(script![text("hello").on_first("the task"), text("heard").forever()]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    // The agent was started without it.
    let message = format!("log in with {CANARY}");
    let shell = fleet.place.env.start("caliban", ["agents", "send", &id, &message]).dir(&fleet.place.repo);
    shell.env("DB_PASSWORD", CANARY).output().ok();
    wait_until("it has answered", || fleet.row(&id)["last_text"] == "heard");
    let requests = fleet.place.server.model_requests();
    assert!(requests[1].body.to_string().contains(&message), "{}", requests[1].body);
    let logs = fleet.run(["logs", &id]).ok().stdout;
    assert!(logs.contains("log in with [redacted:DB_PASSWORD]"), "{logs}");
    assert_eq!(holding(&disk(&fleet), CANARY), Vec::<PathBuf>::new());
}

#[test]
fn a12_an_agent_that_speaks_to_another_one_leaves_its_secrets_out_and_hides_nothing() {
    let fleet = Fleet::new(script![]);
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    let provider = fleet.place.server.args(fleet.place.protocol).join(" ");
    fleet.place.server.set_script(script![
        text("hello").on_first("the listener"),
        text("heard").on("from a process of agent"),
        bash(&format!(
            "{program} --bg 'the listener' --interactive --label listener {provider} && A_TOKEN={CANARY} B_TOKEN='the listener' \
             {program} agents send listener 'use {CANARY}'"
        ))
        .on_first("the speaker"),
        text("said").on_first("the speaker"),
    ]);
    let speaker = fleet.bg("the speaker", UNATTENDED);
    fleet.run(["agents", "wait", &speaker]).ok();
    wait_until("it has answered", || fleet.row("listener")["last_text"] == "heard");
    let logs = fleet.run(["logs", "listener"]).ok().stdout;
    assert!(logs.contains("use [redacted:A_TOKEN]"), "{logs}");
    assert!(logs.contains("the listener"), "an agent teaches another one nothing: {logs}");
}

#[test]
fn a12_a_secret_of_another_shell_that_is_typed_at_an_attached_terminal_is_on_no_disk() {
    let mut fleet = Fleet::new(script![text("hello").on_first("the task"), text("heard").forever()]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    // The agent was started without it.
    fleet.place.env.set("DB_PASSWORD", CANARY);
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    let tmux = Tmux::start(&fleet.place.env, 110, 40);
    tmux.send_text(&format!("cd {} && {program} attach --plain {id}", fleet.place.repo.display()));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("Ctrl+D leaves it running");
    tmux.send_keys(&[&format!("log in with {CANARY}"), "Enter"]);
    wait_until("it has answered", || fleet.row(&id)["last_text"] == "heard");
    let requests = fleet.place.server.model_requests();
    assert!(requests[1].body.to_string().contains(&format!("log in with {CANARY}")), "{}", requests[1].body);
    let logs = fleet.run(["logs", &id]).ok().stdout;
    assert!(logs.contains("log in with [redacted:DB_PASSWORD]"), "{logs}");
    assert_eq!(holding(&[fleet.place.env.data()], CANARY), Vec::<PathBuf>::new());
}

/// Whether a directory is in memory.
fn is_in_memory(dir: &Path) -> bool {
    let output = Command::new("stat").args(["-f", "-c", "%T"]).arg(dir).output().unwrap();
    matches!(String::from_utf8_lossy(&output.stdout).trim(), "tmpfs" | "ramfs")
}

#[test]
fn a12_without_a_runtime_directory_the_keys_are_in_memory_and_go_with_the_agent() {
    let mut fleet = Fleet::new(script![text("one").on_first("the task"), text("again").forever()]);
    if is_in_memory(&fleet.place.env.tmp()) || !is_in_memory(Path::new("/dev/shm")) {
        // Then the keys are beside the sockets, and there is no better place.
        return;
    }
    fleet.place.env.unset("XDG_RUNTIME_DIR");
    fleet.place.env.unset("CALIBAN_DAEMON_RUNTIME_DIR");
    let key = fleet.place.env.var("ANTHROPIC_API_KEY").unwrap().to_str().unwrap().to_owned();
    fleet.place.env.set("DB_PASSWORD", CANARY);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(holding(&disk(&fleet), CANARY), Vec::<PathBuf>::new());
    let memory: Vec<PathBuf> = fs::read_dir("/dev/shm")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("caliban-"))
        .map(|entry| entry.path())
        .collect();
    let kept = holding(&memory, CANARY);
    let name = format!("{id}.env");
    assert_eq!(kept.iter().filter(|path| path.ends_with(&name)).count(), 1, "{kept:?}");
    // A shell without the key resumes it, also after the daemon was gone.
    fleet.run(["daemon", "stop"]).ok();
    fleet.place.env.unset("ANTHROPIC_API_KEY");
    fleet.run(["resume", &id, "--prompt", "more"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.row(&id)["last_text"], Value::from("again"));
    let requests = fleet.place.server.requests();
    let sent = requests.last().unwrap();
    assert_eq!(sent.header("x-api-key"), Some(key.as_str()));
    assert_eq!(holding(&disk(&fleet), CANARY), Vec::<PathBuf>::new());
    fleet.run(["rm", &id]).ok();
    assert_eq!(holding(&memory, CANARY), Vec::<PathBuf>::new());
    fs::remove_dir(kept[0].parent().unwrap()).unwrap();
}
