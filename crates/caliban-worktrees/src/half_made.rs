//! Half-made worktrees: what is left of a creation that was killed before it wrote its marker. That is a directory without
//! files, perhaps a record without an index, and a branch without commits. None of it holds work, so it may be deleted.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use caliban_core::names::Slug;
use caliban_rooted::{Below, tree};
use rustix::fs::AtFlags;

use crate::error::{Error, Result};
use crate::marker::{self, Oid};
use crate::repo::{Lease, Repo, branch_of};

/// A half-made worktree, held.
struct HalfMade {
    lease: Lease,
    admin: Option<PathBuf>,
}

impl Repo {
    /// Whether `name` is half-made and nobody is making it.
    pub(crate) fn is_half_made(&self, name: &Slug, place: &OwnedFd) -> bool {
        self.half_made(name, place).is_some()
    }

    fn half_made(&self, name: &Slug, place: &OwnedFd) -> Option<HalfMade> {
        let dir = tree::walk_to(place, &Below::new(name.as_str()).ok()?).ok()?;
        let lease = Lease::take(dir).ok()??;
        let names = tree::entries(&lease.fd).ok()?;
        let admin = self.admin_of(&self.path_of(name)).ok()?;
        let only_git = names.iter().all(|(name, _)| name == ".git");
        let nothing = match &admin {
            Some(admin) => !admin.join(marker::FILE).exists() && !admin.join("index").exists() && only_git,
            None => names.is_empty(),
        };
        nothing.then_some(HalfMade { lease, admin })
    }

    /// Deletes a half-made worktree, and its branch if that holds nothing. Does nothing when `name` is not half-made.
    pub(crate) async fn clear_half_made(&self, name: &Slug, place: &OwnedFd) -> Result<()> {
        let Some(HalfMade { lease, admin }) = self.half_made(name, place) else { return Ok(()) };
        let path = self.path_of(name);
        let failed = |e: std::io::Error| Error::at("clearing", &path, e);
        if let Some(id) = admin.as_deref().and_then(std::path::Path::file_name) {
            let _locked = self.lock_records().await?;
            let records = tree::open_dir(&self.common_dir().join("worktrees")).map_err(failed)?;
            Below::new(id).and_then(|id| tree::delete(&records, &id)).map_err(failed)?;
        }
        tree::delete(&lease.fd, &Below::fixed(".git")).map_err(failed)?;
        rustix::fs::unlinkat(place, name.as_str(), AtFlags::REMOVEDIR).map_err(|e| failed(e.into()))?;
        let branch = branch_of(name);
        let reference = format!("refs/heads/{branch}");
        if let Some(tip) = self.resolve_ref(&reference).await?
            && self.holds_nothing(&branch, &tip).await?
        {
            self.update_refs(&format!("delete {reference}\0{tip}\0")).await?;
        }
        Ok(())
    }

    async fn holds_nothing(&self, branch: &str, tip: &Oid) -> Result<bool> {
        let elsewhere = self.kept(std::slice::from_ref(tip), Some(branch)).await?;
        Ok(elsewhere && !self.checked_out(branch, None).await?)
    }
}
