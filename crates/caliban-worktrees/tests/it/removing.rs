//! r19: no dirty, untracked or unmerged byte is lost, and all of it comes back byte for byte.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use caliban_worktrees::{
    BranchFate, ChangeKind, Error, IgnoredFiles, PathChange, RemovalOutcome, RemoveOptions, Repo, RestoreTo,
    Restored,
};

use crate::lab::{
    Lab, Node, create, make, make_executable, names, paths, quiet, remove, slug, token, tree, write,
};

fn change(path: &str, kind: ChangeKind) -> PathChange {
    PathChange { path: path.into(), kind }
}

async fn restore_to(repo: &Repo, rescue: &str, to: PathBuf) -> BTreeMap<PathBuf, Node> {
    repo.restore(rescue, RestoreTo::Directory(to.clone()), &quiet, &token()).await.unwrap();
    tree(&to)
}

fn commit(lab: &Lab, path: &Path, file: &str) -> String {
    write(&path.join(file), file);
    lab.git_at(path, &["add", "-A"]);
    lab.git_at(path, &["commit", "-qm", file]);
    lab.git_at(path, &["rev-parse", "HEAD"])
}

#[tokio::test]
async fn r19_clean_and_empty_is_removed_with_its_branch() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let before = lab.traces();
    let path = make(&repo, "x").await;
    let report = remove(&repo, "x").await;
    assert_eq!((report.outcome, report.branch_fate), (RemovalOutcome::Removed, BranchFate::DeletedEmpty));
    assert_eq!((report.rescue, report.dirty), (None, vec![]));
    assert!(!path.exists());
    assert_eq!(lab.traces(), before);
    let error = repo.remove(&slug("x"), None, &RemoveOptions::default(), &token()).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no worktree named 'x'");
}

#[tokio::test]
async fn r19_what_is_written_while_a_removal_waits_for_another_one_is_saved() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let records = lab.repo().join(".git/worktrees");
    let other = std::fs::File::open(&records).unwrap();
    other.lock().unwrap();
    let removal = tokio::spawn(async move { remove(&repo, "x").await });
    // Ours, and those of a removal that has seen the files and waits for the lock.
    let opened = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == records)).count()
    };
    while opened() < 3 {
        tokio::task::yield_now().await;
    }
    write(&path.join("precious.txt"), "bytes");
    drop(other);
    let report = removal.await.unwrap();
    assert_eq!(report.dirty, vec![change("precious.txt", ChangeKind::Untracked)]);
    assert!(report.rescue.is_some(), "{report:?}");
}

#[tokio::test]
async fn r19_commits_stay_on_their_branch_unless_merged() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let tip = commit(&lab, &make(&repo, "open").await, "one");
    let look = repo.inspect(&slug("open"), &token()).await.unwrap();
    assert_eq!((look.ahead, look.reachable, look.needs_rescue, look.branch_merged), (1, false, false, false));
    let report = remove(&repo, "open").await;
    assert!(matches!(&report.branch_fate, BranchFate::Kept { tip: t, ahead: 1 } if t.as_str() == tip));
    assert_eq!(report.rescue, None);
    assert_eq!(lab.git(&["rev-parse", "caliban/open"]), tip);

    let tip = commit(&lab, &make(&repo, "merged").await, "two");
    lab.git(&["merge", "-q", "--no-ff", "-m", "merge", "caliban/merged"]);
    assert_eq!(remove(&repo, "merged").await.branch_fate, BranchFate::DeletedMerged);
    assert_eq!(lab.git(&["branch", "--contains", &tip]), "* main");
}

