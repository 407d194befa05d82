//! Removing a worktree without losing a byte (r19): what is nowhere else goes under a rescue ref first.
//!
//! Decided on facts, then done in an order in which a crash at any point loses nothing: rescue, move the
//! files out of sight, delete the record, delete the branch if it holds nothing of its own, delete the files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use caliban_core::names::Slug;
use caliban_rooted::{
    Below,
    tree::{self, nonce_name},
};
use rustix::fs::Mode;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::landing::LandingRecord;
use crate::marker::{self, Marker, Oid};
use crate::recreate::is_half_deleted;
use crate::repo::{BRANCH_PREFIX, Lease, Located, Missing, Repo, Waited};
use crate::rescue::Rescue;
use crate::survey::record_only::MODULES;
use crate::survey::{IgnoredFiles, PathChange, Survey};
use crate::sweep::SweepMode;

/// Where removed files wait for their deletion, in the place for worktrees. No worktree can have that name.
pub(crate) const TRASH: &str = ".trash";
/// How many dropped ignored paths a report names.
const DROPPED_CAP: usize = 100;

/// Refs that do not count as keeping a commit: they come and go by themselves.
const NOT_KEEPING: [&str; 7] = [
    "refs/caliban/tmp/*",
    "refs/caliban/base/*",
    "refs/stash",
    "refs/bisect/*",
    "refs/rewritten/*",
    "refs/worktree/*",
    "refs/prefetch/*",
];

/// Whether worktrees are removed at all (`CALIBAN_KEEP_WORKTREES`; the binary reads it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepWorktrees {
    /// They are removed when their time has come.
    #[default]
    Remove,
    /// Worktree and branch stay until somebody removes them by hand.
    All,
}

/// How to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RemoveOptions {
    /// Whether at all.
    pub keep: KeepWorktrees,
    /// What becomes of ignored files.
    pub ignored: IgnoredFiles,
}

/// What became of the worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovalOutcome {
    /// It is gone.
    Removed,
    /// It stays, because [`KeepWorktrees::All`].
    Kept,
}

/// What became of the branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "fate")]
pub enum BranchFate {
    /// Deleted: it had no commit over its base.
    DeletedEmpty,
    /// Deleted: all its commits are on another branch or tag, which is no agent's.
    DeletedMerged,
    /// Deleted: all its commits are on another ref, but on no branch or tag of the user's.
    DeletedHeld {
        /// That ref.
        by: String,
    },
    /// Deleted: all its commits landed as one other, which is on another ref.
    DeletedSquashed {
        /// Where it was.
        tip: Oid,
        /// The commit that has its work.
        landed: Oid,
    },
    /// Kept: it has commits that are on no other ref, or is checked out elsewhere.
    Kept {
        /// Where it is.
        tip: Oid,
        /// Commits over the base.
        ahead: u64,
    },
    /// There was none.
    Absent,
}

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoveReport {
    /// The worktree.
    pub name: Slug,
    /// Where it was.
    pub path: PathBuf,
    /// What became of it.
    pub outcome: RemovalOutcome,
    /// Its branch.
    pub branch: String,
    /// What became of that.
    pub branch_fate: BranchFate,
    /// What was saved, and how to get it back.
    pub rescue: Option<Rescue>,
    /// What was in no commit.
    pub dirty: Vec<PathChange>,
    /// Ignored paths that went with it (the first hundred).
    pub dropped_ignored: Vec<String>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Whether what a worktree's HEAD and branch hold is also held by something that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weighed {
    pub(crate) tip: Option<Oid>,
    /// All commits of the branch are on another kept ref, or landed as one that is.
    pub(crate) branch_merged: bool,
    /// The one commit that they landed as, when they are on no other ref themselves.
    pub(crate) squashed: Option<Oid>,
    pub(crate) checked_out_elsewhere: bool,
    /// HEAD and all that it stands on are on a kept ref other than the worktree's branch.
    pub(crate) head_elsewhere: bool,
    /// The same, counting the branch if it stays.
    pub(crate) head_kept: bool,
    /// Commits that HEAD once was at and that nothing holds which stays, HEAD and the branch included: after a `reset --hard`
    /// or an amended commit. Without those that are in the history of another one.
    pub(crate) left_behind: Vec<Oid>,
}

impl Weighed {
    /// Whether there are commits that a removal must save.
    pub(crate) fn needs_rescue(&self) -> bool {
        !self.head_kept || !self.left_behind.is_empty()
    }
}

