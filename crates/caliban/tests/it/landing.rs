//! `agents diff` and `agents merge`: what an agent did, and landing it without losing anything.

use serde_json::{Value, json};
use testkit::{script, script::Script, text, wait_until};

use crate::fleet::{Fleet, bash, write};

const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

fn commit(message: &str) -> String {
    format!("git add -A && git commit -qm '{message}'")
}

/// A fleet whose agent has ended, and its id.
fn ended(script: Script) -> (Fleet, String) {
    let fleet = Fleet::new(script);
    let id = fleet.bg("the task", UNATTENDED);
    fleet.run(["agents", "wait", &id]).ok();
    (fleet, id)
}

fn git(fleet: &Fleet, args: &[&str]) -> String {
    fleet.place.env.git(&fleet.place.repo, args)
}

/// Everything that a refused merge must leave alone.
fn whole(fleet: &Fleet, id: &str) -> [String; 4] {
    [
        git(fleet, &["for-each-ref"]),
        git(fleet, &["status", "--porcelain"]),
        git(fleet, &["stash", "list"]),
        fleet.place.env.git(fleet.worktree(id), &["status", "--porcelain"]),
    ]
}

#[test]
fn diff_shows_committed_and_uncommitted_work_against_the_base() {
    let script = script![
        write("one.txt", "1\n"),
        bash(&commit("one")),
        write("two.txt", "2\n"),
        bash("echo more >> README.md"),
        text("done")
    ];
    let (fleet, id) = ended(script);
    let patch = fleet.run(["agents", "diff", &id]).ok().stdout;
    for part in ["+++ b/one.txt", "+1\n", "+++ b/two.txt", "+2\n", "+++ b/README.md", "+more\n"] {
        assert!(patch.contains(part), "{part:?} is not in {patch}");
    }
    let stat = fleet.run(["agents", "diff", &id, "--stat"]).ok().stdout;
    assert!(
        stat.contains("3 files changed, 3 insertions(+), 0 deletions(-)\n2 paths are not committed\n"),
        "{stat}"
    );
    let json: Value = fleet.run(["agents", "diff", &id, "--json"]).ok().json();
    assert_eq!(
        (&json["commit_count"], &json["file_count"], &json["patch"]),
        (&json!(1), &json!(3), &json!(patch))
    );
    // What is printed can be applied.
    let file = fleet.place.env.write("the.patch", &patch);
    git(&fleet, &["apply", "--check", file.to_str().unwrap()]);
}

#[test]
fn merge_makes_a_merge_commit_and_rm_then_drops_the_branch() {
    let (fleet, id) = ended(script![write("one.txt", "1\n"), bash(&commit("one")), text("done")]);
    let merged: Value = fleet.run(["agents", "merge", &id, "--json"]).ok().json();
    assert_eq!(
        [&merged["into"], &merged["how"], &merged["commits"], &merged["commit"]],
        [&json!("main"), &json!("merge"), &json!(1), &json!(git(&fleet, &["rev-parse", "main"]))]
    );
    assert_eq!(git(&fleet, &["log", "--format=%s", "-1"]), format!("Merge agent {id}"));
    assert_eq!(git(&fleet, &["rev-list", "--parents", "-1", "HEAD"]).split(' ').count(), 3);
    assert_eq!(fleet.place.env.read(fleet.place.repo.join("one.txt")), "1\n");
    let again = fleet.run(["agents", "merge", &id]).ok().stdout;
    assert_eq!(again, format!("main has everything of caliban/{id} already\n"));
    fleet.run(["rm", &id]).ok();
    assert_eq!(git(&fleet, &["branch", "--list", "caliban/*"]), "");
}

#[test]
fn squash_lands_everything_as_one_commit() {
    let script = script![
        write("one.txt", "1\n"),
        bash(&commit("one")),
        write("two.txt", "2\n"),
        bash(&commit("two")),
        text("done")
    ];
    let (fleet, id) = ended(script);
    fleet.run(["agents", "merge", &id, "--squash", "-m", "both files"]).ok();
    assert_eq!(git(&fleet, &["log", "--format=%s"]), "both files\nfirst commit");
    assert_eq!(git(&fleet, &["ls-files"]), "README.md\none.txt\ntwo.txt");
}

#[test]
fn conflicts_are_told_before_anything_is_touched() {
    let (fleet, id) = ended(script![bash("echo theirs > README.md"), bash(&commit("theirs")), text("done")]);
    fleet.place.env.write(fleet.place.repo.join("README.md"), "ours\n");
    git(&fleet, &["commit", "-qam", "ours"]);
    let before = whole(&fleet, &id);
    let refused = fleet.run(["agents", "merge", &id]).expect_code(1);
    assert!(refused.stderr.contains("conflicts in README.md"), "{}", refused.stderr);
    assert_eq!(whole(&fleet, &id), before);
}

