//! Agents of a bare repository: nobody works among git's own files.

use std::path::PathBuf;

use testkit::{Output, script, text};

use crate::{
    fleet::{Fleet, bash, id_of, write},
    merge::sh_in,
};

const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

/// A fleet with a bare clone beside its repo.
fn bare() -> (Fleet, PathBuf) {
    let fleet = Fleet::new(script![
        write("new.txt", "new\n"),
        bash("git add -A && git commit -qm new && echo left > left.txt"),
        text("done")
    ]);
    let bare = fleet.place.repo.with_file_name("store");
    sh_in(&fleet, &fleet.place.repo, &format!("git clone -q --bare . {}", bare.display()));
    (fleet, bare)
}

fn bg(fleet: &Fleet, dir: &PathBuf, more: &[&str]) -> Output {
    fleet.place.caliban().dir(dir).args(["--bg", "the task"]).args(UNATTENDED).args(more).output()
}

#[test]
fn an_agent_of_a_bare_repo_works_in_a_worktree_which_can_be_shown_merged_and_removed() {
    let (fleet, bare) = bare();
    let run = |args: &[&str]| fleet.place.env.run_in(&bare, args.iter().copied());
    let before = sh_in(&fleet, &bare, "ls -A | grep -v .caliban");
    let started = bg(&fleet, &bare, &[]).ok();
    let id = id_of(&started);
    let worktree = bare.join(".caliban/worktrees").join(&id);
    assert!(started.stderr.contains(&format!("in {}", worktree.display())), "{}", started.stderr);
    run(&["agents", "wait", &id]).ok();
    assert_eq!(sh_in(&fleet, &worktree, "ls"), "README.md\nleft.txt\nnew.txt\n");
    let patch = run(&["agents", "diff", &id]).ok().stdout;
    assert!(patch.contains("+++ b/new.txt") && patch.contains("+++ b/left.txt"), "{patch}");
    let merged = run(&["agents", "merge", &id, "--commit", "the rest"]).ok();
    assert!(merged.stdout.starts_with(&format!("merged caliban/{id} into main: 2 commits")), "{merged:?}");
    let files = sh_in(&fleet, &bare, "git ls-tree -r --name-only main");
    assert_eq!(files, "README.md\nleft.txt\nnew.txt\n");
    run(&["rm", &id]).ok();
    assert_eq!(
        sh_in(&fleet, &bare, "git for-each-ref --format='%(refname)' refs/heads refs/caliban"),
        "refs/heads/main\n"
    );
    assert_eq!(sh_in(&fleet, &bare, "ls -A | grep -vxE '.caliban|logs|worktrees'"), before);
}

#[test]
fn a_worktree_of_a_bare_repo_can_be_asked_for() {
    let (fleet, bare) = bare();
    let id = id_of(&bg(&fleet, &bare, &["--isolation", "worktree"]).ok());
    fleet.place.env.run_in(&bare, ["agents", "wait", &id]).ok();
    assert!(bare.join(".caliban/worktrees").join(&id).join("new.txt").is_file());
}

#[test]
fn in_a_bare_repo_without_a_commit_no_agent_works_unasked() {
    let (fleet, bare) = bare();
    let empty = bare.with_file_name("empty");
    sh_in(&fleet, &fleet.place.repo, &format!("git init -q --bare {}", empty.display()));
    let refused = bg(&fleet, &empty, &[]).expect_code(2);
    assert!(refused.stderr.contains("is no git repo with a commit"), "{}", refused.stderr);
}

#[test]
fn below_a_bare_repo_is_its_fleet() {
    let (fleet, bare) = bare();
    let id = id_of(&bg(&fleet, &bare, &[]).ok());
    let hooks = bare.join("hooks");
    let started = bg(&fleet, &hooks, &[]).ok();
    let below = id_of(&started);
    let worktree = bare.join(".caliban/worktrees").join(&below);
    assert!(started.stderr.contains(&format!("in {}", worktree.display())), "{}", started.stderr);
    // One fleet, from wherever it is asked.
    for dir in [&hooks, &bare] {
        fleet.place.env.run_in(dir, ["agents", "wait", &id, &below]).ok();
    }
    assert!(worktree.join("new.txt").is_file());
    assert!(!hooks.join(".caliban").exists());
}

#[test]
fn a_bare_repo_that_is_hidden_belongs_to_the_directory_around_it() {
    let (fleet, bare) = bare();
    let project = bare.with_file_name("project");
    sh_in(
        &fleet,
        &fleet.place.repo,
        &format!(
            "mkdir {0} && mv {1} {0}/.bare && echo 'gitdir: ./.bare' > {0}/.git",
            project.display(),
            bare.display()
        ),
    );
    for dir in [project.clone(), project.join(".bare/hooks")] {
        let started = bg(&fleet, &dir, &[]).ok();
        let id = id_of(&started);
        let worktree = project.join(".caliban/worktrees").join(&id);
        assert!(started.stderr.contains(&format!("in {}", worktree.display())), "{}", started.stderr);
        fleet.place.env.run_in(&project, ["agents", "wait", &id]).ok();
        assert!(worktree.join("new.txt").is_file());
    }
}
