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
open('../../../.git/config', 'a').write('[x]\\n')
for path in ['../../../outside.txt', '../../../.git/config', os.path.expanduser('~/.ssh/id')]:
    try: print(path, open(path, 'a+').read())
    except OSError as error: print(path, error)
E
/usr/bin/python3 try.py";
    let fleet = fenced(script![tool("Bash", json!({"command": line})), text("done")]);
    fleet.place.env.write(fleet.place.env.root().join("home/.ssh/id"), "canary\n");
    let before = super::picture(&fleet.place.repo.join(".git/refs"));
    let config = fleet.place.repo.join(".git/config");
    let was = fleet.place.env.read(&config);
    let id = fleet.bg("the task", []);
    wait_until("it is done", || fleet.state(&id) == "done");
    let log = fleet.run(["logs", &id]).ok().stdout;
    assert_eq!(log.matches("Read-only file system").count(), 1, "{log}");
    // What it finds in the place of the configuration is its own.
    assert_eq!(fleet.place.env.read(&config), was);
    assert!(!log.contains("canary"), "{log}");
    let worktree = fleet.place.repo.join(".caliban/worktrees").join(&id);
    assert!(worktree.join("made.txt").exists(), "{log}");
    assert!(!fleet.place.repo.join("outside.txt").exists());
    let after = super::picture(&fleet.place.repo.join(".git/refs"));
    // Its own branch was made before it began.
    assert!(after.len() >= before.len());
}

/// Through its private git: nothing is asked, and nothing of the repository changes but what is the agent's.
#[test]
fn a17_w01_an_agent_commits_in_its_own_worktree_without_a_question() {
    let write = tool("Write", json!({"file_path": "made.txt", "content": "x\n"}));
    let commit = json!({"command": "git add -A && git commit -qm work && git tag v1 && git checkout -q -b topic && \
        git commit -q --allow-empty -m topic && echo y > staged && git add staged"});
    let read = json!({"command": "git log --oneline -3; git status --short; git tag -l"});
    let evil = json!({"command": "git config core.fsmonitor 'touch evil'; echo x > $(git rev-parse --git-common-dir)/hooks/pre-commit; \
        git update-ref refs/heads/main HEAD; true"});
    let fleet =
        fenced(script![write, tool("Bash", commit), tool("Bash", read), tool("Bash", evil), text("done")]);
    let (repo, env) = (fleet.place.repo.clone(), &fleet.place.env);
    let git = |args: &[&str]| env.git(&repo, args).trim().to_owned();
    let protected = || {
        (
            env.read(repo.join(".git/config")),
            super::picture(&repo.join(".git/hooks")),
            git(&["rev-parse", "main"]),
        )
    };
    let before = protected();
    let id = fleet.bg("the task", []);
    wait_until("it is done", || fleet.state(&id) == "done");
    let log = fleet.run(["logs", &id]).ok().stdout;
    assert_eq!(git(&["log", "-1", "--format=%s", &format!("caliban/{id}")]), "work", "{log}");
    assert_eq!(git(&["log", "-1", "--format=%s", &format!("caliban/{id}+topic")]), "topic", "{log}");
    let tree = repo.join(".caliban/worktrees").join(&id);
    assert_eq!(env.git(&tree, &["status", "--porcelain"]).trim(), "A  staged", "{log}");
    assert_eq!(env.git(&tree, &["symbolic-ref", "HEAD"]).trim(), format!("refs/heads/caliban/{id}+topic"));
    assert!(log.contains("v1"), "{log}");
    assert_eq!(protected(), before);
    fleet.run(["agents", "rm", &id]).ok();
    assert!(!repo.join(".git/caliban").join(&id).exists());
    assert_eq!(git(&["log", "-1", "--format=%s", &format!("caliban/{id}+topic")]), "topic");
}

/// A rule says "do not ask"; the commit is made in the private git all the same.
#[test]
fn a17_a_commit_in_its_own_worktree_that_a_rule_allows_stays_in_the_fence() {
    let commit = json!({"command": "git add -A && git commit -qm work"});
    let write = tool("Write", json!({"file_path": "made.txt", "content": "x\n"}));
    let fleet = fenced(script![write, tool("Bash", commit), text("done")]);
    let id = fleet.bg("the task", ["--allow", "Bash(git add *)", "--allow", "Bash(git commit *)"]);
    wait_until("it is done", || fleet.state(&id) == "done");
    let branch = format!("caliban/{id}");
    let subject = fleet.place.env.git(&fleet.place.repo, &["log", "-1", "--format=%s", &branch]);
    assert_eq!(subject.trim(), "work");
}

/// What a command of it starts is held to what it may do now, also when nobody asks the daemon.
#[test]
fn a17_a11_a_caliban_below_an_agent_has_the_agents_rules() {
    let program = testkit::Env::new().cmd("caliban").get_program().to_str().unwrap().to_owned();
    let inner = json!({"steps": [
        {"tool_calls": [{"name": "Bash", "input": {"command": "ls file.txt"}}, {"name": "Bash", "input": {"command": "cat file.txt"}}]},
        {"text": "inner is done"},
    ]});
    let line = json!({"command": format!("{program} -p hi --script inner.json -v 2>&1")});
    let fleet = fenced(script![tool("Bash", line), text("done")]);
    fleet.place.env.write(fleet.place.repo.join("inner.json"), inner.to_string());
    fleet.place.env.write(fleet.place.repo.join("file.txt"), "content of it\n");
    let allow = format!("Bash({program} *) outside");
    let id = fleet.bg("the task", ["--isolation", "none", "--allow", &allow, "--deny", "Bash(ls *)"]);
    wait_until("it is done", || fleet.state(&id) == "done");
    let log = fleet.run(["logs", &id]).ok().stdout;
    assert!(log.contains("inner is done") && log.contains("denied by Bash(ls *)"), "{log}");
}

