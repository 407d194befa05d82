//! `DELETE /v1/agents/{id}`: only when it has ended, or by force; its work is kept by the rule of r19.

use std::fs;
use std::path::{Path, PathBuf};

use caliban_core::ids::AgentId;

use super::agent::Waiter;
use super::worktree::{Disposed, Purpose};
use super::{Answer, Owner, Reply, answer_to};
use crate::places::Places;
use crate::protocol::{ApiError, ErrorCode, Removed, RmRequest};

/// What directories on their way out are called, so that the next daemon finishes what this one began.
pub(super) const LEAVING: &str = ".rm-";

impl Owner {
    pub(super) fn rm(&mut self, query: &str, request: RmRequest, reply: Reply) {
        let id = match self.resolve_free(query) {
            Ok(id) => id,
            Err(error) => return answer_to(reply, Err(error)),
        };
        let Some(agent) = self.agents.get(&id) else { return };
        if agent.state().is_ending() {
            return self.rm_ended(id, request, reply);
        }
        if !request.force {
            let text = format!("agent {id} is {}; only a stopped agent is removed", agent.state());
            let hint = format!("`caliban kill {id}` first, or `caliban rm {id} --force`");
            return answer_to(reply, Err(ApiError::new(ErrorCode::Conflict, text).hint(hint)));
        }
        self.kill_then(id, self.options.grace_ms, Waiter::Rm(request, reply));
    }

    /// It has ended: its worktree first, because that can fail.
    pub(super) fn rm_ended(&mut self, id: AgentId, request: RmRequest, reply: Reply) {
        // Somebody else who waited for its end may have been first.
        if let Err(error) = self.resolve_free(&id.to_string()) {
            return answer_to(reply, Err(error));
        }
        self.dispose(id, Purpose::Rm(request, reply));
    }

    /// The worktree was taken care of.
    pub(super) fn rm_disposed(&mut self, id: AgentId, outcome: Result<Disposed, String>, reply: Reply) {
        match outcome {
            Ok(done) => self.answer_removal(Removed { id, work: done.work }, reply),
            Err(text) => {
                // A respawn that waited as well may have kept this from those who wait for it.
                self.stays(id);
                let text = format!("agent {id} stays: its worktree cannot be removed: {text}");
                let hint = format!("`caliban rm {id} --keep` removes the agent and leaves the worktree");
                answer_to(reply, Err(ApiError::new(ErrorCode::Conflict, text).hint(hint)));
            }
        }
    }

    /// It is gone from the registry.
    pub(super) fn removed(&mut self, removed: Removed, reply: Reply) {
        let id = removed.id;
        tracing::info!(%id, "removed{}", removed.work.iter().map(|line| format!("; {line}")).collect::<String>());
        self.agents.remove(&id);
        self.watch.remove(id);
        self.replaced_by_nobody(id);
        self.events.removed(id);
        let _none = fs::remove_file(self.places.agent_secrets(id));
        let leaving = leaving(&self.places, id);
        if fs::rename(self.places.agent_dir(id), &leaving).is_ok() {
            self.tasks.spawn_blocking(move || delete(&leaving));
        }
        answer_to(reply, Ok(Answer::Removed(removed)));
    }
}

/// The name of an agent's directory on its way out.
pub(super) fn leaving(places: &Places, id: AgentId) -> PathBuf {
    places.agents_dir().join(format!("{LEAVING}{id}"))
}

/// Deletes a directory on its way out. Best effort: the next daemon tries again.
pub(super) fn delete(leaving: &Path) {
    if let Err(error) = fs::remove_dir_all(leaving) {
        tracing::warn!("{} is left: {error}", leaving.display());
    }
}

/// Puts an agent's directory aside, and says where it is.
pub(super) fn archive(places: &Places, id: AgentId) -> std::path::PathBuf {
    let to = places.archive_dir().join(id.to_string());
    let moved = crate::places::private_dir(&places.archive_dir())
        .map_err(|error| error.to_string())
        .and_then(|()| fs::rename(places.agent_dir(id), &to).map_err(|error| error.to_string()));
    match moved {
        Ok(()) => to,
        Err(error) => {
            tracing::warn!(%id, "its directory stays where it is: {error}");
            places.agent_dir(id)
        }
    }
}
