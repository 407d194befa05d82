//! `POST /v1/agents/{id}/merge`: lands an agent's work in the main tree of the repo, or in a branch.
//!
//! git runs with the daemon's environment and without a terminal; `caliban agents merge` runs it in the caller's. For a
//! person only: the hooks of the user's tree would run outside of an agent's processes.

use caliban_worktrees::{GitOccasion, GitOptions, Repo};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Msg;
use super::agent_client::Speaker;
use super::peer::Peer;
use crate::git_programs;
use crate::landing::{self, NotMerged, words};
use crate::places::Places;
use crate::protocol::{AgentRow, ApiError, MergeAnswer, MergeForecast, MergeRequest, Merged};

/// Refuses a process of an agent, and one that cannot be seen (a11).
pub(super) fn check_caller(peer: Peer) -> Result<(), ApiError> {
    let what = "have the daemon land an agent's work";
    peer.check_person(what, "`caliban agents merge` lands it from the process itself")
}

/// Lands it, or tells why not. A cancellation leaves everything as it was.
pub(super) async fn merge(
    row: AgentRow,
    request: MergeRequest,
    places: Places,
    inbox: mpsc::Sender<Msg>,
    cancel: CancellationToken,
) -> Result<MergeAnswer, ApiError> {
    if request.preview {
        return Ok(match preview(&row, &request, &places, &cancel).await {
            Ok(forecast) => MergeAnswer::Preview(forecast),
            Err(refused) => MergeAnswer::Refused(refused.told(Some(&row), &request)),
        });
    }
    Ok(match land(&row, &request, &places, &inbox, &cancel).await {
        Ok(merged) => MergeAnswer::Merged(merged),
        Err(MergeStopped::Refused(refused)) => MergeAnswer::Refused(refused.told(Some(&row), &request)),
        Err(MergeStopped::Gone(error)) => return Err(error),
    })
}

enum MergeStopped {
    Refused(Box<NotMerged>),
    Gone(ApiError),
}

impl From<NotMerged> for MergeStopped {
    fn from(refused: NotMerged) -> Self {
        Self::Refused(Box::new(refused))
    }
}

async fn land(
    row: &AgentRow,
    request: &MergeRequest,
    places: &Places,
    inbox: &mpsc::Sender<Msg>,
    cancel: &CancellationToken,
) -> Result<Merged, MergeStopped> {
    landing::check(request)?;
    let name = landing::worktree(row)?;
    let worded = |error| NotMerged::from(words::work(&name, error));
    let repo = open(places, cancel).await.map_err(worded)?;
    let turn = repo.landing_turn(|| {}, cancel).await.map_err(worded)?;
    let speaker = Speaker { inbox, caller: None };
    let row = speaker.row(row.id).await.map_err(MergeStopped::Gone)?;
    let wanted = landing::request(&row, request)?;
    if let Some(programs) =
        repo.unaccepted(places.base(), GitOccasion::Landing, cancel).await.map_err(worded)?
    {
        let words = git_programs::refused(&programs, GitOccasion::Landing);
        return Err(NotMerged { reason: "git_programs", ..words.into() }.into());
    }
    let note = |note| tracing::info!(id = %row.id, "{}", words::note(&note));
    match repo.land(&turn, &wanted, &note, cancel).await {
        Ok(landed) => {
            // The list shows it when the caller hears of it. It has landed whatever becomes of that.
            let _not_seen =
                super::review::review(row.clone(), places.clone(), inbox.clone(), cancel.clone()).await;
            Ok(landing::merged(landed, &row))
        }
        Err(not_landed) => Err(NotMerged::of(&name, not_landed).into()),
    }
}

async fn preview(
    row: &AgentRow,
    request: &MergeRequest,
    places: &Places,
    cancel: &CancellationToken,
) -> Result<MergeForecast, NotMerged> {
    let name = landing::worktree(row)?;
    let repo = open(places, cancel).await.map_err(|error| NotMerged::from(words::work(&name, error)))?;
    landing::forecast(&repo, row, request, cancel).await
}

async fn open(places: &Places, cancel: &CancellationToken) -> Result<Repo, caliban_worktrees::Error> {
    let options = GitOptions { has_terminal: false, ..GitOptions::accepting(places.base()) };
    Repo::open(places.repo(), options, cancel).await
}
