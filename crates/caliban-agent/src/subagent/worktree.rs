//! A sub-agent's worktree: made before it starts; when it ends, the work stays on its branch and the worktree goes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use caliban_core::{names::Slug, spec::WorktreeSpec};
use caliban_worktrees::{
    AcceptedGit, BaseRef, BranchFate, Changes, CreateRequest, CreationPhase, Error, GitEnvironment,
    GitOccasion, GitOptions, HOW_TO_ACCEPT, KeepWorktrees, PLACE, Progress, RemovalOutcome, RemoveOptions,
    RemoveReport, Repo, Setup, Worktree,
};
use tokio_util::sync::CancellationToken;

use super::input::SubagentPlace;

/// Of the files that a sub-agent changed, so many are named.
const NAMED_FILES: usize = 50;
/// Of its commits, so many are named.
const NAMED_COMMITS: usize = 20;

/// How worktrees are made and kept.
#[derive(Debug, Clone, Default)]
pub struct WorktreeIsolation {
    /// Where the repository is; none when the agent does not work in one.
    pub repo: Option<PathBuf>,
    /// The environment of git and of the setup command, whole.
    pub env: Vec<(OsString, OsString)>,
    /// Whether worktrees stay when their task has ended.
    pub keep: KeepWorktrees,
    /// A command that runs in each new worktree.
    pub setup: Option<Setup>,
    /// The repo's data directory, which records the programs of its git that a person has accepted; none where all may run.
    pub accepted: Option<PathBuf>,
    /// Git directories that a person has accepted.
    pub accepted_git: AcceptedGit,
}

/// How many names are tried when a label was used before.
const NAMES: u32 = 50;

/// A worktree that a sub-agent works in.
#[derive(Debug)]
pub(crate) struct Made {
    repo: Repo,
    worktree: Worktree,
    keep: KeepWorktrees,
    /// The name that was wanted, when it was taken.
    taken: Option<Slug>,
}

/// What a sub-agent leaves behind.
pub(crate) struct Work {
    branch: String,
    changes: Result<Changes, Error>,
    removed: Result<RemoveReport, Error>,
    taken: Option<Slug>,
}

impl WorktreeIsolation {
    async fn open(&self, cancel: &CancellationToken) -> Result<Repo, String> {
        let start = self
            .repo
            .as_deref()
            .ok_or("isolation \"worktree\" needs a git repository, and this directory is in none")?;
        let env: BTreeMap<OsString, OsString> = self.env.iter().cloned().collect();
        let options = GitOptions {
            environment: GitEnvironment::Exactly(env),
            accepted: self.accepted_git.clone(),
            ..GitOptions::default()
        };
        Repo::open(start, options, cancel).await.map_err(worded)
    }

    /// Where a background agent works that an agent in this directory starts. The parent's worktree is the parent's, and
    /// goes with it; the user's tree is the user's. So below an agent in a worktree each has one of its own, which begins
    /// where the parent is.
    pub(super) async fn apart_from(
        &self,
        directory: &Path,
        place: SubagentPlace,
    ) -> Result<SubagentPlace, String> {
        if self.repo.is_none() {
            return Ok(place);
        }
        let cancel = CancellationToken::new();
        let repo = self.open(&cancel).await?;
        let Some(head) = head_of_own(&repo, directory, &cancel).await? else { return Ok(place) };
        let mut wanted = match place {
            SubagentPlace::Shared => WorktreeSpec::default(),
            SubagentPlace::Worktree(wanted) => wanted,
        };
        if BaseRef::from(wanted.base_ref.clone()) == BaseRef::Head {
            wanted.base_ref = head;
        }
        Ok(SubagentPlace::Worktree(wanted))
    }