#[tokio::test]
async fn r19_a_squashed_branch_goes_only_while_the_commit_that_it_landed_as_is_kept() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let squashed = |name: &str, tip: &str, landed: &str| {
        let record = format!(r#"{{"tip":"{tip}","commit":"{landed}"}}"#);
        write(&lab.repo().join(".git/worktrees").join(name).join("caliban-landed.json"), record);
    };
    let land = |name: &str| {
        lab.git(&["merge", "-q", "--squash", &format!("caliban/{name}")]);
        lab.git(&["commit", "-qm", name]);
        lab.git(&["rev-parse", "HEAD"])
    };
    let tip = commit(&lab, &make(&repo, "in").await, "one");
    let landed = land("in");
    squashed("in", &tip, &landed);
    let report = remove(&repo, "in").await;
    let is_it = |fate: &BranchFate| matches!(fate, BranchFate::DeletedSquashed { tip: t, landed: l } if t.as_str() == tip && l.as_str() == landed);
    assert!(is_it(&report.branch_fate), "{report:?}");
    assert_eq!((report.rescue, lab.git(&["branch", "--list", "caliban/*"])), (None, String::new()));

    // Reset away; more commits since; never in the store; a commit that does not have the work.
    let path = make(&repo, "away").await;
    let tip = commit(&lab, &path, "two");
    squashed("away", &tip, &land("away"));
    lab.git(&["reset", "-q", "--hard", "HEAD^"]);
    let path = make(&repo, "more").await;
    let tip = commit(&lab, &path, "three");
    squashed("more", &tip, &land("more"));
    commit(&lab, &path, "four");
    let tip = commit(&lab, &make(&repo, "forged").await, "five");
    squashed("forged", &tip, &"0123456789".repeat(4));
    let tip = commit(&lab, &make(&repo, "claimed").await, "six");
    squashed("claimed", &tip, &lab.git(&["rev-parse", "HEAD"]));
    for name in ["away", "more", "forged", "claimed"] {
        let fate = remove(&repo, name).await.branch_fate;
        assert!(matches!(fate, BranchFate::Kept { .. }), "{name}: {fate:?}");
    }
}

#[tokio::test]
async fn r19_two_branches_do_not_count_on_each_other() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let a = make(&repo, "a").await;
    let tip = commit(&lab, &a, "one");
    make(&repo, "b").await;
    lab.git_at(lab.wt("b"), &["reset", "-q", "--hard", &tip]);
    let (name_a, name_b, options, cancel) = (slug("a"), slug("b"), RemoveOptions::default(), token());
    let (one, two) = tokio::join!(
        repo.remove(&name_a, None, &options, &cancel),
        repo.remove(&name_b, None, &options, &cancel)
    );
    let kept =
        [one.unwrap(), two.unwrap()].into_iter().filter(|r| matches!(r.branch_fate, BranchFate::Kept { .. }));
    assert_eq!(kept.count(), 1);
    assert!(!lab.git(&["branch", "--list", "caliban/*"]).is_empty(), "the commit is still on a branch");
}

#[tokio::test]
async fn r19_everything_comes_back_byte_for_byte() {
    let lab = Lab::new();
    lab.write(".gitattributes", "*.txt text eol=crlf\n*.md ident\n");
    lab.write("old.txt", "a\r\nb\r\n");
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "attributes"]);
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("README.md"), "changed $Id$\r\n");
    write(&path.join("old.txt"), "mixed\r\nendings\n");
    std::fs::remove_file(path.join("docs/guide.md")).unwrap();
    make_executable(&path.join("src/lib.rs"));
    write(&path.join("new.txt"), "a\nb\r\nc");
    write(&path.join("bin"), [0u8, 255, 10, 13, 0]);
    write(&path.join("with space/\"quoted\"\n\\x"), "odd name");
    write(&path.join(std::ffi::OsStr::from_bytes(b"not-\xff-text")), "bytes");
    write(&path.join("empty"), "");
    std::os::unix::fs::symlink("/nowhere", path.join("dangling")).unwrap();
    std::os::unix::fs::symlink("src", path.join("alias")).unwrap();
    std::fs::remove_dir_all(path.join("src/deep")).unwrap();
    std::os::unix::fs::symlink(lab.home(), path.join("src/deep")).unwrap();
    write(&path.join("run.sh.new"), "#!/bin/sh\n");
    make_executable(&path.join("run.sh.new"));
    std::fs::remove_file(path.join("run.sh")).unwrap();
    write(&path.join("run.sh/now/a/directory"), "x");
    write(&path.join("large"), vec![b'x'; 9 * 1024 * 1024]);
    let was = tree(&path);
    let report = remove(&repo, "x").await;
    let rescue = report.rescue.unwrap();
    assert_eq!(rescue.reference, "refs/caliban/rescue/x");
    assert!(!path.exists());
    assert_eq!(restore_to(&repo, "x", lab.top().join("back")).await, was);
    let again = repo.restore("x", RestoreTo::Worktree(None), &quiet, &token()).await.unwrap();
    let Restored::Worktree(again) = again else { panic!("{again:?}") };
    assert_eq!((&again.created.path, again.created.branch.as_str()), (&path, "caliban/x"));
    assert_eq!(tree(&path), was);
    assert_eq!(repo.rescues(&token()).await.unwrap(), [rescue], "a rescue stays until it is dropped");
}

