//! Secrets (a12): commands do not get them, and what they find elsewhere does not reach the disk.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::json;
use testkit::{Env, Signal, StepExt, script, script::Script, text, think, tool, tools, wait_until};

use crate::place::Place;

const CANARY: &str = "canary-4f1d9c7e2b";

/// Every file below a directory, with what is in it.
fn files(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path));
        } else {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
            found.push((path, text));
        }
    }
    found
}

#[test]
fn a12_a_canary_reaches_neither_commands_nor_the_disk() {
    let mut env = Env::new();
    let repo = env.repo();
    for name in ["ANTHROPIC_API_KEY", "GITHUB_TOKEN", "CARGO_REGISTRY_TOKEN", "MY_SECRET"] {
        env.set(name, CANARY);
    }
    // The model tries: the environment, and a file that somebody left lying about.
    env.write(repo.join(".env"), format!("KEY={CANARY}\n"));
    let seen = env.work().join("seen");
    let script = serde_json::json!({"steps": [
        {"tool_calls": [{"name": "Bash", "input": {"command": format!("env > {}", seen.display())}}]},
        {"tool_calls": [{"name": "Bash", "input": {"command": "env; cat .env"}}]},
        {"text": format!("The key is {CANARY}.")},
    ]});
    let script = env.write("script.json", script.to_string());
    let args =
        ["--script", script.to_str().unwrap(), "--permission-mode", "unattended", "-p", "what is the key?"];
    env.run_in(&repo, args).ok();
    let given = env.read(&seen);
    assert!(given.contains("PATH=") && given.contains("HOME="), "{given}");
    assert!(!given.contains(CANARY), "{given}");
    let written: Vec<_> = [env.data(), env.state(), env.cache()].iter().flat_map(|dir| files(dir)).collect();
    let leaks: Vec<_> =
        written.iter().filter(|(_, text)| text.contains(CANARY)).map(|(path, _)| path).collect();
    assert_eq!(leaks, Vec::<&PathBuf>::new());
    // What was said about the key is there, without the key.
    assert!(written.iter().any(|(_, text)| text.contains("The key is [redacted:")), "{written:?}");
}

#[test]
fn a12_a_secret_under_an_innocent_name_does_not_reach_the_disk_in_print_mode() {
    let mut place = Place::new(script![text(format!("The token is {CANARY}."))]);
    place.env.set("UV_INDEX_URL", format!("https://{CANARY}@h/simple"));
    place.env.run_in(&place.repo, ["-p", &format!("is it {CANARY}?")]).ok();
    assert_eq!(leaks(&place), Vec::<PathBuf>::new());
    let written = files(&place.env.data());
    assert!(written.iter().any(|(_, text)| text.contains("is it [redacted:UV_INDEX_URL]?")), "{written:?}");
}

/// A place whose environment holds the canary under several names, with a file that holds it too.
fn with_canary(script: Script) -> Place {
    let mut place = Place::new(script);
    for name in ["ANTHROPIC_API_KEY", "FOO_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"] {
        place.env.set(name, CANARY);
    }
    place.env.write(place.repo.join(".env"), format!("KEY={CANARY}\n"));
    place
}

/// The files, wherever the program may write, that hold the canary.
fn leaks(place: &Place) -> Vec<PathBuf> {
    let env = &place.env;
    let dirs = [env.data(), env.state(), env.cache(), env.tmp(), env.runtime(), env.home(), env.config()];
    dirs.iter()
        .flat_map(|dir| files(dir))
        .filter(|(_, text)| text.contains(CANARY))
        .map(|(path, _)| path)
        .collect()
}

const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

