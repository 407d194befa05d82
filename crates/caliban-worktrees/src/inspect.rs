//! What worktrees there are, and how each stands against its base: nothing in here changes anything.

use std::collections::BTreeMap;
use std::path::PathBuf;

use caliban_core::names::Slug;
use caliban_rooted::tree;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::marker::{Making, Oid};
use crate::remove::Weighed;
use crate::repo::{Lease, Located, Repo, split_nul};
use crate::survey::{IgnoredFiles, PathChange};

/// Whether a worktree is where it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// It is there.
    Present,
    /// Its directory is gone; the record is left.
    Missing,
    /// Somebody moved it; it is left alone.
    Moved(PathBuf),
}

/// Whether another process holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// A lease is held.
    InUse,
    /// Nobody holds it.
    Free,
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedWorktree {
    /// Its name.
    pub name: Slug,
    /// Where it is, or was put.
    pub path: PathBuf,
    /// Its branch.
    pub branch: String,
    /// Where the branch is; `None` when it is gone.
    pub tip: Option<Oid>,
    /// The commit it was based on.
    pub base: Oid,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Who asked for it.
    pub owner: Option<String>,
    /// Whether somebody counts on it, at work in it or not.
    pub held: bool,
    /// Whether all of it was made.
    pub making: Making,
    /// Whether it is there.
    pub presence: Presence,
    /// Whether somebody holds it.
    pub usage: Use,
}

/// A close look at one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// The same as in the list.
    #[serde(flatten)]
    pub listed: ListedWorktree,
    /// The commit that is checked out.
    pub head: Option<Oid>,
    /// The branch that is checked out; `None` when detached.
    pub head_branch: Option<String>,
    /// What is in no commit.
    pub dirty: Vec<PathChange>,
    /// Commits that the base does not have.
    pub ahead: u64,
    /// Whether HEAD is reachable from a ref other than the worktree's own branch.
    pub reachable: bool,
    /// Whether the worktree's branch would be deleted with it.
    pub branch_merged: bool,
    /// Whether a removal would first make a rescue.
    pub needs_rescue: bool,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl Repo {
    /// Every worktree of ours, by name.
    pub async fn list(&self, cancel: &CancellationToken) -> Result<Vec<ListedWorktree>> {
        let repo = &self.until(cancel);
        let located = repo.located()?;
        if located.is_empty() {
            return Ok(Vec::new());
        }
        let tips = repo.tips().await?;
        Ok(located.iter().map(|at| listed(at, tips.get(&at.branch()).cloned())).collect())
    }

    /// Looks at one closely.
    pub async fn inspect(&self, name: &Slug, cancel: &CancellationToken) -> Result<Inspection> {
        let repo = &self.until(cancel);
        let at = repo.locate(name)?;
        if let Some(path) = at.moved {
            return Err(Error::Moved { name: name.as_str().to_owned(), path });
        }
        let survey = repo.survey(&at, IgnoredFiles::Drop).await?;
        let weighed = repo.weigh(&at, &survey).await?;
        let ahead = match &survey.head {
            Some(head) => repo.count(&at.marker.base, head).await?,
            None => 0,
        };
        let Weighed { tip, branch_merged, .. } = &weighed;
        Ok(Inspection {
            listed: listed(&at, tip.clone()),
            head: survey.head.clone(),
            head_branch: survey.branch.clone(),
            ahead,
            reachable: weighed.head_elsewhere,
            branch_merged: *branch_merged,
            needs_rescue: !survey.changes.is_empty() || weighed.needs_rescue(),
            dirty: survey.changes,
            notes: survey.notes,
        })
    }

    /// How many commits `to` has over `from`.
    pub(crate) async fn count(&self, from: &Oid, to: &Oid) -> Result<u64> {
        let call = self.git.hardened(self.store(), "rev-list").arg("--count").arg(format!("{from}..{to}"));
        let answer = call.arg("--").ok().await?;
        answer.line().parse().map_err(|_| Error::Answer { command: "rev-list", detail: answer.line() })
    }

    async fn tips(&self) -> Result<BTreeMap<String, Oid>> {
        let call = self.git.hardened(self.store(), "for-each-ref");
        let call = call.args(["--format=%(refname:lstrip=2)%00%(objectname)%00", "refs/heads/caliban/"]);
        let answer = call.ok().await?;
        let fields: Vec<&[u8]> = split_nul(&answer.stdout).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
        Ok(fields
            .chunks_exact(2)
            .filter_map(|pair| Some((text(pair[0]), Oid::parse(&text(pair[1]))?)))
            .collect())
    }
}

fn listed(at: &Located, tip: Option<Oid>) -> ListedWorktree {
    let opened = tree::open_dir(&at.path);
    let presence = match (&at.moved, &opened) {
        (Some(path), _) => Presence::Moved(path.clone()),
        (None, Ok(_)) => Presence::Present,
        (None, Err(_)) => Presence::Missing,
    };
    // Taken and given back at once: only a look.
    let usage = match opened.map(Lease::take) {
        Ok(Ok(None)) => Use::InUse,
        _ => Use::Free,
    };
    ListedWorktree {
        name: at.name.clone(),
        path: at.path.clone(),
        branch: at.branch(),
        tip,
        base: at.marker.base.clone(),
        created: at.marker.created,
        owner: at.marker.owner.clone(),
        held: at.marker.is_held(),
        making: at.marker.making,
        presence,
        usage,
    }
}
