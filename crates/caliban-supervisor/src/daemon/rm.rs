//! `DELETE /v1/agents/{id}`: only when it has ended, or by force; its work is kept by the rule of r19, its transcript in the
//! archive.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use caliban_contract::archive::{ArchiveReason, place};
use caliban_core::ids::AgentId;
use caliban_store::fleet::RegistryChange;

use super::agent::DaemonAgent;
use super::answers::KeptAnswer;
use super::phase::Waiter;
use super::store::Then;
use super::worktree::{Disposed, Purpose};
use super::{DaemonAnswer, Msg, Owner, ReplyTo, VerbResult, answers, archive, spawn, stop_order};
use crate::disk_room;
use crate::places::Places;
use crate::protocol::{ApiError, ErrorCode, Removed, RmRequest};
use crate::records::{self, LEAVING, TRANSCRIPT};

impl Owner {
    pub(super) fn rm(&mut self, query: &str, request: RmRequest, reply: &mut ReplyTo) -> VerbResult {
        let id = self.resolve_free(query)?;
        let state = self.agents.get(&id).map(DaemonAgent::state);
        if let Some(state) = state.filter(|state| !state.is_ending() && !request.force) {
            let text = format!("agent {id} is {state}; only a stopped agent is removed");
            let hint = format!("`caliban kill {id}` first, or `caliban rm {id} --force`");
            return Err(ApiError::new(ErrorCode::Conflict, text).hint(hint));
        }
        self.kill_then(id, self.options.grace_ms, Waiter::Leave(Purpose::Rm(request, reply.take())));
        Ok(None)
    }

    /// Its worktree was taken care of first, because that can fail.
    pub(super) fn rm_disposed(
        &mut self,
        id: AgentId,
        request: RmRequest,
        outcome: Result<Disposed, String>,
        reply: ReplyTo,
    ) {
        match outcome {
            Ok(done) => {
                let places = self.places.clone();
                let name = reply.request.clone();
                self.later(async move {
                    let moved = tokio::task::spawn_blocking(move || {
                        let work = answers::write_removed(&places.agent_dir(id), name.as_deref(), done.work);
                        set_aside(&places, id, request).map(|archived| Removed { id, work, archived })
                    });
                    let outcome = moved.await.unwrap_or_else(|error| Err(io::Error::other(error)));
                    Some(Msg::SetAside { id, reply, outcome })
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
                reply.send(Err(ApiError::new(ErrorCode::Conflict, text).hint(hint)));
            }
        }
    }

    /// The directory is out of the way, which makes the removal final: the next daemon deletes the row if this one cannot.
    pub(super) fn set_aside(&mut self, id: AgentId, reply: ReplyTo, outcome: io::Result<Removed>) {
        let removed = match outcome {
            Ok(removed) => removed,
            Err(error) => {
                self.stays(id);
                let code = if disk_room::is_full(&error) { ErrorCode::DiskFull } else { ErrorCode::Internal };
                let text = format!("agent {id} stays: its directory cannot be archived: {error}");
                let hint = format!("`caliban rm {id} --purge` deletes it instead");
                return reply.send(Err(ApiError::new(code, text).hint(hint)));
            }
        };
        tracing::info!(%id, "removed{}", removed.work.iter().map(|line| format!("; {line}")).collect::<String>());
        self.agents.remove(&id);
        self.watch.remove(id);
        self.replaced_by_nobody(id);
        self.events.removed(id);
        let _none = fs::remove_file(self.places.agent_secrets(id));
        self.archive_has_grown |= removed.archived.is_some();
        self.batch.add(RegistryChange::Delete(id), Then::Deleted(id));
        if let Some(request) = reply.request.clone() {
            self.keep_answer(Some(&request), KeptAnswer::Removed(removed.clone()));
            self.answered(request, KeptAnswer::Removed(removed.clone()));
        }
        reply.send(Ok(DaemonAnswer::Removed(removed)));
    }

    /// Tries again to delete the rows of agents that were removed.
    pub(super) fn delete_rows(&mut self) {
        for id in std::mem::take(&mut self.undeleted) {
            self.batch.add(RegistryChange::Delete(id), Then::Deleted(id));
        }
    }

    /// The row is gone; files that are not archived go.
    pub(super) fn deleted(&mut self, id: AgentId) {
        let places = self.places.clone();
        self.tasks.spawn_blocking(move || finish(&places, id));
    }
}

/// Moves the directory of an agent to the archive, or gives it the name that says that it is being deleted: when that is
/// wanted, or when it has no transcript, so that nothing of it is worth keeping. Durable when this returns; where it is
/// archived. A new name may need another block of the directory above. The mark in the agent's directory needs none: of a
/// directory with the mark, what has a transcript is archived when there is room.
fn set_aside(places: &Places, id: AgentId, request: RmRequest) -> io::Result<Option<PathBuf>> {
    let (dir, leaving) = (places.agent_dir(id), leaving(places, id));
    if !request.purge && dir.join(TRANSCRIPT).exists() {
        return match archive::put(places, id, ArchiveReason::Removed) {
            Err(error) if disk_room::is_full(&error) => {
                stop_order::mark_removed(&dir)?;
                Ok(Some(place(places.base(), id)))
            }
            moved => moved.map(Some),
        };
    }
    match fs::rename(&dir, &leaving) {
        // The name has to be there until the row is deleted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => spawn::make_dir(&leaving)?,
        Err(error) if disk_room::is_full(&error) => {
            // The mark is final, so it comes last: an agent whose transcript cannot be deleted stays.
            match fs::remove_file(dir.join(TRANSCRIPT)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            stop_order::mark_removed(&dir)?;
            return Ok(None);
        }
        moved => moved?,
    }
    leaving.parent().map_or(Ok(()), |agents| File::open(agents)?.sync_all())?;
    Ok(None)
}

/// The name of an agent's directory on its way out.
pub(super) fn leaving(places: &Places, id: AgentId) -> PathBuf {
    places.agents_dir().join(format!("{LEAVING}{id}"))
}

/// The request that removed an agent, and its answer, when the daemon that carried it out died before the row was deleted.
pub(super) fn answer(places: &Places, id: AgentId) -> Option<(String, Removed)> {
    let archived = place(places.base(), id);
    let dirs = [archived.clone(), leaving(places, id), places.agent_dir(id)];
    let (request, work) = dirs.iter().find_map(|dir| answers::read_removed(dir))?;
    // One that is only marked is archived when there is room.
    let is_kept = [archived.as_path(), &places.agent_dir(id)].iter().any(|dir| dir.join(TRANSCRIPT).exists());
    Some((request, Removed { id, work, archived: is_kept.then_some(archived) }))
}

/// Deletes what is left of a removed agent, or archives it. Best effort: the next daemon tries again.
fn finish(places: &Places, id: AgentId) {
    let (dir, leaving) = (places.agent_dir(id), leaving(places, id));
    if stop_order::is_removed(&dir) {
        if dir.join(TRANSCRIPT).exists() {
            archive::put_if_possible(places, id, ArchiveReason::Removed);
            return;
        }
        if fs::rename(&dir, &leaving).is_err() {
            // There is still no room for the other name. The mark goes last: without it the agent would be there again.
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if entry.file_name() != records::STOP {
                    let path = entry.path();
                    let _tried = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
                }
            }
            let _tried = fs::remove_dir_all(&dir);
        }
    }
    match fs::remove_dir_all(&leaving) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("{} is left: {error}", leaving.display());
        }
        _ => {}
    }
}