#[tokio::test]
async fn r19_the_report_says_what_was_saved_and_how_to_get_it_back() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("README.md"), "changed");
    write(&path.join("new"), "new");
    write(&path.join("target/out"), "built");
    std::fs::remove_file(path.join("run.sh")).unwrap();
    lab.git_at(&path, &["rm", "-q", "--cached", "docs/guide.md"]);
    let look = repo.inspect(&slug("x"), &token()).await.unwrap();
    let dirty = vec![
        change("README.md", ChangeKind::Modified),
        change("docs/guide.md", ChangeKind::Staged),
        change("docs/guide.md", ChangeKind::Untracked),
        change("new", ChangeKind::Untracked),
        change("run.sh", ChangeKind::Deleted),
    ];
    assert_eq!((look.dirty, look.needs_rescue), (dirty.clone(), true));
    let report = remove(&repo, "x").await;
    assert_eq!(report.dirty, dirty);
    assert_eq!(report.dropped_ignored, ["target"]);
    assert_eq!(
        report.lines(),
        [
            format!("removed worktree x ({})", path.display()),
            "branch caliban/x had no commits and was deleted".into(),
            "what was in no kept commit is saved as refs/caliban/rescue/x".into(),
            "get it back with: caliban worktrees rescue restore x".into(),
            "ignored files went with it: target".into(),
        ]
    );
    serde_json::to_string(&report).unwrap();
}

#[tokio::test]
async fn r19_staged_content_that_differs_from_the_files_is_saved_too() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("README.md"), "staged\n");
    write(&path.join("added"), "staged add\n");
    lab.git_at(&path, &["add", "-A"]);
    write(&path.join("README.md"), "in the file\n");
    std::fs::remove_file(path.join("added")).unwrap();
    let status = lab.git_at(&path, &["status", "--porcelain"]);
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    let index = rescue.index.clone().unwrap();
    assert_eq!(lab.git(&["show", &format!("{index}:README.md")]), "staged");
    assert_eq!(lab.git(&["show", &format!("{index}:added")]), "staged add");
    assert_eq!(lab.git(&["show", &format!("{}:README.md", rescue.commit)]), "in the file");
    repo.restore("x", RestoreTo::Worktree(None), &quiet, &token()).await.unwrap();
    assert_eq!(lab.git_at(&path, &["status", "--porcelain"]), status, "as it was: MM and AD");
}

#[tokio::test]
async fn r19_a_rescue_is_never_overwritten() {
    let lab = Lab::new();
    let repo = lab.open().await;
    for n in 1..=3 {
        let path = make(&repo, "x").await;
        write(&path.join("new"), format!("round {n}"));
        remove(&repo, "x").await;
    }
    let mut seen: Vec<_> = repo.rescues(&token()).await.unwrap().into_iter().map(|r| r.name).collect();
    seen.sort();
    assert_eq!(seen, ["x", "x-2", "x-3"]);
    for (name, text) in [("x", "round 1"), ("x-2", "round 2"), ("x-3", "round 3")] {
        assert_eq!(lab.git(&["show", &format!("refs/caliban/rescue/{name}:new")]), text);
    }
    repo.drop_rescue("x-2", &token()).await.unwrap();
    assert_eq!(repo.rescues(&token()).await.unwrap().len(), 2);
    let error = repo.drop_rescue("x-2", &token()).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no rescue named 'x-2'");
    assert_eq!(lab.git(&["for-each-ref", "refs/caliban/tmp"]), "");
}

