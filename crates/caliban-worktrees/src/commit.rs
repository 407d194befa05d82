//! Putting a worktree's uncommitted work on its branch, when nobody works in it any more.
//!
//! The commit is made like a rescue: we read the files ourselves, no hook and no filter runs, and the worktree's files
//! and logs stay as they are.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use caliban_core::names::Slug;
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::fast_import::{self, Snapshot};
use crate::index::IndexStamp;
use crate::marker::Oid;
use crate::repo::{Located, Repo, branch_of};
use crate::survey::{ChangeKind, IgnoredFiles};

impl Repo {
    /// Commits everything that is in no commit onto the worktree's branch. `None` when there is nothing to commit, or
    /// when a plain commit could not hold it (conflicts, repositories inside, files that a filter such as LFS would have
    /// to clean first, another branch checked out): a removal then makes a rescue of it.
    pub async fn commit_all(
        &self,
        name: &Slug,
        message: &str,
        cancel: &CancellationToken,
    ) -> Result<Option<Oid>> {
        let repo = &self.until(cancel);
        let at = repo.locate(name)?;
        at.marker.finished()?;
        let index = IndexStamp::of(&at.admin);
        let mut survey = repo.survey(&at, IgnoredFiles::Drop).await?;
        // What the user wants in no commit is left for the rescue.
        let ignored = repo.ignored_by_user(&at, &survey).await?;
        survey.plan.paths.retain(|path| !ignored.contains(path));
        let ignored: BTreeSet<_> = ignored.iter().map(|path| path.to_string_lossy()).collect();
        survey.changes.retain(|change| !ignored.contains(change.path.as_str()));
        let plain = |kind: ChangeKind| {
            matches!(
                kind,
                ChangeKind::Modified | ChangeKind::Deleted | ChangeKind::Staged | ChangeKind::Untracked
            )
        };
        let is_plain = survey.changes.iter().all(|change| plain(change.kind))
            && survey.pending.is_empty()
            && survey.branch.as_deref() == Some(branch_of(name).as_str());
        let Some(head) = survey.head.clone().filter(|_| is_plain && !survey.changes.is_empty()) else {
            return Ok(None);
        };
        if repo.any_filtered(&at, &head, &survey.plan.paths).await? {
            return Ok(None);
        }
        // The tree of the files is the commit; what was only staged is an older state of them.
        let mut plan = survey.plan;
        plan.staged.clear();
        let message = format!("{}\n", message.trim_end());
        let snapshot = Snapshot::new(Some(head.clone()), survey.files, plan, message);
        let refs = snapshot.refs.clone();
        let written = fast_import::write(repo.git.durable(repo.store(), "fast-import"), snapshot).await;
        let moved = match &written {
            Ok(commit) => {
                let branch = format!("refs/heads/{}", branch_of(name));
                // Only from where it was: a commit that came in between is never lost.
                repo.update_refs(&format!("update {branch}\0{commit}\0{head}\0")).await
            }
            Err(_) => Ok(()),
        };
        repo.forget_temporary(&refs).await;
        let written = written?;
        moved?;
        repo.bring_index_to(&at, &index, &written).await?;
        Ok(Some(written))
    }

    /// Whether git would run a program on one of these files before it commits it, whoever configured the program.
    async fn any_filtered(&self, at: &Located, head: &Oid, paths: &BTreeSet<PathBuf>) -> Result<bool> {
        // Rules that are not committed yet hold for the commit that they go into.
        if paths.iter().any(|path| path.file_name().is_some_and(|name| name == ".gitattributes")) {
            return Ok(true);
        }
        let asked = paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
        let call = self.git.hardened(self.tree(at), "check-attr").args(["-z", "--stdin", "--source"]);
        let answer = call.arg(head.as_str()).arg("filter").stdin(asked).ok().await?;
        let values: Vec<&[u8]> = answer.stdout.split(|byte| *byte == 0).collect();
        Ok(values.chunks_exact(3).any(|record| !matches!(record[2], b"unspecified" | b"unset")))
    }
}
