//! `GET /v1/agents/{id}/diff`: what an agent changed, as git and its worktree have it now.

use caliban_worktrees::{Changes, GitOptions, Patch, PathChange, Repo};
use tokio_util::sync::CancellationToken;

use caliban_fleet::refusal::Refusal;

use crate::landing::words;
use crate::landing::{word_of, worktree_name};
use crate::places::Places;
use crate::protocol::{AgentRow, ApiError, Diff, DiffCommit, DiffFile, DiffPath, ErrorCode};

/// Whether the patch is wanted, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    Patch,
    Figures,
}

/// The difference. Runs git for as long as it takes; a cancellation ends that.
pub(super) async fn diff(
    row: AgentRow,
    whole: Whole,
    places: Places,
    cancel: CancellationToken,
) -> Result<Diff, ApiError> {
    let name = worktree_name(&row).map_err(refusal)?;
    let worded = |error| refusal(words::work(&name, error));
    let repo =
        Repo::open(places.repo(), GitOptions::accepting(places.base()), &cancel).await.map_err(worded)?;
    let changes = repo.changes(&name, &cancel).await.map_err(worded)?;
    let patch = match whole {
        Whole::Figures => None,
        Whole::Patch => Some(repo.patch(&name, &cancel).await.map_err(worded)?),
    };
    Ok(told(changes, patch.as_ref()))
}

/// That there is nothing to look at, for whoever asked.
pub(super) fn refusal(words: Refusal) -> ApiError {
    ApiError { code: ErrorCode::Conflict, message: words.message, hint: words.hint }
}

fn told(changes: Changes, patch: Option<&Patch>) -> Diff {
    let paths = |all: Vec<PathChange>| {
        let word = |change: PathChange| DiffPath { path: change.path, kind: word_of(change.kind) };
        all.into_iter().map(word).collect()
    };
    Diff {
        summary: changes.summary(),
        name: changes.name.to_string(),
        branch: changes.branch,
        base: changes.base.to_string(),
        head: changes.head.map(|head| head.to_string()),
        commits: changes
            .commits
            .into_iter()
            .map(|commit| DiffCommit {
                oid: commit.oid.to_string(),
                author: commit.author,
                authored_at: u64::try_from(commit.time).unwrap_or(0).saturating_mul(1000),
                subject: commit.subject,
            })
            .collect(),
        commit_count: changes.commit_count,
        files: changes
            .files
            .into_iter()
            .map(|file| DiffFile {
                path: file.path,
                status: file.status,
                added: file.added,
                deleted: file.deleted,
            })
            .collect(),
        file_count: changes.file_count as u64,
        uncommitted: paths(changes.uncommitted),
        left: paths(changes.left),
        patch_is_cut: patch.map(Patch::is_long),
        patch: patch.map(|patch| patch.text().into_owned()),
    }
}
