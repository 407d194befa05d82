//! Another run for an agent: the name of the run is committed first, then the run starts.
//!
//! A run that never began, a wake and a resume all lead here. What follows from the commit, or from its failure, is here.

use caliban_core::ids::AgentId;

use super::phase::{Hibernating, Phase, Queued, Renewing, Tries};
use super::resume::Before;
use super::store::Then;
use super::{Owner, ReplyTo, spawn};
use crate::protocol::ApiError;

/// A run whose name is on its way to the registry, and the way back.
#[derive(Debug)]
pub(super) enum Renewal {
    /// In place of a run that never began; `before` is that one's name.
    Void { before: String },
    /// To be started at once, place or not; `before` is the name of the run before.
    Wake { before: String },
    /// The row is the answer; `before` is how the agent was.
    Resume { before: Box<Before>, reply: ReplyTo },
}

impl Owner {
    /// The run of an agent is void: it gets another name, and is queued when the registry has it.
    pub(super) fn renew_void(&mut self, id: AgentId, tries: Tries) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        match spawn::new_nonce() {
            Ok(nonce) => {
                agent.phase = Phase::Renewing(Renewing::Void(tries));
                let before = agent.change_run(nonce.clone());
                self.save(id, Then::Renewed { id, nonce, renewal: Renewal::Void { before } });
            }
            Err(error) => {
                tracing::error!(%id, "{error}");
                agent.phase = Phase::unconfirmed(None, tries);
            }
        }
    }

    /// The name of the next run is in the registry.
    pub(super) fn renewed(&mut self, id: AgentId, nonce: &str, renewal: Renewal) {
        if let Some(agent) = self.agents.get_mut(&id).filter(|agent| agent.record.nonce == nonce) {
            agent.other_runs.clear();
            // Unless it was killed meanwhile.
            if let Phase::Renewing(renewing) = &agent.phase {
                if !matches!(renewing, Renewing::Wake(_)) {
                    spawn::write_queued(&self.places.agent_dir(id), &agent.record);
                }
                match *renewing {
                    Renewing::Wake(_) => self.start_run(id),
                    Renewing::Void(tries) => agent.phase = Phase::Queued(Queued { spec: None, tries }),
                    Renewing::Resume => agent.phase = Phase::Queued(Queued::default()),
                }
                self.publish(id);
                self.start_ready();
            }
        }
        match renewal {
            Renewal::Void { .. } | Renewal::Wake { .. } => {}
            Renewal::Resume { reply, .. } => {
                tracing::info!(%id, "resumed");
                reply.send(self.row_answer(id));
            }
        }
    }

    /// It is not: the run is the one that the registry knows, unless there is a newer one.
    pub(super) fn not_renewed(&mut self, id: AgentId, nonce: &str, renewal: Renewal, refusal: ApiError) {
        let agent = self.agents.get_mut(&id).filter(|agent| agent.record.nonce == nonce);
        match (renewal, agent) {
            (Renewal::Void { before }, Some(agent)) => {
                agent.change_run(before);
                if let Phase::Renewing(Renewing::Void(tries)) = agent.phase {
                    agent.phase = Phase::unconfirmed(None, tries);
                } else {
                    // It was killed meanwhile.
                    agent.unsaved = true;
                }
            }
            (Renewal::Wake { before }, Some(agent)) => {
                agent.change_run(before);
                agent.record.runs -= 1;
                agent.unsaved = true;
                if let Phase::Renewing(Renewing::Wake(tries)) = agent.phase {
                    agent.phase = Phase::Hibernating(Hibernating { tries, refused: Some(refusal) });
                }
            }
            (Renewal::Resume { before, reply }, Some(agent)) => {
                before.restore(&self.places.agent_dir(id), agent);
                reply.send(Err(refusal));
            }
            (Renewal::Resume { reply, .. }, None) => reply.send(Err(refusal)),
            (Renewal::Void { .. } | Renewal::Wake { .. }, None) => {}
        }
    }
}
