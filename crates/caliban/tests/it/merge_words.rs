//! What is said about an agent's work when it is not where it was, and what is not run while somebody looks.

use std::os::unix::fs::PermissionsExt as _;

use testkit::{script, text};

use crate::{
    fleet::{Fleet, bash, id_of},
    merge::sh_in,
};

const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

fn ended() -> (Fleet, String) {
    let fleet =
        Fleet::new(script![bash("echo new > new.txt && git add -A && git commit -qm new"), text("done")]);
    let id = fleet.bg("the task", UNATTENDED);
    fleet.run(["agents", "wait", &id]).ok();
    (fleet, id)
}

#[test]
fn a_branch_that_only_another_agent_has_is_not_called_merged() {
    let (fleet, id) = ended();
    let branch = format!("caliban/{id}");
    sh_in(&fleet, &fleet.place.repo, &format!("git branch caliban/child {branch}"));
    let removed = fleet.run(["rm", &id]).ok().stdout;
    let words = format!("branch {branch} was deleted: caliban/child has all its commits");
    assert!(removed.contains(&words), "{removed}");
}

#[test]
fn a_branch_that_the_user_has_too_is_called_merged() {
    let (fleet, id) = ended();
    let branch = format!("caliban/{id}");
    sh_in(&fleet, &fleet.place.repo, &format!("git branch caliban/child {branch}; git branch mine {branch}"));
    let removed = fleet.run(["rm", &id]).ok().stdout;
    assert!(removed.contains(&format!("branch {branch} was merged and was deleted")), "{removed}");
}

#[test]
fn a06_no_program_of_the_repos_configuration_runs_when_an_agent_is_started() {
    let fleet = Fleet::new(script![text("done")]);
    let ran = fleet.place.env.root().join("ran");
    let trap =
        fleet.place.env.write("trap", format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", ran.display()));
    std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o755)).unwrap();
    let trap = trap.display();
    sh_in(
        &fleet,
        &fleet.place.repo,
        &format!(
            "git config core.fsmonitor {trap}; git config filter.x.clean {trap}; git config filter.x.process {trap}
             git config filter.x.required true; mkdir -p .git/info; echo '* filter=x' > .git/info/attributes
             mkdir hooks; cp {trap} hooks/post-index-change; git config core.hooksPath $PWD/hooks
             echo changed > README.md"
        ),
    );
    let started = fleet.place.caliban().args(["--bg", "the task"]).output().ok();
    assert!(started.stderr.contains("2 uncommitted changes are not in it"), "{}", started.stderr);
    assert_eq!(std::fs::read_to_string(&ran).unwrap_or_default(), "");
}

#[test]
fn work_whose_files_are_gone_is_what_git_has_of_it() {
    let (fleet, id) = ended();
    let place = fleet.worktree(&id);
    std::fs::remove_dir_all(&place).unwrap();
    let words = format!("{} is gone: this is what was committed or staged in it\n", place.display());
    let shown = fleet.run(["agents", "diff", &id]).ok();
    assert!(shown.stderr.starts_with(&words), "{}", shown.stderr);
    assert!(shown.stdout.contains("+++ b/new.txt"), "{}", shown.stdout);
    let merged = fleet.run(["agents", "merge", &id]).ok();
    assert!(merged.stderr.starts_with(&words), "{}", merged.stderr);
    assert_eq!(sh_in(&fleet, &fleet.place.repo, "cat new.txt"), "new\n");
}

#[test]
fn work_whose_record_is_gone_is_named_with_what_to_do() {
    let (fleet, id) = ended();
    sh_in(&fleet, &fleet.place.repo, &format!("git worktree remove --force .caliban/worktrees/{id}"));
    for verb in ["diff", "merge"] {
        let failed = fleet.run(["agents", verb, &id]).expect_code(1);
        let words = format!("error: git has no record of the worktree of agent {id} any more\nhint: ");
        assert!(failed.stderr.starts_with(&words), "{verb}: {}", failed.stderr);
        assert!(failed.stderr.contains(&format!("git log caliban/{id}")), "{verb}: {}", failed.stderr);
    }
}

#[test]
fn a_repo_that_is_none_any_more_is_named_with_what_to_do() {
    let (fleet, id) = ended();
    std::fs::rename(fleet.place.repo.join(".git"), fleet.place.repo.join("was-git")).unwrap();
    for verb in ["diff", "merge"] {
        let failed = fleet.run(["agents", verb, &id]).expect_code(1);
        let words = format!("error: {} is in no git repo any more\nhint: ", fleet.place.repo.display());
        assert!(failed.stderr.starts_with(&words), "{verb}: {}", failed.stderr);
        assert!(!failed.stderr.contains("fatal"), "{verb}: {}", failed.stderr);
    }
}

#[test]
fn an_agent_goes_on_in_its_worktree_when_the_directory_of_its_caller_is_gone() {
    let fleet = Fleet::new(script![
        text("first"),
        bash("pwd >> where"),
        text("second"),
        bash("pwd >> where"),
        text("third"),
    ]);
    let repo = fleet.place.repo.clone();
    let prepare = "git branch without && mkdir sub && echo 1 > sub/f && git add -A && git commit -qm sub";
    sh_in(&fleet, &repo, prepare);
    let started = fleet.place.caliban().dir(repo.join("sub")).args(["--bg", "the task"]).args(UNATTENDED);
    let id = id_of(&started.output().ok());
    fleet.run(["agents", "wait", &id]).ok();
    sh_in(&fleet, &repo, "git switch -q without && test ! -e sub");
    for _ in 0..2 {
        fleet.run(["resume", &id, "--prompt", "go on"]).ok();
        fleet.run(["agents", "wait", &id]).ok();
    }
    let place = fleet.worktree(&id).join("sub");
    let there = format!("{}\n", place.display());
    assert_eq!(fleet.place.env.read(place.join("where")), there.repeat(2));
}
