//! Landing as a library: results and refusals are data, and nothing of an agent's runs.

use std::path::Path;

use caliban_worktrees::{
    CannotCommit, CommitLeft, LandAs, LandNote, LandRequest, Landed, LandingRefusal, MergeKind, NotLanded,
    Operation, Repo, TreeAfter,
};

use crate::lab::{Lab, make, make_executable, names, slug, token, write};

fn request(into: Option<&str>, commit: Option<&str>) -> LandRequest {
    LandRequest {
        name: slug("x"),
        into: into.map(str::to_owned),
        land_as: LandAs::Merge,
        commit: commit.map_or(CommitLeft::IfAlone, |message| CommitLeft::As(message.to_owned())),
        message: Some("land x".to_owned()),
        agent: "x".to_owned(),
        task: "the task".to_owned(),
    }
}

async fn land(repo: &Repo, request: &LandRequest) -> Result<Landed, NotLanded> {
    let turn = repo.landing_turn(|| {}, &token()).await.unwrap();
    let note = |note: LandNote| panic!("{note:?}");
    repo.land(&turn, request, &note, &token()).await
}

fn commit(lab: &Lab, path: &Path, file: &str, text: &str) {
    write(&path.join(file), text);
    lab.git_at(path, &["add", "-A"]);
    lab.git_at(path, &["commit", "-qm", file]);
}

#[tokio::test]
async fn what_landed_is_told() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let nothing = land(&repo, &request(None, None)).await.unwrap();
    assert!(nothing.is_nothing && nothing.landed_as.is_none());
    commit(&lab, &path, "one", "1\n2\n");
    write(&path.join("two"), "2\n");
    let refused = land(&repo, &request(None, None)).await.unwrap_err();
    assert_eq!((refused.branch.as_deref(), refused.into.as_deref()), (Some("caliban/x"), Some("main")));
    assert_eq!((refused.refusal.code(), refused.refusal.files()), ("uncommitted", vec!["two".to_owned()]));
    let landed = land(&repo, &request(None, Some("two"))).await.unwrap();
    let expected = Landed {
        branch: "caliban/x".into(),
        into: "main".into(),
        landed_as: Some(LandAs::Merge),
        commit: landed.commit.clone(),
        commits: 2,
        summary: "2 files changed, 3 insertions(+), 0 deletions(-)".into(),
        left: vec![],
        is_detached: false,
        is_nothing: false,
        committed_as: Some("two".into()),
    };
    assert_eq!(landed, expected);
    assert_eq!(lab.git(&["rev-parse", "main"]), landed.commit.as_str());
    assert_eq!(lab.git_at(&path, &["status", "--porcelain"]), "");
    let head = repo.changes(&slug("x"), &token()).await.unwrap().head.unwrap();
    assert!(repo.has_landed(&slug("x"), &head, &token()).await.unwrap());
}

#[tokio::test]
async fn work_is_to_review_until_it_has_landed_and_only_uncommitted_work_lands_by_itself() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let review = async || {
        let changes = repo.changes(&slug("x"), &token()).await.unwrap();
        repo.review(&changes, &token()).await.unwrap().to_string()
    };
    let foretold = async || repo.merge_preview(&slug("x"), None, &token()).await.unwrap().merge;
    assert_eq!((review().await.as_str(), foretold().await), ("nothing changed", MergeKind::UpToDate));
    write(&path.join("one"), "1\n2\n");
    assert_eq!((review().await.as_str(), foretold().await), ("to review +2 −0", MergeKind::Clean));
    let landed = land(&repo, &LandRequest { message: None, ..request(None, None) }).await.unwrap();
    assert_eq!(landed.committed_as.as_deref(), Some("the task\n\none: +2 −0\n"));
    // By parents: two commits of one second have no order.
    let title = |commit: &str| lab.git(&["log", "--format=%s", "-1", commit]);
    assert_eq!((title("main"), title("main^2")), ("Merge agent x".into(), "the task".into()));
    assert_eq!((review().await.as_str(), foretold().await), ("merged +2 −0", MergeKind::UpToDate));
    // A squash is one commit with the suggested message.
    write(&path.join("two"), "2\n");
    let squash = LandRequest {
        land_as: LandAs::Squash,
        commit: CommitLeft::Suggested,
        message: None,
        ..request(None, None)
    };
    assert_eq!(review().await, "to review +3 −0");
    land(&repo, &squash).await.unwrap();
    assert_eq!(lab.git(&["log", "--format=%s", "main", "-1"]), "the task");
    assert_eq!(review().await, "merged +3 −0");
    // What conflicts is foretold although nobody has committed it.
    write(&path.join("README.md"), "theirs\n");
    lab.write("README.md", "ours\n");
    lab.git(&["commit", "-qam", "ours"]);
    assert_eq!(foretold().await, MergeKind::Conflicts);
}

