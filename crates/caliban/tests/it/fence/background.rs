//! Agents in the background: their commands are fenced, and in a worktree of their own they ask for nothing that stays
//! inside.

use serde_json::json;
use testkit::{script, text, tool, wait_until};

use crate::{fleet::Fleet, place::Place};

/// A fleet with the sandbox of a new user.
fn fenced(script: testkit::script::Script) -> Fleet {
    Fleet { place: Place::new(script) }
}

#[test]
fn a17_an_agent_in_its_own_worktree_works_unasked_and_changes_nothing_outside() {
    let line = "cat > try.py <<'E'
import os
open('made.txt', 'w').write('x')
for path in ['../../../outside.txt', '../../../.git/config', os.path.expanduser('~/.ssh/id')]:
    try: print(path, open(path, 'a+').read())
    except OSError as error: print(path, error)
E
/usr/bin/python3 try.py";
    let fleet = fenced(script![tool("Bash", json!({"command": line})), text("done")]);
    fleet.place.env.write(fleet.place.env.root().join("home/.ssh/id"), "canary\n");
    let before = super::picture(&fleet.place.repo.join(".git/refs"));
    let id = fleet.bg("the task", []);
    wait_until("it is done", || fleet.state(&id) == "done");
    let log = fleet.run(["logs", &id]).ok().stdout;
    assert_eq!(log.matches("Read-only file system").count(), 2, "{log}");
    assert!(!log.contains("canary"), "{log}");
    let worktree = fleet.place.repo.join(".caliban/worktrees").join(&id);
    assert!(worktree.join("made.txt").exists(), "{log}");
    assert!(!fleet.place.repo.join("outside.txt").exists());
    let after = super::picture(&fleet.place.repo.join(".git/refs"));
    // Its own branch was made before it began.
    assert!(after.len() >= before.len());
}

/// Git that changes something is still the rules' matter, and a rule lets it through.
#[test]
fn a17_a_commit_in_its_own_worktree_asks_unless_a_rule_allows_it() {
    let commit = json!({"command": "git add -A && git commit -qm work"});
    let write = tool("Write", json!({"file_path": "made.txt", "content": "x\n"}));
    let fleet = fenced(script![write, tool("Bash", commit), text("done")]);
    let id = fleet.bg("the task", ["--allow", "Bash(git add *)", "--allow", "Bash(git commit *)"]);
    wait_until("it is done", || fleet.state(&id) == "done");
    let branch = format!("caliban/{id}");
    let subject = fleet.place.env.git(&fleet.place.repo, &["log", "-1", "--format=%s", &branch]);
    assert_eq!(subject.trim(), "work");
}
