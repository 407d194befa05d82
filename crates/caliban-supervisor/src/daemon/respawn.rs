//! `POST /v1/agents/{id}/respawn`: ended, then anew from the original spec with a new id. The change from old to
//! new is one transaction; the old directory goes to the archive.

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, Status};
use caliban_core::spec::SpawnSpec;
use caliban_store::fleet::{Change, Record, Wanted};

use super::agent::{About, Agent, Waiter};
use super::store::Then;
use super::worktree::{Disposed, Purpose};
use super::{Answer, Owner, Reply, answer_to, rm, spawn};
use crate::protocol::{ApiError, ErrorCode, RespawnRequest, Respawned};

impl Owner {
    pub(super) fn respawn(&mut self, query: &str, request: RespawnRequest, reply: Reply) {
        let id = match self.resolve_free(query) {
            Ok(id) => id,
            Err(error) => return answer_to(reply, Err(error)),
        };
        if let Some(program) = &request.program
            && let Err(error) = spawn::find_program(Some(program), &self.own_program)
        {
            return answer_to(reply, Err(error));
        }
        self.kill_then(id, self.options.grace_ms, Waiter::Respawn(request, reply));
    }

    /// It has ended.
    pub(super) fn respawn_ended(&mut self, id: AgentId, request: RespawnRequest, reply: Reply) {
        // Somebody else who waited for its end may have been first.
        if let Err(error) = self.resolve_free(&id.to_string()) {
            return answer_to(reply, Err(error));
        }
        self.dispose(id, Purpose::Respawn(request, reply));
    }

    /// The worktree was taken care of; here is the original request.
    pub(super) fn respawn_disposed(
        &mut self,
        old: AgentId,
        request: RespawnRequest,
        outcome: Result<Disposed, String>,
        reply: Reply,
    ) {
        let made = outcome
            .and_then(|done| Ok((done.spec.ok_or("its request is lost")?, done.work)))
            .map_err(|text| ApiError::new(ErrorCode::Conflict, format!("agent {old} stays: {text}")))
            .and_then(|(spec, work)| self.successor(old, request, *spec, work));
        match made {
            Ok((agent, json, respawned)) => {
                self.batch.add(Change::Delete(old), Then::Nothing(old));
                let insert = Change::Insert(Box::new(agent.record.clone()), json);
                self.agents.insert(respawned.id, agent);
                self.batch.add(insert, Then::Respawned { respawned, reply });
            }
            Err(error) => {
                self.stays(old);
                answer_to(reply, Err(error));
            }
        }
    }

    /// It is neither replaced nor removed: those who wait for it are told how it ended.
    pub(super) fn stays(&mut self, old: AgentId) {
        self.unbusy(old);
        if let Some(state) = self.agents.get(&old).map(Agent::state) {
            self.ended(old, state);
        }
    }

    fn successor(
        &mut self,
        old: AgentId,
        request: RespawnRequest,
        spec: SpawnSpec,
        work: Vec<String>,
    ) -> Result<(Agent, String, Respawned), ApiError> {
        let before = self.agents.get(&old).map(|agent| agent.record.clone());
        let before =
            before.ok_or_else(|| ApiError::new(ErrorCode::NotFound, format!("agent {old} is gone")))?;
        let id = self.new_id()?;
        let now = crate::wall_ms();
        let mut has_secrets = !request.secrets.is_empty();
        spawn::write_files(&self.places, id, &spec, &request.secrets)
            .map_err(|error| spawn::file_refusal("the agent's directory cannot be written", &error))?;
        if !has_secrets && before.has_secrets {
            has_secrets = self.hand_on_secrets(old, id)?;
        }
        let json = serde_json::to_string(&spec)
            .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
        let record = Record {
            seq: self.next_seq,
            id,
            key: None,
            status: Status::default(),
            wanted: Wanted::Run,
            nonce: spawn::new_nonce()?,
            runs: 1,
            after: self.still_ahead(&before.after),
            program: request.program.unwrap_or(before.program),
            has_secrets,
            resume_prompt: None,
            note: None,
            created_at: now,
            updated_at: now,
        };
        self.next_seq += 1;
        let archived = self.places.archive_dir().join(old.to_string());
        let mut agent = Agent::new(record, About::of(&spec));
        agent.registered = false;
        agent.spec = Some(Box::new(spec));
        Ok((agent, json, Respawned { id, old, archived, work }))
    }

    /// Of those whom an agent had to wait for, the ones who may still end `done`. That the others did not is known to
    /// whoever asks for it anew.
    fn still_ahead(&self, after: &[AgentId]) -> Vec<AgentId> {
        let may_end = |id: &&AgentId| {
            self.agents
                .get(id)
                .is_some_and(|agent| !agent.state().is_ending() && agent.state() != State::Idle)
        };
        after.iter().filter(may_end).copied().collect()
    }

    /// Gives a successor the secrets; false when they are gone, with a reboot.
    fn hand_on_secrets(&self, old: AgentId, new: AgentId) -> Result<bool, ApiError> {
        match std::fs::copy(self.places.agent_secrets(old), self.places.agent_secrets(new)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => {
                spawn::forget_files(&self.places, new);
                Err(spawn::file_refusal("its secrets cannot be handed on", &error))
            }
        }
    }

    /// Old is gone and new is there.
    pub(super) fn respawned(&mut self, mut respawned: Respawned, reply: Reply) {
        let (old, id) = (respawned.old, respawned.id);
        tracing::info!(%id, "respawned from {old}");
        respawned.archived = rm::archive(&self.places, old);
        self.agents.remove(&old);
        self.watch.remove(old);
        self.replaced(old, Some(id));
        self.events.removed(old);
        let _none = std::fs::remove_file(self.places.agent_secrets(old));
        self.spawned(id);
        answer_to(reply, Ok(Answer::Respawned(respawned)));
    }

    /// Nothing was changed.
    pub(super) fn not_respawned(&mut self, respawned: &Respawned, reply: Reply, refusal: ApiError) {
        self.stays(respawned.old);
        self.not_spawned(respawned.id, &refusal);
        answer_to(reply, Err(refusal));
    }
}
