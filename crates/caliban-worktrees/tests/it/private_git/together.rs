//! The user and the agent at the same time.

use std::process::{Child, Stdio};

use super::Place;

/// A command of the agent's that goes on until the user has done something.
fn meanwhile(place: &Place, line: &str, user: impl FnOnce()) -> String {
    let (ready, go) = (place.tree.join("target/ready"), place.tree.join("target/go"));
    let _none = std::fs::remove_dir_all(place.tree.join("target"));
    let line =
        format!("{line}; mkdir -p target; touch target/ready; while [ ! -e target/go ]; do sleep 0.02; done");
    let mut child = place.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&ready, &mut child);
    user();
    std::fs::write(go, "").unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn wait_for(path: &std::path::Path, child: &mut Child) {
    while !path.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[tokio::test]
async fn w09_where_both_moved_the_user_wins_and_the_agents_work_is_kept() {
    let place = Place::new().await;
    place.ok("git commit -q --allow-empty -m one");
    let told =
        meanwhile(&place, "echo a > a; git add a; git commit -q -m agent; echo s > s; git add s", || {
            place.user(&["commit", "-q", "--allow-empty", "-m", "user"]);
        });
    assert!(told.contains("refs/caliban/conflict/a1/1"), "{told}");
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "user");
    assert_eq!(place.lab.git(&["log", "-1", "--format=%s", "refs/caliban/conflict/a1/1"]), "agent");
    assert_eq!(place.lab.git(&["show", "refs/caliban/conflict/a1/2:s"]), "s");
    assert_eq!(
        place.lab.git(&["rev-parse", "refs/caliban/conflict/a1/2~1"]),
        place.lab.git(&["rev-parse", "refs/caliban/conflict/a1/1"])
    );
    // The agent goes on from what the user has.
    assert_eq!(place.ok("git log -1 --format=%s; git commit -q --allow-empty -m next"), "user");
    assert_eq!(place.user(&["log", "-2", "--format=%s"]), "next\nuser");
    assert_eq!(place.lab.git(&["for-each-ref", "refs/caliban/conflict"]).lines().count(), 2);
    place.agrees("a conflict");
}

#[tokio::test]
async fn w09_a_look_of_the_users_is_no_conflict() {
    let place = Place::new().await;
    place.ok("echo 1 > f; git add f; git commit -q -m one");
    let told = meanwhile(&place, "git commit -q --allow-empty -m agent", || {
        std::fs::write(place.tree.join("README.md"), "read me\n").unwrap();
        place.user(&["status"]);
        place.lab.git(&["branch", "by-the-user"]);
        place.lab.git(&["commit", "-q", "--allow-empty", "-m", "on main"]);
    });
    assert!(!told.contains('['), "{told}");
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "agent");
    assert_eq!(
        place.ok("git log -1 --format=%s main; git branch --list by-the-user"),
        "on main\n  by-the-user"
    );
    place.agrees("a look");
}

