//! Landing an agent's work in a branch of the user's.
//!
//! Decides first, on what git foretells: conflicts, a tree that is not clean where it matters, work that is not
//! committed. Only then something is touched, and what fails after that is undone. In the user's own tree git runs as
//! the user would run it, hooks included. One landing at a time in a repository.

mod attributes;
mod in_tree;
mod prepared;
mod preview;
mod record;
mod refusal;
mod submodules;
mod target;
mod work;

use std::path::PathBuf;

use caliban_core::names::Slug;
use caliban_rooted::tree;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::in_tree::InTree;
use self::prepared::PreparedCommit;
use self::preview::PreviewResult;
pub(crate) use self::record::LandingRecord;
use self::record::StillLanded;
pub use self::refusal::{CannotCommit, LandingRefusal, NotLanded, Operation, SubmoduleCommit, TreeAfter};
use self::target::LandingTarget;
use self::work::Work;
use crate::diff::Changes;
use crate::error::{Error, Result};
use crate::marker::Oid;
use crate::repo::{Locked, Repo};

/// The directory of the store that is locked while something lands.
const LOCKED: &str = "refs";

/// What is to land, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandRequest {
    /// The worktree.
    pub name: Slug,
    /// The branch; `None` is what is checked out in the tree that was opened.
    pub into: Option<String>,
    /// As what.
    pub land_as: LandAs,
    /// What becomes of work that is in no commit.
    pub commit: CommitLeft,
    /// The message of the merge or squash; `None` is the suggested one.
    pub message: Option<String>,
    /// Whose work it is, in words.
    pub agent: String,
    /// What the agent was asked to do.
    pub task: String,
}

/// What becomes of work that is in no commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitLeft {
    /// It is committed, with the suggested message, when there is no commit of the agent's; else it is refused: it may be what
    /// the agent left out on purpose.
    IfAlone,
    /// It is committed with the suggested message.
    Suggested,
    /// It is committed with this message.
    As(String),
}

impl LandRequest {
    /// The message of a commit of what is in no commit; `None` refuses it.
    fn commit_message(&self, changes: &Changes) -> Option<String> {
        match &self.commit {
            CommitLeft::As(message) => Some(message.clone()),
            CommitLeft::IfAlone if changes.commit_count > 0 => None,
            CommitLeft::IfAlone | CommitLeft::Suggested => Some(changes.suggested_message(&self.task)),
        }
    }

    /// The message of what is put on the branch.
    pub fn landing_message(&self, changes: &Changes) -> String {
        match (&self.message, self.land_as) {
            (Some(message), _) => message.clone(),
            (None, LandAs::Squash) => changes.suggested_message(&self.task),
            (None, LandAs::Merge) => format!("Merge agent {}\n\n{}\n", self.agent, self.task),
        }
    }
}

/// As what work lands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LandAs {
    /// A merge commit.
    Merge,
    /// One commit that shares no history with the agent's.
    Squash,
}

/// Work that has landed, or had already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landed {
    /// What landed, in words for people: a branch, or the detached HEAD of the worktree.
    pub branch: String,
    /// Where, in words for people.
    pub into: String,
    /// As what; `None` when everything of it was there already.
    pub landed_as: Option<LandAs>,
    /// Where the branch is now.
    pub commit: Oid,
    /// How many commits of the agent's that brings.
    pub commits: u64,
    /// What it changed there: `3 files changed, 10 insertions(+), 2 deletions(-)`.
    pub summary: String,
    /// What stays in the worktree because no commit is meant to have it: ignored files, repositories of their own.
    pub left: Vec<String>,
    /// Whether HEAD is on no branch where it landed.
    pub is_detached: bool,
    /// Whether the worktree has neither a commit of its own nor a change.
    pub is_nothing: bool,
    /// The message of the commit of what was in none.
    pub committed_as: Option<String>,
}

/// What the user should know while work lands.
#[derive(Debug)]
pub enum LandNote {
    /// The worktree's files are gone: what was committed or staged in it lands.
    FilesGone {
        /// The worktree.
        worktree: PathBuf,
    },
    /// What git did in its last commands cannot be taken over from its private git, and does not land.
    NotPublished(Error),
    /// A hook changed a file before the merge was taken back; how is in this blob.
    HookChanged {
        /// The file.
        path: PathBuf,
        /// The blob with its content.
        blob: String,
    },
    /// What landed before as this commit is not there any more, so it lands again.
    LandsAgain {
        /// The commit.
        commit: Oid,
        /// Where.
        into: String,
    },
    /// The work has landed, but the worktree's branch and index were not brought up to the commit that was made for it.
    WorktreeBehind(Error),
    /// The work has landed, but the record of a squash could not be written, so the branch will be kept.
    NoRecord(std::io::Error),
}

