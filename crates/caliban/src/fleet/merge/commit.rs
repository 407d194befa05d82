//! What an agent left uncommitted, as a commit on its branch: made from the files alone, through the repository's
//! store. No git runs in the agent's worktree, so nothing that it wrote there is run.

use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use caliban_worktrees::{Change, ChangeKind, Changes, Repo};

use super::super::{
    git::{self, Git},
    say,
};
use crate::report::Failure;

/// The largest file that is committed for an agent.
const FILE_CAP: u64 = 512 * 1024 * 1024;

/// A commit that the branch points to already; settled or undone.
pub(super) struct Committed {
    common: PathBuf,
    worktree: PathBuf,
    branch: String,
    before: String,
    commit: String,
}

impl Committed {
    /// Commits everything that is uncommitted and moves the agent's branch to it.
    pub(super) async fn make(repo: &Repo, changes: &Changes, message: &str) -> Result<Self, Failure> {
        let common = repo.common_dir().to_owned();
        let worktree = repo.path_of(&changes.name);
        let branch = format!("refs/heads/{}", changes.branch);
        let before = Git::hardened(&common).args(["rev-parse", "--verify", branch.as_str()]).text().await?;
        if changes.head.as_ref().map(|head| head.as_str()) != Some(before.as_str()) {
            return Err(Failure::new(format!(
                "the worktree does not have its branch {} checked out",
                changes.branch
            ))
            .hint(format!("look at it by hand in {}", worktree.display())));
        }
        let identity = |which: &'static str| Git::plain(repo.root()).args(["var", which]).text();
        let (author, committer) =
            (identity("GIT_AUTHOR_IDENT").await?, identity("GIT_COMMITTER_IDENT").await?);
        let place = format!("refs/caliban/landing/{}", changes.name);
        let mut stream = format!(
            "commit {place}\nauthor {author}\ncommitter {committer}\ndata {}\n{message}\nfrom {before}\n",
            message.len()
        )
        .into_bytes();
        for change in &changes.uncommitted {
            add(&worktree, change, &mut stream)?;
        }
        stream.extend_from_slice(b"\ndone\n");
        let import = ["fast-import", "--quiet", "--done", "--force", "--date-format=raw"];
        Git::hardened(&common).args(import).feed(stream).await?;
        let commit = Git::hardened(&common).args(["rev-parse", "--verify", place.as_str()]).text().await?;
        let moved = Git::hardened(&common)
            .args(["update-ref", branch.as_str(), commit.as_str(), before.as_str()])
            .text()
            .await;
        let dropped = Git::hardened(&common).args(["update-ref", "-d", place.as_str()]).text().await;
        moved?;
        dropped?;
        Ok(Self { common, worktree, branch, before, commit })
    }

    /// The commit stays: the worktree's index is brought up to it, so that it shows as clean.
    pub(super) async fn settle(self) {
        let Some(admin) = git::admin_dir(&self.common, &self.worktree) else { return };
        let index = admin.join("index");
        // A link would be written through.
        if !index.symlink_metadata().is_ok_and(|found| found.is_file()) {
            return;
        }
        let read = Git::hardened(&self.common)
            .env("GIT_INDEX_FILE", &index)
            .args(["read-tree", self.commit.as_str()]);
        if let Err(failure) = read.text().await {
            say(&format!("the worktree's index is not up to date: {failure}"));
        }
    }

    /// The branch goes back to where it was; the files were never touched.
    pub(super) async fn undo(self) -> Result<(), Failure> {
        let args = ["update-ref", &self.branch, &self.before, &self.commit];
        Git::hardened(&self.common).args(args).text().await.map(drop)
    }
}

/// One change, in the words of `git fast-import`.
fn add(worktree: &Path, change: &Change, stream: &mut Vec<u8>) -> Result<(), Failure> {
    let refuse = |why: &str| {
        Err(Failure::new(format!("{} cannot be committed: {why}", caliban_core::inert::line(&change.path)))
            .hint(format!("commit it by hand in {}", worktree.display())))
    };
    match change.kind {
        ChangeKind::Modified | ChangeKind::Deleted | ChangeKind::Staged | ChangeKind::Untracked => {}
        // Neither is meant to be in a commit.
        ChangeKind::Ignored | ChangeKind::Included => return Ok(()),
        ChangeKind::Conflicted => return refuse("it is in conflict"),
        ChangeKind::NestedRepository | ChangeKind::Submodule => {
            return refuse("it is a repository of its own");
        }
    }
    if change.path.contains('\u{FFFD}') {
        return refuse("its name is not text");
    }
    let path = worktree.join(&change.path);
    let quoted = quoted(&change.path);
    let Ok(found) = path.symlink_metadata() else {
        stream.extend_from_slice(format!("D {quoted}\n").as_bytes());
        return Ok(());
    };
    let is_inside = path
        .parent()
        .and_then(|dir| dir.canonicalize().ok())
        .is_some_and(|dir| worktree.canonicalize().is_ok_and(|root| dir.starts_with(root)));
    if !is_inside {
        return refuse("it leads out of the worktree");
    }
    let cannot = |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", path.display()));
    let (mode, bytes) = if found.is_symlink() {
        ("120000", fs::read_link(&path).map_err(cannot)?.as_os_str().as_bytes().to_vec())
    } else if found.is_file() && found.len() <= FILE_CAP {
        let mode = if found.permissions().mode() & 0o100 == 0 { "100644" } else { "100755" };
        (mode, fs::read(&path).map_err(cannot)?)
    } else if found.is_file() {
        return refuse("it is too large");
    } else {
        return refuse("it is no file");
    };
    stream.extend_from_slice(format!("M {mode} inline {quoted}\ndata {}\n", bytes.len()).as_bytes());
    stream.extend_from_slice(&bytes);
    stream.push(b'\n');
    Ok(())
}

/// A path as `git fast-import` reads it.
fn quoted(path: &str) -> String {
    let mut out = String::from("\"");
    for c in path.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out += "\\n",
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}