#[tokio::test]
async fn r19_a_detached_head_is_saved() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    lab.git_at(&path, &["checkout", "-q", "--detach"]);
    let tip = commit(&lab, &path, "detached");
    let look = repo.inspect(&slug("x"), &token()).await.unwrap();
    assert_eq!((look.head_branch, look.needs_rescue, look.dirty), (None, true, vec![]));
    let report = remove(&repo, "x").await;
    assert_eq!(report.branch_fate, BranchFate::DeletedEmpty);
    let rescue = report.rescue.unwrap();
    assert_eq!(rescue.head.unwrap().as_str(), tip);
    assert_eq!(lab.git(&["rev-parse", "refs/caliban/rescue/x^1"]), tip);
    lab.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(lab.git(&["show", "refs/caliban/rescue/x:detached"]), "detached");
}

#[tokio::test]
async fn r19_a_deleted_or_moved_branch_loses_no_commit() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "gone").await;
    let tip = commit(&lab, &path, "one");
    lab.git(&["update-ref", "-d", "refs/heads/caliban/gone"]);
    std::fs::remove_file(path.join("run.sh")).unwrap();
    // git now calls HEAD unborn; the log of HEAD still knows the commit.
    let report = remove(&repo, "gone").await;
    assert_eq!(report.branch_fate, BranchFate::Absent);
    let rescue = report.rescue.unwrap();
    assert_eq!(lab.git(&["show", &format!("{}:one", rescue.commit)]), "one");
    assert_eq!(lab.git(&["show", &format!("{}:src/lib.rs", rescue.commit)]), "pub fn lib() {}");
    assert_eq!(rescue.head.as_ref().unwrap().as_str(), tip);
    assert_eq!(
        lab.git(&["rev-parse", "refs/caliban/rescue/gone^@"]).lines().filter(|p| *p == tip).count(),
        1
    );
    let listed = lab.git(&["ls-tree", "-r", "--name-only", rescue.commit.as_str()]);
    assert!(!listed.contains("run.sh"), "what was deleted stays deleted: {listed}");
    repo.restore("gone", RestoreTo::Worktree(None), &quiet, &token()).await.unwrap();
    assert_eq!(lab.git_at(&path, &["rev-parse", "HEAD"]), tip);
    assert!(!path.join("run.sh").exists() && path.join("one").exists());

    let path = make(&repo, "moved").await;
    commit(&lab, &path, "two");
    lab.git_at(&path, &["checkout", "-q", "-b", "elsewhere"]);
    let there = commit(&lab, &path, "three");
    let report = remove(&repo, "moved").await;
    assert_eq!(
        (report.rescue, report.branch_fate),
        (None, BranchFate::DeletedMerged),
        "elsewhere has all of it"
    );
    assert_eq!(lab.git(&["rev-parse", "elsewhere"]), there);
}

#[tokio::test]
async fn r19_a_branch_that_is_checked_out_elsewhere_stays() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    lab.git_at(&path, &["checkout", "-q", "--detach"]);
    lab.git(&["checkout", "-q", "caliban/x"]);
    let report = remove(&repo, "x").await;
    assert!(matches!(report.branch_fate, BranchFate::Kept { ahead: 0, .. }), "{:?}", report.branch_fate);
    assert_eq!(lab.git(&["symbolic-ref", "HEAD"]), "refs/heads/caliban/x");
}

