//! Landing in the user's own tree: what was tried is what lands, hooks that never end do not stay, and nobody works in the
//! worktree meanwhile.

use std::path::Path;
use std::sync::Mutex;

use caliban_worktrees::{
    BranchFate, CommitLeft, Error, GitOptions, LandAs, LandNote, LandRequest, Landed, LandingRefusal,
    NotLanded, Repo, TreeAfter,
};

use crate::lab::{Lab, make, make_executable, remove, slug, token, write};

fn request(land_as: LandAs, commit: Option<&str>) -> LandRequest {
    LandRequest {
        name: slug("x"),
        into: None,
        land_as,
        commit: commit.map_or(CommitLeft::IfAlone, |message| CommitLeft::As(message.to_owned())),
        message: Some("land x".to_owned()),
        agent: "x".to_owned(),
        task: "the task".to_owned(),
    }
}

async fn land(repo: &Repo, request: &LandRequest) -> Result<Landed, NotLanded> {
    let turn = repo.landing_turn(|| {}, &token()).await.unwrap();
    repo.land(&turn, request, &|note: LandNote| panic!("{note:?}"), &token()).await
}

fn hook(lab: &Lab, name: &str, script: &str) {
    let path = lab.repo().join(".git/hooks").join(name);
    write(&path, format!("#!/bin/sh\n{script}\n"));
    make_executable(&path);
}

fn commit(lab: &Lab, path: &Path, file: &str, text: &str) {
    write(&path.join(file), text);
    lab.git_at(path, &["add", "-A"]);
    lab.git_at(path, &["commit", "-qm", file]);
}

/// Branches and the user's tree: what a landing that failed must not change.
fn state(lab: &Lab) -> (String, String, String) {
    let refs = lab.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads"]);
    (refs, lab.git(&["status", "--porcelain"]), lab.git(&["ls-files", "--stage"]))
}

#[tokio::test]
async fn r19_options_for_merges_do_not_make_a_landing_of_nothing() {
    for (key, value) in [("branch.main.mergeOptions", "-s ours"), ("pull.twohead", "ours")] {
        let lab = Lab::new();
        let repo = lab.open().await;
        let path = make(&repo, "x").await;
        commit(&lab, &path, "new", "new\n");
        lab.git_at(&path, &["config", key, value]);
        let landed = land(&repo, &request(LandAs::Merge, None)).await.unwrap();
        assert_eq!(landed.summary, "1 file changed, 1 insertion(+), 0 deletions(-)", "{key}");
        assert_eq!(lab.git(&["show", "main:new"]), "new", "{key}");
        assert_eq!(remove(&repo, "x").await.branch_fate, BranchFate::DeletedMerged, "{key}");
    }
}

#[tokio::test]
async fn what_lands_is_what_was_tried_or_nothing() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    // A driver that makes something else each time.
    let driver = lab.top().join("driver");
    write(&driver, format!("#!/bin/sh\necho x >> {0}/count; cat {0}/count > $1\n", lab.top().display()));
    make_executable(&driver);
    lab.git(&["config", "merge.count.driver", &format!("{} %A", driver.display())]);
    write(&lab.repo().join(".git/info/attributes"), "README.md merge=count\n");
    commit(&lab, &path, "README.md", "theirs\n");
    commit(&lab, &lab.repo(), "README.md", "ours\n");
    let before = state(&lab);
    for land_as in [LandAs::Merge, LandAs::Squash] {
        let refused = land(&repo, &request(land_as, None)).await.unwrap_err().refusal;
        let LandingRefusal::MergeFailed { error, after: TreeAfter::AsBefore } = refused else {
            panic!("{refused:?}")
        };
        assert!(error.to_string().contains("other files than the merge that was tried"), "{error}");
        assert_eq!(state(&lab), before, "{land_as:?}");
    }
}