#[test]
fn a12_whatever_the_model_says_or_reads_the_disk_and_the_log_do_not_hold_it() {
    let place = with_canary(script![
        think(format!("The key is {CANARY}."))
            .and_text(format!("I saw {CANARY}."))
            .and_tool("Read", json!({"file_path": ".env"}))
            .and_tool("Grep", json!({"pattern": "KEY", "output_mode": "content"}))
            .and_tool("Bash", json!({"command": "cat .env", "description": CANARY}))
            .and_tool("Bash", json!({"command": "true", "data": CANARY, "raw": {CANARY: CANARY}}))
            .and_tool("NoSuchTool", json!({"extra": CANARY}))
            .and_tool("TodoWrite", json!({"todos": [{"content": CANARY, "status": "pending"}]})),
        text(format!("Done with {CANARY}.")),
    ]);
    let prompt = format!("use {CANARY}");
    let output = place.caliban().args(["-p", &prompt, "--debug"]).args(UNATTENDED).output().ok();
    // The person gets the answer as it is; the model was sent what it asked for.
    assert_eq!(output.stdout, format!("Done with {CANARY}.\n"));
    assert!(place.server.model_requests()[1].body["messages"].to_string().contains(&format!("KEY={CANARY}")));
    assert!(!output.stderr.contains(CANARY), "{}", output.stderr);
    assert_eq!(leaks(&place), Vec::<PathBuf>::new());
    assert!(place.env.read(place.session().join("session.json")).contains("Done with [redacted:"));
    // What was redacted can be gone on with: nothing of it is sent back to a model that would refuse it.
    place.server.set_script(script![text("again")]);
    place.ask("more", ["--continue"]).ok();
    place.server.assert_drained();
    assert_eq!(leaks(&place), Vec::<PathBuf>::new());
}

#[test]
fn a12_long_outputs_are_kept_without_it_wherever_it_stands() {
    // At every distance from any boundary that a reader may have.
    let long: String = (0..9_000).map(|n| format!("{}{CANARY}\n", "x".repeat(n % 97))).collect();
    let place = with_canary(script![
        tools([
            ("Bash", json!({"command": "cat long.txt"})),
            ("Bash", json!({"command": "cat long.txt >&2; exit 3"})),
            ("Bash", json!({"command": "cat long.txt", "run_in_background": true})),
        ]),
        text("ok").forever(),
    ]);
    place.env.write(place.repo.join("long.txt"), long);
    place.ask("read it", UNATTENDED).ok();
    assert_eq!(leaks(&place), Vec::<PathBuf>::new());
    let outputs = files(&place.session().join("outputs"));
    assert!(
        outputs.iter().any(|(_, text)| text.len() > 100_000 && text.contains("[redacted:")),
        "{}",
        outputs.len()
    );
}

#[test]
fn a12_a_command_that_is_killed_leaves_none_of_it() {
    let place = with_canary(script![tool(
        "Bash",
        json!({"command": "yes \"$(cat .env)\" | head -n 20000; touch said; sleep 600"})
    )]);
    let mut running = place.caliban().args(["-p", "go"]).args(UNATTENDED).spawn();
    wait_until("the command has said it", || place.repo.join("said").exists());
    running.signal(Signal::KILL);
    running.wait();
    wait_until("its processes are gone", || place.env.processes().is_empty());
    assert_eq!(leaks(&place), Vec::<PathBuf>::new());
}

#[test]
fn a12_sub_agents_keep_it_as_little() {
    let place = with_canary(script![
        tool("AgentTool", json!({"prompt": format!("child: use {CANARY}"), "label": CANARY}))
            .on_first("parent"),
        text("done").on_first("parent"),
        tool("Bash", json!({"command": "cat .env; env"})).on_first("child"),
        text(format!("{CANARY} {}", "long ".repeat(2_000))).on_first("child"),
    ]);
    let output = place.caliban().args(["-p", "parent", "--debug"]).args(UNATTENDED).output().ok();
    assert!(output.stderr.contains("sub_agent"), "{}", output.stderr);
    assert!(!output.stderr.contains(CANARY), "{}", output.stderr);
    assert_eq!(leaks(&place), Vec::<PathBuf>::new());
    let names: Vec<PathBuf> = files(&place.env.data()).into_iter().map(|(path, _)| path).collect();
    assert!(!names.iter().any(|path| path.display().to_string().contains(CANARY)), "{names:?}");
}

#[test]
fn a12_a_hook_that_blocks_with_it_and_an_error_that_quotes_it_do_not_leak() {
    let place = with_canary(script![text("never")]);
    let settings = "[[hooks.UserPromptSubmit]]\ncommand = 'cat .env >&2; exit 2'\n";
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    place.ask("go", []).expect_code(1);
    assert_eq!(leaks(&place), Vec::<PathBuf>::new());

    let body = testkit::Protocol::Anthropic.error_body(401, &format!("invalid x-api-key {CANARY}"));
    let place = with_canary(script![testkit::status(401).body(body)]);
    let output = place.caliban().args(["-p", "go", "--debug"]).output().expect_code(1);
    assert!(!output.stderr.contains(CANARY), "{}", output.stderr);
    assert_eq!(leaks(&place), Vec::<PathBuf>::new());
}

