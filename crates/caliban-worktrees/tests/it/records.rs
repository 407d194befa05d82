//! r19: what lives only in a worktree's record, or in a store that lies in the worktree, is not lost with it.

use std::path::{Path, PathBuf};

use caliban_worktrees::{CommitLeft, LandAs, LandRequest, Repo};

use crate::lab::{Lab, create, make, remove, slug, token, write};

fn reftables() -> Lab {
    let lab = Lab::empty();
    lab.git_at(lab.top(), &["init", "-q", "--ref-format=reftable", "-b", "main", "repo"]);
    lab.fill();
    lab
}

fn commit(lab: &Lab, path: &Path, file: &str, text: &str) -> String {
    write(&path.join(file), text);
    lab.git_at(path, &["add", "-A"]);
    lab.git_at(path, &["commit", "-qm", file]);
    lab.git_at(path, &["rev-parse", "HEAD"])
}

/// The refs that have a commit.
fn holders(lab: &Lab, commit: &str) -> String {
    lab.git(&["for-each-ref", "--format=%(refname)", &format!("--contains={commit}")])
}

/// A worktree with a submodule that has a commit which is nowhere else.
async fn with_submodule(lab: &Lab) -> (Repo, PathBuf, String) {
    lab.git_at(lab.top(), &["clone", "-q", "repo", "library"]);
    lab.git(&["submodule", "--quiet", "add", "../library", "vendor"]);
    lab.git(&["commit", "-qm", "submodule"]);
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    lab.git_at(&path, &["submodule", "--quiet", "update", "--init"]);
    let only = commit(lab, &path.join("vendor"), "precious", "precious");
    (repo, path, only)
}

/// Whether the rescue has the submodule's store, with the commit in it.
fn has_commit_in_modules(lab: &Lab, rescue: &str, commit: &str) -> bool {
    let object = format!(".caliban-rescue/modules/vendor/objects/{}/{}", &commit[..2], &commit[2..]);
    lab.git(&["ls-tree", "-r", "--name-only", rescue]).lines().any(|path| path == object)
}

#[tokio::test]
async fn r19_submodule_stores_are_saved_when_the_files_are_gone() {
    let lab = Lab::new();
    let (repo, path, only) = with_submodule(&lab).await;
    std::fs::remove_dir_all(&path).unwrap();
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    assert!(has_commit_in_modules(&lab, rescue.commit.as_str(), &only));
}

#[tokio::test]
async fn r19_submodule_stores_are_saved_when_the_record_has_no_head_or_a_broken_index() {
    for broken in ["HEAD", "index"] {
        let lab = Lab::new();
        let (repo, path, only) = with_submodule(&lab).await;
        let file = lab.repo().join(".git/worktrees/x").join(broken);
        if broken == "HEAD" {
            std::fs::remove_file(&file).unwrap();
            std::fs::remove_dir_all(&path).unwrap();
        } else {
            write(&file, "garbage");
        }
        let rescue = remove(&repo, "x").await.rescue.unwrap();
        assert!(has_commit_in_modules(&lab, rescue.commit.as_str(), &only), "{broken}");
        if broken == "index" {
            let index = format!("{}:.caliban-rescue/index", rescue.commit);
            assert_eq!(lab.git(&["show", &index]), "garbage", "what git cannot read is saved as it is");
        }
    }
}

#[tokio::test]
async fn r19_a_worktree_that_is_made_again_keeps_the_submodule_stores_of_the_first() {
    let lab = Lab::new();
    let (repo, path, only) = with_submodule(&lab).await;
    std::fs::remove_dir_all(&path).unwrap();
    let request = caliban_worktrees::CreateRequest::new(slug("x"));
    repo.take_up(request, &crate::lab::quiet, &token()).await.unwrap();
    let rescues = repo.rescues(&token()).await.unwrap();
    assert!(rescues.iter().any(|rescue| has_commit_in_modules(&lab, rescue.commit.as_str(), &only)));
}