#[test]
fn only_uncommitted_work_is_committed_with_a_suggested_message_and_lands() {
    let (fleet, id) = ended(script![write("one.txt", "1\n2\n"), text("done")]);
    let review = |id: &str| fleet.row(id)["review"].clone();
    wait_until("its work is looked at", || review(&id)["state"] == "to_review");
    assert_eq!(review(&id), json!({"state": "to_review", "files": 1, "added": 2, "deleted": 0}));
    let list = fleet.run(["agents", "list"]).ok().stdout;
    assert!(list.contains("finished, to review +2 −0"), "{list}");
    let before = whole(&fleet, &id);
    let preview = fleet.run(["agents", "merge", &id, "--preview"]).ok().stdout;
    assert_eq!(
        preview,
        "it merges into main without conflicts\n1 file changed, 2 insertions(+), 0 deletions(-)\n\
         not committed yet, committed first: one.txt\nsuggested message:\n  the task\n\n  one.txt: +2 −0\n"
    );
    assert_eq!(whole(&fleet, &id), before);
    let merged = fleet.run(["agents", "merge", &id]).ok();
    assert!(merged.stdout.contains(&format!("merged caliban/{id} into main")), "{}", merged.stdout);
    assert!(merged.stderr.contains("committed first, as \"the task\""), "{}", merged.stderr);
    // By its parents: commits of one second have no order of their own.
    let subjects = git(&fleet, &["show", "-s", "--format=%s", "HEAD", "HEAD^2"]);
    assert_eq!(subjects, format!("Merge agent {id}\nthe task"));
    // The list knows at once.
    assert_eq!(review(&id)["state"], "merged");
    // What is taken back by hand is to review again.
    git(&fleet, &["reset", "-q", "--hard", "HEAD~1"]);
    wait_until("the daemon has seen it", || review(&id)["state"] == "to_review");
}

#[test]
fn an_agent_that_changed_nothing_is_called_so() {
    let (fleet, id) = ended(script![text("done")]);
    wait_until("its work is looked at", || fleet.row(&id)["review"]["state"] == "nothing_changed");
    let list = fleet.run(["agents", "list"]).ok().stdout;
    assert!(list.contains("finished, nothing changed"), "{list}");
    fleet.run(["daemon", "stop"]).ok();
    let rows: Value = fleet.run(["agents", "list", "--all-repos", "--json"]).ok().json();
    assert!(rows.to_string().contains("nothing_changed"), "{rows}");
}

