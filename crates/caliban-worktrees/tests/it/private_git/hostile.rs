//! What an agent writes into its private git does nothing outside.

use std::os::unix::fs::MetadataExt as _;

use super::Place;
use crate::lab::{slug, token};

fn index_times(place: &Place) -> ((i64, i64), (i64, i64)) {
    let of =
        |path: std::path::PathBuf| path.metadata().map(|found| (found.mtime(), found.mtime_nsec())).unwrap();
    let git = place.lab.repo().join(".git");
    (of(git.join("caliban/a1/git/worktrees/a1/index")), of(git.join("worktrees/a1/index")))
}

#[tokio::test]
async fn w09_an_index_with_paths_out_of_the_tree_never_becomes_the_users() {
    let place = Place::new().await;
    place.ok("git commit -q --allow-empty -m one");
    let output = place.run(
        "mkdir -p ab/cdef/ghijk; echo evil > ab/cdef/ghijk/x; git add ab; rm -r ab; \
         sed -i 's#ab/cdef/ghijk/x#../.git/hooks/x#' $(git rev-parse --git-path index)",
    );
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("../.git/hooks/x"), "{told}");
    place.user(&["restore", "."]);
    assert!(!place.lab.repo().join(".caliban/worktrees/.git").exists());
    assert_eq!(place.user(&["ls-files"]).lines().count(), 6);
    // The agent mends it, and it goes on.
    place.ok(
        "rm -f $(git rev-parse --git-path index); git reset -q --hard; git commit -q --allow-empty -m two",
    );
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "two");
    place.agrees("a mended index");
}

#[tokio::test]
async fn w09_a_repository_in_the_worktree_does_nothing_when_the_user_asks_for_the_status() {
    let place = Place::new().await;
    let trap = place.lab.top().join("ran");
    place.run(&format!(
        "git init -q nested; cd nested; git commit -q --allow-empty -m x; git config core.fsmonitor 'touch {}'; cd ..; \
         git add nested; git commit -q -m nested; git update-index --assume-unchanged README.md; echo hidden >> README.md",
        trap.display()
    ));
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "nested");
    let status = place.user(&["status", "--porcelain"]);
    assert!(!trap.exists(), "{status}");
    // A mark that hides a change is not the user's either.
    assert!(status.contains(" M README.md"), "{status}");
    place.run("git status; git commit -q --allow-empty -m again; git ls-files nested");
    assert!(!trap.exists());
}

#[tokio::test]
async fn w09_links_in_the_private_git_lead_nowhere() {
    let place = Place::new().await;
    let victim = place.lab.top().join("victim");
    for file in ["heads/x", "stash", "y.lock", "HEAD", "pack/z.idx"] {
        crate::lab::write(&victim.join(file), "precious");
    }
    place.ok("git commit -q --allow-empty -m one");
    for name in [
        "refs",
        "worktrees",
        "objects",
        "logs",
        "info",
        "packed-refs",
        "HEAD",
        "worktrees/a1/logs",
        "worktrees/a1/HEAD",
    ] {
        let at = format!("$(git rev-parse --git-common-dir)/{name}");
        let output =
            place.run(&format!("at={at}; mv $at $at.old; ln -s {} $at; echo made", victim.display()));
        assert!(String::from_utf8_lossy(&output.stdout).contains("made"), "{name}: {output:?}");
        // The user moves something, so that the agent's git is to be refreshed; then it is published.
        place.lab.git(&["branch", &format!("moved-{}", name.replace('/', "-"))]);
        place.run("true");
        place.run(&format!("at={}/{name}; rm $at; mv $at.old $at", place.lab.repo().join(".git").display()));
        for file in ["heads/x", "stash", "y.lock", "HEAD", "pack/z.idx"] {
            assert_eq!(std::fs::read_to_string(victim.join(file)).unwrap(), "precious", "{name}: {file}");
        }
        assert_eq!(place.user(&["log", "-1", "--format=%s"]), "one", "{name}");
    }
    place.ok("git commit -q --allow-empty -m two");
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "two");
}