/// The right to land something in a repository. Given back by drop.
#[derive(Debug)]
pub struct LandingTurn {
    _held: Locked,
}

/// What is merged into what, and the tree that it makes.
struct MergeEnds {
    into: Oid,
    head: Oid,
    merged: Oid,
}

impl Repo {
    /// Waits for the right to land something: two landings at once would take each other's unfinished work for their own.
    /// Calls `on_wait` when another one is under way.
    pub async fn landing_turn(
        &self,
        on_wait: impl FnOnce(),
        cancel: &CancellationToken,
    ) -> Result<LandingTurn> {
        let repo = &self.until(cancel);
        let place = repo.common_dir().join(LOCKED);
        let dir = tree::open_dir(&place).map_err(|e| Error::at("opening", &place, e))?;
        Ok(LandingTurn { _held: Locked::take(dir, on_wait, cancel).await? })
    }

    /// Whether somebody is landing something in this repository.
    pub(crate) fn is_landing(&self) -> bool {
        let Ok(dir) = tree::open_dir(&self.common_dir().join(LOCKED)) else { return false };
        // Given back with the descriptor.
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }

    /// Lands the work of a worktree in which nobody works any more. A cancellation before the end leaves everything as it
    /// was.
    pub async fn land(
        &self,
        _turn: &LandingTurn,
        request: &LandRequest,
        note: &(dyn Fn(LandNote) + Sync),
        cancel: &CancellationToken,
    ) -> Result<Landed, NotLanded> {
        let repo = &self.until(cancel);
        let mut known = NotLanded {
            branch: None,
            into: request.into.clone(),
            refusal: LandingRefusal::from(Error::Cancelled),
        };
        match repo.try_to_land(request, &mut known, note).await {
            Ok(landed) => Ok(landed),
            Err(refusal) => Err(NotLanded { refusal, ..known }),
        }
    }

    async fn try_to_land(
        &self,
        request: &LandRequest,
        known: &mut NotLanded,
        note: &(dyn Fn(LandNote) + Sync),
    ) -> Result<Landed, LandingRefusal> {
        let target = LandingTarget::find(self, request.into.as_deref()).await?;
        known.into = Some(target.name().to_owned());
        // Nobody begins to work in it while its work lands. An agent that waits for a message holds it and does nothing.
        let at = self.locate(&request.name)?;
        let _lease = match tree::open_dir(&at.path) {
            Ok(_) => self.try_hold(&at).await?,
            Err(_) => None,
        };
        let work = Work::find(self, &request.name, note).await?;
        known.branch = Some(work.shown());
        // What lands must stay when the worktree goes.
        self.take_objects_in(&work.at).await?;
        let into = target.commit(self).await?;
        let before = match LandingRecord::read(&work.at.admin) {
            Some(record) => self.still_landed(record, &into).await?,
            None => StillLanded::default(),
        };
        let prepared = if work.uncommitted.is_empty() {
            None
        } else {
            let Some(message) = request.commit_message(&work.changes) else {
                return Err(LandingRefusal::Uncommitted(work.uncommitted.into_keys().collect()));
            };
            let prepared = PreparedCommit::make(self, &work, &message, &into).await?;
            Some((prepared, message))
        };
        let (prepared, committed_as) = prepared.unzip();
        let head = prepared.as_ref().map_or(&work.head, PreparedCommit::commit).clone();
        let landed = self.land_commit(&target, &work, into, head, before, request, note).await;
        match (&landed, prepared) {
            (_, None) => {}
            (Ok(_), Some(prepared)) => {
                if let Err(error) = prepared.settle(self).await {
                    note(LandNote::WorktreeBehind(error));
                }
            }
            (Err(_), Some(prepared)) => prepared.discard(self).await,
        }
        let (mut landed, record) = landed?;
        landed.committed_as = committed_as;
        if let Some(Err(error)) = record.map(|record| record.write(&work.at.admin)) {
            note(LandNote::NoRecord(error));
        }
        Ok(landed)
    }

