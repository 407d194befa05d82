//! A worktree's index: copied for a look, and brought up to a commit that was made from outside.
//!
//! git follows a link that somebody put in the place of an index when it writes one. So a new index is written beside the
//! store and renamed into its place.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use caliban_rooted::{
    Below,
    tree::{self, FoundFile, nonce_name},
};

use crate::error::{Error, Result};
use crate::marker::Oid;
use crate::repo::{Located, Repo, split_nul};

/// Which index a worktree has: git never changes one, it renames another into its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexStamp(Option<(u64, u64, i64, i64)>);

impl IndexStamp {
    pub(crate) fn of(admin: &Path) -> Self {
        let found = admin.join("index").symlink_metadata().ok();
        Self(found.map(|found| (found.ino(), found.len(), found.ctime(), found.ctime_nsec())))
    }

    /// Refuses an index that is not this one any more.
    pub(crate) fn check(&self, at: &Located) -> Result<()> {
        if Self::of(&at.admin) == *self {
            return Ok(());
        }
        let why = std::io::Error::other("somebody has staged something in it meanwhile");
        Err(Error::at("updating the index of", &at.path, why))
    }
}

/// An index of our own, beside the store; deleted when dropped.
pub(crate) struct ScratchIndex {
    pub(crate) path: PathBuf,
}

impl ScratchIndex {
    pub(crate) fn new(common: &Path) -> Self {
        Self { path: common.join(nonce_name("caliban-index")) }
    }

    /// Copies a worktree's index here, if it is a plain file.
    pub(crate) fn fill(&self, admin: &Path) -> Result<()> {
        let copy = || -> std::io::Result<()> {
            let admin = tree::open_dir(admin)?;
            if let FoundFile::File { mut file, .. } = tree::find(&admin, &Below::fixed("index"))? {
                tree::copy_file(&mut file, &mut fs::File::create_new(&self.path)?)?;
            }
            Ok(())
        };
        copy().map_err(|e| Error::at("copying the index to", &self.path, e))
    }
}

impl Drop for ScratchIndex {
    fn drop(&mut self) {
        // Best effort by name: mostly it was never made, or it is the worktree's index now.
        let _gone = fs::remove_file(&self.path);
    }
}

impl Repo {
    /// Makes the worktree's index that of `commit`, if it is still the one that was looked at. What a sparse checkout leaves
    /// out stays left out.
    pub(crate) async fn bring_index_to(&self, at: &Located, was: &IndexStamp, commit: &Oid) -> Result<()> {
        let scratch = ScratchIndex::new(self.common_dir());
        scratch.fill(&at.admin)?;
        let git =
            |subcommand| self.git.hardened(self.tree(at), subcommand).env("GIT_INDEX_FILE", &scratch.path);
        // As a merge, which keeps what the index knows about files that did not change.
        git("read-tree").args(["-i", "-m", commit.as_str()]).ok().await?;
        if at.admin.join("info/sparse-checkout").is_file() {
            let absent = git("ls-files").args(["-z", "--deleted"]).ok().await?.stdout;
            let call = git("sparse-checkout").args(["check-rules", "-z"]);
            let inside = call.stdin(absent.clone()).ok().await?.stdout;
            let inside: BTreeSet<&[u8]> = split_nul(&inside).collect();
            let outside = split_nul(&absent).filter(|path| !inside.contains(path));
            let outside = outside.flat_map(|path| [path, b"\0"].concat()).collect();
            let call = git("update-index").args(["--skip-worktree", "-z", "--stdin"]);
            call.stdin(outside).ok().await?;
        }
        // git's own lock, so that no other git writes in between.
        let lock = at.admin.join("index.lock");
        let failed = |e| Error::at("updating the index of", &at.path, e);
        fs::File::create_new(&lock).map_err(failed)?;
        #[expect(clippy::disallowed_methods, reason = "in the user's own record of the worktree")]
        let replaced =
            was.check(at).and_then(|()| fs::rename(&scratch.path, at.admin.join("index")).map_err(failed));
        fs::remove_file(&lock).map_err(failed).and(replaced)
    }
}