#[test]
fn a12_commands_get_what_the_settings_name_and_no_more() {
    let place = with_canary(script![tool("Bash", json!({"command": "env > given"})), text("ok")]);
    place
        .env
        .write(place.env.config().join("caliban/settings.toml"), "[bash]\nenv_allow = [\"FOO_TOKEN\"]\n");
    place.ask("go", UNATTENDED).ok();
    let given = place.env.read(place.repo.join("given"));
    let holding: Vec<&str> = given.lines().filter(|line| line.contains(CANARY)).collect();
    assert_eq!(holding, [format!("FOO_TOKEN={CANARY}")]);
}

#[test]
fn a12_a_background_agent_hears_its_task_whole_and_the_disk_holds_no_secret() {
    let mut place = Place::new(script![
        tool("Bash", json!({"command": "cat .env"})),
        text(format!("It is {CANARY}.")),
        text("again"),
    ]);
    // Not for the agent: it may only meet it in a file.
    place.env.set("DB_PASSWORD", CANARY);
    place.env.write(place.repo.join(".env"), format!("PASSWORD={CANARY}\n"));
    let key = format!("ghp_{}", "a1B2c3D4".repeat(5));
    let task = format!("use {key} and {CANARY}");
    let args = ["--bg", &task, "--isolation", "none", "--permission-mode", "unattended"];
    let id = crate::fleet::id_of(&place.caliban().args(args).output().ok());
    place.verb(["agents", "wait", &id]).ok();
    let more = format!("once more, with {key}");
    place.verb(["resume", &id, "--prompt", &more]).ok();
    place.verb(["agents", "wait", &id]).ok();
    let heard = place.server.model_requests();
    assert!(heard[0].body.to_string().contains(&task), "the task as it was given: {}", heard[0].body);
    assert!(heard[2].body.to_string().contains(&more), "and the message: {}", heard[2].body);
    let held: Vec<_> = [place.env.data(), place.env.state(), place.env.cache(), place.env.tmp()]
        .iter()
        .flat_map(|dir| files(dir))
        .filter(|(_, text)| text.contains(CANARY) || text.contains(&key))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(held, Vec::<PathBuf>::new());
    assert!(place.verb(["logs", &id]).ok().stdout.contains("It is [redacted:DB_PASSWORD]"));
}

/// A command that looks at every process above it: its mode, its environment, and whether its memory can be seen without the
/// rights of the administrator.
const LOOK_UP: &str = "p=$$; : > seen; while [ $p -gt 1 ]; do tr '\\0' ' ' < /proc/$p/cmdline >> seen; echo >> seen; \
    tr '\\0' '\\n' < /proc/$p/environ >> seen; \
    setpriv --bounding-set=-all cat /proc/$p/maps > /dev/null 2>&1 && echo visible >> seen || echo hidden >> seen; \
    p=$(sed 's/.*) . \\([0-9]*\\).*/\\1/' /proc/$p/stat); done";

/// The part of what was seen about the process with these words in its command line.
fn seen_of<'a>(seen: &'a str, words: &str) -> &'a str {
    let at = seen.find(words).unwrap_or_else(|| panic!("{words}: {seen}"));
    let end =
        ["visible\n", "hidden\n"].iter().filter_map(|end| Some(seen[at..].find(end)? + end.len())).min();
    &seen[at..at + end.unwrap()]
}

#[test]
fn a12_a_command_cannot_read_a_key_from_the_process_of_its_agent() {
    let place = with_canary(script![tool("Bash", json!({"command": LOOK_UP})), text("ok")]);
    place.ask("go", UNATTENDED).ok();
    let seen = place.env.read(place.repo.join("seen"));
    assert!(!seen.contains(CANARY), "{seen}");
    let agent = seen_of(&seen, "-p go");
    assert!(agent.ends_with("hidden\n"), "{seen}");
    if rustix::process::geteuid().is_root() {
        assert!(agent.contains("HOME="), "the administrator can look: {seen}");
    }
}

#[test]
fn a12_a_command_cannot_read_a_key_from_the_processes_of_a_background_agent() {
    let place = with_canary(script![tool("Bash", json!({"command": LOOK_UP})), text("ok")]);
    let args = ["--bg", "go", "--isolation", "none", "--permission-mode", "unattended"];
    let id = crate::fleet::id_of(&place.caliban().args(args).output().ok());
    place.verb(["agents", "wait", &id]).ok();
    let seen = place.env.read(place.repo.join("seen"));
    assert!(!seen.contains(CANARY), "{seen}");
    for mode in ["__worker", "__shim"] {
        assert!(seen_of(&seen, mode).ends_with("hidden\n"), "{seen}");
    }
}

