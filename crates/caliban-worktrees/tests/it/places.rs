//! Repositories of every layout, and ones in which a worktree cannot be made.

use std::collections::BTreeSet;

use caliban_worktrees::{
    BranchFate, CreateRequest, Error, KeepWorktrees, Lookup, RemovalOutcome, RemoveOptions, Repo, SweepMode,
    Swept,
};

use crate::lab::{Lab, create, make, names, remove, slug, token, try_create, write};

#[tokio::test]
async fn opened_through_a_subdirectory() {
    let lab = Lab::new();
    let repo = lab.open_at(&lab.repo().join("src/deep")).await;
    assert_eq!((repo.root(), repo.source()), (lab.repo().as_path(), Some(lab.repo().as_path())));
    assert_eq!(make(&repo, "sub").await, lab.wt("sub"));
}

#[tokio::test]
async fn opened_in_a_linked_worktree_it_starts_from_that_head_and_goes_to_the_main_root() {
    let lab = Lab::new();
    lab.git(&["worktree", "add", "-q", "-b", "side", "../side"]);
    let side = lab.top().join("side");
    write(&side.join("side.txt"), "side");
    write(&side.join("target/x"), "side's own");
    lab.git_at(&side, &["add", "side.txt"]);
    lab.git_at(&side, &["commit", "-qm", "side"]);
    let repo = lab.open_at(&side).await;
    let symlink_directories = vec!["target".into()];
    let asked = CreateRequest { symlink_directories, ..CreateRequest::new(slug("linked")) };
    let made = try_create(&repo, asked).await.unwrap();
    assert_eq!(made.created.path, lab.wt("linked"));
    assert!(made.created.path.join("side.txt").exists());
    assert_eq!(std::fs::read_link(made.created.path.join("target")).unwrap(), side.join("target"));
    assert_eq!(lab.git_at(&side, &["status", "--porcelain"]), "");
    assert_eq!(lab.git(&["status", "--porcelain"]), "");
    drop(made);
    assert_eq!(lab.open().await.list(&token()).await.unwrap().len(), 1, "seen from the main tree too");
    assert_eq!(remove(&lab.open().await, "linked").await.branch_fate, BranchFate::DeletedEmpty);
}

