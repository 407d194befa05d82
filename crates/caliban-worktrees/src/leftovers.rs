//! What processes of ours leave in the repository when they are killed: private gits of worktrees that are gone, locks of
//! temporary refs, stores for one call. Deleting it may be cut short, and is done again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use caliban_core::names::Slug;
use caliban_rooted::{Below, tree};

use crate::error::Error;
use crate::one_call_store;
use crate::private_view;
use crate::repo::Repo;
use crate::sweep::SweepMode;

/// Where the refs are that live for one call.
pub(crate) const TEMPORARY: &str = "refs/caliban/tmp";
/// What is younger than this may be somebody's who works now.
const STALE: Duration = Duration::from_secs(60 * 60);

impl Repo {
    /// Deletes what killed processes left, or says what that is. Worktrees in `live` are somebody's.
    pub fn clear_leftovers(&self, live: &BTreeSet<Slug>, mode: SweepMode) -> Vec<PathBuf> {
        let (common, mut found) = (self.common_dir(), Vec::new());
        let gone = |name: &str| {
            let name = Slug::parse(name).ok();
            name.is_some_and(|name| {
                !live.contains(&name) && matches!(self.locate(&name), Err(Error::NotFound(_)))
            })
        };
        let privates = common.join(private_view::PLACE);
        for name in names_in(&privates) {
            if gone(&name) && private_view::may_go(&privates.join(&name)) {
                delete(&privates, &name, mode, &mut found);
            }
        }
        let temporary = common.join(TEMPORARY);
        for name in names_in(&temporary) {
            if name.ends_with(".lock") && is_stale(&temporary.join(&name)) {
                delete(&temporary, &name, mode, &mut found);
            }
        }
        for name in names_in(common) {
            if name.starts_with(one_call_store::PREFIX) && is_stale(&common.join(&name)) {
                delete(common, &name, mode, &mut found);
            }
        }
        found
    }

    /// Deletes the lock that a killed git left on a temporary ref. Only for one whose turn it is.
    pub(crate) fn unlock_temporary(&self, reference: &str) {
        let place = self.common_dir().join(TEMPORARY);
        if let Some(name) = reference.strip_prefix(TEMPORARY).and_then(|name| name.strip_prefix('/')) {
            delete(&place, &format!("{name}.lock"), SweepMode::Remove, &mut Vec::new());
        }
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let found = tree::open_dir(dir).and_then(tree::entries).unwrap_or_default();
    found.into_iter().filter_map(|(name, _)| name.into_string().ok()).collect()
}

fn delete(dir: &Path, name: &str, mode: SweepMode, found: &mut Vec<PathBuf>) {
    // Best effort by name: what stays is found again.
    let is_done = mode == SweepMode::DryRun
        || tree::open_dir(dir).and_then(|dir| tree::delete(dir, &Below::new(name)?)).is_ok();
    if is_done {
        found.push(dir.join(name));
    }
}

fn is_stale(path: &Path) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > STALE))
}
