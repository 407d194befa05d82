//! The orphan sweep: worktrees of ours that no living agent has, removed by the same rule as any other.
//! Worktrees without our marker are never touched, nor are those that a process holds.

use std::collections::BTreeSet;
use std::path::PathBuf;

use caliban_core::names::Slug;
use caliban_rooted::{Below, tree};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::remove::{KeepWorktrees, RemoveOptions, RemoveReport, TRASH, trash_of};
use crate::repo::{Missing, Repo};

/// Whether a sweep does anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepMode {
    /// Only say what would be removed.
    #[default]
    DryRun,
    /// Remove.
    Remove,
}

/// What became of one orphan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum Swept {
    /// A dry run: it would be removed.
    Orphan {
        /// Its name.
        name: Slug,
        /// Where it is.
        path: PathBuf,
        /// Whether its work would go under a rescue ref.
        needs_rescue: bool,
    },
    /// It was handled.
    Done(Box<RemoveReport>),
    /// It stays: somebody holds it, or it was moved.
    Left {
        /// Its name.
        name: Slug,
        /// Why.
        why: String,
    },
    /// It could not be removed.
    Failed {
        /// Its name.
        name: Slug,
        /// Why.
        error: String,
    },
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SweepReport {
    /// One entry for each orphan, by name.
    pub orphans: Vec<Swept>,
    /// Leftovers of killed removals and creations that were deleted (or would be).
    pub leftovers: Vec<PathBuf>,
}

impl Repo {
    /// Finds worktrees whose names are not in `live`, and removes them if `mode` says so.
    pub async fn sweep(
        &self,
        live: &BTreeSet<Slug>,
        mode: SweepMode,
        options: &RemoveOptions,
        cancel: &CancellationToken,
    ) -> Result<SweepReport> {
        let repo = &self.until(cancel);
        let mut orphans = Vec::new();
        for at in repo.located()?.into_iter().filter(|at| !live.contains(&at.name)) {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let (name, path) = (at.name.clone(), at.path.clone());
            if at.marker.is_held() {
                let owner = at.marker.owner.as_deref().unwrap_or("somebody else");
                orphans.push(Swept::Left { name, why: format!("it belongs to {owner}") });
                continue;
            }
            if at.marker.kept {
                let why = format!("it is kept; `caliban worktrees rm {name}` removes it");
                orphans.push(Swept::Left { name, why });
                continue;
            }
            let swept = match mode {
                SweepMode::DryRun => {
                    repo.inspect(&name, cancel).await.map(|found| match found.listed.usage {
                        crate::Use::InUse => Swept::Left { name: name.clone(), why: "it is in use".into() },
                        crate::Use::Free => {
                            Swept::Orphan { name: name.clone(), path, needs_rescue: found.needs_rescue }
                        }
                    })
                }
                SweepMode::Remove if options.keep == KeepWorktrees::All => {
                    repo.report_kept(&at).await.map(|report| Swept::Done(Box::new(report)))
                }
                SweepMode::Remove => repo
                    .remove(&name, None, options, cancel)
                    .await
                    .map(|report| Swept::Done(Box::new(report))),
            };
            orphans.push(match swept {
                Ok(swept) => swept,
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(e @ (Error::Busy { .. } | Error::Moved { .. })) => {
                    Swept::Left { name, why: e.to_string() }
                }
                // Somebody else removed it meanwhile.
                Err(Error::NotFound(_)) => continue,
                Err(e) => Swept::Failed { name, error: e.to_string() },
            });
        }
        let this = repo.clone();
        let leftovers = tokio::task::spawn_blocking(move || this.sweep_trash(mode)).await;
        let mut leftovers = leftovers.map_err(|e| Error::io("sweeping", std::io::Error::other(e)))?;
        leftovers.extend(repo.sweep_half_made(live, mode).await?);
        leftovers.extend(repo.clear_leftovers(live, mode));
        Ok(SweepReport { orphans, leftovers })
    }

    /// What killed creations left.
    async fn sweep_half_made(&self, live: &BTreeSet<Slug>, mode: SweepMode) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let Ok(place) = self.open_place(Missing::Fail) else { return Ok(found) };
        for (name, _) in tree::entries(&place).unwrap_or_default() {
            let Some(name) = name.to_str().and_then(|n| Slug::parse(n).ok()) else { continue };
            if live.contains(&name) || !self.is_half_made(&name, &place) {
                continue;
            }
            if mode == SweepMode::Remove {
                self.clear_half_made(&name, &place).await?;
            }
            found.push(self.path_of(&name));
        }
        Ok(found)
    }

    /// Files that a killed removal had saved and hidden.
    fn sweep_trash(&self, mode: SweepMode) -> Vec<PathBuf> {
        let Ok(place) = self.open_place(Missing::Fail) else { return Vec::new() };
        let at = self.root().join(crate::PLACE);
        let mut found = Vec::new();
        for hidden in trash_of(&place) {
            let done = mode == SweepMode::DryRun
                || Below::fixed(TRASH).join(&hidden).and_then(|hidden| tree::delete(&place, &hidden)).is_ok();
            if done {
                found.push(at.join(TRASH).join(hidden));
            }
        }
        if mode == SweepMode::Remove {
            // Best effort by name: it stays when it is not empty.
            let _full = rustix::fs::unlinkat(&place, TRASH, rustix::fs::AtFlags::REMOVEDIR);
        }
        found
    }
}
