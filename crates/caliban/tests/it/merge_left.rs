//! What `agents diff` and `agents merge` leave out, because no commit is meant to have it, and say so.

use serde_json::{Value, json};
use testkit::{script, text};

use crate::{
    fleet::{Fleet, bash, write},
    merge::sh_in,
};

const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

/// A fleet whose user ignores some names everywhere, with an agent that left such files.
fn with_rules() -> (Fleet, String) {
    let fleet = Fleet::new(script![
        write("new.txt", "new\n"),
        bash("mkdir -p pkg/__pycache__ && echo code > pkg/__pycache__/m.pyc && echo KEY > .env.local"),
        bash("echo wanted > kept.local"),
        text("done")
    ]);
    fleet
        .place
        .env
        .write(fleet.place.env.config().join("git/ignore"), "*.local\n!kept.local\n__pycache__/\n");
    let id = fleet.bg("the task", UNATTENDED);
    fleet.run(["agents", "wait", &id]).ok();
    (fleet, id)
}

#[test]
fn what_the_user_ignores_everywhere_is_neither_committed_nor_shown() {
    let (fleet, id) = with_rules();
    let git = |args: &[&str]| fleet.place.env.git(&fleet.place.repo, args);
    let shown = fleet.run(["agents", "diff", &id]).ok();
    assert!(shown.stdout.contains("+++ b/new.txt") && shown.stdout.contains("+++ b/kept.local"));
    for hidden in ["KEY", "pyc"] {
        assert!(!shown.stdout.contains(hidden), "{}", shown.stdout);
    }
    let left = "no commit is meant to have it: .env.local, pkg/__pycache__/m.pyc";
    assert!(shown.stderr.contains(left), "{}", shown.stderr);
    let told: Value = fleet.run(["agents", "diff", &id, "--json"]).ok().json();
    let change = |path: &str, kind: &str| json!({"path": path, "kind": kind});
    assert_eq!(
        (&told["file_count"], &told["uncommitted"], &told["left"]),
        (
            &json!(2),
            &json!([change("kept.local", "untracked"), change("new.txt", "untracked")]),
            &json!([change(".env.local", "ignored"), change("pkg/__pycache__/m.pyc", "ignored")])
        )
    );
    let merged = fleet.run(["agents", "merge", &id, "--commit", "new"]).ok();
    let left = "in no commit: .env.local, pkg/__pycache__/m.pyc";
    assert!(merged.stderr.contains(left), "{}", merged.stderr);
    assert_eq!(git(&["ls-files"]), "README.md\nkept.local\nnew.txt");
    // They are nowhere else, so they are saved.
    fleet.run(["rm", &id]).ok();
    let saved = git(&["ls-tree", "-r", "--name-only", &format!("refs/caliban/rescue/{id}")]);
    assert_eq!(saved, ".env.local\nREADME.md\nkept.local\nnew.txt\npkg/__pycache__/m.pyc");
}

#[test]
fn a_worktree_that_git_calls_clean_is_merged_without_a_commit_and_removed_when_done() {
    let (fleet, id) = with_rules();
    sh_in(
        &fleet,
        &fleet.worktree(&id),
        "git add -A && git commit -qm new && test -z \"$(git status --porcelain)\"",
    );
    fleet.run(["agents", "merge", &id]).ok();
    let removed = fleet.run(["rm", "--done"]).ok();
    assert!(removed.stdout.starts_with(&format!("{id} removed\n")), "{removed:?}");
}

#[test]
fn the_rules_of_an_agent_hide_nothing() {
    let (fleet, id) = with_rules();
    let rules = fleet.place.env.write("rules", "*\n");
    sh_in(&fleet, &fleet.worktree(&id), &format!("git config core.excludesFile {}", rules.display()));
    let told = fleet.run(["agents", "merge", &id, "--preview"]).ok().stdout;
    assert!(told.contains("not committed yet, committed first: kept.local, new.txt"), "{told}");
}

#[test]
fn a_changed_copy_of_the_users_own_file_and_a_repo_inside_are_not_in_the_patch() {
    let fleet = Fleet::new(script![
        bash("echo changed >> .env && git init -q inner && echo in > inner/f"),
        write("new.txt", "new\n"),
        text("done")
    ]);
    let prepare = "echo .env > .gitignore && echo .env > .worktreeinclude && echo SECRET > .env
                   git add -A && git commit -qm rules";
    sh_in(&fleet, &fleet.place.repo, prepare);
    let id = fleet.bg("the task", UNATTENDED);
    fleet.run(["agents", "wait", &id]).ok();
    let shown = fleet.run(["agents", "diff", &id]).ok();
    assert!(shown.stderr.contains("no commit is meant to have it: .env, inner\n"), "{}", shown.stderr);
    assert!(!shown.stdout.contains("SECRET"), "{}", shown.stdout);
    let patch = fleet.place.env.write("the.patch", &shown.stdout);
    sh_in(&fleet, &fleet.place.repo, &format!("git apply {} && cat new.txt", patch.display()));
    let stat = fleet.run(["agents", "diff", &id, "--stat"]).ok();
    assert_eq!(
        stat.stdout,
        "A new.txt |    1 +\n1 file changed, 1 insertion(+), 0 deletions(-)\n1 path is not committed\n"
    );
}

#[test]
fn names_that_git_could_take_for_patterns_are_names() {
    let fleet = Fleet::new(script![
        write(":!neg", "1\n"),
        write("deep/:(glob)x", "2\n"),
        write(":(exclude).local", "3\n"),
        text("done")
    ]);
    fleet.place.env.write(fleet.place.env.config().join("git/ignore"), "*.local\n");
    let id = fleet.bg("the task", UNATTENDED);
    fleet.run(["agents", "wait", &id]).ok();
    let told: Value = fleet.run(["agents", "diff", &id, "--json"]).ok().json();
    let change = |path: &str, kind: &str| json!({"path": path, "kind": kind});
    assert_eq!(
        (&told["uncommitted"], &told["left"]),
        (
            &json!([change(":!neg", "untracked"), change("deep/:(glob)x", "untracked")]),
            &json!([change(":(exclude).local", "ignored")])
        )
    );
    let shown = fleet.run(["agents", "diff", &id]).ok().stdout;
    assert!(shown.contains("+++ b/:!neg") && shown.contains("+++ b/deep/:(glob)x"), "{shown}");
    let stays = fleet.run(["rm", "--done"]).ok().stderr;
    assert!(stays.contains(&format!("{id} stays: it has work that is not committed")), "{stays}");
    fleet.run(["agents", "merge", &id, "--commit", "odd"]).ok();
    assert_eq!(
        sh_in(&fleet, &fleet.place.repo, "git ls-files; cat ./:!neg deep/*"),
        ":!neg\nREADME.md\ndeep/:(glob)x\n1\n2\n"
    );
    let removed = fleet.run(["rm", "--done"]).ok().stdout;
    assert!(removed.starts_with(&format!("{id} removed\n")), "{removed}");
}