#[tokio::test]
async fn r19_repositories_inside_are_saved_with_their_history() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    for name in ["plain", "added"] {
        lab.git_at(&path, &["init", "-q", name]);
        commit(&lab, &path.join(name), "inner");
        write(&path.join(name).join("untracked"), "inner untracked");
    }
    lab.git_at(&path, &["add", "added"]);
    let was = tree(&path);
    let report = remove(&repo, "x").await;
    assert!(report.dirty.contains(&change("plain", ChangeKind::NestedRepository)), "{:?}", report.dirty);
    let back = lab.top().join("back");
    let mut restored = restore_to(&repo, "x", back.clone()).await;
    // git refuses `.git` in a tree, and a stranger's `.git` must not come to life by itself.
    let inert: Vec<_> = restored.keys().filter(|p| p.iter().any(|c| c == ".git")).cloned().collect();
    assert_eq!(inert, Vec::<PathBuf>::new());
    restored = restored
        .into_iter()
        .map(|(p, n)| (p.to_string_lossy().replace(".git.caliban-rescue", ".git").into(), n))
        .collect();
    assert_eq!(restored, was);
    std::fs::rename(back.join("plain/.git.caliban-rescue"), back.join("plain/.git")).unwrap();
    assert_eq!(lab.git_at(back.join("plain"), &["log", "--format=%s"]), "inner");
}

#[tokio::test]
async fn r19_a_filled_submodule_is_saved_with_its_store() {
    let lab = Lab::new();
    lab.git_at(lab.top(), &["clone", "-q", "repo", "library"]);
    lab.git(&["submodule", "--quiet", "add", "../library", "vendor"]);
    lab.git(&["commit", "-qm", "submodule"]);
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    lab.git_at(&path, &["submodule", "--quiet", "update", "--init"]);
    write(&path.join("vendor/work"), "work in the submodule");
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    assert_eq!(lab.git(&["show", &format!("{}:vendor/work", rescue.commit)]), "work in the submodule");
    let listed = lab.git(&["ls-tree", "-r", "--name-only", rescue.commit.as_str()]);
    assert!(listed.contains(".caliban-rescue/modules/vendor/HEAD"), "{listed}");
}

#[tokio::test]
async fn r19_files_that_git_was_told_to_overlook_are_saved() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    lab.git_at(&path, &["update-index", "--assume-unchanged", "README.md", "src/lib.rs"]);
    lab.git_at(&path, &["update-index", "--skip-worktree", "docs/guide.md"]);
    assert_eq!(repo.inspect(&slug("x"), &token()).await.unwrap().dirty, [], "as committed, they are clean");
    write(&path.join("README.md"), "hidden change");
    write(&path.join("docs/guide.md"), "another");
    let was = tree(&path);
    let report = remove(&repo, "x").await;
    assert_eq!(
        report.dirty,
        [change("README.md", ChangeKind::Modified), change("docs/guide.md", ChangeKind::Modified)]
    );
    assert_eq!(restore_to(&repo, "x", lab.top().join("back")).await, was);
}

#[tokio::test]
async fn r19_rules_that_were_not_committed_do_not_make_a_file_disposable() {
    let lab = Lab::new();
    let repo = lab.open().await;
    // What the person excludes for themselves holds; what comes later may be an agent's.
    let exclude = lab.repo().join(".git/info/exclude");
    write(&exclude, "/local\n");
    let path = make(&repo, "x").await;
    let rules = std::fs::read_to_string(&exclude).unwrap();
    write(&exclude, format!("{rules}result\n"));
    write(&path.join("local"), "mine");
    write(&path.join("result"), "work");
    write(&path.join(".gitignore"), "target/\n*.log\n.env\n/notes/\n");
    write(&path.join("notes/plan"), "a plan");
    write(&path.join("sub/.gitignore"), "*\n");
    write(&path.join("sub/work"), "work");
    write(&path.join("target/out"), "built");
    write(&path.join("x.log"), "log");
    let report = remove(&repo, "x").await;
    assert_eq!(report.dropped_ignored, ["local", "target", "x.log"], "by rules that are older");
    restore_to(&repo, "x", lab.top().join("back")).await;
    let back = paths(&lab.top().join("back"));
    for saved in [".gitignore", "notes/plan", "result", "sub/.gitignore", "sub/work"] {
        assert!(back.iter().any(|p| p == saved), "{saved} in {back:?}");
    }
}

