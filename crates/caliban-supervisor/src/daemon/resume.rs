//! `POST /v1/agents/{id}/resume`: an ended agent goes on in its conversation, with the same id.

use std::io;
use std::path::Path;

use caliban_contract::HandedOver;
use caliban_contract::limits::RaisedLimits;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::LifecycleEvent;
use caliban_core::spec::MAX_PROMPT_BYTES;
use caliban_store::fleet::{AgentRecord, WantedState};

use super::agent::DaemonAgent;
use super::answers::KeptAnswer;
use super::new_run::Renewal;
use super::phase::{Phase, Renewing};
use super::start::{self, StartError};
use super::store::Then;
use super::{Owner, ReplyTo, VerbResult, gone, inherit, spawn};
use crate::protocol::{ApiError, ErrorCode, ResumeRequest};
use crate::records::{self, BETWEEN};
use crate::row::About;

/// How an agent was before a resume.
#[derive(Debug)]
pub(super) struct Before {
    record: AgentRecord,
    about: About,
    /// Its limits, when they were changed.
    limits: Option<RaisedLimits>,
}

impl Owner {
    pub(super) fn resume(
        &mut self,
        query: &str,
        mut request: ResumeRequest,
        peer: i32,
        reply: &mut ReplyTo,
    ) -> VerbResult {
        inherit::raise(&mut request, peer)?;
        let (nonce, before) = self.resume_now(query, request)?;
        let (id, reply) = (before.record.id, reply.take());
        self.keep_answer(reply.request.as_deref(), KeptAnswer::Resumed(id));
        self.save(id, Then::Renewed { id, nonce, renewal: Renewal::Resume { before, reply } });
        Ok(None)
    }

    /// Makes it wait for its start; returns the name of its next run, and how it was before.
    fn resume_now(&mut self, query: &str, request: ResumeRequest) -> Result<(String, Box<Before>), ApiError> {
        let id = self.resolve_free(query)?;
        if request.prompt.as_ref().is_some_and(|prompt| prompt.len() > MAX_PROMPT_BYTES) {
            return Err(spawn::bad(format!("a message has at most {MAX_PROMPT_BYTES} bytes")));
        }
        let program = match &request.program {
            Some(program) => Some(spawn::find_program(Some(program), &self.own_program)?),
            None => None,
        };
        let nonce = spawn::new_nonce()?;
        let after = self.agents.get(&id).map(|agent| self.still_ahead(&agent.record.after));
        let old = self.handover_of(id)?;
        let taken = self.check_own_label(id);
        let agent = self.agents.get_mut(&id).ok_or_else(|| gone(id))?;
        let status = agent.record.status.apply(LifecycleEvent::Resumed).map_err(|refused| {
            ApiError::new(ErrorCode::Conflict, refused.to_string()).hint(format!(
                "it has not ended; `caliban attach {id}` or `caliban agents send {id}` reaches it"
            ))
        })?;
        if matches!(agent.phase, Phase::Stopping(_)) {
            return Err(ApiError::new(ErrorCode::Conflict, format!("agent {id} is being killed")));
        }
        taken?;
        let (before, about) = (agent.record.clone(), agent.about.clone());
        // Messages that no run has recorded yet come first.
        let prompt = match (before.resume_prompt.clone(), request.prompt) {
            (Some(unheard), Some(new)) => Some(format!("{unheard}{BETWEEN}{new}")),
            (unheard, new) => unheard.or(new),
        };
        if prompt.as_ref().is_some_and(|prompt| prompt.len() > MAX_PROMPT_BYTES) {
            let text = format!(
                "what it was told before has not been heard yet; with this it would be over {MAX_PROMPT_BYTES} bytes"
            );
            return Err(ApiError::new(ErrorCode::BadRequest, text).hint("resume it without a message first"));
        }
        if !request.secrets.is_empty() {
            let heard = if before.resume_prompt.is_some() { HeardResume::No } else { HeardResume::Yes };
            merged(request.secrets.into(), old, heard)
                .write(&self.places.agent_secrets(id))
                .map_err(|error| spawn::file_refusal("its secrets cannot be written", &error))?;
            agent.record.has_secrets = true;
        } else if agent.record.has_secrets && !self.places.agent_secrets(id).exists() {
            // They are gone with a reboot, and this request brings none: it goes on without.
            agent.record.has_secrets = false;
        }
        let dir = self.places.agent_dir(id);
        let limits = raise(&dir, request.limits)
            .map_err(|error| spawn::file_refusal("its limits cannot be written", &error))?;
        agent.about.change(request.limits);
        agent.record.status = status;
        agent.record.wanted = WantedState::Run;
        agent.change_run(nonce.clone());
        agent.record.runs += 1;
        agent.record.resume_prompt = prompt;
        agent.record.note = None;
        // An agent that never began waits again for the agents of its `--after`.
        agent.record.after = after.unwrap_or_default();
        agent.record.program = program.unwrap_or_else(|| agent.record.program.clone());
        agent.phase = Phase::Renewing(Renewing::Resume);
        Ok((nonce, Box::new(Before { record: before, about, limits })))
    }

