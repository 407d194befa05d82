//! Looking at a worktree whose files are gone, or whose record git cannot read, and for commits that only its
//! record knows.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::{ChangeKind, SavePlan, Staged, Survey, change, unreadable};
use crate::beneath;
use crate::error::Result;
use crate::git::GitPlace;
use crate::marker::Oid;
use crate::repo::{Located, Repo, split_nul};

/// Files of the record that name commits which an unfinished operation stands on.
const PENDING: [&str; 11] = [
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "MERGE_AUTOSTASH",
    "rebase-merge/autostash",
    "rebase-merge/orig-head",
    "rebase-merge/amend",
    "rebase-apply/autostash",
    "rebase-apply/orig-head",
    "BISECT_HEAD",
];
const PENDING_CAP: u64 = 64 * 1024;
/// The largest log of HEAD that is read.
const LOG_CAP: u64 = 64 * 1024 * 1024;
impl Repo {
    /// The files are gone; HEAD and index may still hold something.
    pub(super) async fn survey_record(&self, at: &Located, cancel: &CancellationToken) -> Result<Survey> {
        let common = self.common_dir();
        let place = GitPlace::Tree { common, git_dir: &at.admin, files: common };
        let call = self.git.hardened(place, "rev-parse").args(["--verify", "--quiet", "--end-of-options"]);
        let head = Oid::parse(&call.arg("HEAD^{commit}").run(cancel).await?.line());
        let mut staged = Vec::new();
        if let Some(head) = &head {
            let call =
                self.git.hardened(place, "diff-index").args(["--cached", "-z", "--raw", "--no-renames"]);
            let answer = call.args(["--ignore-submodules=all", head.as_str(), "--"]).run(cancel).await?;
            let fields: Vec<&[u8]> = split_nul(&answer.stdout).collect();
            for pair in fields.chunks_exact(2).filter(|_| answer.status.success()) {
                let words = String::from_utf8_lossy(pair[0]).into_owned();
                let words: Vec<&str> = words.split(' ').collect();
                let (Some(mode), Some(oid)) = (words.get(1), words.get(3)) else { continue };
                let entry = Oid::parse(oid).filter(|o| !o.is_zero()).map(|oid| ((*mode).to_owned(), oid));
                staged.push(Staged { path: Path::new(OsStr::from_bytes(pair[1])).to_path_buf(), entry });
            }
        }
        if head.as_ref() != Some(&at.marker.base)
            && !staged.is_empty()
            && self.index_is_base_of(at, place, cancel).await?
        {
            staged.clear();
        }
        let changes = staged.iter().map(|s| change(&s.path, ChangeKind::Staged)).collect();
        let plan = SavePlan { staged_only: staged.clone(), staged, ..SavePlan::default() };
        let notes = vec!["its directory is gone; only the record was left".to_owned()];
        let pending = self.pending(at, head.is_none(), cancel).await?;
        Ok(Survey { head, branch: None, files: None, changes, ignored: Vec::new(), pending, plan, notes })
    }

    async fn index_is_base_of(
        &self,
        at: &Located,
        place: GitPlace<'_>,
        cancel: &CancellationToken,
    ) -> Result<bool> {
        let call = self.git.hardened(place, "diff-index").args(["--cached", "--quiet"]);
        Ok(call.arg(at.marker.base.as_str()).arg("--").run(cancel).await?.status.success())
    }

    /// What else must not be lost with the record, as far as the store has it.
    pub(super) async fn pending(
        &self,
        at: &Located,
        head_is_lost: bool,
        cancel: &CancellationToken,
    ) -> Result<Vec<Oid>> {
        let mut named = unfinished(&at.admin);
        if head_is_lost {
            named.extend(read_log(&at.admin).pop());
        }
        named.sort();
        named.dedup();
        let mut found = Vec::new();
        for oid in named {
            found.extend(self.resolve_ref(oid.as_str(), cancel).await?);
        }
        Ok(found)
    }

    /// The commits that HEAD of a worktree was at, by its log.
    pub(crate) async fn logged_heads(
        &self,
        at: &Located,
        cancel: &CancellationToken,
    ) -> Result<BTreeSet<Oid>> {
        if !at.admin.join("reftable").is_dir() {
            return Ok(read_log(&at.admin).into_iter().collect());
        }
        let common = self.common_dir();
        let place = GitPlace::Tree { common, git_dir: &at.admin, files: common };
        let call =
            self.git.hardened(place, "log").args(["--walk-reflogs", "--no-show-signature", "--format=%H"]);
        let answer = call.args(["HEAD", "--"]).run(cancel).await?.line();
        Ok(answer.lines().filter_map(Oid::parse).collect())
    }

    /// git cannot read the record (a broken HEAD or index): every file counts.
    pub(super) async fn survey_unreadable(
        &self,
        at: &Located,
        files: OwnedFd,
        cancel: &CancellationToken,
    ) -> Result<Survey> {
        let tip = self.resolve_ref(&format!("refs/heads/{}", at.branch()), cancel).await?;
        let head = match tip {
            Some(tip) => Some(tip),
            None => self.resolve_ref(at.marker.base.as_str(), cancel).await?,
        };
        let mut plan = SavePlan::default();
        let mut changes = Vec::new();
        let entries = beneath::entries(files.as_fd()).map_err(|e| unreadable(&at.path, &e))?;
        let links: BTreeSet<&Path> = at.marker.links.iter().map(PathBuf::as_path).collect();
        for (name, kind) in entries {
            let path = Path::new(OsStr::from_bytes(name.to_bytes())).to_path_buf();
            let is_dir = kind == rustix::fs::FileType::Directory;
            if !is_dir && (links.contains(path.as_path()) || path == Path::new(".git")) {
                continue;
            }
            changes.push(change(&path, ChangeKind::Untracked));
            if is_dir {
                plan.whole.insert(path)
            } else {
                plan.paths.insert(path)
            };
        }
        let notes = vec!["git could not read its record, so every file in it was saved".to_owned()];
        let pending = self.pending(at, true, cancel).await?;
        Ok(Survey {
            head,
            branch: None,
            files: Some(files),
            changes,
            ignored: Vec::new(),
            pending,
            plan,
            notes,
        })
    }
}

/// The ids in the files of unfinished operations, and in refs that only this worktree has.
fn unfinished(admin: &Path) -> Vec<Oid> {
    let mut files: Vec<PathBuf> = PENDING.iter().map(PathBuf::from).collect();
    if let Ok(root) = beneath::open_dir(admin) {
        files.extend(beneath::files_beneath(root.as_fd(), Path::new("refs")).unwrap_or_default());
    }
    let mut found = Vec::new();
    for name in files {
        let Ok(bytes) = beneath::read_small(&admin.join(name), PENDING_CAP) else { continue };
        found.extend(String::from_utf8_lossy(&bytes).lines().filter_map(Oid::parse));
    }
    found
}

/// Where HEAD was, by its log, oldest first.
fn read_log(admin: &Path) -> Vec<Oid> {
    let bytes = beneath::read_small(&admin.join("logs/HEAD"), LOG_CAP).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let oid = |line: &str| Oid::parse(line.split(' ').nth(1)?).filter(|oid| !oid.is_zero());
    text.lines().filter_map(oid).collect()
}