    /// Lands the commit `head` on `into`. What a squash leaves for the record comes with it.
    #[expect(clippy::too_many_arguments, reason = "each is a fact that the caller has just found; used once")]
    async fn land_commit(
        &self,
        target: &LandingTarget,
        work: &Work,
        into: Oid,
        head: Oid,
        before: StillLanded,
        request: &LandRequest,
        note: &(dyn Fn(LandNote) + Sync),
    ) -> Result<(Landed, Option<LandingRecord>), LandingRefusal> {
        let preview = self.preview(target, into, head, before.record).await?;
        let mut landed = Landed {
            branch: work.shown(),
            into: target.name().to_owned(),
            landed_as: Some(request.land_as),
            commit: preview.into.clone(),
            commits: preview.commits,
            summary: String::new(),
            left: work.left.clone(),
            is_detached: target.is_detached(),
            is_nothing: work.changes.commit_count == 0 && preview.commits == 0,
            committed_as: None,
        };
        let is_in = matches!(preview.result, PreviewResult::UpToDate);
        let is_squash = request.land_as == LandAs::Squash;
        let merged = match preview.result {
            PreviewResult::UpToDate => None,
            PreviewResult::Conflicts(files) => {
                let revision = work.branch.clone().unwrap_or_else(|| work.head.to_string());
                return Err(LandingRefusal::Conflicts { revision, files });
            }
            // One commit without a change would say nothing; a merge still says which commits are in.
            PreviewResult::Clean(tree) => {
                let is_empty = is_squash && tree == self.tree_of(&preview.into).await?;
                (!is_empty).then_some(tree)
            }
        };
        let tip = preview.head.clone();
        let Some(merged) = merged else {
            landed.landed_as = None;
            landed.commits = 0;
            landed.summary = self.summary(&landed.commit, &landed.commit).await?;
            // Commits that come to nothing would be on nothing.
            let record = (!is_in && work.changes.file_count > 0)
                .then(|| LandingRecord::after(preview.landed, tip, landed.commit.clone()));
            return Ok((landed, record));
        };
        let touched = self.touched(&preview.into, &merged).await?;
        let submodules = self.unpublished_submodules(work, &touched, &merged).await?;
        if !submodules.is_empty() {
            return Err(LandingRefusal::SubmoduleCommits { submodules, worktree: work.worktree() });
        }
        let message = request.landing_message(&work.changes);
        let mut ends = MergeEnds { into: preview.into, head: preview.head, merged };
        landed.commit = match target {
            LandingTarget::Here { tree, name } => {
                if preview.landed.is_some() {
                    // git does not know what landed before. It gets the result of the merge as a commit on top of both
                    // ends, and does not look for where the merge begins.
                    let message = "the agent's work, onto what landed before";
                    let parents = parents(&ends, request.land_as);
                    ends.head = self.commit_tree(message, &parents, &ends.merged).await?;
                }
                let (branch, calm) = (name.as_deref(), self.uncancelled());
                let here = InTree { repo: self, calm, tree, branch, ends: &ends, note };
                here.check(&touched).await?;
                here.merge(&touched, &message, request.land_as).await?
            }
            LandingTarget::Branch { name } => self
                .land_in_store(name, &ends, (&message, request.land_as))
                .await
                .map_err(|error| match error {
                    Error::Cancelled => LandingRefusal::from(error),
                    error => LandingRefusal::MergeFailed { error, after: TreeAfter::AsBefore },
                })?,
        };
        // It has landed: nothing that fails from here on may say that it has not.
        let summary = self.uncancelled().summary(&ends.into, &landed.commit).await;
        landed.summary = summary.unwrap_or_else(|_| "changes not counted".to_owned());
        if let Some(commit) = before.undone {
            note(LandNote::LandsAgain { commit, into: landed.into.clone() });
        }
        let record = is_squash.then(|| LandingRecord::after(preview.landed, tip, landed.commit.clone()));
        Ok((landed, record))
    }

    /// Merges into a branch that no tree has: a commit and the branch, nothing else. The new commit.
    async fn land_in_store(
        &self,
        name: &str,
        ends: &MergeEnds,
        (message, land_as): (&str, LandAs),
    ) -> Result<Oid> {
        // Trusted calls: the user's name and the log of their branch count.
        let git = |subcommand| self.git.trusted(self.users_directory(), subcommand);
        let signs = git("config").args(["--type=bool", "--get", "commit.gpgSign"]).run().await?;
        let call = match signs.line() == "true" {
            // The program that signs may ask for a passphrase on the terminal.
            true => self.git.as_user(self.users_directory(), "commit-tree").arg("-S"),
            false => git("commit-tree"),
        };
        let call = call.args(["-m", message]);
        let parents = parents(ends, land_as);
        let call = call.args(parents.iter().flat_map(|parent| ["-p", parent.as_str()]));
        let answer = call.arg(ends.merged.as_str()).ok().await?;
        let unknown = || Error::Answer { command: "commit-tree", detail: answer.line() };
        let commit = answer.oid().ok_or_else(unknown)?;
        let call = git("update-ref").args(["-m", "caliban agents merge"]).arg(format!("refs/heads/{name}"));
        call.args([commit.as_str(), ends.into.as_str()]).ok().await?;
        Ok(commit)
    }
}

fn parents(ends: &MergeEnds, land_as: LandAs) -> Vec<&Oid> {
    match land_as {
        LandAs::Merge => vec![&ends.into, &ends.head],
        LandAs::Squash => vec![&ends.into],
    }
}
