//! `POST /v1/agents/{id}/requeue`: another priority or another time for an agent that has not begun. For a person.

use caliban_contract::limits::RaisedLimits;

use super::peer::Peer;
use super::phase::Phase;
use super::{DaemonAnswer, Owner, gone, spawn, start_time};
use crate::protocol::{ApiError, ErrorCode, RequeueRequest};
use crate::records;

/// Refuses a process of an agent, and one that cannot be seen (a11): no agent decides who comes first, or starts others
/// at a time of its choice.
pub(super) fn check_caller(peer: Peer) -> Result<(), ApiError> {
    peer.check_person("decide when agents start", "ask the person")
}

impl Owner {
    /// Writes it down, and puts the agent where it belongs in the queue.
    pub(super) fn requeue(&mut self, query: &str, request: RequeueRequest) -> Result<DaemonAnswer, ApiError> {
        let id = self.resolve_free(query)?;
        let dir = self.places.agent_dir(id);
        let agent = self.agents.get_mut(&id).ok_or_else(|| gone(id))?;
        if !matches!(agent.phase, Phase::Queued(_)) {
            let text = format!("agent {id} is {}: it waits for no place", agent.state());
            let hint = match agent.state().is_ending() {
                true => format!("caliban resume {id} --priority … starts it again with another one"),
                false => "only an agent that has not begun can be moved".to_owned(),
            };
            return Err(ApiError::new(ErrorCode::Conflict, text).hint(hint));
        }
        let RequeueRequest { priority, start_at_ms, start_in_ms } = request;
        let changed = RaisedLimits { priority, start_at_ms, ..RaisedLimits::default() };
        let changed = RaisedLimits::read(&dir).with(changed);
        records::write_durably(&dir, records::LIMITS, &changed)
            .map_err(|error| spawn::file_refusal("it cannot be written down", &error))?;
        agent.about.change(changed);
        if start_at_ms.is_some() {
            start_time::note(&dir, &mut agent.about, start_in_ms);
        }
        tracing::info!(%id, "queued with priority {}", agent.about.priority);
        self.publish(id);
        self.start_ready();
        self.row_answer(id)
    }
}