/// Looks for a word in what it can read of our programs that work for this place: environment and memory.
const SEARCH: &str = r#"
import os, sys
place, word = sys.argv[1], sys.argv[2][::-1].encode()
def read(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as file: return file.read()
def memory(pid):
    for line in read(pid, "maps").decode().splitlines():
        first, last = [int(part, 16) for part in line.split()[0].split("-")]
        if " rw" not in line: continue
        with open(f"/proc/{pid}/mem", "rb", 0) as file:
            file.seek(first)
            yield file.read(last - first)
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: line = read(pid, "cmdline").decode(errors="replace").split("\0")
    except OSError: continue
    mode = line[1] if len(line) > 1 and line[1].startswith("__") else os.path.basename(line[0])
    mode = {"caliband": "daemon", "__daemon": "daemon"}.get(mode, mode)
    if place not in " ".join(line) or mode not in ["daemon", "__shim", "__worker"]: continue
    for what, parts in [("environ", lambda: [read(pid, "environ")]), ("memory", lambda: memory(pid))]:
        try: seen = "found" if any(word in part for part in parts()) else "clean"
        except PermissionError: seen = "denied"
        print(mode, what, seen)
"#;

/// A key, under a name that says nothing, is in no program of the fleet for a process of the same user.
#[test]
fn a12_a_command_outside_the_fence_finds_no_key_in_daemon_shim_or_worker() {
    if !testkit::processes_can_hide() {
        return;
    }
    let mut place = Place::new(script![]);
    place.env.unset("ANTHROPIC_API_KEY");
    place.env.set("BLUE_TABLE", CANARY);
    place.env.write(
        place.env.config().join("caliban/settings.toml"),
        "[providers.anthropic]\napi_key_env = 'BLUE_TABLE'\n",
    );
    let search = place.env.write(place.env.root().join("search.py"), SEARCH);
    let backwards: String = CANARY.chars().rev().collect();
    let root = place.env.root().display().to_string();
    let command = format!("python3 {} {root} {backwards} > seen; env > env; git --version", search.display());
    let (bin, by_git) = (place.env.root().join("bin"), place.env.root().join("seen-by-git"));
    let wrapper = format!("#!/bin/sh\nenv >> {}\nexec /usr/bin/git \"$@\"\n", by_git.display());
    let wrapper = place.env.write(bin.join("git"), wrapper);
    fs::set_permissions(wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let path = place.env.var("PATH").unwrap().to_str().unwrap().to_owned();
    place.env.set("PATH", format!("{}:{path}", bin.display()));
    place.server.set_script(script![tool("Bash", json!({"command": command})), text("ok")]);
    let args = ["--bg", "go", "--isolation", "none", "--permission-mode", "unattended"];
    let id = crate::fleet::id_of(&place.caliban().args(args).output().ok());
    place.verb(["agents", "wait", &id]).ok();
    let seen = place.env.read(place.repo.join("seen"));
    for program in ["daemon", "__shim", "__worker"] {
        assert!(seen.contains(&format!("{program} environ ")), "{seen}");
        assert!(seen.contains(&format!("{program} memory denied\n")), "{seen}");
    }
    assert!(!seen.contains("found"), "{seen}");
    for file in [place.repo.join("env"), by_git] {
        let text = place.env.read(&file);
        assert!(text.contains("PATH=") && !text.contains(CANARY), "{}: {text}", file.display());
    }
    let heard = place.server.model_requests();
    assert!(heard.iter().all(|request| request.header("x-api-key") == Some(CANARY)));
}

/// A secret that nobody could know as one: it goes with the agent.
#[test]
fn a12_a_removed_agent_leaves_nothing_of_its_task_in_the_registry() {
    let place = Place::new(script![text("ok")]);
    let task = format!("the word is {CANARY}");
    let id = crate::fleet::id_of(&place.caliban().args(["--bg", &task, "--isolation", "none"]).output().ok());
    place.verb(["agents", "wait", &id]).ok();
    let holds = || {
        let of_registry = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("fleet.db"))
        };
        files(&place.env.data())
            .into_iter()
            .filter(|(path, _)| of_registry(path))
            .any(|(_, text)| text.contains(CANARY))
    };
    assert!(holds());
    place.verb(["agents", "rm", &id]).ok();
    wait_until("it is gone", || !holds());
}

