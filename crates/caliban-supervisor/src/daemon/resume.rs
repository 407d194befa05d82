//! `POST /v1/agents/{id}/resume`: an ended agent goes on in its conversation, with the same id.

use std::collections::BTreeMap;
use std::path::Path;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Event, State};
use caliban_core::spec::MAX_PROMPT_BYTES;
use caliban_store::fleet::{Record, Wanted};

use super::store::Then;
use super::{Owner, Reply, answer_to, spawn, start};
use crate::protocol::{ApiError, ErrorCode, ResumeRequest};
use crate::records;

/// Secrets that were taken out of texts on the disk, as the command line hands them over: lists, in the order of the
/// gaps.
const VEILED_TASK: &str = "CALIBAN_VEILED_TASK";
const VEILED_RESUME: &str = "CALIBAN_VEILED_RESUME";
/// Between what was said at a resume and not heard, and what is said at the next.
const BETWEEN: &str = "\n\n";

impl Owner {
    pub(super) fn resume(&mut self, query: &str, request: ResumeRequest, reply: Reply) {
        match self.resume_now(query, request) {
            Ok(before) => self.save(before.id, Then::Resumed { id: before.id, before, reply }),
            Err(error) => answer_to(reply, Err(error)),
        }
    }

    /// Makes it wait for its start; returns how it was before.
    fn resume_now(&mut self, query: &str, request: ResumeRequest) -> Result<Box<Record>, ApiError> {
        let id = self.resolve_free(query)?;
        if request.prompt.as_ref().is_some_and(|prompt| prompt.len() > MAX_PROMPT_BYTES) {
            let text = format!("a message has at most {MAX_PROMPT_BYTES} bytes");
            return Err(ApiError::new(ErrorCode::BadRequest, text));
        }
        let program = match &request.program {
            Some(program) => Some(spawn::find_program(Some(program), &self.own_program)?),
            None => None,
        };
        let nonce = spawn::new_nonce()?;
        let Some(agent) = self.agents.get_mut(&id) else {
            return Err(ApiError::new(ErrorCode::NotFound, format!("agent {id} is gone")));
        };
        let status = agent.record.status.apply(Event::Resumed).map_err(|refused| {
            ApiError::new(ErrorCode::Conflict, refused.to_string()).hint(format!(
                "it has not ended; `caliban attach {id}` or `caliban agents send {id}` reaches it"
            ))
        })?;
        let before = Box::new(agent.record.clone());
        // What no run has heard yet comes first.
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
            let path = self.places.agent_secrets(id);
            // Best effort: what is gone is shown to the agent as left out.
            let old = start::read_secrets(&path).unwrap_or_default();
            let secrets = with_veiled(request.secrets, &old, before.resume_prompt.is_some());
            spawn::write_secrets(&path, &secrets)
                .map_err(|error| spawn::file_refusal("its secrets cannot be written", &error))?;
            agent.record.has_secrets = true;
        } else if agent.record.has_secrets && !self.places.agent_secrets(id).exists() {
            // Gone with a reboot; whoever resumes it has none, so it goes on without.
            agent.record.has_secrets = false;
        }
        agent.record.status = status;
        agent.record.wanted = Wanted::Run;
        agent.record.nonce = nonce;
        agent.record.runs += 1;
        agent.record.resume_prompt = prompt;
        // An order to end it was for the run before.
        agent.stop_with = None;
        agent.record.note = None;
        agent.record.after.clear();
        agent.record.program = program.unwrap_or_else(|| agent.record.program.clone());
        // Not to be started before it is on the disk.
        agent.busy = Some("resumed");
        Ok(before)
    }

    /// It is on the disk.
    pub(super) fn resumed(&mut self, id: AgentId, reply: Reply) {
        tracing::info!(%id, "resumed");
        self.unbusy(id);
        self.publish(id);
        self.start_ready();
        answer_to(reply, self.row_answer(id));
    }

    /// It could not be saved: it stays as it was, unless it was killed meanwhile.
    pub(super) fn not_resumed(&mut self, id: AgentId, before: Record, reply: Reply, refusal: ApiError) {
        self.unbusy(id);
        if let Some(agent) = self.agents.get_mut(&id) {
            if agent.state() == State::Spawning {
                agent.record = before;
            }
            agent.unsaved = true;
        }
        answer_to(reply, Err(refusal));
    }
}

/// New secrets, with those of the old ones that belong to what the agent may not have heard yet.
fn with_veiled(
    mut new: BTreeMap<String, String>,
    old: &BTreeMap<String, String>,
    is_unheard: bool,
) -> BTreeMap<String, String> {
    if let Some(task) = old.get(VEILED_TASK) {
        new.entry(VEILED_TASK.to_owned()).or_insert_with(|| task.clone());
    }
    if is_unheard && let Some(before) = old.get(VEILED_RESUME) {
        let list = |json: Option<&String>| -> Vec<String> {
            json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
        };
        let both = [list(Some(before)), list(new.get(VEILED_RESUME))].concat();
        if let Ok(json) = serde_json::to_string(&both) {
            new.insert(VEILED_RESUME.to_owned(), json);
        }
    }
    new
}

/// Whether the worker of a run that is over had recorded what it was told: it removes the order then.
pub(super) fn was_heard(dir: &Path) -> bool {
    matches!(dir.join(records::RESUME).try_exists(), Ok(false))
}
