//! The merge, tried in the store alone: what it would make, and where it would conflict.

use std::ffi::OsString;
use std::path::PathBuf;

use super::record::LandingRecord;
use super::target::LandingTarget;
use crate::diff;
use crate::error::{Error, Result};
use crate::git::GitCall;
use crate::marker::Oid;
use crate::repo::Repo;

pub(super) struct Preview {
    /// What is merged into.
    pub(super) into: Oid,
    /// What is merged.
    pub(super) head: Oid,
    /// What of it landed before as a commit that shares no history with it: where this merge begins.
    pub(super) landed: Option<LandingRecord>,
    /// How many commits that brings.
    pub(super) commits: u64,
    pub(super) result: PreviewResult,
}

pub(super) enum PreviewResult {
    /// There is nothing to bring.
    UpToDate,
    /// This tree.
    Clean(Oid),
    /// These files.
    Conflicts(Vec<String>),
}

/// How a path changes from one tree to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Touched {
    pub(super) path: PathBuf,
    /// What the first tree has there, if anything.
    pub(super) was: Option<TouchedEntry>,
    /// What the second one has there, if anything.
    pub(super) will_be: Option<TouchedEntry>,
}

/// What a tree has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TouchedEntry {
    pub(super) oid: String,
    pub(super) is_submodule: bool,
}

/// The mode of what is not there.
const ABSENT: &str = "000000";
/// The mode of a submodule.
pub(super) const SUBMODULE: &str = "160000";

/// The settings that name merge drivers.
const DRIVERS: &str = r"^merge\..*\.driver$";

impl Repo {
    /// Tries the merge. `before` is an earlier landing that is still in `into`.
    pub(super) async fn preview(
        &self,
        target: &LandingTarget,
        into: Oid,
        head: Oid,
        before: Option<LandingRecord>,
    ) -> Result<Preview> {
        let landed = match before {
            // An agent that took the landed commit over shares it: then git sees by itself what is in.
            Some(record) if !self.is_ancestor(&record.commit, &head).await? => Some(record),
            _ => None,
        };
        let call = self.git.hardened(self.store(), "rev-list").arg("--count");
        let call = call.arg(head.as_str()).arg(format!("^{into}"));
        let call = call.args(landed.iter().map(|record| format!("^{}", record.tip))).arg("--");
        let count = call.ok().await?.line();
        let commits =
            count.parse().map_err(|_| Error::Answer { command: "rev-list", detail: count.clone() })?;
        if commits == 0 {
            return Ok(Preview { into, head, landed, commits, result: PreviewResult::UpToDate });
        }
        let ours = match &landed {
            Some(record) => {
                // On no ref. git finds by it where the merge begins, as it would if the squash had been a merge.
                let parents = [&into, &record.tip];
                self.commit_tree("landed before", &parents, &self.tree_of(&into).await?).await?
            }
            None => into.clone(),
        };
        let call = match target {
            // Trusted, so that it foretells what `git merge` will do there with the user's attributes and merge drivers.
            LandingTarget::Here { tree, .. } => self.git.trusted(tree, "merge-tree"),
            LandingTarget::Branch { .. } => self.merge_tree_in_store(&into).await?,
        };
        let call = call.args(["--write-tree", "-z", "--name-only", "--no-messages"]);
        let answer = call.args([ours.as_str(), head.as_str()]).run().await?;
        let mut found = answer.fields().into_iter().map(|field| field.to_string_lossy().into_owned());
        let first = found.next().and_then(|tree| Oid::parse(&tree));
        let result = match (answer.status.code(), first) {
            (Some(0), Some(tree)) => PreviewResult::Clean(tree),
            (Some(1), Some(_)) => PreviewResult::Conflicts(found.collect()),
            _ => return Err(answer.failure()),
        };
        Ok(Preview { into, head, landed, commits, result })
    }

    /// A `merge-tree` with the attributes of `into` that runs nothing. Where a driver would have to run that somebody has
    /// configured, the merge is a conflict.
    pub(super) async fn merge_tree_in_store(&self, into: &Oid) -> Result<GitCall> {
        let call =
            self.git.trusted(self.users_directory(), "config").with_patience(self.git.options.patience);
        let found = call.args(["-z", "--name-only", "--get-regexp", DRIVERS]).run().await?;
        // Exit code 1 is "none"; any other is a configuration that no git reads.
        if !matches!(found.status.code(), Some(0 | 1)) {
            return Err(found.failure());
        }
        let mut drivers = found.fields();
        drivers.sort();
        drivers.dedup();
        let call = self.git.hardened(self.store(), "merge-tree").env("GIT_ATTR_SOURCE", into.as_str());
        // An empty driver would succeed and keep "ours".
        Ok(call.with_each(&drivers, "false"))
    }

    /// Makes a commit in the user's name, which no ref holds.
    pub(super) async fn commit_tree(&self, message: &str, parents: &[&Oid], tree: &Oid) -> Result<Oid> {
        // Trusted, because the user's name comes from their configuration. No program is run.
        let call = self.git.trusted(self.users_directory(), "commit-tree").args(["-m", message]);
        let call = call.args(parents.iter().flat_map(|parent| ["-p", parent.as_str()])).arg(tree.as_str());
        let answer = call.ok().await?;
        answer.oid().ok_or_else(|| Error::Answer { command: "commit-tree", detail: answer.line() })
    }

    pub(super) async fn tree_of(&self, commit: &Oid) -> Result<Oid> {
        let call = self.git.hardened(self.store(), "rev-parse").arg("--verify");
        let answer = call.arg(format!("{commit}^{{tree}}")).ok().await?;
        answer.oid().ok_or_else(|| Error::Answer { command: "rev-parse", detail: answer.line() })
    }

    /// Every path that differs between two trees or commits.
    pub(super) async fn touched(&self, from: &Oid, to: &Oid) -> Result<Vec<Touched>> {
        let call = self.git.hardened(self.store(), "diff-tree").args(["-r", "-z", "--raw", "--no-renames"]);
        let call = call.args(["--ignore-submodules=none", from.as_str(), to.as_str(), "--"]);
        let found = call.ok().await?.fields();
        let read = |pair: &[OsString]| {
            let words = pair[0].to_str()?.strip_prefix(':')?;
            let [was, will_be, before, after, _] = words.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let there = |mode: &str, oid: &str| {
                let is_submodule = mode == SUBMODULE;
                (mode != ABSENT).then(|| TouchedEntry { oid: oid.to_owned(), is_submodule })
            };
            let (was, will_be) = (there(was, before), there(will_be, after));
            Some(Touched { path: PathBuf::from(&pair[1]), was, will_be })
        };
        Ok(found.chunks_exact(2).filter_map(read).collect())
    }

    /// `3 files changed, 10 insertions(+), 2 deletions(-)`.
    pub(super) async fn summary(&self, from: &Oid, to: &Oid) -> Result<String> {
        let call =
            self.git.hardened(self.store(), "diff-tree").args(["-r", "-z", "--numstat", "--no-renames"]);
        let call = call.args(["--no-textconv", "--ignore-submodules=none", from.as_str(), to.as_str(), "--"]);
        let found = call.ok().await?.fields();
        let (mut added, mut deleted) = (0, 0);
        for line in &found {
            let line = line.to_string_lossy().into_owned();
            let mut numbers = line.split('\t').map(|number| number.parse::<u64>().unwrap_or(0));
            added += numbers.next().unwrap_or(0);
            deleted += numbers.next().unwrap_or(0);
        }
        Ok(diff::summary(found.len() as u64, added, deleted))
    }
}