#[tokio::test]
async fn bare_with_worktrees_beside_it() {
    let lab = Lab::new();
    let project = lab.top().join("project");
    lab.git_at(lab.top(), &["clone", "-q", "--bare", "repo", "project/.bare"]);
    write(&project.join(".git"), "gitdir: ./.bare\n");
    lab.git_at(&project, &["worktree", "add", "-q", "main"]);
    for start in [project.join("main"), project.clone(), project.join(".bare")] {
        let repo = lab.open_at(&start).await;
        assert_eq!(repo.root(), project, "from {}", start.display());
    }
    let repo = lab.open_at(&project.join("main")).await;
    let path = make(&repo, "bare").await;
    assert_eq!(path, project.join(".caliban/worktrees/bare"));
    assert_eq!(lab.git_at(&path, &["status", "--porcelain", "--branch"]), "## caliban/bare");
    write(&path.join("new"), "new");
    assert!(remove(&repo, "bare").await.rescue.is_some());
    assert_eq!(lab.git_at(project.join("main"), &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn from_around_a_hidden_bare_repository_agents_get_worktrees() {
    let lab = Lab::new();
    let project = lab.top().join("project");
    lab.git_at(lab.top(), &["clone", "-q", "--bare", "repo", "project/.bare"]);
    let lookup = Lookup::new(&project, lab.options());
    assert!(lookup.has_commits() && !lookup.is_in_git_dir());
    let head = lookup.commit("HEAD", &token()).await.unwrap().unwrap();
    assert_eq!(head.as_str(), lab.git(&["rev-parse", "HEAD"]));
    assert!(lookup.has_path("HEAD", "README.md", &token()).await.unwrap());
    let path = make(&lab.open_at(&project).await, "x").await;
    assert_eq!(path, project.join(".caliban/worktrees/x"));
    assert!(!Lookup::new(&lab.home(), lab.options()).has_commits(), "not where there is none");
}

#[tokio::test]
async fn bare_under_a_plain_name() {
    let lab = Lab::new();
    lab.git_at(lab.top(), &["clone", "-q", "--bare", "repo", "repo.git"]);
    let bare = lab.top().join("repo.git");
    let repo = lab.open_at(&bare).await;
    let path = make(&repo, "x").await;
    assert_eq!(path, bare.join(".caliban/worktrees/x"));
    let asked = CreateRequest { symlink_directories: vec!["target".into()], ..CreateRequest::new(slug("y")) };
    let error = try_create(&repo, asked).await.unwrap_err();
    assert!(error.to_string().ends_with("the repository is bare: there is no directory to link"), "{error}");
    assert_eq!(remove(&repo, "x").await.branch_fate, BranchFate::DeletedEmpty);
}

#[tokio::test]
async fn submodules_are_left_alone_and_said() {
    let lab = Lab::new();
    lab.git_at(lab.top(), &["clone", "-q", "repo", "library"]);
    lab.git(&["submodule", "--quiet", "add", "../library", "vendor/lib"]);
    lab.git(&["commit", "-qm", "submodule"]);
    let repo = lab.open().await;
    let made = create(&repo, "s").await;
    assert_eq!(made.created.notes, ["submodules are left alone: their directories are empty"]);
    assert_eq!(names(&made.created.path.join("vendor/lib")), Vec::<String>::new());
    drop(made);
    let report = remove(&repo, "s").await;
    assert_eq!((report.rescue, report.dirty), (None, vec![]));
    assert!(lab.repo().join("vendor/lib/README.md").exists());
}

#[tokio::test]
async fn in_a_submodule_of_another_repository() {
    let lab = Lab::new();
    lab.git_at(lab.top(), &["clone", "-q", "repo", "library"]);
    lab.git(&["submodule", "--quiet", "add", "../library", "vendor"]);
    lab.git(&["commit", "-qm", "submodule"]);
    let inner = lab.repo().join("vendor");
    let repo = lab.open_at(&inner.join("src")).await;
    assert_eq!(repo.root(), inner);
    let path = make(&repo, "in").await;
    assert_eq!(path, inner.join(".caliban/worktrees/in"));
    assert_eq!(lab.git(&["status", "--porcelain"]), "");
    assert_eq!(remove(&repo, "in").await.outcome, RemovalOutcome::Removed);
}

#[tokio::test]
async fn filters_of_the_user_run_at_creation_and_never_after() {
    let lab = Lab::new();
    let ran = lab.top().join("ran");
    let filter = |what: &str, program: &str| {
        lab.git(&[
            "config",
            &format!("filter.up.{what}"),
            &format!("echo {what} >> {}; {program}", ran.display()),
        ]);
    };
    filter("smudge", "tr a-z A-Z");
    filter("clean", "tr A-Z a-z");
    lab.write(".gitattributes", "*.up filter=up\n");
    lab.write("x.up", "shout\n");
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "filtered"]);
    let repo = lab.open().await;
    std::fs::remove_file(&ran).unwrap();
    let path = make(&repo, "f").await;
    assert_eq!(std::fs::read_to_string(path.join("x.up")).unwrap(), "SHOUT\n");
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "smudge\n");
    std::fs::remove_file(&ran).unwrap();
    write(&path.join("x.up"), "QUIET\n");
    repo.inspect(&slug("f"), &token()).await.unwrap();
    repo.changes(&slug("f"), &token()).await.unwrap();
    let rescue = remove(&repo, "f").await.rescue.unwrap();
    assert!(!ran.exists(), "no filter ran");
    assert_eq!(lab.git(&["show", &format!("{}:x.up", rescue.commit)]), "QUIET", "as it was, not as cleaned");
}

#[tokio::test]
async fn an_unchanged_lfs_file_is_clean_although_its_filter_does_not_run() {
    let lab = Lab::new();
    // What git-lfs does, in two lines of shell: a pointer in git, the content in its store.
    let store = lab.repo().join(".git/lfs/objects");
    let content = "large content\n";
    let sum = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!("printf '{}' | sha256sum | cut -d' ' -f1", "large content\\n"))
        .output()
        .unwrap();
    let real = String::from_utf8(sum.stdout).unwrap().trim().to_owned();
    let object = store.join(&real[..2]).join(&real[2..4]).join(&real);
    write(&object, content);
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{real}\nsize {}\n", content.len());
    lab.write("big.bin", &pointer);
    lab.git(&["add", "-A"]);
    lab.git(&["commit", "-qm", "pointer"]);
    lab.git(&["config", "filter.lfs.smudge", &format!("cat > /dev/null; cat {}", object.display())]);
    lab.git(&[
        "config",
        "filter.lfs.clean",
        &format!("cat > /dev/null; printf '{}'", pointer.replace('\n', "\\n")),
    ]);
    lab.write(".gitattributes", "*.bin filter=lfs\n");
    lab.git(&["add", ".gitattributes"]);
    lab.git(&["commit", "-qm", "attributes"]);
    let repo = lab.open().await;
    let path = make(&repo, "lfs").await;
    assert_eq!(std::fs::read_to_string(path.join("big.bin")).unwrap(), content);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(100);
    std::fs::File::open(path.join("big.bin")).unwrap().set_modified(later).unwrap();
    assert_eq!(repo.inspect(&slug("lfs"), &token()).await.unwrap().dirty, []);
    write(&path.join("big.bin"), "Large content\n");
    let report = remove(&repo, "lfs").await;
    assert_eq!(lab.git(&["show", &format!("{}:big.bin", report.rescue.unwrap().commit)]), "Large content");
}