#[tokio::test]
async fn r19_staged_and_conflicting_content_is_saved_when_files_are_gone_or_head_is_broken() {
    for broken in ["files", "HEAD"] {
        let lab = Lab::new();
        let repo = lab.open().await;
        let path = make(&repo, "x").await;
        lab.git_at(&path, &["checkout", "-q", "-b", "other"]);
        commit(&lab, &path, "README.md", "theirs\n");
        lab.git_at(&path, &["checkout", "-q", "caliban/x"]);
        commit(&lab, &path, "README.md", "ours\n");
        lab.try_git(&path, &["merge", "-q", "other"]);
        lab.git_at(&path, &["branch", "-qD", "other"]);
        write(&path.join("staged"), "only staged\n");
        lab.git_at(&path, &["add", "staged"]);
        std::fs::remove_file(path.join("staged")).unwrap();
        if broken == "files" {
            std::fs::remove_dir_all(&path).unwrap();
        } else {
            write(&lab.repo().join(".git/worktrees/x/HEAD"), "garbage");
        }
        let rescue = remove(&repo, "x").await.rescue.unwrap();
        let stage = format!("{}:.caliban-rescue/unmerged/3/README.md", rescue.commit);
        assert_eq!(lab.git(&["show", &stage]), "theirs", "{broken}");
        let index = rescue.index.unwrap();
        assert_eq!(lab.git(&["show", &format!("{index}:staged")]), "only staged", "{broken}");
    }
}

#[tokio::test]
async fn r19_commits_that_only_the_record_knows_are_saved_with_reftables() {
    let lab = reftables();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    let work = commit(&lab, &path, "work", "work");
    lab.git_at(&path, &["checkout", "-q", "--orphan", "fresh"]);
    lab.git_at(&path, &["branch", "-qD", "caliban/x"]);
    let own = lab.git_at(&path, &["commit-tree", "-m", "own", &format!("{work}^{{tree}}")]);
    lab.git_at(&path, &["update-ref", "refs/worktree/keep", &own]);
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    for commit in [&work, &own] {
        assert_eq!(holders(&lab, commit), rescue.reference);
    }
}

#[tokio::test]
async fn r19_the_stash_of_an_unfinished_merge_is_saved_with_reftables() {
    let lab = reftables();
    let repo = lab.open().await;
    let path = make(&repo, "x").await;
    lab.git_at(&path, &["checkout", "-q", "-b", "other"]);
    commit(&lab, &path, "README.md", "theirs\n");
    lab.git_at(&path, &["checkout", "-q", "caliban/x"]);
    commit(&lab, &path, "README.md", "ours\n");
    write(&path.join("run.sh"), "dirty\n");
    lab.try_git(&path, &["merge", "-q", "--autostash", "other"]);
    let stash = lab.git_at(&path, &["rev-parse", "MERGE_AUTOSTASH"]);
    let rescue = remove(&repo, "x").await.rescue.unwrap();
    assert_eq!(holders(&lab, &stash), rescue.reference);
}

/// An agent that "saves room": its objects are in its worktree, and the repository takes them from there.
async fn with_objects_in_the_worktree(lab: &Lab, repo: &Repo) -> PathBuf {
    let path = create(repo, "x").await.created.path;
    let objects = lab.repo().join(".git/objects");
    let own = path.join("objs");
    std::fs::create_dir(&own).unwrap();
    write(&path.join(".gitignore"), "objs/\n");
    write(&path.join("work"), "work\n");
    write(&objects.join("info/alternates"), format!("{}\n", own.display()));
    for args in [["add", "-A"].as_slice(), &["commit", "-qm", "work"]] {
        let mut command = std::process::Command::new("git");
        command.current_dir(&path).env_clear().envs(lab.environment()).args(args);
        command.env("GIT_OBJECT_DIRECTORY", &own).env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &objects);
        assert!(command.status().unwrap().success());
    }
    path
}

#[tokio::test]
async fn r19_objects_that_lie_in_the_worktree_stay_when_it_goes() {
    for packed in [false, true] {
        let lab = Lab::new();
        let repo = lab.open().await;
        let path = with_objects_in_the_worktree(&lab, &repo).await;
        if packed {
            let mut command = std::process::Command::new("git");
            command.current_dir(&path).env_clear().envs(lab.environment()).args(["repack", "-adql"]);
            command.env("GIT_OBJECT_DIRECTORY", path.join("objs"));
            command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", lab.repo().join(".git/objects"));
            assert!(command.status().unwrap().success());
        }
        let turn = repo.landing_turn(|| {}, &token()).await.unwrap();
        let request = LandRequest {
            name: slug("x"),
            into: None,
            land_as: LandAs::Merge,
            commit: CommitLeft::IfAlone,
            message: Some("land x".into()),
            agent: "x".into(),
            task: "the task".into(),
        };
        repo.land(&turn, &request, &|_| {}, &token()).await.unwrap();
        drop(turn);
        remove(&repo, "x").await;
        assert!(!path.exists());
        let list = lab.repo().join(".git/objects/info/alternates");
        assert_eq!(std::fs::read_to_string(list).unwrap().trim(), "");
        lab.git(&["fsck", "--strict"]);
        assert_eq!(lab.git(&["show", "main:work"]), "work");
    }
}