    /// Makes one for an agent below the one that works in `parent`; the error is worded for the model. Where the name
    /// belongs to earlier work, the next free one is taken.
    pub(crate) async fn create(
        &self,
        name: Slug,
        wanted: &WorktreeSpec,
        parent: &Path,
        owner: &str,
        cancel: &CancellationToken,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Made, String> {
        let repo = self.open(cancel).await?;
        if let Some(base) = &self.accepted
            && let Some(programs) =
                repo.unaccepted(base, GitOccasion::Checkout, cancel).await.map_err(worded)?
        {
            return Err(format!("{}\n{HOW_TO_ACCEPT}", programs.named(GitOccasion::Checkout)));
        }
        let mut base_ref = BaseRef::from(wanted.base_ref.clone());
        if base_ref == BaseRef::Head
            && let Some(head) = head_of_own(&repo, parent, cancel).await?
        {
            base_ref = BaseRef::Revision(head);
        }
        let show = |step: Progress| progress(&shown(step));
        let mut number = 1;
        loop {
            let request = CreateRequest {
                name: numbered(&name, number),
                base_ref: base_ref.clone(),
                base_commit: None,
                sparse_paths: wanted.sparse_paths.clone(),
                symlink_directories: wanted.symlink_directories.clone(),
                setup: self.setup.clone(),
                owner: Some(owner.to_owned()),
                holder: None,
            };
            match repo.create(request, &show, cancel).await {
                Ok(worktree) => {
                    let taken = (number > 1).then_some(name);
                    return Ok(Made { repo, worktree, keep: self.keep, taken });
                }
                Err(error) if is_taken(&error, number) && number < NAMES => number += 1,
                Err(error) => return Err(worded(error)),
            }
        }
    }
}

/// What is checked out in the worktree of ours that a directory is in: for who works there, that is `head`.
#[expect(clippy::disallowed_methods, reason = "to compare it with a directory as git found it")]
async fn head_of_own(
    repo: &Repo,
    directory: &Path,
    cancel: &CancellationToken,
) -> Result<Option<String>, String> {
    let is_below = repo.root().join(PLACE).canonicalize().is_ok_and(|all| directory.starts_with(all));
    if !is_below {
        return Ok(None);
    }
    let listed = repo.list(cancel).await.map_err(worded)?;
    let Some(own) = listed.iter().find(|listed| directory.starts_with(&listed.path)) else { return Ok(None) };
    // Looked at without trust: the agent may have written anything there.
    let inspection = repo.inspect(&own.name, cancel).await.map_err(worded)?;
    Ok(inspection.head.map(|head| head.as_str().to_owned()))
}

/// Whether the name belongs to earlier work. One that is at work under the wanted name itself is a conflict: whoever
/// names two at once alike has probably not meant it.
fn is_taken(error: &Error, number: u32) -> bool {
    match error {
        Error::BranchExists { .. } | Error::BranchConflict { .. } => true,
        Error::Exists { .. } | Error::Busy { .. } | Error::Unfinished { .. } | Error::FilesGone { .. } => {
            number > 1
        }
        _ => false,
    }
}

/// `docs`, then `docs-2` and so on, never too long.
fn numbered(name: &Slug, number: u32) -> Slug {
    if number == 1 {
        return name.clone();
    }
    let suffix = format!("-{number}");
    // Names are ASCII; should they ever not be, the parse below refuses what is too long.
    let text = name.as_str();
    let text = text.get(..text.len().min(Slug::MAX_BYTES - suffix.len())).unwrap_or(text);
    let numbered = format!("{}{suffix}", text.trim_end_matches('-'));
    Slug::parse(&numbered).unwrap_or_else(|_| name.clone())
}

/// The worktree's name: the label's, else the sub-agent's session's.
pub(crate) fn name(label: Option<&str>, session: &str) -> Slug {
    Slug::slugify(label.unwrap_or(session))
}

impl Made {
    pub(crate) fn path(&self) -> &Path {
        &self.worktree.created.path
    }

