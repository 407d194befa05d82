//! What there is of an agent's to land: the commit that is checked out in its worktree, and what is in no commit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use caliban_core::names::Slug;

use super::LandNote;
use super::preview::SUBMODULE;
use super::refusal::LandingRefusal;
use crate::diff::Changes;
use crate::error::Result;
use crate::git::GitPlace;
use crate::index::IndexStamp;
use crate::marker::Oid;
use crate::repo::{Located, Repo};
use crate::survey::ChangeKind;

/// What there is.
pub(super) struct Work {
    pub(super) changes: Changes,
    pub(super) at: Located,
    /// The index that was there before anything was looked at.
    pub(super) index: IndexStamp,
    /// The branch that is checked out, usually the worktree's own; `None` when HEAD is detached.
    pub(super) branch: Option<String>,
    /// The commit that is checked out: what is landed.
    pub(super) head: Oid,
    /// What is in no commit and should be in one.
    pub(super) uncommitted: BTreeMap<String, BTreeSet<ChangeKind>>,
    /// What is in no commit and is not meant to be.
    pub(super) left: Vec<String>,
}

impl Work {
    pub(super) async fn find(
        repo: &Repo,
        name: &Slug,
        note: &(dyn Fn(LandNote) + Sync),
    ) -> Result<Self, LandingRefusal> {
        let at = repo.locate(name)?;
        if let Err(error) = repo.publish_left(&at).await {
            note(LandNote::NotPublished(error));
        }
        let index = IndexStamp::of(&at.admin);
        let changes = repo.changes(name, &repo.git.cancel).await?;
        let worktree = at.path.clone();
        if worktree.symlink_metadata().is_err() {
            note(LandNote::FilesGone { worktree: worktree.clone() });
        }
        if let Some(operation) = repo.unfinished(&at.admin).await? {
            return Err(LandingRefusal::UnfinishedInWorktree { operation, worktree });
        }
        let Some(head) = changes.head.clone() else { return Err(LandingRefusal::NoHead(worktree)) };
        // Everything that the agent committed must be in what is landed, wherever it put it.
        let tip = repo.resolve_ref(&format!("refs/heads/{}", changes.branch)).await?;
        if let Some(tip) = tip
            && repo.count(&head, &tip).await? > 0
        {
            return Err(LandingRefusal::BranchNotCheckedOut { branch: changes.branch, worktree });
        }
        let common = repo.common_dir();
        let place = GitPlace::Tree { common, git_dir: &at.admin, files: common };
        let branch = repo.symbolic_ref(place, "HEAD").await?;
        let branch = branch.map(|name| name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned());
        let mut uncommitted = BTreeMap::<String, BTreeSet<ChangeKind>>::new();
        for change in &changes.uncommitted {
            uncommitted.entry(change.path.clone()).or_default().insert(change.kind);
        }
        repo.forgive_line_ends(&at, &head, &mut uncommitted).await?;
        let mut left: Vec<String> = changes.left.iter().map(|change| change.path.clone()).collect();
        // The survey of files leaves submodules out.
        for path in staged_submodules(repo, &at, &changes, &head).await? {
            left.retain(|left| *left != path);
            uncommitted.entry(path).or_default().insert(ChangeKind::Staged);
        }
        Ok(Self { changes, at, index, branch, head, uncommitted, left })
    }

    /// What is landed, for people.
    pub(super) fn shown(&self) -> String {
        self.branch.clone().unwrap_or_else(|| format!("the detached HEAD of {}", self.at.name.as_str()))
    }

    pub(super) fn worktree(&self) -> PathBuf {
        self.at.path.clone()
    }
}

/// Submodules that were added, moved or removed in the worktree's index.
async fn staged_submodules(repo: &Repo, at: &Located, changes: &Changes, head: &Oid) -> Result<Vec<String>> {
    if changes.uncommitted.is_empty() && changes.left.is_empty() {
        return Ok(Vec::new());
    }
    let common = repo.common_dir();
    let files = if at.path.is_dir() { at.path.as_path() } else { common };
    let place = GitPlace::Tree { common, git_dir: &at.admin, files };
    let compare = || repo.git.hardened(place, "diff-index").args(["--cached", "--ignore-submodules=none"]);
    // The index of an agent that commits with another one is as old as the worktree, and says nothing.
    if *head != changes.base && compare().args(["--quiet", changes.base.as_str(), "--"]).succeeds().await? {
        return Ok(Vec::new());
    }
    let call = compare().args(["-z", "--raw", "--no-renames", head.as_str(), "--"]);
    let found = call.ok().await?.fields();
    let is_submodule = |pair: &&[std::ffi::OsString]| {
        let words = pair[0].to_string_lossy().into_owned();
        words.trim_start_matches(':').split(' ').take(2).any(|mode| mode == SUBMODULE)
    };
    Ok(found
        .chunks_exact(2)
        .filter(is_submodule)
        .map(|pair| pair[1].to_string_lossy().into_owned())
        .collect())
}
