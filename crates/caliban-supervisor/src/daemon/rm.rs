//! `DELETE /v1/agents/{id}`: only when it has ended, or by force; its work is kept by the rule of r19.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use caliban_core::ids::AgentId;
use caliban_store::fleet::Change;

use super::phase::Waiter;
use super::store::Then;
use super::worktree::{Disposed, Purpose};
use super::{Answer, Msg, Owner, Reply, answer_to, spawn, stop_order};
use crate::places::Places;
use crate::protocol::{ApiError, ErrorCode, Removed, RmRequest};
use crate::records::{self, LEAVING};
use crate::room;

impl Owner {
    pub(super) fn rm(&mut self, query: &str, request: RmRequest, reply: Reply) {
        let id = match self.resolve_free(query) {
            Ok(id) => id,
            Err(error) => return answer_to(reply, Err(error)),
        };
        let Some(agent) = self.agents.get(&id) else { return };
        if !agent.state().is_ending() && !request.force {
            let text = format!("agent {id} is {}; only a stopped agent is removed", agent.state());
            let hint = format!("`caliban kill {id}` first, or `caliban rm {id} --force`");
            return answer_to(reply, Err(ApiError::new(ErrorCode::Conflict, text).hint(hint)));
        }
        self.kill_then(id, self.options.grace_ms, Waiter::Leave(Purpose::Rm(request, reply)));
    }

    /// Its worktree was taken care of first, because that can fail.
    pub(super) fn rm_disposed(
        &mut self,
        id: AgentId,
        request: RmRequest,
        outcome: Result<Disposed, String>,
        reply: Reply,
    ) {
        match outcome {
            Ok(done) => {
                let removed = Removed { id, work: done.work };
                let (dir, leaving) = (self.places.agent_dir(id), leaving(&self.places, id));
                self.later(async move {
                    let moved = tokio::task::spawn_blocking(move || set_aside(&dir, &leaving)).await;
                    let outcome = moved.unwrap_or_else(|error| Err(io::Error::other(error)));
                    Some(Msg::SetAside { removed, reply, outcome })
                });
            }
            Err(text) => {
                // A respawn that waited as well may have kept the end from agents that wait for this one.
                self.stays(id);
                let what = if request.keep { "kept" } else { "removed" };
                let text = format!("agent {id} stays: its worktree cannot be {what}: {text}");
                let hint = match request.keep {
                    true => "`caliban worktrees list` shows what is there; try again".to_owned(),
                    false => format!("`caliban rm {id} --keep` removes the agent and leaves the worktree"),
                };
                answer_to(reply, Err(ApiError::new(ErrorCode::Conflict, text).hint(hint)));
            }
        }
    }

    /// The directory is set aside, which makes the removal final: the next daemon deletes the row if this one cannot.
    pub(super) fn set_aside(&mut self, removed: Removed, reply: Reply, outcome: io::Result<()>) {
        let id = removed.id;
        if let Err(error) = outcome {
            self.stays(id);
            let code = if room::is_full(&error) { ErrorCode::DiskFull } else { ErrorCode::Internal };
            let text = format!("agent {id} stays: its directory cannot be set aside: {error}");
            return answer_to(reply, Err(ApiError::new(code, text)));
        }
        tracing::info!(%id, "removed{}", removed.work.iter().map(|line| format!("; {line}")).collect::<String>());
        self.agents.remove(&id);
        self.watch.remove(id);
        self.replaced_by_nobody(id);
        self.events.removed(id);
        let _none = fs::remove_file(self.places.agent_secrets(id));
        self.batch.add(Change::Delete(id), Then::Deleted(id));
        answer_to(reply, Ok(Answer::Removed(removed)));
    }

    /// Tries again to delete the rows of agents that were removed.
    pub(super) fn delete_rows(&mut self) {
        for id in std::mem::take(&mut self.undeleted) {
            self.batch.add(Change::Delete(id), Then::Deleted(id));
        }
    }

    /// The row is gone; the files go.
    pub(super) fn deleted(&mut self, id: AgentId) {
        let (dir, leaving) = (self.places.agent_dir(id), leaving(&self.places, id));
        self.tasks.spawn_blocking(move || delete(&dir, &leaving));
    }
}

/// Gives the directory of an agent the name that says that it was removed; durable when this returns. One that is not there
/// any more is made.
fn set_aside(dir: &Path, leaving: &Path) -> io::Result<()> {
    match fs::rename(dir, leaving) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => spawn::make_dir(leaving)?,
        // The new name may need another block of the directory above. The mark in the directory itself needs none.
        Err(error) if room::is_full(&error) => return stop_order::mark_removed(dir),
        moved => moved?,
    }
    leaving.parent().map_or(Ok(()), |agents| File::open(agents)?.sync_all())
}

/// The name of an agent's directory on its way out.
pub(super) fn leaving(places: &Places, id: AgentId) -> PathBuf {
    places.agents_dir().join(format!("{LEAVING}{id}"))
}

/// Whether an agent was removed, as far as its directory says: its row may still be there.
pub(super) fn is_removed(places: &Places, id: AgentId) -> bool {
    leaving(places, id).exists() || stop_order::is_removed(&places.agent_dir(id))
}

/// Deletes the directory of a removed agent. Best effort: the next daemon tries again.
pub(super) fn delete(dir: &Path, leaving: &Path) {
    if stop_order::is_removed(dir) && fs::rename(dir, leaving).is_err() {
        // There is still no room for the other name. The mark goes last: without it the agent would be there again.
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name() != records::STOP {
                let path = entry.path();
                let _tried = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        }
        let _tried = fs::remove_dir_all(dir);
    }
    match fs::remove_dir_all(leaving) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("{} is left: {error}", leaving.display());
        }
        _ => {}
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