/// An undo must restore bytes, so checkpoints are the one place with secrets of the user's files. They are the user's alone, in no fence,
/// and gone with the session.
#[test]
fn a12_checkpoints_are_exact_private_in_no_fence_and_gone_with_the_session() {
    let look = "find / -name checkpoints -not -path '/proc/*' 2>&1 | sort; echo looked";
    let place = Place::new(script![
        tool("Read", json!({"file_path": "keys.txt"})),
        tool("Edit", json!({"file_path": "keys.txt", "old_string": "key=", "new_string": "token="})),
        tool("Bash", json!({"command": look})),
        text("done")
    ]);
    let data = place.env.data();
    place.env.write(place.repo.join("keys.txt"), format!("key={CANARY}\n"));
    let settings = place.env.config().join("caliban/settings.toml");
    let more = format!("[fence]\nshow = [{:?}]\n", data.display().to_string());
    place.env.write(&settings, format!("{}{more}", fs::read_to_string(&settings).unwrap_or_default()));
    place.ask("go", ["--permission-mode", "accept-edits"]).ok();
    let kept = || {
        let all = files(&data);
        all.into_iter()
            .filter(|(path, _)| path.components().any(|part| part.as_os_str() == "checkpoints"))
            .collect::<Vec<_>>()
    };
    let exact: Vec<_> = kept().into_iter().filter(|(_, text)| *text == format!("key={CANARY}\n")).collect();
    assert_eq!(exact.len(), 1, "{:?}", kept());
    for (path, _) in kept() {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    }
    let transcript = place.transcript();
    let looked = transcript.iter().rfind(|record| record["event"] == "call_ended").unwrap();
    let found = looked["content"][0]["text"].as_str().unwrap();
    assert!(found.contains("looked") && !found.contains("checkpoints\n"), "{found}");
    // Nor in the open fence, where everything but what rules are about is shown: a later session's command, and its own.
    let look = format!("cat {}/repos/*/*/*/checkpoints/* 2>&1; echo looked", data.join("caliban").display());
    place.server.set_script(script![
        tool("Write", json!({"file_path": "new.txt", "content": "x"})),
        tool("Edit", json!({"file_path": "new.txt", "old_string": "x", "new_string": "y"})),
        tool("Bash", json!({"command": look})),
        text("done")
    ]);
    let first = place.session_id();
    place.ask("look", ["--permission-mode", "unattended", "--deny", "Read(none.txt)"]).ok();
    let heard = place.server.model_requests().pop().unwrap().body.to_string();
    assert!(heard.contains("looked") && heard.contains("checkpoints/*': No such file"), "{heard}");
    assert!(!heard.contains(CANARY), "{heard}");
    assert_eq!(place.sessions().len(), 2);
    for session in place.sessions() {
        assert!(session.ends_with(&first) || kept().iter().any(|(path, _)| path.starts_with(&session)));
        place.verb(["sessions", "rm", session.file_name().unwrap().to_str().unwrap()]).ok();
    }
    assert_eq!(kept(), []);
}

/// What can be read of a process: its environment, and its memory with the rights of the administrator.
fn seen_in(pid: u32) -> (String, bool) {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let has_canary = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let mut bytes = vec![0; usize::try_from(to - from).ok()?];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, from).ok()?;
        Some(bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()))
    };
    let writable = maps.lines().filter(|line| line.contains(" rw"));
    let is_there = writable.filter_map(has_canary).any(|found| found);
    (String::from_utf8_lossy(&environment).into_owned(), is_there)
}

/// Whether others of the user can look into a process.
pub(crate) fn is_hidden(pid: u32) -> bool {
    let look = std::process::Command::new("setpriv")
        .args(["--bounding-set=-all", "cat", &format!("/proc/{pid}/maps")])
        .output()
        .unwrap();
    !look.status.success()
}

