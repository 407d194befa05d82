//! `GET /v1/agents` and `GET /v1/agents/{id}`: from memory, after a look at what workers have said meanwhile. No
//! worker is asked anything, so one that is stopped or mute stalls nobody (r05).

use caliban_core::ids::AgentId;

use super::{Answer, Owner};
use crate::protocol::{AgentRow, ApiError, ErrorCode};

impl Owner {
    pub(super) fn list(&mut self) -> Answer {
        self.refresh();
        Answer::List(self.rows())
    }

    pub(super) fn show(&mut self, query: &str) -> Result<Answer, ApiError> {
        self.refresh();
        let id = self.resolve(query)?;
        self.row_answer(id)
    }

    /// Every registered agent, in order.
    pub(super) fn rows(&self) -> Vec<AgentRow> {
        let mut agents: Vec<_> = self.agents.values().filter(|agent| agent.registered).collect();
        agents.sort_unstable_by_key(|agent| agent.record.seq);
        let mut before = 0;
        let rows = agents.into_iter().map(|agent| {
            let behind = agent.is_queued().then_some(before);
            before += u64::from(agent.is_queued());
            agent.row(&self.places, behind)
        });
        rows.collect()
    }

    pub(super) fn row_answer(&self, id: AgentId) -> Result<Answer, ApiError> {
        match self.agents.get(&id) {
            Some(agent) => Ok(Answer::Row(Box::new(agent.row(&self.places, self.queued_behind(id))))),
            None => Err(ApiError::new(ErrorCode::NotFound, format!("agent {id} is gone"))),
        }
    }
}
