//! The agent that a request names: by id, by a unique prefix of it, or by label.

use std::collections::BTreeSet;

use caliban_contract::archive;
use caliban_core::ids::{AgentId, Candidate, ResolveError, resolve};

use super::Owner;
use super::agent::DaemonAgent;
use crate::protocol::{ApiError, ErrorCode};

impl Owner {
    pub(super) fn resolve(&self, query: &str) -> Result<AgentId, ApiError> {
        let registered = self.registered();
        let living: BTreeSet<&str> = registered
            .iter()
            .filter(|agent| !agent.state().is_ending())
            .filter_map(|agent| agent.about.label.as_deref())
            .collect();
        // A label is that of the living agent; those that had it before are found by their ids.
        let label = |agent: &DaemonAgent| {
            let label = agent.about.label.clone()?;
            (!agent.state().is_ending() || !living.contains(label.as_str())).then_some(label)
        };
        let candidates =
            registered.iter().map(|agent| Candidate { id: agent.record.id, label: label(agent) });
        resolve(query, candidates).map_err(|error| {
            let (code, hint) = match &error {
                ResolveError::Unknown { query } if self.is_archived(query) => (
                    ErrorCode::NotFound,
                    format!("it was removed; `caliban sessions show {query}` has what is kept of it"),
                ),
                ResolveError::Unknown { .. } => {
                    (ErrorCode::NotFound, "`caliban agents list` shows all agents".to_owned())
                }
                ResolveError::Ambiguous { .. } => (ErrorCode::Ambiguous, "write more of the id".to_owned()),
            };
            ApiError::new(code, error.to_string()).hint(hint)
        })
    }

    fn is_archived(&self, id: &str) -> bool {
        id.parse().is_ok_and(|id| archive::place(self.places.base(), id).exists())
    }

    /// The agent that a request wants to change, unless another request is changing it.
    pub(super) fn resolve_free(&self, query: &str) -> Result<AgentId, ApiError> {
        let id = self.resolve(query)?;
        match self.agents.get(&id).and_then(|agent| agent.phase.busy()) {
            None => Ok(id),
            Some(what) => Err(ApiError::new(ErrorCode::Conflict, format!("agent {id} is being {what}"))),
        }
    }

    /// Every registered agent, in the order of spawning.
    pub(super) fn registered(&self) -> Vec<&DaemonAgent> {
        let mut agents: Vec<&DaemonAgent> =
            self.agents.values().filter(|agent| agent.is_registered()).collect();
        agents.sort_unstable_by_key(|agent| agent.record.seq);
        agents
    }
}
