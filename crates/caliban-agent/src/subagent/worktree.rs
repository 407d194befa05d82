//! A sub-agent's worktree: made before it starts; when it ends, the work stays on its branch and the worktree goes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use caliban_core::{names::Slug, spec::WorktreeSpec};
use caliban_worktrees::{
    BaseRef, BranchFate, Changes, CreateRequest, Environment, Error, GitOptions, Keep, Outcome, Phase,
    Progress, RemoveOptions, RemoveReport, Repo, Setup, Worktree,
};
use tokio_util::sync::CancellationToken;

/// Of the files that a sub-agent changed, so many are named.
const NAMED_FILES: usize = 50;
/// Of its commits, so many are named.
const NAMED_COMMITS: usize = 20;

/// How worktrees are made and kept.
#[derive(Debug, Clone, Default)]
pub struct Isolation {
    /// Where the repository is; none when the agent does not work in one.
    pub repo: Option<PathBuf>,
    /// The environment of git and of the setup command, whole.
    pub env: Vec<(OsString, OsString)>,
    /// Whether worktrees stay when their task has ended.
    pub keep: Keep,
    /// A command that runs in each new worktree.
    pub setup: Option<Setup>,
}

/// A worktree that a sub-agent works in.
#[derive(Debug)]
pub(super) struct Made {
    repo: Repo,
    worktree: Worktree,
    keep: Keep,
}

/// What a sub-agent leaves behind.
pub(super) struct Work {
    branch: String,
    changes: Result<Changes, Error>,
    removed: Result<RemoveReport, Error>,
}

impl Isolation {
    /// Makes one; the error is worded for the model.
    pub(super) async fn create(
        &self,
        name: Slug,
        wanted: &WorktreeSpec,
        owner: &str,
        cancel: &CancellationToken,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Made, String> {
        let start = self
            .repo
            .as_deref()
            .ok_or("isolation \"worktree\" needs a git repository, and this directory is in none")?;
        let env: BTreeMap<OsString, OsString> = self.env.iter().cloned().collect();
        let options = GitOptions { environment: Environment::Exactly(env), ..GitOptions::default() };
        let repo = Repo::open(start, options, cancel).await.map_err(worded)?;
        let request = CreateRequest {
            name,
            base_ref: BaseRef::from(wanted.base_ref.clone()),
            sparse_paths: wanted.sparse_paths.clone(),
            symlink_directories: wanted.symlink_directories.clone(),
            setup: self.setup.clone(),
            owner: Some(owner.to_owned()),
            holder: None,
        };
        let show = |step: Progress| progress(&shown(step));
        let worktree = repo.create(request, &show, cancel).await.map_err(worded)?;
        Ok(Made { repo, worktree, keep: self.keep })
    }
}

/// The worktree's name: the label's, else the sub-agent's session's.
pub(super) fn name(label: Option<&str>, session: &str) -> Slug {
    Slug::slugify(label.unwrap_or(session))
}

impl Made {
    pub(super) fn path(&self) -> &Path {
        &self.worktree.created.path
    }

    /// Puts what is not committed on the branch, then removes the worktree; nothing is ever lost.
    pub(super) async fn finish(self, label: &str) -> Work {
        // Not the call's own token: the work is saved also when the call was cancelled.
        let cancel = CancellationToken::new();
        let Worktree { created, lease, .. } = self.worktree;
        let changes = self.repo.changes(&created.name, &cancel).await;
        if self.keep == Keep::Remove && changes.as_ref().is_ok_and(|changes| !changes.uncommitted.is_empty())
        {
            let message = format!("Work of the sub-agent {label}");
            if let Err(error) = self.repo.commit_all(&created.name, &message, &cancel).await {
                // Then the removal saves it under a rescue ref.
                tracing::warn!(%error, "uncommitted work of a sub-agent could not be put on its branch");
            }
        }
        let options = RemoveOptions { keep: self.keep, ..RemoveOptions::default() };
        let removed = self.repo.remove(&created.name, Some(lease), &options, &cancel).await;
        Work { branch: created.branch, changes, removed }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.changes {
            Err(error) => writeln!(f, "[its changes cannot be listed: {error}]")?,
            Ok(changes) if changes.file_count == 0 && changes.commit_count == 0 => {
                writeln!(f, "[it changed no files]")?;
            }
            Ok(changes) => {
                writeln!(f, "[branch {}: {}", self.branch, changes.summary())?;
                for commit in changes.commits.iter().take(NAMED_COMMITS) {
                    writeln!(f, "commit {} {}", commit.oid.short(), commit.subject)?;
                }
                for file in changes.files.iter().take(NAMED_FILES) {
                    writeln!(f, "{} {}", file.status, file.path)?;
                }
                if changes.file_count > NAMED_FILES {
                    writeln!(f, "… {} more files", changes.file_count - NAMED_FILES)?;
                }
                writeln!(f, "]")?;
            }
        }
        match &self.removed {
            Err(error) => write!(f, "[the worktree stays: {error}]"),
            Ok(report) if report.outcome == Outcome::Kept => {
                write!(f, "[the worktree stays at {}]", report.path.display())
            }
            Ok(report) => {
                match &report.branch_fate {
                    BranchFate::Kept { .. } => {
                        write!(f, "[take the work over with `git merge {}`]", self.branch)?;
                    }
                    BranchFate::DeletedEmpty | BranchFate::DeletedMerged | BranchFate::Absent => {}
                }
                match &report.rescue {
                    Some(rescue) => {
                        write!(f, "[saved under {}; get it back with `{}`]", rescue.reference, rescue.restore)
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// How far the worktree is, in one line.
fn shown(step: Progress) -> String {
    let what = match step.phase {
        Phase::Resolve => "finding its base",
        Phase::Checkout => "writing files",
        Phase::Links => "linking directories",
        Phase::Include => "copying files that git does not have",
        Phase::Setup => "running the setup command",
    };
    match step.total {
        0 => format!("worktree: {what}\n"),
        total => {
            let tenths = usize::try_from((step.done * 10).div_ceil(total).min(10)).unwrap_or(10);
            let bar = format!("{}{}", "█".repeat(tenths), "░".repeat(10 - tenths));
            format!("worktree: {what} {bar} {}/{total}\n", step.done)
        }
    }
}

fn worded(error: Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error}. {hint}"),
        None => error.to_string(),
    }
}
