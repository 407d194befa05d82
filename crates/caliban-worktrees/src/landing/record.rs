//! The record that a squash leaves (`caliban-landed.json`): which commit of the agent landed as which commit of the user's.
//! A squash shares no commit with the agent's branch, so nothing else can say later that the work is in.
//!
//! The file lies in the repository's record of the worktree and goes with it. An agent may be able to write it. Who
//! deletes a branch because of it checks first that the branch is still at `tip`, that `commit` is on a ref that stays, and
//! that `commit` really has the work.

use std::path::Path;

use caliban_core::names::Slug;
use caliban_core::review::{Review, ReviewState};
use caliban_rooted::{
    Below,
    tree::{self, WriteUntil},
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::diff::Changes;
use crate::error::Result;
use crate::marker::Oid;
use crate::repo::{BRANCH_PREFIX, Repo};

/// The file's name, beside the worktree's marker.
const FILE: &str = "caliban-landed.json";
const SIZE_CAP: u64 = 64 * 1024;
/// How many earlier landings are remembered.
const EARLIER_CAP: usize = 32;

/// The last landing of a worktree's work as one commit, and those before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LandingRecord {
    /// The agent's commit.
    pub(crate) tip: Oid,
    /// The commit of the user's that has all of it.
    pub(crate) commit: Oid,
    /// What had landed in the same place before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<OneLanding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OneLanding {
    tip: Oid,
    commit: Oid,
}

/// How much of a record still holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StillLanded {
    /// The last landing that holds together with all before it; `None` where git itself sees what is in.
    pub(crate) record: Option<LandingRecord>,
    /// The first landing after that, whose change was taken back.
    pub(crate) undone: Option<Oid>,
}

impl LandingRecord {
    /// A landing that comes after `before`.
    pub(super) fn after(before: Option<Self>, tip: Oid, commit: Oid) -> Self {
        let mut earlier = before.map(Self::landings).unwrap_or_default();
        earlier.drain(..earlier.len().saturating_sub(EARLIER_CAP));
        Self { tip, commit, earlier }
    }

    fn landings(mut self) -> Vec<OneLanding> {
        self.earlier.push(OneLanding { tip: self.tip, commit: self.commit });
        self.earlier
    }

    fn of(mut landings: Vec<OneLanding>) -> Option<Self> {
        let OneLanding { tip, commit } = landings.pop()?;
        Some(Self { tip, commit, earlier: landings })
    }

    /// Reads the record of a worktree; `None` when there is none, or none that makes sense.
    pub(crate) fn read(admin: &Path) -> Option<Self> {
        serde_json::from_slice(&tree::read_small(&admin.join(FILE), SIZE_CAP).ok()?).ok()
    }

    /// Writes it whole or not at all; it is on the disk when this returns.
    pub(super) fn write(&self, admin: &Path) -> std::io::Result<()> {
        tree::write_whole(admin, &Below::fixed(FILE), &serde_json::to_vec(self)?, WriteUntil::OnDisk)
    }
}

impl Repo {
    /// How much of `record` is in the commit `into`. A change that somebody took back there (a revert, or by hand) is not in
    /// it, although the commit that brought it is in the history.
    pub(crate) async fn still_landed(&self, record: LandingRecord, into: &Oid) -> Result<StillLanded> {
        let (last, mut still) = (record.commit.clone(), Vec::new());
        for landing in record.landings() {
            if !self.is_ancestor(&landing.commit, into).await?
                || self.resolve_ref(landing.tip.as_str()).await?.is_none()
            {
                break;
            }
            if self.is_ancestor(&landing.tip, into).await? {
                continue;
            }
            // What the agent itself took back later is as it should be.
            if self.is_undone(into, &landing.commit).await? && !self.is_undone(&last, &landing.commit).await?
            {
                return Ok(StillLanded { record: LandingRecord::of(still), undone: Some(landing.commit) });
            }
            still.push(landing);
        }
        Ok(StillLanded { record: LandingRecord::of(still), undone: None })
    }