#[tokio::test]
async fn w09_the_time_of_the_index_is_kept() {
    let place = Place::new().await;
    place.ok("echo 1 > f; git add f; touch -d @1600000000.5 $(git rev-parse --git-path index)");
    let (inside, outside) = index_times(&place);
    assert_eq!((inside, outside), ((1_600_000_000, 500_000_000), (1_600_000_000, 500_000_000)));
    place.user(&["add", "-A"]);
    place.user(&["rm", "-q", "--cached", "f"]);
    place.ok("true");
    let (inside, outside) = index_times(&place);
    assert_eq!(inside, outside);
}

#[tokio::test]
async fn w09_files_belong_to_the_user() {
    let place = Place::new().await;
    place.ok("echo 1 > f; git add f; git commit -q -m f");
    let mine = place.lab.top().metadata().unwrap().uid();
    for path in [place.tree.join("f"), place.lab.repo().join(".git/refs/heads/caliban/a1")] {
        assert_eq!(path.metadata().unwrap().uid(), mine, "{}", path.display());
    }
}

#[tokio::test]
async fn w09_a_broken_object_that_nobody_needs_stops_nothing() {
    let place = Place::new().await;
    place.ok("echo garbage | git hash-object -w --literally -t commit --stdin > /dev/null; git commit -q --allow-empty -m one");
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "one");
    // In the log of HEAD, too.
    place.run(
        "bad=$(echo other | git hash-object -w --literally -t commit --stdin); log=$(git rev-parse --git-path logs/HEAD); \
         echo \"$bad $bad A <a@b> 1700000000 +0000\tx\" >> $log; git commit -q --allow-empty -m two",
    );
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "two");
    place.lab.git(&["fsck", "--strict", "--no-dangling"]);
}

#[tokio::test]
async fn w09_a_broken_commit_stays_inside_and_the_agent_is_told() {
    let place = Place::new().await;
    place.ok("git commit -q --allow-empty -m one");
    let output = place.run(
        "tree=$(printf '40000 .git\\0aaaaaaaaaaaaaaaaaaaa' | git hash-object -w --literally -t tree --stdin); \
         git update-ref HEAD $(git commit-tree -p HEAD -m evil $tree)",
    );
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("not visible outside"), "{told}");
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "one");
    place.lab.git(&["fsck", "--strict", "--no-dangling"]);
    place.ok("git update-ref HEAD HEAD~1; git commit -q --allow-empty -m two");
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "two");
    place.agrees("a broken commit");
}

#[tokio::test]
async fn w09_nothing_in_the_private_configuration_counts_outside() {
    let place = Place::new().await;
    let trap = place.lab.top().join("ran");
    let before = place.protected();
    let set = format!("touch {}", trap.display());
    place.run(&format!(
        "git config core.fsmonitor '{set}'; git config core.hooksPath $PWD/hooks; git config filter.x.clean '{set}'; \
         git config uploadpack.packObjectsHook '{set}'; git config core.alternateRefsCommand '{set}'; \
         mkdir hooks; printf '#!/bin/sh\\n{set}\\n' > hooks/post-commit; cp hooks/post-commit hooks/reference-transaction; \
         chmod +x hooks/*; echo '* filter=x' > .gitattributes; git add -A; git commit -q -m evil"
    ));
    place.run("git commit -q --allow-empty -m two");
    assert!(!trap.exists());
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "two");
    assert!(!trap.exists());
    assert_eq!(place.protected(), before);
}

#[tokio::test]
async fn w09_another_agents_branch_is_out_of_reach() {
    let place = Place::new().await;
    let before = place.protected();
    place.ok("git checkout -q caliban/a10; git commit -q --allow-empty -m stolen; git branch -f feature; git branch -D feature");
    assert_eq!(place.protected(), before);
    assert_eq!(place.user(&["symbolic-ref", "HEAD"]), "refs/heads/caliban/a1+caliban/a10");
    place.ok("git checkout -q caliban/a1");
    assert_eq!(place.user(&["symbolic-ref", "HEAD"]), "refs/heads/caliban/a1");
    let repo = place.lab.open().await;
    assert!(repo.inspect(&slug("a10"), &token()).await.is_ok());
}