#[tokio::test]
async fn r19_ignored_files_are_saved_when_asked() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("target/out"), "built");
    write(&path.join("x.log"), "log");
    let was = tree(&path);
    let options = RemoveOptions { ignored: IgnoredFiles::Save, ..RemoveOptions::default() };
    let report = repo.remove(&slug("x"), None, &options, &token()).await.unwrap();
    assert_eq!(report.dropped_ignored, Vec::<String>::new());
    assert_eq!(restore_to(&repo, "x", lab.top().join("back")).await, was);
}

#[tokio::test]
async fn r19_a_changed_copy_of_an_included_file_is_saved() {
    let lab = Lab::new();
    lab.write(".worktreeinclude", ".env\n");
    lab.write(".env", "KEY=old");
    lab.git(&["add", ".worktreeinclude"]);
    lab.git(&["commit", "-qm", "include"]);
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join(".env"), "KEY=new");
    let report = remove(&repo, "x").await;
    assert_eq!(report.dirty, [change(".env", ChangeKind::Included)]);
    assert_eq!(lab.git(&["show", "refs/caliban/rescue/x:.env"]), "KEY=new");
}

#[tokio::test]
async fn r19_a_conflict_is_saved_with_all_its_sides() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("README.md"), "ours\n");
    lab.git_at(&path, &["commit", "-qam", "ours"]);
    lab.git_at(&path, &["checkout", "-q", "--detach", "main"]);
    write(&path.join("README.md"), "theirs\n");
    lab.git_at(&path, &["commit", "-qam", "theirs"]);
    let theirs = lab.git_at(&path, &["rev-parse", "HEAD"]);
    lab.git_at(&path, &["checkout", "-q", "caliban/x"]);
    assert!(!lab.try_git(&path, &["merge", "-q", &theirs]).status.success());
    let was = tree(&path);
    let report = remove(&repo, "x").await;
    assert_eq!(report.dirty, [change("README.md", ChangeKind::Conflicted)]);
    let rescue = report.rescue.unwrap();
    let show = |path: &str| lab.git(&["show", &format!("{}:{path}", rescue.commit)]);
    assert_eq!(show(".caliban-rescue/unmerged/2/README.md"), "ours");
    assert_eq!(show(".caliban-rescue/unmerged/3/README.md"), "theirs");
    let parents = lab.git(&["log", "-1", "--format=%P", rescue.commit.as_str()]);
    assert!(parents.contains(&theirs), "what was being merged is kept: {parents}");
    let mut back = restore_to(&repo, "x", lab.top().join("back")).await;
    back.retain(|path, _| !path.starts_with(".caliban-rescue"));
    assert_eq!(back, was);
}

#[tokio::test]
async fn r19_a_directory_that_is_gone_leaves_its_staged_work() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("staged"), "only in the index\n");
    lab.git_at(&path, &["add", "-A"]);
    std::fs::remove_dir_all(&path).unwrap();
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    assert_eq!(lab.git(&["show", &format!("{}:staged", rescue.commit)]), "only in the index");
    make(&repo, "y").await;
    std::fs::remove_dir_all(lab.repo().join(".caliban")).unwrap();
    assert_eq!(remove(&repo, "y").await.rescue, None);
    assert_eq!(names(&lab.repo().join(".git/worktrees")), Vec::<String>::new());
}

#[tokio::test]
async fn r19_a_stale_index_of_a_fenced_agent_is_no_change() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let index = lab.repo().join(".git/worktrees/x/index");
    let old = std::fs::read(&index).unwrap();
    commit(&lab, &path, "committed");
    write(&path.join("README.md"), "committed too\n");
    lab.git_at(&path, &["commit", "-qam", "more"]);
    // A fenced agent commits with an index of its own and publishes only commits.
    std::fs::write(&index, old).unwrap();
    assert_eq!(repo.inspect(&slug("x"), &token()).await.unwrap().dirty, []);
    write(&path.join("docs/guide.md"), "but this is new");
    let dirty = repo.inspect(&slug("x"), &token()).await.unwrap().dirty;
    assert_eq!(dirty, [change("docs/guide.md", ChangeKind::Modified)]);
    let report = remove(&repo, "x").await;
    assert_eq!(
        lab.git(&["show", &format!("{}:docs/guide.md", report.rescue.unwrap().commit)]),
        "but this is new"
    );
    assert!(
        !names(&lab.repo().join(".git")).iter().any(|n| n.starts_with("caliban-")),
        "nothing is left in .git"
    );
}