impl Repo {
    /// Removes a worktree. `lease` is the caller's own, if it has one; without it, a worktree that somebody
    /// holds is [`Error::Busy`]. No process may be writing in it any more.
    pub async fn remove(
        &self,
        name: &Slug,
        lease: Option<Lease>,
        options: &RemoveOptions,
        cancel: &CancellationToken,
    ) -> Result<RemoveReport> {
        let repo = &self.until(cancel);
        let at = repo.locate(name)?;
        if let Some(path) = &at.moved {
            return Err(Error::Moved { name: name.as_str().to_owned(), path: path.clone() });
        }
        if options.keep == KeepWorktrees::All {
            // No later sweep takes it for an orphan.
            let kept = Marker { kept: true, ..at.marker.clone() };
            match kept.write(&at.admin) {
                // `true` is shorter than the `false` that is there.
                Err(Error::DiskFull(_)) => kept.overwrite(&at.admin)?,
                written => written?,
            }
            return repo.report_kept(&at).await;
        }
        if is_half_deleted(&at.admin) && at.path.symlink_metadata().is_err() {
            return repo.finish(&at).await;
        }
        let _lease = match (lease, tree::open_dir(&at.path)) {
            (Some(lease), _) => Some(lease),
            (None, Ok(_)) => Some(repo.hold(&at).await?),
            // Gone, or something else stands there: the survey says so.
            (None, Err(_)) => None,
        };
        // What commands of an agent left that was killed is the user's to keep.
        let published = repo.publish_private(&at).await;
        // Before anything is looked for: what only a store in the worktree has would go with it.
        let stores = repo.take_objects_in(&at).await?;
        // Before the lock: a survey reads what the agent left, and must not keep others waiting.
        let mut survey = repo.look(&at, options.ignored).await?;
        let records = repo.open_records()?;
        let (_lock, waited) = repo.lock_removals(&records).await?;
        if waited == Waited::Yes {
            // Somebody may have written in the meantime, which can be minutes.
            survey = repo.look(&at, options.ignored).await?;
        }
        let weighed = repo.weigh(&at, &survey).await?;
        let ahead = match &weighed.tip {
            Some(tip) if *tip != at.marker.base => repo.count(&at.marker.base, tip).await.unwrap_or(0),
            _ => 0,
        };
        let (dirty, mut notes) = (survey.changes.clone(), survey.notes.clone());
        let dropped =
            survey.ignored.iter().take(DROPPED_CAP).map(|p| p.to_string_lossy().into_owned()).collect();
        let rescue = if dirty.is_empty() && !weighed.needs_rescue() {
            None
        } else {
            let reasons = [
                (!dirty.is_empty(), "The worktree had changes that were in no commit."),
                (!weighed.head_kept, "The worktree's HEAD was on no ref that is kept."),
                (!weighed.left_behind.is_empty(), "The worktree had left commits behind that are on no ref."),
            ];
            let why: Vec<&str> =
                reasons.into_iter().filter(|(is_so, _)| *is_so).map(|(_, why)| why).collect();
            survey.pending.splice(0..0, weighed.left_behind.iter().cloned());
            let rescue = repo.save(&at, survey, &why.join(" ")).await?;
            if !weighed.left_behind.is_empty() {
                let commits: Vec<&str> = weighed.left_behind.iter().map(Oid::short).collect();
                notes.push(format!(
                    "commits that it had left behind are in the history of {}: {}",
                    rescue.reference,
                    commits.join(", ")
                ));
            }
            Some(rescue)
        };
        // From here on the work is safe, and a caller that gives up must not leave half a removal.
        let repo = &repo.uncancelled();
        repo.forget_stores(&stores)?;
        if let Ok(Some(view)) = &published {
            view.mark_published()?;
        }
        let trashed = repo.hide(&at)?;
        {
            let _records = repo.lock_records().await?;
            repo.delete_record(&at.admin, &records).await?;
        }
        notes.extend(repo.retire_private(&at, published).await);
        let branch_fate = repo.settle_branch(&at, &weighed, ahead).await?;
        if let Some((trash, hidden)) = trashed {
            let gone = tokio::task::spawn_blocking(move || tree::delete(trash, &Below::new(hidden)?)).await;
            gone.map_err(std::io::Error::other)
                .and_then(|done| done)
                .map_err(|e| Error::at("deleting", &at.path, e))?;
        }
        repo.tidy_place();
        Ok(RemoveReport {
            name: at.name.clone(),
            branch: at.branch(),
            path: at.path,
            outcome: RemovalOutcome::Removed,
            branch_fate,
            rescue,
            dirty,
            dropped_ignored: dropped,
            notes,
        })
    }

