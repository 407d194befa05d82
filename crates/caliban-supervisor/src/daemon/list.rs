//! `GET /v1/agents` and `GET /v1/agents/{id}`: from memory, after a look at what workers have said meanwhile. No
//! worker is asked anything, so one that is stopped or mute stalls nobody (r05).

use caliban_core::ids::AgentId;

use super::{DaemonAnswer, Owner, gone, internal};
use crate::protocol::{AgentRow, ApiError};

impl Owner {
    /// An `AgentList`, written row by row: only one of them is in memory beside the text.
    pub(super) fn list(&mut self) -> Result<DaemonAnswer, ApiError> {
        self.refresh();
        self.review_asked();
        let mut text = b"{\"agents\":[".to_vec();
        for row in self.rows() {
            if !text.ends_with(b"[") {
                text.push(b',');
            }
            serde_json::to_writer(&mut text, &row).map_err(internal)?;
        }
        text.extend_from_slice(b"]}");
        Ok(DaemonAnswer::List(text))
    }

    pub(super) fn show(&mut self, query: &str) -> Result<DaemonAnswer, ApiError> {
        self.refresh();
        let id = self.resolve(query)?;
        self.row_answer(id)
    }

    /// Every registered agent, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = AgentRow> {
        let waits = self.waits_of_all();
        self.registered().into_iter().map(move |agent| agent.row(&self.places, waits(agent)))
    }

    pub(super) fn row_answer(&self, id: AgentId) -> Result<DaemonAnswer, ApiError> {
        match self.agents.get(&id) {
            Some(agent) => Ok(DaemonAnswer::Row(Box::new(agent.row(&self.places, self.waits_of(id))))),
            None => Err(gone(id)),
        }
    }
}