#[tokio::test]
async fn refusals_are_data_and_change_nothing() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    commit(&lab, &path, "src/lib.rs", "theirs\n");
    lab.write("src/lib.rs", "ours\n");
    lab.git(&["commit", "-qam", "ours"]);
    lab.git(&["branch", "old", "main~1"]);
    let before = (lab.traces(), names(&lab.repo().join(".git")));
    let refusal = async |into: Option<&str>| land(&repo, &request(into, None)).await.unwrap_err().refusal;
    let LandingRefusal::Conflicts { revision, files } = refusal(None).await else { panic!() };
    assert_eq!((revision.as_str(), files), ("caliban/x", vec!["src/lib.rs".to_owned()]));
    let LandingRefusal::NoSuchBranch(name) = refusal(Some("--all")).await else { panic!() };
    assert_eq!(name, "--all");
    let LandingRefusal::CheckedOutElsewhere { branch, .. } = refusal(Some("caliban/x")).await else {
        panic!()
    };
    assert_eq!(branch, "caliban/x");
    assert_eq!((lab.traces(), names(&lab.repo().join(".git"))), before);
    // A pipe has no content that a commit could have.
    write(&path.join("src/lib.rs"), "more\n");
    write(&path.join(".gitattributes"), "*.rs working-tree-encoding=UTF-16\n");
    lab.git_at(&path, &["add", ".gitattributes"]);
    lab.git_at(&path, &["commit", "-qm", "attributes"]);
    let refused = land(&repo, &request(Some("old"), Some("rest"))).await.unwrap_err().refusal;
    let LandingRefusal::CannotCommit { path: named, why, .. } = refused else { panic!("{refused:?}") };
    assert_eq!((named.as_str(), why), ("src/lib.rs", CannotCommit::Encoding));
    write(&path.join("src/lib.rs"), "theirs\n");
    let operation = lab.repo().join(".git/worktrees/x/CHERRY_PICK_HEAD");
    write(&operation, "");
    let refused = refusal(Some("old")).await;
    assert!(matches!(refused, LandingRefusal::UnfinishedInWorktree { operation: Operation::CherryPick, .. }));
}

#[tokio::test]
async fn a_cancelled_landing_leaves_everything_as_it_was() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    commit(&lab, &path, "one", "1\n");
    let before = (lab.traces(), lab.git(&["status", "--porcelain"]));
    let (turn, cancel) = (repo.landing_turn(|| {}, &token()).await.unwrap(), token());
    cancel.cancel();
    let refused = repo.land(&turn, &request(None, None), &|_| {}, &cancel).await.unwrap_err().refusal;
    assert!(matches!(refused, LandingRefusal::Interrupted(TreeAfter::AsBefore)), "{refused:?}");
    assert_eq!((lab.traces(), lab.git(&["status", "--porcelain"])), before);
}

#[tokio::test]
async fn a06_no_program_runs_when_work_lands_in_a_branch_that_nobody_has_checked_out() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    commit(&lab, &path, "one.rs", "1\n");
    write(&path.join("two.rs"), "2\n");
    lab.git(&["branch", "old"]);
    let (trap, ran) = (lab.top().join("trap"), lab.top().join("ran"));
    write(&trap, format!("#!/bin/sh\necho \"$0 $*\" >> {}\n", ran.display()));
    make_executable(&trap);
    let hooks = lab.repo().join(".git/hooks");
    for hook in ["reference-transaction", "post-commit", "pre-commit", "post-index-change", "post-merge"] {
        write(&hooks.join(hook), std::fs::read(&trap).unwrap());
        make_executable(&hooks.join(hook));
    }
    let trap = trap.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.alternateRefsCommand",
        "core.pager",
        "core.editor",
        "gpg.program",
        "diff.external",
        "diff.evil.textconv",
        "diff.evil.command",
        "merge.evil.driver",
        "gc.recentObjectsHook",
        "credential.helper",
    ] {
        lab.git(&["config", key, trap]);
    }
    write(&lab.repo().join(".git/info/attributes"), "* merge=evil diff=evil\n");
    // That they would run is shown, or this test shows nothing.
    let _status = lab.try_git(lab.repo(), &["-c", "core.fsmonitor=false", "diff", "HEAD~0", "HEAD"]);
    let _status = lab.try_git(lab.repo(), &["status"]);
    assert!(ran.exists(), "plain git runs something of it");
    std::fs::remove_file(&ran).unwrap();
    land(&repo, &request(Some("old"), Some("two"))).await.unwrap();
    assert_eq!(std::fs::read_to_string(&ran).unwrap_or_default(), "");
    assert!(
        lab.try_git(lab.repo(), &["-c", "core.fsmonitor=false", "cat-file", "-e", "old:two.rs"])
            .status
            .success()
    );
}

#[tokio::test]
async fn a_lock_that_a_killed_merge_left_does_not_stop_the_next_one() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("one"), "1\n");
    let lock = lab.repo().join(".git/refs/caliban/tmp/landing-x.lock");
    write(&lock, "");
    land(&repo, &request(None, Some("one"))).await.unwrap();
    assert!(!lock.exists());
}
