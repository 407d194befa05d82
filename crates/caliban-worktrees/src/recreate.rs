//! Recreates a worktree that is gone while its agent goes on: a removal was cut short, or somebody deleted it by hand.
//! The branch is taken as it is, and what a rescue saved is put over it. Deletes only records of worktrees whose files are
//! gone: whole ones as a removal does, and those that a removal had begun to delete.

use std::path::Path;

use caliban_core::names::Slug;

use crate::create::{CreateRequest, OnProgress, Worktree};
use crate::error::{Error, Result};
use crate::marker::Oid;
use crate::remove::RemoveOptions;
use crate::repo::{Located, Repo, branch_of};
use crate::rescue::{RESCUE_PREFIX, Rescue};
use crate::survey::record_only::has_modules;

impl Repo {
    /// Creates a worktree that has no record, or only what a removal left of one. Begins from what was kept of it, if
    /// anything was.
    pub(crate) async fn recreate(
        &self,
        request: CreateRequest,
        left: Option<&Located>,
        progress: OnProgress<'_>,
    ) -> Result<Worktree> {
        let older = left.map_or(&[][..], |left| left.marker.rescues.as_slice());
        let saved = self.saved(&request.name, older).await?;
        let made = self.finish_removal(&request.name, left).await?;
        let saved = match saved {
            // The rescue that the removal made holds more than the record still does.
            Some(saved) if saved.rescue.is_some() => Some(saved),
            Some(Saved { head, .. }) => {
                let rescue = made.clone().filter(|made| made.head.as_ref() == Some(&head));
                Some(Saved { head, rescue })
            }
            None => {
                made.clone().and_then(|made| Some(Saved { head: made.head.clone()?, rescue: Some(made) }))
            }
        };
        let Some(Saved { head, rescue }) = saved else {
            return self.create_at(request, None, progress).await;
        };
        let asked = request.base_commit.as_deref().and_then(Oid::parse);
        let base = rescue.as_ref().and_then(|rescue| rescue.base.clone()).or(asked);
        let base = left.map(|left| left.marker.base.clone()).or(base).unwrap_or_else(|| head.clone());
        let request = CreateRequest { base_commit: Some(head.to_string()), ..request };
        let mut worktree = self.create_at(request, Some(base.clone()), progress).await?;
        let from = match &rescue {
            Some(rescue) => {
                if let Err(error) = self.fill_restored(rescue, &head, &worktree).await {
                    self.discard(&worktree, &head).await;
                    return Err(error);
                }
                format!("its branch and {}", rescue.reference)
            }
            None => "its branch".to_owned(),
        };
        worktree.created.base = base;
        worktree.created.notes.push(format!("the worktree was gone; it was made again from {from}"));
        if let Some(made) = made.filter(|made| rescue.as_ref() != Some(made)) {
            let Rescue { reference, restore, .. } = made;
            worktree.created.notes.push(format!("what else it had is in {reference}: {restore} --as NAME"));
        }
        Ok(worktree)
    }

    /// Deletes the record of a worktree whose files are gone, after saving what the record still held.
    async fn finish_removal(&self, name: &Slug, left: Option<&Located>) -> Result<Option<Rescue>> {
        let path = self.path_of(name);
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        let admin = match left {
            Some(left) => Some(left.admin.clone()),
            None => self.admin_of(&path)?,
        };
        match (admin, left) {
            (Some(admin), _) if is_half_deleted(&admin) => {
                let records = self.open_records()?;
                let _records = self.lock_records().await?;
                self.delete_record(&admin, &records).await?;
                Ok(None)
            }
            (Some(_), Some(_)) => {
                let removed = self.remove(name, None, &RemoveOptions::default(), &self.git.cancel).await;
                removed.map(|report| report.rescue)
            }
            // Somebody else's.
            (Some(_), None) => Err(Error::Exists { name: name.as_str().to_owned(), path }),
            (None, _) => Ok(None),
        }
    }

    /// What was kept of a worktree, without the rescues that are `older` than it.
    async fn saved(&self, name: &Slug, older: &[Oid]) -> Result<Option<Saved>> {
        let branch = format!("refs/heads/{}", branch_of(name));
        let call =
            self.git.hardened(self.store(), "for-each-ref").args(["--format=%(refname)", branch.as_str()]);
        let answer = call.arg(format!("{RESCUE_PREFIX}{name}*")).ok().await?;
        if answer.stdout.is_empty() {
            return Ok(None);
        }
        let tip = self.resolve_ref(&branch).await?;
        let is_of = |rescue: &Rescue| {
            rescue.head.is_some() && !older.contains(&rescue.commit) && (tip.is_none() || rescue.head == tip)
        };
        let rescue = self.rescues_of(name).await?.into_iter().rev().find(is_of);
        let head = tip.or_else(|| rescue.as_ref().and_then(|rescue| rescue.head.clone()));
        Ok(head.map(|head| Saved { head, rescue }))
    }
}

/// What was kept of a worktree.
struct Saved {
    /// The commit that it stands on.
    head: Oid,
    /// What was in no commit.
    rescue: Option<Rescue>,
}

/// Whether a removal has begun to delete a record: git makes none without HEAD. A removal deletes submodule stores before it,
/// so a record that has them was not left by one.
pub(crate) fn is_half_deleted(admin: &Path) -> bool {
    matches!(admin.join("HEAD").try_exists(), Ok(false)) && !has_modules(admin)
}
