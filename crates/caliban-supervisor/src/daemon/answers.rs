//! Answers to requests that must happen once: removals, respawns and resumes.
//!
//! A client whose daemon dies asks the next one again, by the same name for the request. The answer is committed together
//! with what it says, so the next daemon knows it. A removal is final before it is committed: its answer is in the directory
//! of the removed agent, too. The newest answers are kept ([`ANSWERS`]).

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use caliban_core::ids::AgentId;
use caliban_store::fleet::{ANSWERS, RegistryChange};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::store::Then;
use super::{DaemonAnswer, DaemonRequest, Msg, Owner, stopping};
use crate::protocol::{ApiError, Removed, Respawned};
use crate::records;

/// The answer to a removal, in the directory of the agent.
const REMOVED: &str = "removed.json";

/// Where the answer to a request goes.
#[derive(Debug)]
pub(in crate::daemon) struct ReplyTo {
    /// None when the answer was sent, or is somebody else's to send.
    to: Option<oneshot::Sender<Result<DaemonAnswer, ApiError>>>,
    /// The caller's name for the request.
    pub(super) request: Option<String>,
}

impl ReplyTo {
    /// For a verb that answers later. What it returns is then not sent.
    pub(super) fn take(&mut self) -> Self {
        Self { to: self.to.take(), request: self.request.clone() }
    }

    pub(super) fn send(self, answer: Result<DaemonAnswer, ApiError>) {
        // The client may have gone.
        let _gone = self.to.map(|to| to.send(answer));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.to.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// The same for a request that has a name.
    pub(super) fn named(self, request: Option<String>) -> Self {
        Self { request, ..self }
    }
}

/// A way to answer, and the answer.
pub(super) fn channel() -> (ReplyTo, oneshot::Receiver<Result<DaemonAnswer, ApiError>>) {
    let (to, answer) = oneshot::channel();
    (ReplyTo { to: Some(to), request: None }, answer)
}

pub(super) async fn ask(inbox: &mpsc::Sender<Msg>, request: DaemonRequest) -> Result<DaemonAnswer, ApiError> {
    let (reply, answer) = channel();
    inbox.send(Msg::Request(request, reply)).await.map_err(|_| stopping())?;
    answer.await.map_err(|_| stopping())?
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeptAnswer {
    Removed(Removed),
    Respawned(Respawned),
    /// The answer is the row as it is now.
    Resumed(AgentId),
}

/// What a removed agent's directory says.
#[derive(Debug, Serialize, Deserialize)]
struct RemovedRecord {
    request: String,
    work: Vec<String>,
}

/// The answers that are known, by the names of their requests.
#[derive(Debug, Default)]
pub(super) struct Answers {
    kept: BTreeMap<String, KeptAnswer>,
    order: VecDeque<String>,
}

impl Answers {
    /// Those that the registry has. One that cannot be read is a later version's.
    pub(super) fn of(recorded: Vec<(String, String)>) -> Self {
        let mut answers = Self::default();
        for (request, json) in recorded {
            if let Ok(kept) = serde_json::from_str(&json) {
                answers.add(request, kept);
            }
        }
        answers
    }

    fn add(&mut self, request: String, kept: KeptAnswer) {
        if self.kept.insert(request.clone(), kept).is_none() {
            self.order.push_back(request);
        }
        while self.order.len() > usize::try_from(ANSWERS).unwrap_or(usize::MAX) {
            if let Some(oldest) = self.order.pop_front() {
                self.kept.remove(&oldest);
            }
        }
    }
}

impl Owner {
    /// The answer to a request that was carried out before.
    pub(super) fn known_answer(&self, reply: &ReplyTo) -> Option<Result<DaemonAnswer, ApiError>> {
        Some(match self.answers.kept.get(reply.request.as_ref()?)?.clone() {
            KeptAnswer::Removed(removed) => Ok(DaemonAnswer::Removed(removed)),
            KeptAnswer::Respawned(respawned) => Ok(DaemonAnswer::Respawned(respawned)),
            KeptAnswer::Resumed(id) => self.row_answer(id),
        })
    }

    /// Has an answer committed together with what else is in the batch.
    pub(super) fn keep_answer(&mut self, request: Option<&str>, kept: KeptAnswer) {
        let Some(request) = request.map(str::to_owned) else { return };
        match serde_json::to_string(&kept) {
            Ok(json) => {
                self.batch
                    .add(RegistryChange::Answer(request.clone(), json), Then::Answered { request, kept });
            }
            Err(error) => tracing::error!("an answer is not kept: {error}"),
        }
    }

    /// An answer counts: what it says is on the disk.
    pub(super) fn answered(&mut self, request: String, kept: KeptAnswer) {
        self.answers.add(request, kept);
    }
}

/// Writes the answer to a removal into the agent's directory, before that is set aside; returns what became of the work. Best
/// effort: it is for a daemon that dies in the next moment.
pub(super) fn write_removed(dir: &Path, request: Option<&str>, work: Vec<String>) -> Vec<String> {
    let Some(request) = request else { return work };
    let before = records::read::<RemovedRecord>(dir, REMOVED).filter(|before| before.request == request);
    // The daemon that removed the worktree may have written this and died before the directory was set aside: asked again,
    // there is no worktree left to tell of.
    let work = before.map(|before| before.work).filter(|_| work.is_empty()).unwrap_or(work);
    let record = RemovedRecord { request: request.to_owned(), work };
    if let Err(error) = records::write(dir, REMOVED, &record) {
        tracing::debug!("{}: {error}", dir.join(REMOVED).display());
    }
    record.work
}

/// The request and what became of the work, from the directory of an agent that was removed.
pub(super) fn read_removed(dir: &Path) -> Option<(String, Vec<String>)> {
    let record: RemovedRecord = records::read(dir, REMOVED)?;
    Some((record.request, record.work))
}