    /// What is in the worktree, also when git does not get through it.
    async fn look(&self, at: &Located, ignored: IgnoredFiles) -> Result<Survey> {
        match self.survey(at, ignored).await {
            Err(error @ Error::Stalled(_)) => match tree::open_dir(&at.path) {
                Ok(files) => self.survey_unreadable(at, files).await,
                Err(_) => Err(error),
            },
            survey => survey,
        }
    }

    /// Looks for other holders of what HEAD and the branch hold.
    pub(crate) async fn weigh(&self, at: &Located, survey: &Survey) -> Result<Weighed> {
        let tip = match &survey.branch {
            // The status of the worktree has said where its branch is.
            Some(branch) if *branch == at.branch() => survey.head.clone(),
            _ => self.resolve_ref(&format!("refs/heads/{}", at.branch())).await?,
        };
        let checked_out_elsewhere = tip.is_some() && self.checked_out(&at.branch(), Some(&at.path)).await?;
        let (merged, squashed) = match &tip {
            Some(tip) if self.kept(std::slice::from_ref(tip), Some(&at.branch())).await? => (true, None),
            Some(tip) => {
                let squashed = self.squashed(at, tip).await?;
                (squashed.is_some(), squashed)
            }
            None => (false, None),
        };
        let mut stands_on: Vec<Oid> = survey.head.iter().cloned().collect();
        stands_on.extend(survey.pending.iter().cloned());
        stands_on.retain(|oid| !(merged && tip.as_ref() == Some(oid)));
        let left_behind = self.left_behind(at, survey, tip.as_ref()).await?;
        let stays = !merged || checked_out_elsewhere;
        let (head_elsewhere, head_kept) =
            if !stands_on.is_empty() && stands_on.iter().all(|oid| tip.as_ref() == Some(oid)) {
                // The commit is on its own branch, which is kept; no other ref has it, as checked above.
                (false, true)
            } else {
                let elsewhere = self.kept(&stands_on, Some(&at.branch())).await?;
                (elsewhere, elsewhere || (stays && self.kept(&stands_on, None).await?))
            };
        Ok(Weighed {
            tip,
            branch_merged: merged && !checked_out_elsewhere,
            squashed,
            checked_out_elsewhere,
            head_elsewhere,
            head_kept,
            left_behind,
        })
    }

    /// See [`Weighed::left_behind`].
    async fn left_behind(&self, at: &Located, survey: &Survey, tip: Option<&Oid>) -> Result<Vec<Oid>> {
        let held: BTreeSet<&Oid> = survey.head.iter().chain(&survey.pending).chain(tip).collect();
        let mut logged: BTreeSet<Oid> = self.logged_heads(at).await?.into_iter().collect();
        logged.retain(|oid| !held.contains(oid) && *oid != at.marker.base);
        if logged.is_empty() {
            return Ok(Vec::new());
        }
        // Objects that are gone already are left out.
        let call =
            self.git.hardened(self.store(), "rev-list").args(["--ignore-missing", "--parents", "--stdin"]);
        let call = call.arg("--not").args(held.iter().map(|oid| oid.as_str()));
        let call = call.args(NOT_KEEPING.map(|pattern| format!("--exclude={pattern}"))).arg("--glob=refs/*");
        let asked = logged.iter().flat_map(|oid| [oid.as_str().as_bytes(), b"\n"].concat()).collect();
        let answer = call.stdin(asked).ok().await?.line();
        let parents: BTreeSet<&str> = answer.lines().flat_map(|line| line.split(' ').skip(1)).collect();
        let loose: BTreeSet<&str> = answer.lines().filter_map(|line| line.split(' ').next()).collect();
        logged.retain(|oid| loose.contains(oid.as_str()) && !parents.contains(oid.as_str()));
        Ok(logged.into_iter().collect())
    }

    /// The commit that exactly this tip landed as, if it was squashed and that commit is still on a ref that is kept.
    async fn squashed(&self, at: &Located, tip: &Oid) -> Result<Option<Oid>> {
        let Some(landing) = LandingRecord::read(&at.admin).filter(|landing| landing.tip == *tip) else {
            return Ok(None);
        };
        if self.resolve_ref(landing.commit.as_str()).await?.is_none() {
            return Ok(None);
        }
        // An agent could have forged the record, so check it: merging the tip into that commit must change nothing.
        let is_in = self.has_work_of(&landing.commit, tip).await?
            && self.kept(std::slice::from_ref(&landing.commit), Some(&at.branch())).await?;
        Ok(is_in.then_some(landing.commit))
    }