    /// The secrets that an agent has; none when they are gone, with a reboot. What cannot be read just now is not given
    /// up.
    pub(super) fn handover_of(&self, id: AgentId) -> Result<HandedOver, ApiError> {
        match start::read_handover(&self.places.agent_secrets(id)) {
            Ok(handover) => Ok(handover),
            Err(StartError::Later(text)) => Err(ApiError::new(ErrorCode::Internal, text).hint("try again")),
            Err(_) => Ok(HandedOver::default()),
        }
    }
}

impl Before {
    /// The resume could not be recorded: the agent is as it was, unless it was killed meanwhile.
    pub(super) fn restore(self, dir: &Path, agent: &mut DaemonAgent) {
        if matches!(agent.phase, Phase::Renewing(Renewing::Resume)) {
            agent.record = self.record;
            agent.about = self.about;
            agent.phase = Phase::Ended;
        }
        if let Some(limits) = self.limits
            && let Err(error) = records::write_durably(dir, records::LIMITS, &limits)
        {
            tracing::warn!(id = %agent.record.id, "its limits stay raised: {error}");
        }
        agent.unsaved = true;
    }
}

/// Writes raised limits down for every run from now on, and returns those of before. Here and not where they are asked for:
/// of several who resume an agent at once only one is accepted, and the run must not have another one's.
fn raise(dir: &Path, raised: RaisedLimits) -> io::Result<Option<RaisedLimits>> {
    if raised.is_none() {
        return Ok(None);
    }
    let before: RaisedLimits = records::try_read(dir, records::LIMITS)?.unwrap_or_default();
    records::write_durably(dir, records::LIMITS, &before.with(raised))?;
    Ok(Some(before))
}

/// Whether an agent has heard what it was told at the last resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeardResume {
    Yes,
    No,
}

/// What an agent was handed, and what whoever starts it again hands over, which counts. What a shell does not have is no
/// reason to forget it. Of what was taken out of texts, only what belongs to a text that is still to be heard stays.
pub(super) fn merged(new: HandedOver, before: HandedOver, heard: HeardResume) -> HandedOver {
    let unheard = if heard == HeardResume::No { before.resume } else { Vec::new() };
    let mut variables = before.variables;
    variables.extend(new.variables);
    HandedOver {
        settings: new.settings.or(before.settings),
        hidden: if new.hidden.is_empty() { before.hidden } else { new.hidden },
        task: if new.task.is_empty() { before.task } else { new.task },
        resume: [unheard, new.resume].concat(),
        variables,
    }
}

/// Whether the worker of a run that is over had recorded what it was told: it removes the order then.
pub(super) fn was_heard(dir: &Path) -> bool {
    matches!(dir.join(records::RESUME).try_exists(), Ok(false))
}
