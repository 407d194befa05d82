//! `kill -9` at every instant that matters: nothing that git acknowledged is lost, and the user's git goes on.

use std::process::Command;

use caliban_worktrees::{GitOptions, RemoveOptions, Repo, SweepMode};

use super::{Place, program};
use crate::lab::{slug, token};

/// System calls that change something outside or inside.
const CALLS: &str = "rename,renameat,renameat2,link,linkat,unlink,unlinkat,fsync";

/// Runs a line with the keeper killed at the `n`th of those calls. Whether it was.
fn killed_at(place: &Place, line: &str, n: usize) -> bool {
    let mut command = Command::new("strace");
    command.args(["-qq", "-o", "/dev/null"]);
    command.arg("-e").arg(format!("inject={CALLS}:signal=KILL:when={n}"));
    command.arg(program());
    let status = place.with_environment(command, line).output().unwrap().status;
    std::os::unix::process::ExitStatusExt::signal(&status).is_some() || status.code() != Some(0)
}

/// At every second instant, from the first one on.
fn survives(first: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = runtime.block_on(Place::new());
    let before = place.protected();
    let mut ended = 0;
    let mut points = 0;
    for n in (first..).step_by(2) {
        let acknowledged = place.tree.join("target/acknowledged");
        let _none = std::fs::remove_file(&acknowledged);
        let line = format!(
            "mkdir -p target; echo {n} > f; git add f && git commit -q -m {n} && git rev-parse HEAD >> target/acknowledged; \
             echo s{n} > s; git add s && git write-tree >> target/acknowledged; git branch b{n} && git rev-parse b{n} >> \
             target/acknowledged; echo {n} >> README.md; git stash -q && git rev-parse stash >> target/acknowledged"
        );
        let was_killed = killed_at(&place, &line, n);
        // The user's git is never broken, whatever is half done.
        place.lab.git(&["fsck", "--strict", "--no-dangling"]);
        place.user(&["log", "-1"]);
        let settled = place.run("--publish");
        assert!(settled.status.success(), "{n}: {}", String::from_utf8_lossy(&settled.stderr));
        for oid in std::fs::read_to_string(&acknowledged).unwrap_or_default().lines() {
            let found =
                place.lab.try_git(&place.tree, &["rev-list", "--objects", "--all", "--indexed-objects"]);
            let index = place.user(&["write-tree"]);
            let all = String::from_utf8_lossy(&found.stdout).into_owned();
            assert!(all.contains(oid) || index == oid, "{n}: {oid} is lost");
        }
        for left in
            ["worktrees/a1/index.lock", "worktrees/a1/index.caliban-new", "refs/heads/caliban/a1.lock"]
        {
            assert!(!place.lab.repo().join(".git").join(left).exists(), "{n}: {left}");
        }
        place.agrees(&format!("a kill at {n}"));
        assert_eq!(place.protected(), before, "{n}");
        points += usize::from(was_killed);
        ended = if was_killed { 0 } else { ended + 1 };
        if ended == 2 {
            break;
        }
    }
    assert!(points > 10, "{points}");
}

#[test]
fn r19_the_keeper_can_be_killed_at_any_odd_instant() {
    survives(1);
}

#[test]
fn r19_the_keeper_can_be_killed_at_any_even_instant() {
    survives(2);
}

/// Runs a line whose keeper is killed before anything was published.
fn unpublished(place: &Place, line: &str) {
    let ready = place.tree.join("target/ready");
    let _none = std::fs::remove_file(&ready);
    let line = format!("{line}; mkdir -p target; touch target/ready; sleep 600");
    let mut child = place.command(&line).spawn().unwrap();
    while !ready.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The git that moves the branch outside leaves its lock when it is killed.
#[tokio::test]
async fn r19_the_git_that_moves_the_branch_can_be_killed() {
    let place = Place::new().await;
    place.ok("git commit -q --allow-empty -m first");
    let lock = place.lab.repo().join(".git/refs/heads/caliban/a1.lock");
    let mut left = 0;
    for n in 1..=4 {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-P"]).arg(&lock);
        command.arg("-e").arg(format!("inject=write,close,rename,renameat,unlink:signal=KILL:when={n}"));
        command.arg(program());
        unpublished(&place, &format!("git commit -q --allow-empty -m commit-{n}"));
        place.with_environment(command, "--publish").output().unwrap();
        left += usize::from(lock.exists());
        place.lab.git(&["fsck", "--strict", "--no-dangling"]);
        place.ok("true");
        assert_eq!(place.user(&["log", "-1", "--format=%s"]), format!("commit-{n}"));
        assert!(!lock.exists());
        place.agrees(&format!("a kill at {n}"));
    }
    assert!(left > 0);
}

/// An agent was killed in the middle of a command, and is removed.
#[tokio::test]
async fn r19_what_a_killed_command_committed_staged_and_stashed_is_kept_by_a_removal() {
    let place = Place::new().await;
    unpublished(
        &place,
        "echo stashed >> README.md; git stash -q; echo 1 > f; git add f; git commit -q -m work; git branch other HEAD~1; \
         echo 2 > staged; git add staged; rm staged",
    );
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "base");
    let options = GitOptions { helper: Some(program()), ..place.lab.options() };
    let repo = Repo::open(&place.lab.repo(), options, &token()).await.unwrap();
    let report = repo.remove(&slug("a1"), None, &RemoveOptions::default(), &token()).await.unwrap();
    assert_eq!(place.lab.git(&["log", "-1", "--format=%s", "caliban/a1"]), "work");
    assert_eq!(place.lab.git(&["log", "-1", "--format=%s", "caliban/a1+other"]), "base");
    let stash = place.lab.git(&["for-each-ref", "--format=%(refname)", "refs/caliban/stash/a1/"]);
    assert!(place.lab.git(&["show", &format!("{stash}:README.md")]).contains("stashed"));
    let rescue = report.rescue.unwrap();
    let index = rescue.index.unwrap();
    assert_eq!(place.lab.git(&["show", &format!("{index}:staged")]), "2");
    assert!(report.notes.iter().any(|note| note.contains(&stash)), "{:?}", report.notes);
    assert!(!place.lab.repo().join(".git/caliban/a1").exists() && !place.tree.exists());
}

/// A removal is killed when the record of the worktree is being deleted, or is gone: the next one takes the rest.
#[tokio::test]
async fn r19_the_private_git_of_a_removal_that_was_killed_goes_with_the_next() {
    let place = Place::new().await;
    place.ok("git commit -q --allow-empty -m work");
    let options = GitOptions { helper: Some(program()), ..place.lab.options() };
    let repo = Repo::open(&place.lab.repo(), options, &token()).await.unwrap();
    let store = place.lab.repo().join(".git");
    let copy = store.join("copy");
    let copied = Command::new("cp").arg("-a").arg(store.join("caliban/a1")).arg(&copy).status().unwrap();
    assert!(copied.success());
    repo.remove(&slug("a1"), None, &RemoveOptions::default(), &token()).await.unwrap();
    // As if it had been killed behind the record.
    std::fs::rename(&copy, store.join("caliban/a1")).unwrap();
    assert!(repo.clear_leftovers(&Default::default(), SweepMode::Remove).is_empty(), "nobody said it may go");
    std::fs::write(store.join("caliban/a1/published"), "").unwrap();
    repo.clear_leftovers(&Default::default(), SweepMode::Remove);
    assert!(!store.join("caliban/a1").exists());
}