#[tokio::test]
async fn a_worktree_in_use_is_not_removed_by_others() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let held = create(&repo, "x").await;
    let error = repo.remove(&slug("x"), None, &RemoveOptions::default(), &token()).await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    let report =
        repo.remove(&slug("x"), Some(held.lease), &RemoveOptions::default(), &token()).await.unwrap();
    assert_eq!(report.outcome, RemovalOutcome::Removed);
}

#[tokio::test]
async fn a_moved_worktree_is_left_alone() {
    let lab = Lab::new();
    let repo = lab.open().await;
    make(&repo, "x").await;
    lab.git(&["worktree", "move", ".caliban/worktrees/x", "../moved"]);
    let error = repo.remove(&slug("x"), None, &RemoveOptions::default(), &token()).await.unwrap_err();
    assert!(matches!(error, Error::Moved { .. }), "{error}");
    assert!(lab.top().join("moved/README.md").exists());
}

#[tokio::test]
async fn a_restore_takes_the_kept_branch_again_or_another_name() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let tip = commit(&lab, &path, "one");
    write(&path.join("loose"), "loose");
    let base = lab.git(&["rev-parse", "main"]);
    remove(&repo, "x").await;
    assert_eq!(lab.git(&["rev-parse", "caliban/x"]), tip);
    drop(repo.restore("x", RestoreTo::Worktree(None), &quiet, &token()).await.unwrap());
    let look = repo.inspect(&slug("x"), &token()).await.unwrap();
    assert_eq!(
        (look.ahead, look.listed.base.as_str(), look.head_branch.as_deref()),
        (1, base.as_str(), Some("caliban/x"))
    );
    assert_eq!(look.dirty, [change("loose", ChangeKind::Untracked)]);
    let error = repo.restore("x", RestoreTo::Worktree(None), &quiet, &token()).await.unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    drop(repo.restore("x", RestoreTo::Worktree(Some(slug("y"))), &quiet, &token()).await.unwrap());
    assert_eq!(std::fs::read_to_string(lab.wt("y").join("loose")).unwrap(), "loose");
    let error = repo.restore("x", RestoreTo::Directory(lab.repo()), &quiet, &token()).await.unwrap_err();
    assert!(error.to_string().ends_with("it exists and is not an empty directory"), "{error}");
}

#[tokio::test]
async fn r19_a_stale_index_of_a_sparse_worktree_is_no_change() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let mut asked = caliban_worktrees::CreateRequest::new(slug("x"));
    asked.sparse_paths = vec!["src/".into()];
    let path = crate::lab::try_create(&repo, asked).await.unwrap().created.path;
    let index = lab.repo().join(".git/worktrees/x/index");
    let old = std::fs::read(&index).unwrap();
    commit(&lab, &path, "src/committed");
    std::fs::write(&index, old).unwrap();
    assert_eq!(repo.inspect(&slug("x"), &token()).await.unwrap().dirty, []);
    assert_eq!(remove(&repo, "x").await.rescue, None);
}

#[tokio::test]
async fn r19_commits_that_only_the_record_names_are_saved() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    lab.git_at(&path, &["checkout", "-q", "--detach"]);
    let private = commit(&lab, &path, "private");
    lab.git_at(&path, &["update-ref", "refs/worktree/mine", &private]);
    lab.git_at(&path, &["checkout", "-q", "caliban/x"]);
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    let parents = lab.git(&["rev-parse", &format!("{}^@", rescue.commit)]);
    assert!(parents.contains(&private), "{parents}");
}