    /// Whether every one of `commits` is reachable from a ref that is kept, leaving out `branch`.
    pub(crate) async fn kept(&self, commits: &[Oid], branch: Option<&str>) -> Result<bool> {
        if commits.is_empty() {
            return Ok(true);
        }
        let mut call = self.git.hardened(self.store(), "rev-list").arg("--max-count=1");
        call = call.args(commits.iter().map(Oid::as_str)).arg("--not");
        for pattern in NOT_KEEPING {
            call = call.arg(format!("--exclude={pattern}"));
        }
        if let Some(branch) = branch {
            call = call.arg(format!("--exclude=refs/heads/{branch}"));
        }
        // Refs alone, as the store sees them: a HEAD, detached in whatever worktree, is gone with the next checkout.
        let answer = call.args(["--glob=refs/*", "--"]).ok().await?;
        Ok(answer.stdout.is_empty())
    }

    /// Whether a worktree other than the one at `but` has the branch checked out. Read from the files: with many worktrees
    /// git takes long to list them.
    pub(crate) async fn checked_out(&self, branch: &str, but: Option<&Path>) -> Result<bool> {
        if let Some(known) = self.checked_out_by_files(branch, but) {
            return Ok(known);
        }
        let places = self.checkouts_of(&format!("refs/heads/{branch}")).await?;
        Ok(places.iter().any(|place| Some(place.as_path()) != but))
    }

    /// Finishes a removal that was cut short when all was saved.
    async fn finish(&self, at: &Located) -> Result<RemoveReport> {
        let mut report = self.report_kept(at).await?;
        let records = self.open_records()?;
        let _records = self.lock_records().await?;
        self.delete_record(&at.admin, &records).await?;
        self.clear_leftovers(&BTreeSet::new(), SweepMode::Remove);
        report.outcome = RemovalOutcome::Removed;
        report.notes = vec!["a removal that was cut short is finished".to_owned()];
        Ok(report)
    }

    pub(crate) fn open_records(&self) -> Result<OwnedFd> {
        let path = self.common_dir().join("worktrees");
        tree::open_dir(&path).map_err(|e| Error::at("opening", &path, e))
    }

