//! `POST /v1/agents/{id}/respawn`: ended, then anew from the original spec with a new id. The change from old to
//! new, also in the rows of agents that wait for it, is one transaction; the old directory goes to the archive.

use caliban_contract::HandedOver;
use caliban_contract::archive::{ArchiveReason, place};
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_core::spec::SpawnSpec;
use caliban_store::fleet::RegistryChange;

use super::agent::DaemonAgent;
use super::answers::KeptAnswer;
use super::phase::{Phase, Waiter};
use super::resume::{self, HeardResume};
use super::store::Then;
use super::worktree::{Disposed, Purpose};
use super::{DaemonAnswer, Msg, Owner, ReplyTo, VerbResult, archive, gone, inherit, spawn};
use crate::protocol::{ApiError, ErrorCode, RespawnRequest, Respawned, SpawnRequest};

impl Owner {
    pub(super) fn respawn(
        &mut self,
        query: &str,
        mut request: RespawnRequest,
        peer: i32,
        reply: &mut ReplyTo,
    ) -> VerbResult {
        // The settings of an agent's process decide nothing: the successor takes those of its start.
        let _who = inherit::hold(&mut request.secrets, &mut request.program, peer);
        let id = self.resolve_free(query)?;
        if let Some(program) = &request.program {
            spawn::find_program(Some(program), &self.own_program)?;
        }
        let about = self.agents.get(&id).map(|agent| &agent.about);
        let has_worktree = about.is_some_and(|about| about.has_worktree);
        // The label of an agent's agent gets a number if need be.
        if about.is_none_or(|about| about.parent.is_none()) {
            self.check_own_label(id)?;
        }
        // Before it is ended for nothing.
        if !spawn::has_room(self.places.base()) || has_worktree && !self.has_room_in_repo() {
            let text = format!("the disk is full; agent {id} is left as it is");
            return Err(ApiError::new(ErrorCode::DiskFull, text).hint("make room and try again"));
        }
        self.kill_then(id, self.options.grace_ms, Waiter::Leave(Purpose::Respawn(request, reply.take())));
        Ok(None)
    }

    /// The worktree was taken care of; here is the original request.
    pub(super) fn respawn_disposed(
        &mut self,
        old: AgentId,
        request: RespawnRequest,
        outcome: Result<Disposed, String>,
        reply: ReplyTo,
    ) {
        let made = outcome
            .and_then(|done| Ok((done.spec.ok_or("its request is lost")?, done.work)))
            .map_err(|text| ApiError::new(ErrorCode::Conflict, format!("agent {old} stays: {text}")))
            .and_then(|(spec, work)| self.successor(old, request, *spec, work));
        match made {
            Ok((insert, respawned)) => {
                self.hand_over(old, respawned.id);
                self.batch.add(RegistryChange::Delete(old), Then::Nothing(old));
                self.keep_answer(reply.request.as_deref(), KeptAnswer::Respawned(respawned.clone()));
                self.batch.add(insert, Then::Respawned { respawned, reply });
            }
            Err(error) => {
                let error = self.not_anew(old, error);
                self.stays(old);
                reply.send(Err(error));
            }
        }
    }

    /// The refusal for an agent that has ended and got no successor.
    fn not_anew(&self, old: AgentId, error: ApiError) -> ApiError {
        let Some(state) = self.agents.get(&old).map(DaemonAgent::state) else { return error };
        if !matches!(error.code, ErrorCode::DiskFull | ErrorCode::Store | ErrorCode::Internal) {
            return error;
        }
        let is_full = error.code == ErrorCode::DiskFull;
        let why = if is_full { "the disk is full".to_owned() } else { error.message };
        let text = format!("agent {old} has ended {state} and stays; it was not started anew: {why}");
        let first = if is_full { "make room, then " } else { "" };
        let hint = format!("{first}`caliban respawn {old}` or `caliban resume {old}`");
        ApiError::new(error.code, text).hint(hint)
    }

    /// The agent is neither replaced nor removed: agents that wait for it go on by how it ended.
    pub(super) fn stays(&mut self, old: AgentId) {
        let Some(agent) = self.agents.get_mut(&old) else { return };
        agent.phase = Phase::Ended;
        let state = agent.state();
        self.ended(old, state);
    }

    fn successor(
        &mut self,
        old: AgentId,
        request: RespawnRequest,
        mut spec: SpawnSpec,
        work: Vec<String>,
    ) -> Result<(RegistryChange, Respawned), ApiError> {
        let before = self.agents.get(&old).ok_or_else(|| gone(old))?.record.clone();
        // Another agent may have taken the label meanwhile.
        self.check_label(&mut spec)?;
        let handed = HandedOver { settings: None, ..self.handover_of(old)? };
        let secrets = resume::merged(request.secrets.into(), handed, HeardResume::Yes).into();
        let program = request.program.unwrap_or(before.program);
        let after = self.still_ahead(&before.after);
        let anew = SpawnRequest { spec, secrets, program: None, key: None };
        let (id, insert) = self.register(anew, program, after, None)?;
        Ok((insert, Respawned { id, old, archived: place(self.places.base(), old), work }))
    }

    /// Of the agents that an agent had to wait for, those that may still end `done`. The others have ended, which the
    /// user who starts it again can see.
    pub(super) fn still_ahead(&self, after: &[AgentId]) -> Vec<AgentId> {
        let may_end = |id: &&AgentId| {
            self.agents
                .get(id)
                .is_some_and(|agent| !agent.state().is_ending() && agent.state() != State::Idle)
        };
        after.iter().filter(may_end).copied().collect()
    }

    /// Old is gone and new is there.
    pub(super) fn respawned(&mut self, mut respawned: Respawned, reply: ReplyTo) {
        let (old, id) = (respawned.old, respawned.id);
        tracing::info!(%id, "respawned from {old}");
        self.agents.remove(&old);
        self.watch.remove(old);
        self.events.removed(old);
        for other in self.who_waits_for(id) {
            self.publish(other);
        }
        let _none = std::fs::remove_file(self.places.agent_secrets(old));
        self.spawned(id);
        // Not here: on a slow disk everybody would wait for it.
        let places = self.places.clone();
        self.later(async move {
            let put = move || archive::put_if_possible(&places, old, ArchiveReason::Respawned);
            if let Ok(archived) = tokio::task::spawn_blocking(put).await {
                respawned.archived = archived;
            }
            Some(Msg::Archived { respawned, reply })
        });
    }

    /// The directory of the old one is where it stays.
    pub(super) fn archived(&mut self, respawned: Respawned, reply: ReplyTo) {
        self.archive_has_grown = true;
        reply.send(Ok(DaemonAnswer::Respawned(respawned)));
    }

    pub(super) fn not_respawned(&mut self, respawned: &Respawned, reply: ReplyTo, refusal: ApiError) {
        let (old, new) = (respawned.old, respawned.id);
        for other in self.exchange(new, old) {
            self.mark_unsaved(other);
        }
        self.not_spawned(new, &refusal);
        let refusal = self.not_anew(old, refusal);
        self.stays(old);
        reply.send(Err(refusal));
    }
}