#[tokio::test]
async fn a_hook_may_change_what_lands() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    commit(&lab, &path, "new", "new\n");
    hook(&lab, "pre-commit", "echo formatted > new; git add new");
    land(&repo, &request(LandAs::Squash, None)).await.unwrap();
    assert_eq!(lab.git(&["show", "main:new"]), "formatted");
}

#[tokio::test]
async fn a_squash_whose_commit_cannot_be_started_is_taken_back() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    commit(&lab, &path, "new", "new\n");
    let before = state(&lab);
    // Longer than an argument can be.
    let message = Some("m".repeat(200_000));
    let refused = land(&repo, &LandRequest { message, ..request(LandAs::Squash, None) }).await;
    let refused = refused.unwrap_err().refusal;
    let LandingRefusal::MergeFailed { error: Error::GitMissing { .. }, after: TreeAfter::AsBefore } = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(state(&lab), before);
    assert!(!lab.repo().join("new").exists());
}

#[tokio::test]
async fn what_is_staged_while_work_lands_stays_staged() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("README.md"), "changed\n");
    let tip = lab.git(&["rev-parse", "caliban/x"]);
    let stage = "unset $(git rev-parse --local-env-vars); echo v1 > s; git add s; echo v2 > s";
    hook(&lab, "pre-merge-commit", &format!("cd '{}' && {stage}", path.display()));
    let turn = repo.landing_turn(|| {}, &token()).await.unwrap();
    let notes = Mutex::new(Vec::new());
    let note = |note: LandNote| notes.lock().unwrap().push(note);
    repo.land(&turn, &request(LandAs::Merge, Some("rest")), &note, &token()).await.unwrap();
    assert!(matches!(notes.lock().unwrap().as_slice(), [LandNote::WorktreeBehind(_)]));
    assert_eq!(lab.git(&["show", "main:README.md"]), "changed");
    assert_eq!(lab.git_at(&path, &["show", ":s"]), "v1", "it is still in the index");
    assert_eq!(lab.git(&["rev-parse", "caliban/x"]), tip, "nothing moved beneath it");
}

#[tokio::test]
async fn a_worktree_is_held_while_its_work_lands() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    commit(&lab, &path, "new", "new\n");
    let told = lab.top().join("told");
    let script = format!(
        "if flock -n '{}' true; then echo free; else echo held; fi > '{}'",
        path.display(),
        told.display()
    );
    hook(&lab, "pre-merge-commit", &script);
    land(&repo, &request(LandAs::Merge, None)).await.unwrap();
    assert_eq!(std::fs::read_to_string(told).unwrap(), "held\n");
    remove(&repo, "x").await;
}

#[tokio::test]
async fn a_hook_that_never_ends_is_ended_with_a_merge_that_is_cut_short() {
    let lab = Lab::new();
    let options = GitOptions { has_terminal: false, ..lab.options() };
    let repo = Repo::open(&lab.repo(), options, &token()).await.unwrap();
    let path = make(&repo, "x").await;
    commit(&lab, &path, "new", "new\n");
    let before = state(&lab);
    let began = lab.top().join("began");
    hook(
        &lab,
        "pre-merge-commit",
        &format!("echo $$ > '{0}.new'; mv '{0}.new' '{0}'; sleep 100000", began.display()),
    );
    let (turn, cancel) = (repo.landing_turn(|| {}, &token()).await.unwrap(), token());
    let wanted = request(LandAs::Merge, None);
    let stop = async {
        while !began.exists() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (landed, ()) = tokio::join!(repo.land(&turn, &wanted, &|_| {}, &cancel), stop);
    let refused = landed.unwrap_err().refusal;
    assert!(matches!(refused, LandingRefusal::Interrupted(TreeAfter::AsBefore)), "{refused:?}");
    assert_eq!(state(&lab), before);
    let stat = format!("/proc/{}/stat", std::fs::read_to_string(began).unwrap().trim());
    // Gone, or ended and not yet waited for by its parent.
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::task::yield_now().await;
    }
}
