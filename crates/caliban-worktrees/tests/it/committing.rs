//! Uncommitted work that goes on its branch before the worktree goes.

use caliban_worktrees::{
    BaseRef, BranchFate, ChangeKind, CreateRequest, PathChange, RemovalOutcome, RemoveOptions,
};

use crate::lab::{Lab, make, make_executable, quiet, remove, slug, token, write};

#[tokio::test]
async fn r19_uncommitted_work_goes_on_the_branch_and_the_worktree_leaves_without_a_rescue() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("deep/new.sh"), "echo new\n");
    make_executable(&path.join("deep/new.sh"));
    write(&path.join("staged.txt"), "staged\n");
    lab.git_at(&path, &["add", "staged.txt"]);
    write(&path.join("staged.txt"), "and changed again\n");
    let made = repo.commit_all(&slug("x"), "Work of x", &token()).await.unwrap().unwrap();
    let report = remove(&repo, "x").await;
    assert_eq!((report.outcome, report.rescue), (RemovalOutcome::Removed, None));
    assert!(matches!(&report.branch_fate, BranchFate::Kept { tip, ahead: 1 } if *tip == made));
    assert_eq!(lab.git(&["log", "-1", "--format=%s", "caliban/x"]), "Work of x");
    assert_eq!(lab.git(&["show", "caliban/x:deep/new.sh"]), "echo new");
    assert_eq!(lab.git(&["show", "caliban/x:staged.txt"]), "and changed again");
    assert!(lab.git(&["ls-tree", "caliban/x", "deep/new.sh"]).starts_with("100755"));
}

#[tokio::test]
async fn r19_what_a_plain_commit_cannot_hold_is_left_for_a_rescue() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "clean").await;
    assert_eq!(repo.commit_all(&slug("clean"), "m", &token()).await.unwrap(), None);
    lab.git_at(&path, &["checkout", "-q", "--detach"]);
    write(&path.join("new"), "new\n");
    assert_eq!(repo.commit_all(&slug("clean"), "m", &token()).await.unwrap(), None);
    assert!(remove(&repo, "clean").await.rescue.is_some());

    // A filter of the person's own configuration (LFS) is not run, and its files are not committed without it.
    lab.git(&["config", "--global", "filter.up.clean", "tr a-z A-Z"]);
    lab.write(".gitattributes", "*.up filter=up\n");
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "attributes"]);
    let path = make(&repo, "filtered").await;
    write(&path.join("plain"), "plain\n");
    assert!(repo.commit_all(&slug("filtered"), "m", &token()).await.unwrap().is_some());
    write(&path.join("big.up"), "raw\n");
    assert_eq!(repo.commit_all(&slug("filtered"), "m", &token()).await.unwrap(), None);
    assert!(remove(&repo, "filtered").await.rescue.is_some());

    let path = make(&repo, "nested").await;
    lab.git_at(&path, &["init", "-q", "inner"]);
    write(&path.join("inner/file"), "inner\n");
    assert_eq!(repo.commit_all(&slug("nested"), "m", &token()).await.unwrap(), None);
    assert!(remove(&repo, "nested").await.rescue.is_some());
}

#[tokio::test]
async fn r19_a_sparse_worktree_loses_nothing_and_needs_no_rescue() {
    let lab = Lab::new();
    write(&lab.repo().join("far/away.txt"), "far away\n");
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "far"]);
    let repo = lab.open().await;
    let request = CreateRequest { base_ref: BaseRef::Fresh, ..CreateRequest::new(slug("s")) };
    let made = repo.create(request, &quiet, &token()).await.unwrap();
    assert!(!made.created.path.join("far").exists());
    write(&made.created.path.join("new.txt"), "new\n");
    repo.commit_all(&slug("s"), "Work of s", &token()).await.unwrap().unwrap();
    let report =
        repo.remove(&slug("s"), Some(made.lease), &RemoveOptions::default(), &token()).await.unwrap();
    assert_eq!(report.rescue, None);
    assert_eq!(lab.git(&["show", "caliban/s:new.txt"]), "new");
    assert_eq!(lab.git(&["show", "caliban/s:far/away.txt"]), "far away");
}

#[tokio::test]
async fn what_the_user_ignores_everywhere_is_not_committed_but_saved() {
    let lab = Lab::new();
    write(&lab.home().join("git/ignore"), "*.pyc\n");
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("new"), "new\n");
    write(&path.join("m.pyc"), "code\n");
    let made = repo.commit_all(&slug("x"), "all", &token()).await.unwrap().unwrap();
    assert_eq!(lab.git(&["diff-tree", "-r", "--name-only", &format!("{made}^"), made.as_str()]), "new");
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    assert_eq!(lab.git(&["show", &format!("{}:m.pyc", rescue.reference)]), "code");
}

#[tokio::test]
async fn names_that_git_could_take_for_patterns_are_names() {
    let lab = Lab::new();
    // A link's name, and an ignored name whose rule is in doubt.
    write(&lab.repo().join(":(top)deps/lib"), "lib\n");
    write(&lab.repo().join(".git/info/exclude"), "/:(top)deps\n");
    let repo = lab.open().await;
    let mut request = CreateRequest::new(slug("x"));
    request.symlink_directories = vec![":(top)deps".into()];
    drop(repo.create(request, &quiet, &token()).await.unwrap());
    let path = lab.wt("x");
    write(&path.join(":!neg"), "neg\n");
    write(&path.join(":(exclude)hidden"), "hidden\n");
    write(&path.join(":^kept.log"), "as the repo wants it\n");
    write(&path.join(".gitignore"), "target/\n*.log\n.env\n*hidden\n");
    let changes = repo.changes(&slug("x"), &token()).await.unwrap();
    let of = |changes: &[PathChange]| changes.iter().map(|c| (c.path.clone(), c.kind)).collect::<Vec<_>>();
    assert_eq!(
        of(&changes.uncommitted),
        [(".gitignore".to_owned(), ChangeKind::Modified), (":!neg".to_owned(), ChangeKind::Untracked)]
    );
    assert_eq!(of(&changes.left), [(":(exclude)hidden".to_owned(), ChangeKind::Ignored)]);
    // A rule that nobody committed hides nothing, so that would need a rescue.
    assert_eq!(repo.commit_all(&slug("x"), "m", &token()).await.unwrap(), None);
    std::fs::remove_file(path.join(":(exclude)hidden")).unwrap();
    assert!(repo.commit_all(&slug("x"), "m", &token()).await.unwrap().is_some());
    assert_eq!(lab.git(&["cat-file", "blob", "caliban/x::!neg"]), "neg");
}