#[test]
fn what_an_agent_left_beside_its_commits_is_committed_only_when_asked() {
    let script = script![
        bash(&format!("echo 0 > zero.txt; {}", commit("zero"))),
        write("one.txt", "1\n"),
        bash(
            "mkdir -p sub && printf '#!/bin/sh\\n' > 'sub/run \"it\".sh' && chmod +x sub/* && ln -s one.txt link"
        ),
        bash("rm README.md; echo secret > .env; echo .env > .gitignore"),
        text("done")
    ];
    let (fleet, id) = ended(script);
    let before = whole(&fleet, &id);
    let refused = fleet.run(["agents", "merge", &id]).expect_code(1);
    assert!(refused.stderr.contains("one.txt") && refused.stderr.contains("--commit"), "{}", refused.stderr);
    assert_eq!(whole(&fleet, &id), before);
    fleet.run(["agents", "merge", &id, "--commit", "what the agent left"]).ok();
    let tree = git(&fleet, &["ls-tree", "-r", "--format=%(objectmode) %(path)", "HEAD"]);
    assert_eq!(
        tree,
        "100644 .gitignore\n120000 link\n100644 one.txt\n100755 \"sub/run \\\"it\\\".sh\"\n100644 zero.txt"
    );
    assert_eq!(git(&fleet, &["log", "--format=%s %an", "-1", "HEAD^2"]), "what the agent left Test Person");
    // The agent's worktree is clean, and nothing is left to be rescued.
    assert_eq!(fleet.place.env.git(fleet.worktree(&id), &["status", "--porcelain"]), "");
    fleet.run(["rm", &id]).ok();
    assert_eq!(git(&fleet, &["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
}

#[test]
fn a_commit_for_a_merge_that_conflicts_is_taken_back() {
    let (fleet, id) = ended(script![bash("echo theirs > README.md"), text("done")]);
    fleet.place.env.write(fleet.place.repo.join("README.md"), "ours\n");
    git(&fleet, &["commit", "-qam", "ours"]);
    let before = whole(&fleet, &id);
    let refused = fleet.run(["agents", "merge", &id, "--commit", "theirs"]).expect_code(1);
    assert!(refused.stderr.contains("conflicts in README.md"), "{}", refused.stderr);
    assert_eq!(whole(&fleet, &id), before);
}

#[test]
fn files_of_the_user_that_a_merge_would_touch_stop_it() {
    let script = script![
        bash("echo theirs >> README.md"),
        write("new.txt", "theirs\n"),
        bash(&commit("theirs")),
        text("done")
    ];
    let (fleet, id) = ended(script);
    let refused = |words: &str| {
        let before = whole(&fleet, &id);
        let output = fleet.run(["agents", "merge", &id]).expect_code(1);
        assert!(output.stderr.contains(words), "{words} is not in {}", output.stderr);
        assert_eq!(whole(&fleet, &id), before);
    };
    let at = |path: &str| fleet.place.repo.join(path);
    fleet.place.env.write(at("README.md"), "mine\n");
    refused("not committed here: README.md");
    git(&fleet, &["checkout", "-q", "README.md"]);
    fleet.place.env.write(at("new.txt"), "mine\n");
    refused("not committed here: new.txt");
    // Ignored files are no less the user's.
    fleet.place.env.write(at(".git/info/exclude"), "new.txt\n");
    refused("not committed here: new.txt");
    std::fs::remove_file(at("new.txt")).unwrap();
    fleet.place.env.write(at("other.txt"), "mine\n");
    git(&fleet, &["add", "other.txt"]);
    refused("staged changes");
    git(&fleet, &["reset", "-q"]);
    // What the merge does not touch is no obstacle, and stays.
    fleet.run(["agents", "merge", &id]).ok();
    assert_eq!(fleet.place.env.read(at("other.txt")), "mine\n");
    assert_eq!(fleet.place.env.read(at("new.txt")), "theirs\n");
}

#[test]
fn a_hook_of_the_user_that_refuses_leaves_everything_as_it_was() {
    use std::os::unix::fs::PermissionsExt as _;
    let (fleet, id) = ended(script![write("one.txt", "1\n"), bash(&commit("one")), text("done")]);
    for (hook, more) in [("pre-merge-commit", &[][..]), ("pre-commit", &["--squash"])] {
        let path = fleet.place.repo.join(".git/hooks").join(hook);
        fleet.place.env.write(&path, "#!/bin/sh\necho no merges on mondays >&2\nexit 1\n");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let before = whole(&fleet, &id);
        let refused =
            fleet.run(["agents", "merge", &id].into_iter().chain(more.iter().copied())).expect_code(1);
        assert!(refused.stderr.contains("no merges on mondays"), "{}", refused.stderr);
        assert_eq!(whole(&fleet, &id), before, "{hook}");
        std::fs::remove_file(path).unwrap();
    }
    fleet.run(["agents", "merge", &id]).ok();
}

#[test]
fn merge_can_go_into_a_branch_that_is_not_checked_out() {
    let (fleet, id) = ended(script![write("one.txt", "1\n"), bash(&commit("one")), text("done")]);
    git(&fleet, &["branch", "release"]);
    let main = git(&fleet, &["rev-parse", "main"]);
    fleet.run(["agents", "merge", &id, "--into", "release"]).ok();
    assert_eq!(git(&fleet, &["rev-parse", "main"]), main);
    assert_eq!(git(&fleet, &["ls-tree", "--name-only", "release"]), "README.md\none.txt");
    assert_eq!(git(&fleet, &["status", "--porcelain"]), "");
    let unknown = fleet.run(["agents", "merge", &id, "--into", "nowhere"]).expect_code(2);
    assert!(unknown.stderr.contains("there is no branch 'nowhere'"), "{}", unknown.stderr);
    let taken = fleet.run(["agents", "merge", &id, "--into", &format!("caliban/{id}")]).expect_code(2);
    assert!(taken.stderr.contains("is checked out in"), "{}", taken.stderr);
}

#[test]
fn an_agent_at_work_or_without_a_worktree_has_nothing_to_merge() {
    let fleet = Fleet::new(script![text("done"), text("done")]);
    fleet.place.server.hold();
    let busy = fleet.bg("the task", []);
    let here = fleet.bg("another", ["--isolation", "none"]);
    fleet.place.server.wait_for_requests(2);
    let refused = fleet.run(["agents", "merge", &busy]).expect_code(1);
    assert!(refused.stderr.contains("is still at work"), "{}", refused.stderr);
    fleet.place.server.release();
    fleet.run(["agents", "wait", &busy, &here]).ok();
    for verb in ["merge", "diff"] {
        let refused = fleet.run(["agents", verb, &here]).expect_code(1);
        assert!(refused.stderr.contains("has no worktree"), "{}", refused.stderr);
    }
}