#[tokio::test]
async fn r19_an_unfinished_rebase_keeps_its_autostash() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("README.md"), "theirs\n");
    lab.git_at(&path, &["commit", "-qam", "theirs"]);
    lab.write("README.md", "ours\n");
    lab.git(&["commit", "-qam", "ours"]);
    write(&path.join("run.sh"), "stashed away\n");
    assert!(!lab.try_git(&path, &["rebase", "-q", "--autostash", "main"]).status.success());
    assert_ne!(std::fs::read_to_string(path.join("run.sh")).unwrap(), "stashed away\n");
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    let parents = lab.git(&["rev-parse", &format!("{}^@", rescue.commit)]);
    let saved = parents.lines().filter(|p| lab.git(&["show", &format!("{p}:run.sh")]) == "stashed away");
    assert_eq!(saved.count(), 1);
}

#[tokio::test]
async fn a_cancelled_removal_changes_nothing() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("new"), "new");
    let (was, before) = (tree(&path), lab.traces());
    let cancel = token();
    cancel.cancel();
    let error = repo.remove(&slug("x"), None, &RemoveOptions::default(), &cancel).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert_eq!((tree(&path), lab.traces()), (was, before));
}

#[tokio::test]
async fn r19_a_detached_head_keeps_no_commit() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let tip = commit(&lab, &make(&repo, "x").await, "one");
    // Looked at in the user's own tree: the next checkout there forgets it.
    lab.git(&["checkout", "-q", "--detach", "caliban/x"]);
    let report = remove(&repo, "x").await;
    assert!(
        matches!(&report.branch_fate, BranchFate::Kept { tip: t, ahead: 1 } if t.as_str() == tip),
        "{report:?}"
    );
    assert_eq!(lab.git(&["rev-parse", "caliban/x"]), tip);
}

#[tokio::test]
async fn r19_commits_that_the_agent_left_behind_are_saved() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let first = commit(&lab, &path, "first");
    let reset = commit(&lab, &path, "reset");
    lab.git_at(&path, &["reset", "-q", "--hard", "HEAD~1"]);
    lab.git_at(&path, &["checkout", "-q", "--detach"]);
    commit(&lab, &path, "loose one");
    let loose = commit(&lab, &path, "loose two");
    lab.git_at(&path, &["checkout", "-q", "caliban/x"]);
    assert!(repo.inspect(&slug("x"), &token()).await.unwrap().needs_rescue);
    let report = remove(&repo, "x").await;
    assert_eq!(report.dirty, []);
    let rescue = report.rescue.unwrap();
    let parents = lab.git(&["rev-parse", &format!("{}^@", rescue.commit)]);
    let mut parents: Vec<&str> = parents.lines().collect();
    assert_eq!(parents.remove(0), first, "HEAD comes first");
    parents.sort_unstable();
    let mut expected = [reset.as_str(), loose.as_str()];
    expected.sort_unstable();
    assert_eq!(parents, expected);
    assert!(report.notes.iter().any(|note| note.contains("left behind")), "{:?}", report.notes);
}

#[tokio::test]
async fn r19_nothing_is_saved_of_commits_that_another_ref_has() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    commit(&lab, &path, "first");
    let second = commit(&lab, &path, "second");
    lab.git_at(&path, &["reset", "-q", "--hard", "HEAD~2"]);
    lab.git(&["branch", "mine", &second]);
    let report = remove(&repo, "x").await;
    assert_eq!((report.rescue, report.branch_fate), (None, BranchFate::DeletedEmpty));
}

#[tokio::test]
async fn r19_commits_left_behind_in_a_repository_with_reftables_are_saved() {
    let lab = Lab::empty();
    lab.git_at(lab.top(), &["init", "-q", "--ref-format=reftable", "-b", "main", "repo"]);
    lab.fill();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let left = commit(&lab, &path, "left");
    lab.git_at(&path, &["reset", "-q", "--hard", "HEAD~1"]);
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    assert_eq!(lab.git(&["rev-parse", &format!("{}^2", rescue.commit)]), left);
}
