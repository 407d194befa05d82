//! How the work of agents that have stopped stands: to review, merged, or nothing changed. git is asked in the background, for one
//! agent at a time; `GET /v1/agents/{id}/review` looks at once.

use std::collections::BTreeSet;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_core::names::Slug;
use caliban_core::review::Review;
use caliban_worktrees::{Error, GitOptions, Repo};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent::DaemonAgent;
use super::agent_client::Speaker;
use super::phase::Phase;
use super::{Msg, Owner, stopping};
use crate::landing::{words, worktree_name};
use crate::places::Places;
use crate::protocol::{AgentRow, ApiError};
use crate::records::{self, ReviewRecord};

/// What is to be looked at.
#[derive(Debug, Default)]
pub(super) struct Reviews {
    due: BTreeSet<AgentId>,
    /// Whether git is being asked.
    is_looking: bool,
    /// Whether somebody may want to know where the user's branches are now.
    is_asked: bool,
    /// The user's branches when everybody was due last.
    branches: Option<Vec<String>>,
}

/// How an agent's work stands. Two looks may overlap, one in the background and one that was asked for: the one that began
/// last counts.
#[derive(Debug, Default)]
pub(super) struct LastReview {
    found: Option<Review>,
    /// When that look began, or the work came to be another one.
    since: Option<Instant>,
}

impl LastReview {
    pub(super) fn found(&self) -> Option<Review> {
        self.found
    }

    fn forget(&mut self) {
        *self = Self { found: None, since: Some(Instant::now()) };
    }

    /// What a look has found; returns whether that is news.
    fn keep(&mut self, began: Instant, review: Review) -> bool {
        if self.since.is_some_and(|since| began < since) {
            return false;
        }
        self.since = Some(began);
        self.found.replace(review) != Some(review)
    }
}

impl DaemonAgent {
    /// Whether it has stopped in a worktree that is there.
    fn has_work_to_review(&self) -> bool {
        let is_leaving = matches!(self.phase, Phase::Leaving(_));
        self.about.has_worktree && has_stopped(self.state()) && !is_leaving
    }

    pub(super) fn read_review(&mut self, places: &Places) {
        let found = records::read::<ReviewRecord>(&places.agent_dir(self.record.id), records::REVIEW);
        let found = found.filter(|found| found.runs == self.record.runs).map(|found| found.review);
        self.review = LastReview { found, since: None };
    }
}

fn has_stopped(state: State) -> bool {
    state.is_ending() || state == State::Idle
}

impl Owner {
    /// An agent has come to another state: what was known of its work is old.
    pub(super) fn review_anew(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.review.forget();
        if agent.has_work_to_review() {
            self.reviews.due.insert(id);
            self.review_next();
        }
    }

    /// Somebody looks at the list.
    pub(super) fn review_asked(&mut self) {
        self.reviews.is_asked = true;
    }

    /// Looks where the user's branches are, when somebody wants to know: a merge by hand is told by nobody.
    pub(super) fn look_at_branches(&mut self) {
        let is_wanted = std::mem::take(&mut self.reviews.is_asked) || self.events.is_read();
        let has_work = self.agents.values().any(DaemonAgent::has_work_to_review);
        if !is_wanted || !has_work || self.reviews.is_looking {
            return;
        }
        self.reviews.is_looking = true;
        let (places, cancel) = (self.places.clone(), self.stop.child_token());
        self.later(async move {
            let branches = async {
                let repo = Repo::open(places.repo(), GitOptions::accepting(places.base()), &cancel).await?;
                repo.users_branches(&cancel).await
            };
            Some(Msg::Branches(branches.await.ok()))
        });
    }

    pub(super) fn branches_found(&mut self, branches: Option<Vec<String>>) {
        self.reviews.is_looking = false;
        if branches.is_some() && self.reviews.branches != branches {
            self.reviews.branches = branches;
            self.reviews.due = self.ids_of(DaemonAgent::has_work_to_review).into_iter().collect();
        }
        self.review_next();
    }

    /// Looks at the next one that is due.
    fn review_next(&mut self) {
        if self.reviews.is_looking {
            return;
        }
        while let Some(id) = self.reviews.due.pop_first() {
            let Some(agent) = self.agents.get(&id).filter(|agent| agent.has_work_to_review()) else {
                continue;
            };
            self.reviews.is_looking = true;
            let (runs, places, cancel) = (agent.record.runs, self.places.clone(), self.stop.child_token());
            self.later(async move {
                let began = Instant::now();
                let review = look(&places, id, &cancel).await.map_err(|error| error.to_string());
                Some(Msg::Reviewed { id, runs, began, review, is_due: true })
            });
            return;
        }
    }

    pub(super) fn reviewed(
        &mut self,
        id: AgentId,
        runs: u32,
        began: Instant,
        review: Result<Review, String>,
        is_due: bool,
    ) {
        if is_due {
            self.reviews.is_looking = false;
        }
        match review {
            Ok(review) => self.keep_review(id, runs, began, review),
            Err(error) => tracing::debug!(%id, "its work cannot be looked at: {error}"),
        }
        self.review_next();
    }

    fn keep_review(&mut self, id: AgentId, runs: u32, began: Instant, review: Review) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        if agent.record.runs != runs || !agent.has_work_to_review() || !agent.review.keep(began, review) {
            return;
        }
        let record = ReviewRecord { runs, review };
        // Only the list of a fleet without a daemon needs it.
        if let Err(error) = records::write(&self.places.agent_dir(id), records::REVIEW, &record) {
            tracing::debug!(%id, "review.json: {error}");
        }
        self.publish(id);
    }
}

async fn look(places: &Places, id: AgentId, cancel: &CancellationToken) -> Result<Review, Error> {
    let repo = Repo::open(places.repo(), GitOptions::accepting(places.base()), cancel).await?;
    let changes = repo.changes(&Slug::from(id), cancel).await?;
    repo.review(&changes, cancel).await
}

/// `GET /v1/agents/{id}/review`: the row after a look at its work.
pub(super) async fn review(
    row: AgentRow,
    places: Places,
    inbox: mpsc::Sender<Msg>,
    cancel: CancellationToken,
) -> Result<AgentRow, ApiError> {
    let name = worktree_name(&row).map_err(super::diff::refusal)?;
    let worded = |error| super::diff::refusal(words::work(&name, error));
    let began = Instant::now();
    let review = look(&places, row.id, &cancel).await.map_err(worded)?;
    let found = Msg::Reviewed { id: row.id, runs: row.runs, began, review: Ok(review), is_due: false };
    inbox.send(found).await.map_err(|_| stopping())?;
    Speaker { inbox: &inbox, caller: None }.row(row.id).await
}

#[cfg(test)]
mod tests {
    use caliban_core::review::ReviewState;

    use super::*;

    #[test]
    fn a_look_that_began_before_the_newest_one_is_not_kept() {
        let [first, second, third] =
            [0, 1, 2].map(|later| Instant::now() + std::time::Duration::from_secs(later));
        let of = |state| Review { state, files: 1, added: 2, deleted: 0 };
        let [open, merged] = [ReviewState::ToReview, ReviewState::Merged].map(of);
        let mut last = LastReview::default();
        assert!(last.keep(second, merged));
        assert!(!last.keep(first, open));
        assert_eq!(last.found(), Some(merged));
        // No news, but it counts as the newest.
        assert!(!last.keep(third, merged));
        assert!(!last.keep(second, open));
        assert!(last.keep(third, open));
        last.forget();
        assert!(!last.keep(first, merged));
        assert_eq!(last.found(), None);
    }
}