#[test]
fn a12_programs_that_stay_show_nobody_a_key() {
    let place = with_canary(script![]);
    let start = |program: &str, args: &[&str]| {
        let mut run = place.env.start(program, args).dir(&place.repo).spawn();
        run.wait_for_stdout("\n");
        run
    };
    // They need a key for the agents that they start.
    for (program, verb) in [("caliban", "dashboard"), ("cafleet", "server")] {
        let more = if program == "caliban" { vec!["--no-open", "--json"] } else { vec![] };
        let server = start(program, &[&[verb, "--port", "0"][..], &more].concat());
        let (environment, _) = seen_in(server.pid());
        assert!(!environment.contains(CANARY), "{verb}: {environment}");
        assert!(is_hidden(server.pid()), "{verb}");
        server.kill();
    }
    // These need it themselves.
    for args in [&["gateway", "--port", "0", "--json"][..], &["acp"]] {
        let run = place.env.start("caliban", args).dir(&place.repo).spawn();
        wait_until(&format!("{args:?} hides"), || is_asleep(run.pid()) && is_hidden(run.pid()));
        let (environment, _) = seen_in(run.pid());
        assert!(!environment.contains(CANARY), "{args:?}: {environment}");
        run.kill();
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    place.server.set_script(script![tool("Bash", json!({"command": "sleep 600"})).forever()]);
    let id = crate::fleet::id_of(&place.caliban().args(["--bg", "ask"]).output().ok());
    // What is typed there may quote it, so the agent is told it; nobody else sees it.
    let mut attach = place.env.start("caliban", ["attach", &id, "--plain"]).dir(&place.repo).spawn();
    attach.wait_for_stdout("sleep 600");
    assert!(!seen_in(attach.pid()).0.contains(CANARY) && is_hidden(attach.pid()));
    attach.kill();
    // These need none, so there is none.
    let team = place.env.start("cafleet", ["--json", "session", "create", "--no-tmux"]).output().ok();
    let team: serde_json::Value = team.json();
    let (session, director) = (&team["session_id"], &team["director"]["agent_id"]);
    let (session, director) = (session.as_str().unwrap(), director.as_str().unwrap());
    let poll = ["--session-id", session, "message", "poll", "--agent-id", director, "--wait", "600"];
    for (program, args, begins_with) in [
        ("caliban", &["agents", "list", "--watch", "--json"][..], id.as_str()),
        ("caliban", &["logs", "-f", &id], "ask"),
        ("caliban", &["approvals", "--watch", "--json"], ""),
        ("caliban", &["agents", "wait", &id], ""),
        ("caliban", &["daemon", "logs", "-f"], "\n"),
        ("cafleet", &poll, ""),
    ] {
        let mut watch = place.env.start(program, args).dir(&place.repo).spawn();
        if !begins_with.is_empty() {
            watch.wait_for_stdout(begins_with);
        }
        wait_until(&format!("{args:?} shows no key"), || {
            is_asleep(watch.pid()) && !seen_in(watch.pid()).0.contains(CANARY)
        });
        assert!(!seen_in(watch.pid()).1, "{args:?}");
        watch.kill();
    }
}

/// Whether a process waits for something.
fn is_asleep(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| status.contains("S (sleeping)"))
}

#[test]
fn a12_git_of_an_agent_inherits_no_key_and_the_agent_has_it() {
    let mut place = with_canary(script![
        tool("AgentTool", json!({"prompt": "look", "isolation": "worktree"})).on_first("go"),
        text("looked").on_first("look"),
        text("done").on_first("go"),
    ]);
    let (bin, seen) = (place.env.root().join("bin"), place.env.root().join("seen-by-git"));
    let wrapper = format!("#!/bin/sh\nenv >> {}\nexec /usr/bin/git \"$@\"\n", seen.display());
    let wrapper = place.env.write(bin.join("git"), wrapper);
    std::fs::set_permissions(wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = place.env.var("PATH").unwrap().to_str().unwrap().to_owned();
    place.env.set("PATH", format!("{}:{path}", bin.display()));
    place.ask("go", UNATTENDED).ok();
    let ran = place.env.read(&seen);
    assert!(ran.contains("PATH=") && !ran.contains(CANARY), "{ran}");
    let heard = place.server.model_requests();
    assert!(heard.iter().all(|request| request.header("x-api-key") == Some(CANARY)));
    // The same for an agent of the fleet, which gets its key through the daemon.
    std::fs::remove_file(&seen).unwrap();
    let id = crate::fleet::id_of(&place.caliban().args(["--bg", "go on"]).output().ok());
    place.verb(["agents", "wait", &id]).ok();
    let worker: Vec<_> =
        place.env.read(&seen).lines().filter(|line| line.contains(CANARY)).map(str::to_owned).collect();
    assert_eq!(worker, Vec::<String>::new());
}