    /// Puts what is not committed on the branch, then removes the worktree; nothing is ever lost. `who` did it.
    pub(crate) async fn finish(self, who: &str) -> Work {
        // Not the call's own token: the work is saved also when the call was cancelled.
        let cancel = CancellationToken::new();
        let Worktree { created, lease, .. } = self.worktree;
        let changes = self.repo.changes(&created.name, &cancel).await;
        if self.keep == KeepWorktrees::Remove
            && changes.as_ref().is_ok_and(|changes| !changes.uncommitted.is_empty())
        {
            let message = format!("Work of {who}");
            if let Err(error) = self.repo.commit_all(&created.name, &message, &cancel).await {
                // Then the removal saves it under a rescue ref.
                tracing::warn!(%error, "uncommitted work could not be put on its branch");
            }
        }
        let options = RemoveOptions { keep: self.keep, ..RemoveOptions::default() };
        let removed = self.repo.remove(&created.name, Some(lease), &options, &cancel).await;
        Work { branch: created.branch, changes, removed, taken: self.taken }
    }
}

impl Work {
    /// The branch that has the work, when there is any.
    pub(crate) fn kept(&self) -> Option<&str> {
        let is_gone = match &self.removed {
            Ok(report) => {
                report.outcome != RemovalOutcome::Kept
                    && !matches!(report.branch_fate, BranchFate::Kept { .. })
            }
            Err(_) => false,
        };
        (!is_gone).then_some(self.branch.as_str())
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(taken) = &self.taken {
            writeln!(f, "[{taken} is the name of earlier work; this is on {}]", self.branch)?;
        }
        match &self.changes {
            Err(error) => writeln!(f, "[its changes cannot be listed: {error}]")?,
            Ok(changes) if changes.file_count == 0 && changes.commit_count == 0 => {
                writeln!(f, "[it changed no files]")?;
            }
            Ok(changes) => {
                writeln!(f, "[branch {}: {}", self.branch, changes.summary())?;
                for commit in changes.commits.iter().take(NAMED_COMMITS) {
                    writeln!(f, "commit {} {}", commit.oid.short(), commit.subject)?;
                }
                for file in changes.files.iter().take(NAMED_FILES) {
                    writeln!(f, "{} {}", file.status, file.path)?;
                }
                if changes.file_count > NAMED_FILES {
                    writeln!(f, "… {} more files", changes.file_count - NAMED_FILES)?;
                }
                writeln!(f, "]")?;
            }
        }
        match &self.removed {
            Err(error) => write!(f, "[the worktree stays: {error}]"),
            Ok(report) if report.outcome == RemovalOutcome::Kept => {
                write!(f, "[the worktree stays at {}]", report.path.display())
            }
            Ok(report) => {
                match &report.branch_fate {
                    BranchFate::Kept { .. } => {
                        write!(f, "[take the work over with `git merge {}`]", self.branch)?;
                    }
                    BranchFate::DeletedEmpty
                    | BranchFate::DeletedMerged
                    | BranchFate::DeletedHeld { .. }
                    | BranchFate::DeletedSquashed { .. }
                    | BranchFate::Absent => {}
                }
                match &report.rescue {
                    Some(rescue) => {
                        write!(f, "[saved under {}; get it back with `{}`]", rescue.reference, rescue.restore)
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// How far the worktree is, in one line.
fn shown(step: Progress) -> String {
    let what = match step.phase {
        CreationPhase::Resolve => "finding its base",
        CreationPhase::Checkout => "writing files",
        CreationPhase::Links => "linking directories",
        CreationPhase::Include => "copying files that git does not have",
        CreationPhase::Setup => "running the setup command",
    };
    match step.total {
        0 => format!("worktree: {what}\n"),
        total => {
            let tenths = usize::try_from((step.done * 10).div_ceil(total).min(10)).unwrap_or(10);
            let bar = format!("{}{}", "█".repeat(tenths), "░".repeat(10 - tenths));
            format!("worktree: {what} {bar} {}/{total}\n", step.done)
        }
    }
}

fn worded(error: Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error}. {hint}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_number_is_a_name() {
        let check = |name: &str, number: u32, expected: &str| {
            assert_eq!(numbered(&Slug::parse(name).unwrap(), number), Slug::parse(expected).unwrap());
        };
        check("docs", 1, "docs");
        check("docs", 2, "docs-2");
        check(&"a".repeat(64), 12, &format!("{}-12", "a".repeat(61)));
        check(&format!("{}-b", "a".repeat(61)), 2, &format!("{}-2", "a".repeat(61)));
    }
}