#[tokio::test]
async fn hooks_of_the_repository_do_not_run_at_creation() {
    let lab = Lab::new();
    let ran = lab.top().join("ran");
    for (dir, set) in [(lab.repo().join(".git/hooks"), false), (lab.top().join("hooks"), true)] {
        for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-commit"] {
            write(&dir.join(hook), format!("#!/bin/sh\necho {hook} >> {}\n", ran.display()));
            crate::lab::make_executable(&dir.join(hook));
        }
        if set {
            lab.git(&["config", "core.hooksPath", dir.to_str().unwrap()]);
        }
        let repo = lab.open().await;
        let _gone = std::fs::remove_file(&ran);
        let path = make(&repo, "h").await;
        write(&path.join("x"), "x");
        remove(&repo, "h").await;
        assert!(!ran.exists(), "{}", std::fs::read_to_string(&ran).unwrap_or_default());
    }
}

#[tokio::test]
async fn a_branch_that_exists_is_a_clear_error_and_is_not_touched() {
    let lab = Lab::new();
    lab.git(&["branch", "caliban/taken"]);
    let repo = lab.open().await;
    let before = lab.traces();
    let error = try_create(&repo, CreateRequest::new(slug("taken"))).await.unwrap_err();
    assert_eq!(error.to_string(), "the branch 'caliban/taken' already exists");
    assert!(error.hint().unwrap().contains("git log caliban/taken"));
    assert_eq!(lab.traces(), before);
    lab.git(&["branch", "-D", "caliban/taken"]);
    lab.git(&["branch", "caliban"]);
    let before = lab.traces();
    let error = try_create(&repo, CreateRequest::new(slug("taken"))).await.unwrap_err();
    assert!(matches!(&error, Error::BranchConflict { .. }), "{error}");
    assert_eq!(lab.traces(), before);
}

#[tokio::test]
async fn a_record_of_the_same_directory_name_elsewhere_does_no_harm() {
    let lab = Lab::new();
    lab.git(&["worktree", "add", "-q", "-b", "other", "../elsewhere/same"]);
    let repo = lab.open().await;
    let path = make(&repo, "same").await;
    assert_eq!(names(&lab.repo().join(".git/worktrees")), ["same", "same1"]);
    write(&path.join("x"), "x");
    assert!(remove(&repo, "same").await.rescue.is_some());
    assert_eq!(names(&lab.repo().join(".git/worktrees")), ["same"]);
    assert_eq!(lab.git_at(lab.top().join("elsewhere/same"), &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn an_unborn_head_is_a_clear_error() {
    let lab = Lab::empty();
    lab.git_at(lab.top(), &["init", "-q", "repo"]);
    let repo = lab.open().await;
    let error = try_create(&repo, CreateRequest::new(slug("x"))).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the repository has no commit yet, so there is nothing to base a worktree on"
    );
    assert!(error.hint().unwrap().starts_with("make a first commit"));
    assert_eq!(names(&lab.repo()), [".git"]);
}

#[tokio::test]
async fn no_repository_is_a_clear_error() {
    let lab = Lab::empty();
    let error = Repo::open(&lab.home(), lab.options(), &token()).await.unwrap_err();
    assert!(matches!(error, Error::NotARepository { .. }), "{error}");
    let error = Repo::open(&lab.home().join("nope"), lab.options(), &token()).await.unwrap_err();
    assert!(error.to_string().ends_with("no such directory"), "{error}");
}

#[tokio::test]
async fn sha256_repositories_work() {
    let lab = Lab::empty();
    lab.git_at(lab.top(), &["init", "-q", "-b", "main", "--object-format=sha256", "repo"]);
    lab.fill();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    write(&path.join("new"), "new");
    assert_eq!(
        repo.changes(&slug("x"), &token()).await.unwrap().summary(),
        "1 file changed, 1 insertion(+), 0 deletions(-)"
    );
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    assert_eq!(lab.git(&["show", &format!("{}:new", rescue.reference)]), "new");
}

#[tokio::test]
async fn w07_keep_keeps_worktree_and_branch() {
    let lab = Lab::new();
    let repo = lab.open().await;
    let path = make(&repo, "kept").await;
    let options = RemoveOptions { keep: KeepWorktrees::All, ..RemoveOptions::default() };
    let report = repo.remove(&slug("kept"), None, &options, &token()).await.unwrap();
    assert_eq!(report.outcome, RemovalOutcome::Kept);
    assert!(path.join("README.md").exists());
    assert_eq!(lab.git(&["branch", "--list", "caliban/*"]), "+ caliban/kept");
    assert!(report.notes[0].contains("git worktree remove"), "{:?}", report.notes);
    // Nor does a later sweep take it for an orphan.
    let swept =
        repo.sweep(&BTreeSet::new(), SweepMode::Remove, &RemoveOptions::default(), &token()).await.unwrap();
    let why = "it is kept; `caliban worktrees rm kept` removes it".to_owned();
    assert_eq!(swept.orphans, [Swept::Left { name: slug("kept"), why }]);
    lab.git(&["worktree", "remove", path.to_str().unwrap()]);
    lab.git(&["branch", "-d", "caliban/kept"]);
}