    /// Whether all that `head`, a commit of the worktree `name`, holds is on a branch that is no agent's: as it is, or
    /// squashed.
    pub async fn has_landed(&self, name: &Slug, head: &Oid, cancel: &CancellationToken) -> Result<bool> {
        let repo = &self.until(cancel);
        if !repo.users_branches_with(head).await?.is_empty() {
            return Ok(true);
        }
        let record = LandingRecord::read(&repo.locate(name)?.admin).filter(|record| record.tip == *head);
        let Some(record) = record else { return Ok(false) };
        for branch in repo.users_branches_with(&record.commit).await? {
            let Some(into) = repo.resolve_ref(&branch).await? else { continue };
            // It may have been taken back there.
            let still = repo.still_landed(record.clone(), &into).await?;
            if still.record.is_some_and(|still| still.commit == record.commit) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How the work of the worktree stands, of which these are the changes.
    pub async fn review(&self, changes: &Changes, cancel: &CancellationToken) -> Result<Review> {
        let committed = changes.head.as_ref().filter(|_| changes.commit_count > 0);
        let state = match committed.filter(|_| changes.uncommitted.is_empty()) {
            Some(head) if self.has_landed(&changes.name, head, cancel).await? => ReviewState::Merged,
            _ if changes.file_count == 0 && changes.uncommitted.is_empty() => ReviewState::NothingChanged,
            _ => ReviewState::ToReview,
        };
        Ok(Review { state, ..changes.figures() })
    }

    /// The branches that are no agent's, and where they are: as long as that stays the same, nothing lands or is taken back.
    pub async fn users_branches(&self, cancel: &CancellationToken) -> Result<Vec<String>> {
        let repo = &self.until(cancel);
        let call = repo.git.hardened(repo.store(), "for-each-ref");
        let answer = call.args(["--format=%(refname) %(objectname)", "refs/heads"]).ok().await?;
        let agents = format!("refs/heads/{BRANCH_PREFIX}");
        let branches = answer.line();
        Ok(branches.lines().filter(|branch| !branch.starts_with(&agents)).map(str::to_owned).collect())
    }

    /// The branches that are no agent's and have the commit; none when the store does not have it any more.
    async fn users_branches_with(&self, commit: &Oid) -> Result<Vec<String>> {
        if self.resolve_ref(commit.as_str()).await?.is_none() {
            return Ok(Vec::new());
        }
        let call = self.git.hardened(self.store(), "for-each-ref").arg("--format=%(refname)");
        let answer = call.arg(format!("--contains={commit}")).arg("refs/heads").ok().await?;
        let agents = format!("refs/heads/{BRANCH_PREFIX}");
        let branches = answer.line();
        Ok(branches.lines().filter(|branch| !branch.starts_with(&agents)).map(str::to_owned).collect())
    }

    /// Whether a merge that takes `commit` back would change nothing in `into`.
    async fn is_undone(&self, into: &Oid, commit: &Oid) -> Result<bool> {
        let before = format!("{commit}^1");
        if self.resolve_ref(&before).await?.is_none() {
            return Ok(false);
        }
        let call = self.merge_tree_in_store(into).await?;
        let call = call.args(["--write-tree", "--no-messages"]).arg(format!("--merge-base={commit}"));
        let answer = call.args([into.as_str(), before.as_str()]).run().await?;
        match answer.status.code() {
            Some(0) => Ok(answer.oid() == Some(self.tree_of(into).await?)),
            // A conflict: something of it is there.
            Some(1) => Ok(false),
            _ => Err(answer.failure()),
        }
    }

    /// Whether `one` is `other` or in its history.
    pub(super) async fn is_ancestor(&self, one: &Oid, other: &Oid) -> Result<bool> {
        let call = self.git.hardened(self.store(), "merge-base").arg("--is-ancestor");
        call.args([one.as_str(), other.as_str()]).succeeds().await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_record_is_read_back_and_nonsense_is_none() {
        let oid = |digit: &str, length| Oid::parse(&digit.repeat(length)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LandingRecord::read(dir.path()), None);
        let first = LandingRecord::after(None, oid("a", 40), oid("b", 40));
        first.write(dir.path()).unwrap();
        let second = LandingRecord::after(Some(first), oid("c", 64), oid("d", 64));
        second.write(dir.path()).unwrap();
        assert_eq!(LandingRecord::read(dir.path()), Some(second));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(dir.path().join(FILE), r#"{"tip":"--all","commit":"x"}"#).unwrap();
        assert_eq!(LandingRecord::read(dir.path()), None);
    }
}