#[tokio::test]
async fn w09_what_the_user_does_between_commands_is_there_for_the_agent() {
    let place = Place::new().await;
    place.ok("echo 1 > f; git add f; git commit -q -m one; echo mine >> f; git stash -q");
    for (user, asked, answer) in [
        (&["commit", "-q", "--allow-empty", "-m", "user"][..], "git log -1 --format=%s", "user"),
        (&["reset", "-q", "--hard", "HEAD~1"], "git log -1 --format=%s; git status --short", "one"),
        (&["rm", "-q", "--cached", "f"], "git status --short", "D  f\n?? f"),
        (&["reset", "-q", "--hard"], "git status --short", ""),
        (&["checkout", "-q", "-b", "users", "main"], "git branch --show-current", "users"),
        (&["checkout", "-q", "caliban/a1"], "git branch --show-current", "caliban/a1"),
        (&["tag", "seen"], "git tag -l", "seen"),
        (&["branch", "-D", "users"], "git branch --list users", ""),
        (&["pack-refs", "--all"], "git rev-parse --verify -q caliban/a1 > /dev/null && echo there", "there"),
        (&["gc", "-q", "--prune=now"], "git stash list --format=%gd", "stash@{0}"),
        (
            &["commit", "-q", "--allow-empty", "-m", "again"],
            "git commit -q --allow-empty -m mine; git log -2 --format=%s",
            "mine\nagain",
        ),
    ] {
        place.user(user);
        assert_eq!(place.ok(asked), answer, "{user:?}");
        place.agrees(&format!("{user:?}"));
    }
    // The user's stash is the user's.
    std::fs::write(place.tree.join("f"), "the user's\n").unwrap();
    place.user(&["stash", "-q"]);
    assert_eq!(place.ok("git stash list | wc -l; git stash pop -q; cat f"), "1\n1\nmine");
    assert_eq!(place.user(&["stash", "list"]).lines().count(), 1);
    assert_eq!(place.lab.git(&["for-each-ref", "refs/caliban/stash"]), "");
}

#[tokio::test]
async fn w09_a_rebase_that_stops_can_be_ended_by_either() {
    let place = Place::new().await;
    place.ok("echo 1 > f; git add f; git commit -q -m one; git checkout -q -b side HEAD~1; echo 2 > f; git add f; git commit -q -m side");
    place.run("git rebase -q -x 'touch /tmp/never' caliban/a1");
    let status = place.user(&["status"]);
    assert!(status.contains("rebase in progress"), "{status}");
    let todo = place.lab.repo().join(".git/worktrees/a1/rebase-merge/git-rebase-todo");
    let todo = std::fs::read_to_string(todo).unwrap();
    assert!(todo.contains("break") && !todo.contains("touch"), "{todo}");
    place.user(&["rebase", "--abort"]);
    assert_eq!(place.user(&["branch", "--show-current"]), "caliban/a1+side");
    assert_eq!(place.ok("git status --short; git branch --show-current; cat f"), "side\n2");
    place.agrees("an aborted rebase");
    place.run("git rebase -q caliban/a1");
    place.ok("echo both > f; git add f; GIT_EDITOR=true git rebase --continue > /dev/null 2>&1");
    assert!(!place.user(&["status"]).contains("rebase"));
    place.agrees("a rebase that went on");
}

#[tokio::test]
async fn w09_commits_of_two_commands_at_once_are_all_published() {
    let place = Place::new().await;
    let told = meanwhile(&place, "git commit -q --allow-empty -m background", || {
        for name in ["first", "second"] {
            place.ok(&format!("git commit -q --allow-empty -m {name}"));
            assert_eq!(place.user(&["log", "-1", "--format=%s"]), name);
        }
    });
    assert!(!told.contains('['), "{told}");
    assert_eq!(place.user(&["log", "-3", "--format=%s"]), "second\nfirst\nbackground");
    place.agrees("two at once");
}

#[tokio::test]
async fn w09_a_lock_of_the_users_git_is_waited_for_and_never_taken_away() {
    let place = Place::new().await;
    place.ok("git commit -q --allow-empty -m one");
    let lock = place.lab.repo().join(".git/worktrees/a1/index.lock");
    std::fs::write(&lock, "the user's").unwrap();
    let output = place.run("git commit -q --allow-empty -m two");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("index.lock"), "{told}");
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), "the user's");
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "one");
    std::fs::remove_file(&lock).unwrap();
    place.ok("true");
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "two");
    // A lock of a branch is the user's unless our own publisher left it.
    let lock = place.lab.repo().join(".git/refs/heads/caliban/a1.lock");
    std::fs::write(&lock, "").unwrap();
    place.run("git commit -q --allow-empty -m three");
    assert!(lock.exists());
    std::fs::remove_file(&lock).unwrap();
    place.ok("true");
    assert_eq!(place.user(&["log", "-1", "--format=%s"]), "three");
}