/// A worker that is killed has not published what its last command did: who looks at the work or lands it does.
#[test]
fn a17_r19_what_a_killed_agent_committed_last_is_shown_and_lands() {
    let write = tool("Write", json!({"file_path": "made.txt", "content": "x\n"}));
    let commit = json!({"command": "git add -A && git commit -qm work && sleep 600", "timeout": 600_000});
    let fleet = fenced(script![write, tool("Bash", commit), text("done")]);
    let (repo, env) = (fleet.place.repo.clone(), &fleet.place.env);
    let id = fleet.bg("the task", []);
    let own = repo.join(".git/caliban").join(&id).join("git/refs/heads/caliban").join(&id);
    wait_until("it has committed", || own.exists());
    fleet.run(["kill", &id]).ok();
    let subject = |name: &str| env.git(&repo, &["log", "-1", "--format=%s", name]).trim().to_owned();
    assert_ne!(subject(&format!("caliban/{id}")), "work", "nobody has published it");
    let diff = fleet.run(["agents", "diff", &id, "--stat"]).ok().stdout;
    assert!(diff.contains("made.txt"), "{diff}");
    assert_eq!(subject(&format!("caliban/{id}")), "work");
    let merged = fleet.run(["agents", "merge", &id]).ok();
    assert!(env.git(&repo, &["log", "--format=%s"]).contains("work"), "{merged:?}");
}

/// What leads git elsewhere. In the private git all of it is a copy, and the worktree's pointer cannot be replaced.
#[test]
fn a17_an_agent_leads_no_git_elsewhere() {
    let line = "g=$(git rev-parse --git-common-dir); w=$(git rev-parse --git-dir); \
        rm -f .git && echo removed; mv .git x && echo moved; ln -sf /etc .git && echo linked; echo gitdir: /tmp > .git && echo written; \
        echo /tmp > $w/commondir; echo '[core]' > $w/config.worktree; echo x > $w/gitdir; ln -s ~/.bashrc $w/COMMIT_EDITMSG; \
        ln -s / $g/refs/evil; git -C ../../.. config core.fsmonitor 'touch evil'; git -C ../../.. stash; \
        echo x >> ../../../file.txt && echo outside; true";
    // In a script: words that name such places would be asked about.
    let command = format!("cat > x.sh <<'E'\n{line}\nE\nsh x.sh");
    let fleet = fenced(script![tool("Bash", json!({"command": command})), text("done")]);
    let (repo, env) = (fleet.place.repo.clone(), &fleet.place.env);
    env.write(repo.join("file.txt"), "mine\n");
    let id = fleet.bg("the task", []);
    wait_until("it is done", || fleet.state(&id) == "done");
    let log = fleet.run(["logs", &id]).ok().stdout;
    for word in ["removed", "moved", "linked", "written", "outside"] {
        assert!(!log.lines().any(|line| line.trim() == word), "{word}: {log}");
    }
    let (tree, record) = (fleet.worktree(&id), repo.join(".git/worktrees").join(&id));
    assert_eq!(env.git(&tree, &["rev-parse", "--show-toplevel"]).trim(), tree.display().to_string());
    assert_eq!(env.read(record.join("commondir")).trim(), "../..");
    assert_eq!(env.read(record.join("gitdir")).trim(), tree.join(".git").display().to_string());
    assert!(!record.join("config.worktree").exists() && !repo.join(".git/refs/evil").exists());
    assert!(
        record.join("COMMIT_EDITMSG").symlink_metadata().is_ok_and(|found| !found.is_symlink())
            || !record.join("COMMIT_EDITMSG").exists()
    );
    assert_eq!(env.read(repo.join("file.txt")), "mine\n");
    assert!(!env.read(repo.join(".git/config")).contains("fsmonitor"));
}

/// A person answers in another terminal; the second run is theirs, and the next call of its kind needs no question.
#[test]
fn r17_a_background_agent_asks_when_its_fence_has_stopped_a_command() {
    let line = || tool("Bash", json!({"command": "touch ../../../made"}));
    let fleet = fenced(script![line(), line(), text("done")]);
    let id = fleet.bg("the task", []);
    wait_until("it asks", || fleet.run(["approvals"]).ok().stdout.contains("it failed in its fence"));
    let asked = fleet.run(["approvals"]).ok().stdout;
    assert!(asked.contains("Read-only file system"), "{asked}");
    assert!(asked.contains("--always --outside would allow Bash(touch ../../../made) outside"), "{asked}");
    let made = fleet.place.repo.join("made");
    assert!(!made.exists());
    let refused = fleet.run(["approve", &id, "--always"]).expect_code(2).stderr;
    assert!(refused.contains("there is no rule that would allow"), "{refused}");
    let told = fleet.run(["approve", &id, "--always", "--outside"]).ok().stdout;
    assert!(told.contains("added: Bash(touch ../../../made) outside (this session)"), "{told}");
    wait_until("it is done", || fleet.state(&id) == "done");
    assert!(made.exists());
    let audit = fleet.run(["sessions", "audit", &id]).ok().stdout;
    let calls = audit.lines().skip(1).filter(|line| !line.starts_with("spent"));
    let rows: Vec<Vec<&str>> = calls.map(|line| line.split_whitespace().skip(2).take(2).collect()).collect();
    assert_eq!(rows, [["allowed", "failed"], ["approved", "ok"], ["allowed", "ok"]], "{audit}");
}
