//! Projects of another kind: a bare repository, a submodule, the root directory; and a setting that is no file.

use testkit::{StepExt as _, text, tool, wait_until};

use super::{
    hostile::{armed, bash, calls, python, shows_no_canary},
    picture, results,
};
use crate::{fleet::Fleet, place::Place};

/// Seen: with `GIT_CONFIG_GLOBAL=/dev/null` no command could open `/dev/null`.
#[test]
fn a18_dev_null_is_usable_whatever_a_variable_names() {
    for name in ["GIT_CONFIG_GLOBAL", "npm_config_cache", "CARGO_HOME"] {
        for (mode, line) in [
            ("default", "ls > /dev/null; cat README.md 2> /dev/null"),
            (
                "accept-edits",
                "/usr/bin/python3 -c 'open(\"/dev/null\", \"w\").write(\"x\")' && cp README.md /dev/null && cat README.md",
            ),
        ] {
            let mut place = Place::new(calls([bash(line)]));
            place.env.set(name, "/dev/null");
            super::go(&place, mode, &[]);
            let (_, text, code) = super::result(&place);
            assert_eq!(code, Some(0), "{name} {mode}: {text}");
            assert!(text.contains("# A repo") && !text.contains("/dev/null"), "{name} {mode}: {text}");
        }
    }
}

/// The work of an agent in its own worktree, and what git does there.
fn commits() -> testkit::script::Script {
    let write = tool("Write", serde_json::json!({"file_path": "made.txt", "content": "x\n"}));
    let commit = bash("git add made.txt && git commit -qm work && git log --oneline");
    testkit::script::Script { steps: vec![bash("ls"), write, commit, text("done").forever()] }
}

/// Either the commit is on the agent's branch, or somebody was asked about it. Nothing fails without a question.
fn works_or_asks(fleet: &Fleet, id: &str) {
    let asks = || fleet.row(id)["asks"].as_array().is_some_and(|asks| !asks.is_empty());
    wait_until("it is done or asks", || fleet.state(id) == "done" || asks());
    let log = fleet.run(["logs", id]).ok().stdout;
    assert!(!log.contains("the fence could not be put up"), "{log}");
    assert!(!log.contains("Read-only file system"), "{log}");
    if !asks() {
        let subject =
            fleet.place.env.git(&fleet.place.repo, &["log", "-1", "--format=%s", &format!("caliban/{id}")]);
        assert_eq!(subject, "work", "{log}");
    }
}

/// Seen: no fence could be put up for an agent of a bare repository.
#[test]
fn a18_an_agent_of_a_bare_repository_works() {
    let mut fleet = Fleet { place: Place::new(commits()) };
    let bare = fleet.place.env.root().join("bare.git");
    fleet.place.env.git(&fleet.place.repo, &["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    fleet.place.repo = bare;
    let id = fleet.bg("the task", []);
    works_or_asks(&fleet, &id);
}

/// Seen: git failed with "Read-only file system", and nobody was asked.
#[test]
fn a18_an_agent_of_a_submodule_works_or_asks() {
    let mut fleet = Fleet { place: Place::new(commits()) };
    let other = fleet.place.env.repo();
    let args =
        ["-c", "protocol.file.allow=always", "submodule", "add", "-q", other.to_str().unwrap(), "vendor"];
    fleet.place.env.git(&fleet.place.repo, &args);
    fleet.place.env.git(&fleet.place.repo, &["commit", "-qm", "a submodule"]);
    fleet.place.repo.push("vendor");
    let id = fleet.bg("the task", []);
    works_or_asks(&fleet, &id);
}

/// A bare repository is git's own directory: what git runs there stays as it is, and what only reads works.
#[test]
fn a18_a_bare_repository_as_the_project_keeps_its_settings() {
    let mut place = Place::new(calls([]));
    let (bare, mark) = (place.env.root().join("bare.git"), place.env.root().join("mark"));
    place.env.git(&place.repo, &["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    place.repo.clone_from(&bare);
    let program = format!(
        "import os\ntry: open('config', 'a').write({})\nexcept OSError as e: print(e)\ntry: open('hooks/post-update', 'w').write('#!/bin/sh\\n'); os.chmod('hooks/post-update', 0o755)\nexcept OSError as e: print(e)\ntry: os.rename('hooks', 'h'); os.mkdir('hooks')\nexcept OSError as e: print(e)",
        armed(&mark)
    );
    let state = |bare: &std::path::Path| (place.env.read(bare.join("config")), picture(&bare.join("hooks")));
    let before = state(&bare);
    place.server.set_script(calls([bash("ls"), bash(python(&program))]));
    let found = shows_no_canary(&place, "accept-edits", &[]);
    assert_eq!(found[0].2, Some(0), "{found:#?}");
    assert_eq!(state(&bare), before, "{found:#?}");
}

/// Seen: with `/` as the project a write ended with 0 and was gone.
#[test]
fn a18_with_the_root_directory_as_the_project_no_write_is_lost() {
    let mut place = Place::new(calls([]));
    place.repo = "/".into();
    let (made, secret) = (place.env.root().join("made"), place.env.home().join("notes"));
    place.env.write(&secret, "canary\n");
    place.env.write(place.env.home().join(".ssh/id"), "canary\n");
    let write = format!("open('{}', 'w').write('x')", made.display());
    let read = format!("print(open('{}').read())", place.env.home().join(".ssh/id").display());
    place.server.set_script(calls([bash("ls"), bash(python(&write)), bash(python(&read))]));
    shows_no_canary(&place, "accept-edits", &[]);
    let found = results(&place);
    assert!(found[1].2 != Some(0) || made.exists(), "it ended with 0, and nothing is there: {found:#?}");
}
