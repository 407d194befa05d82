//! Diff and merge in repositories that are laid out in other ways: refs in tables, a hidden bare store, submodules.

use serde_json::Value;
use testkit::{script, text};

use crate::{
    fleet::{Fleet, bash, id_of, write},
    merge::{Merge, sh_in},
};

const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

#[test]
fn a_repo_with_reftables_is_merged_with_its_branch_named_and_its_work_committed() {
    let fleet = Fleet::new(script![write("new.txt", "new\n"), text("done")]);
    let repo = fleet.place.repo.with_file_name("tables");
    sh_in(
        &fleet,
        &fleet.place.repo,
        &format!(
            "git init -q --ref-format=reftable -b main {0} && cd {0} && echo 1 > one && git add . && git commit -qm one",
            repo.display()
        ),
    );
    let run = |args: &[&str]| fleet.place.env.run_in(&repo, args.iter().copied());
    let started = fleet.place.caliban().dir(&repo).args(["--bg", "the task"]).args(UNATTENDED).output().ok();
    let id = id_of(&started);
    run(&["agents", "wait", &id]).ok();
    let merged: Value = run(&["agents", "merge", &id, "--commit", "new", "--json"]).ok().json();
    assert_eq!(
        (merged["branch"].as_str(), merged["into"].as_str()),
        (Some(&*format!("caliban/{id}")), Some("main"))
    );
    assert_eq!(
        sh_in(&fleet, &repo, "git status --porcelain; git log -1 --format=%s HEAD^2; cat new.txt"),
        "new\nnew\n"
    );
    run(&["rm", &id]).ok();
    assert_eq!(sh_in(&fleet, &repo, "git for-each-ref --format='%(refname)'"), "refs/heads/main\n");
}

#[test]
fn an_unfinished_operation_is_seen_in_a_repo_with_reftables() {
    let fleet = Fleet::new(script![
        write("new", "agent\n"),
        bash("git add -A && git commit -qm agents"),
        text("done")
    ]);
    let repo = fleet.place.repo.with_file_name("tables");
    sh_in(
        &fleet,
        &fleet.place.repo,
        &format!(
            "git init -q --ref-format=reftable -b main {0} && cd {0} && echo 1 > one && git add . && git commit -qm one
             git switch -qc side && echo 2 > one && git commit -qam side && git switch -q main && echo 3 > one && git commit -qam main",
            repo.display()
        ),
    );
    let run = |args: &[&str]| fleet.place.env.run_in(&repo, args.iter().copied());
    let started = fleet.place.caliban().dir(&repo).args(["--bg", "the task"]).args(UNATTENDED).output().ok();
    let id = id_of(&started);
    run(&["agents", "wait", &id]).ok();
    sh_in(&fleet, &repo, "git cherry-pick side || true");
    let refused = run(&["agents", "merge", &id]).expect_code(1);
    assert!(refused.stderr.contains("a cherry-pick is not finished in"), "{}", refused.stderr);
}

#[test]
fn work_in_a_hidden_bare_store_without_a_pointer_beside_it_is_shown_merged_and_removed() {
    let fleet = Fleet::new(script![write("new.txt", "new\n"), text("done")]);
    let project = fleet.place.repo.with_file_name("project");
    sh_in(
        &fleet,
        &fleet.place.repo,
        &format!(
            "mkdir {0} && git clone -q --bare . {0}/.bare && git -C {0}/.bare worktree add -q {0}/main main",
            project.display()
        ),
    );
    let tree = project.join("main");
    let run = |args: &[&str]| fleet.place.env.run_in(&tree, args.iter().copied());
    let started = fleet.place.caliban().dir(&tree).args(["--bg", "the task"]).args(UNATTENDED).output().ok();
    let id = id_of(&started);
    run(&["agents", "wait", &id]).ok();
    let patch = run(&["agents", "diff", &id]).ok().stdout;
    assert!(patch.contains("+++ b/new.txt"), "{patch}");
    let merged = run(&["agents", "merge", &id, "--commit", "new"]).ok();
    assert!(
        merged.stdout.starts_with(&format!("merged caliban/{id} into main: 1 commit")),
        "{}",
        merged.stdout
    );
    assert_eq!(sh_in(&fleet, &tree, "git status --porcelain; cat new.txt"), "new\n");
    run(&["rm", "--done"]).ok();
    let refs = sh_in(&fleet, &tree, "git for-each-ref --format='%(refname)' refs/heads refs/caliban");
    assert_eq!(refs, "refs/heads/main\n");
}

#[test]
fn a_submodule_that_would_point_at_a_commit_of_the_worktree_alone_is_refused_with_the_way_out() {
    let allow = "git -c protocol.file.allow=always";
    let merge = Merge::with(
        &format!(
            "git init -q -b main ../lib; (cd ../lib; echo 1 > one; git add .; git commit -qm one)
             {allow} submodule --quiet add $PWD/../lib sub; git commit -qm sub"
        ),
        [],
    );
    let script = format!(
        "{allow} submodule --quiet update --init; cd sub; echo 2 > two; git add two; git commit -qm two; cd ..
         git commit -qam bump"
    );
    merge.agent(&script);
    let refused = merge.refused(&[], "only the agent's worktree has: sub");
    let hint = format!("git -C {} push origin ", merge.worktree().join("sub").display());
    assert!(refused.stderr.contains(&hint), "{}", refused.stderr);
    // As the hint says.
    merge.agent("git -C sub push -q origin HEAD:refs/heads/bump");
    merge.merge(&[]).ok();
    merge.user(&format!("{allow} submodule --quiet update && cat sub/two"));
}

#[test]
fn a_failed_agent_that_did_nothing_has_nothing_to_merge() {
    let fleet = Fleet::new(script![]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).expect_code(1);
    assert_eq!(fleet.state(&id), "failed");
    let merged = fleet.run(["agents", "merge", &id]).ok();
    assert_eq!(merged.stdout, format!("caliban/{id} has no changes: there is nothing to merge into main\n"));
}
