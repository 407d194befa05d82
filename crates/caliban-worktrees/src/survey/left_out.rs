//! What of a worktree's changes no commit is meant to have: what the user wants ignored everywhere, and what would be
//! saved before a removal although it is no work on the repository.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use caliban_rooted::tree;

use super::{ChangeKind, PathChange, Survey};
use crate::error::Result;
use crate::exclude;
use crate::one_call_store::OneCallStore;
use crate::repo::{Located, Repo, asked_to_ignore, split_nul, told_ignored};

impl Repo {
    /// What is untracked and matches a rule of the user's own ignore file. Asked in a store of its own: where that file is
    /// must not come from the repository's configuration, which an agent could have written.
    pub(crate) async fn ignored_by_user(&self, at: &Located, survey: &Survey) -> Result<BTreeSet<PathBuf>> {
        let untracked = of_kind(survey, |kind| kind == ChangeKind::Untracked);
        let asked = asked_to_ignore(untracked.iter().map(|path| path.as_os_str().as_bytes()));
        if asked.is_empty() || tree::open_dir(&at.path).is_err() {
            return Ok(BTreeSet::new());
        }
        let store = OneCallStore::new(self)?;
        // Its rules go before the user's: one of them may say that something is not ignored.
        for rule in exclude::rules(self.common_dir())? {
            exclude::ensure(store.path(), &rule)?;
        }
        let call = self.git.with_users_rules(store.place_of(&at.path), "check-ignore");
        let answer = call.args(["--no-index", "-z", "--stdin"]).stdin(asked).run().await?;
        // 1 is "none".
        if !matches!(answer.status.code(), Some(0 | 1)) {
            return Err(answer.failure());
        }
        let path = |told: &[u8]| PathBuf::from(OsStr::from_bytes(told_ignored(told)));
        Ok(split_nul(&answer.stdout).map(path).collect())
    }
}

impl Survey {
    /// Calls untracked paths ignored.
    pub(crate) fn call_ignored(&mut self, paths: &BTreeSet<PathBuf>) {
        let names: BTreeSet<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
        for change in &mut self.changes {
            if change.kind == ChangeKind::Untracked && names.contains(change.path.as_str()) {
                change.kind = ChangeKind::Ignored;
            }
        }
    }

    /// Takes out of the plan what no commit is meant to have, and tells what that is.
    pub(crate) fn leave_unmeant(&mut self) -> Vec<PathChange> {
        for path in of_kind(self, |kind| !is_meant(kind)) {
            self.plan.paths.remove(&path);
        }
        // All of these are saved for the sake of saving only.
        self.plan.whole.clear();
        self.plan.unmerged.clear();
        self.plan.of_record.clear();
        let (meant, left) = std::mem::take(&mut self.changes).into_iter().partition(|c| is_meant(c.kind));
        self.changes = meant;
        left
    }
}

/// Whether a commit of the worktree's work has it.
fn is_meant(kind: ChangeKind) -> bool {
    match kind {
        ChangeKind::Modified
        | ChangeKind::Deleted
        | ChangeKind::Staged
        | ChangeKind::Conflicted
        | ChangeKind::Untracked => true,
        ChangeKind::Ignored | ChangeKind::NestedRepository | ChangeKind::Submodule | ChangeKind::Included => {
            false
        }
    }
}

/// The single paths whose every change is of such a kind.
fn of_kind(survey: &Survey, is: impl Fn(ChangeKind) -> bool) -> BTreeSet<PathBuf> {
    let named = |wanted: bool| -> BTreeSet<&str> {
        survey.changes.iter().filter(|c| is(c.kind) == wanted).map(|c| c.path.as_str()).collect()
    };
    let (such, others) = (named(true), named(false));
    let is_such = |path: &&PathBuf| {
        let name = path.to_string_lossy();
        such.contains(&*name) && !others.contains(&*name)
    };
    survey.plan.paths.iter().filter(is_such).cloned().collect()
}