    /// Moves the files out of sight in one step; whatever stands at the path, a link too.
    fn hide(&self, at: &Located) -> Result<Option<(OwnedFd, String)>> {
        let Ok(place) = self.open_place(Missing::Fail) else { return Ok(None) };
        let failed = |e: std::io::Error| Error::at("removing", &at.path, e);
        match rustix::fs::mkdirat(&place, TRASH, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(failed(e.into())),
        }
        let trash = tree::walk_to(&place, &Below::fixed(TRASH)).map_err(failed)?;
        let hidden = nonce_name(at.name.as_str());
        match rustix::fs::renameat(&place, at.name.as_str(), &trash, &hidden) {
            Ok(()) => Ok(Some((trash, hidden))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// Deletes a record; its marker last, so that a removal that is cut short is found again.
    pub(crate) async fn delete_record(&self, admin: &Path, records: &OwnedFd) -> Result<()> {
        let records = records.try_clone().map_err(|e| Error::at("opening", admin, e))?;
        let id = admin.file_name().map(OsStr::to_os_string).unwrap_or_default();
        let delete = move || {
            let id = Below::new(id)?;
            let record = match tree::walk_to(&records, &id) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                opened => opened?,
            };
            // First, so that a removal which is cut short is told from a record without HEAD; see `is_half_deleted`.
            tree::delete(&record, &Below::fixed(MODULES))?;
            for (name, _) in tree::entries(&record)? {
                if name != marker::FILE {
                    tree::delete(&record, &Below::new(name)?)?;
                }
            }
            tree::delete(&records, &id)
        };
        let gone = tokio::task::spawn_blocking(delete).await;
        gone.map_err(std::io::Error::other).and_then(|done| done).map_err(|e| Error::at("deleting", admin, e))
    }

    async fn settle_branch(&self, at: &Located, weighed: &Weighed, ahead: u64) -> Result<BranchFate> {
        let Some(tip) = weighed.tip.clone() else { return Ok(BranchFate::Absent) };
        if !weighed.branch_merged {
            return Ok(BranchFate::Kept { tip, ahead });
        }
        let by = match tip == at.marker.base {
            true => None,
            false => self.held_by_agents(&at.branch(), &tip).await,
        };
        // Deletes the branch only at the value that was examined: a branch that has moved since is kept.
        let order = format!("delete refs/heads/{}\0{tip}\0", at.branch());
        match self.update_refs(&order).await {
            Ok(()) if tip == at.marker.base => Ok(BranchFate::DeletedEmpty),
            Ok(()) => Ok(match weighed.squashed.clone() {
                Some(landed) => BranchFate::DeletedSquashed { tip, landed },
                None => by.map_or(BranchFate::DeletedMerged, |by| BranchFate::DeletedHeld { by }),
            }),
            Err(_) => Ok(BranchFate::Kept { tip, ahead }),
        }
    }

    /// The ref that has the commit, when none of the user's has it.
    async fn held_by_agents(&self, branch: &str, tip: &Oid) -> Option<String> {
        let call = self.git.hardened(self.store(), "for-each-ref").arg("--format=%(refname)");
        let answer = call.arg(format!("--contains={tip}")).run().await.ok()?.ok().ok()?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let own = format!("refs/heads/{branch}");
        let passing =
            |name: &&str| NOT_KEEPING.iter().any(|kept| name.starts_with(kept.trim_end_matches('*')));
        let agents = |name: &str| {
            name.starts_with("refs/caliban/") || name.starts_with(&format!("refs/heads/{BRANCH_PREFIX}"))
        };
        let holders: Vec<&str> = text.lines().filter(|name| *name != own && !passing(name)).collect();
        let first = holders.first().filter(|_| holders.iter().all(|name| agents(name)))?;
        Some(first.strip_prefix("refs/heads/").unwrap_or(first).to_owned())
    }

    /// Takes away what is empty. Best effort by name.
    fn tidy_place(&self) {
        let Ok(place) = self.open_place(Missing::Fail) else { return };
        let _full = rustix::fs::unlinkat(&place, TRASH, rustix::fs::AtFlags::REMOVEDIR);
    }

    /// What a removal says that removes nothing.
    pub(crate) async fn report_kept(&self, at: &Located) -> Result<RemoveReport> {
        let tip = self.resolve_ref(&format!("refs/heads/{}", at.branch())).await?;
        let branch_fate = match tip {
            Some(tip) => {
                let ahead = self.count(&at.marker.base, &tip).await.unwrap_or(0);
                BranchFate::Kept { tip, ahead }
            }
            None => BranchFate::Absent,
        };
        let by_hand = format!(
            "kept; remove it with `git worktree remove {}` and `git branch -d {}`",
            at.path.display(),
            at.branch()
        );
        Ok(RemoveReport {
            name: at.name.clone(),
            path: at.path.clone(),
            outcome: RemovalOutcome::Kept,
            branch: at.branch(),
            branch_fate,
            rescue: None,
            dirty: Vec::new(),
            dropped_ignored: Vec::new(),
            notes: vec![by_hand],
        })
    }
}

impl RemoveReport {
    /// The report in a few lines, for people.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = match self.outcome {
            RemovalOutcome::Removed => {
                vec![format!("removed worktree {} ({})", self.name.as_str(), self.path.display())]
            }
            RemovalOutcome::Kept => {
                vec![format!("kept worktree {} ({})", self.name.as_str(), self.path.display())]
            }
        };
        match &self.branch_fate {
            BranchFate::DeletedEmpty => {
                lines.push(format!("branch {} had no commits and was deleted", self.branch))
            }
            BranchFate::DeletedMerged => {
                lines.push(format!("branch {} was merged and was deleted", self.branch))
            }
            BranchFate::DeletedHeld { by } => {
                lines.push(format!("branch {} was deleted: {by} has all its commits", self.branch))
            }
            BranchFate::DeletedSquashed { tip, landed } => lines.push(format!(
                "branch {} landed as {} and was deleted; it was at {}",
                self.branch,
                landed.short(),
                tip.short()
            )),
            BranchFate::Kept { tip, ahead } => {
                lines.push(format!(
                    "branch {} stays at {} ({ahead} commits over its base)",
                    self.branch,
                    tip.short()
                ));
            }
            BranchFate::Absent => {}
        }
        if let Some(rescue) = &self.rescue {
            lines.push(format!("what was in no kept commit is saved as {}", rescue.reference));
            lines.push(format!("get it back with: {}", rescue.restore));
        }
        if !self.dropped_ignored.is_empty() {
            lines.push(format!("ignored files went with it: {}", self.dropped_ignored.join(", ")));
        }
        lines.extend(self.notes.iter().cloned());
        lines
    }
}

/// A path of the trash that a killed removal left.
pub(crate) fn trash_of(place: &OwnedFd) -> Vec<PathBuf> {
    let Ok(trash) = tree::walk_to(place, &Below::fixed(TRASH)) else { return Vec::new() };
    let names = tree::entries(&trash).unwrap_or_default();
    names.into_iter().map(|(name, _)| Path::new(&*name.to_string_lossy()).to_path_buf()).collect()
}
