//! `POST /v1/agents/{id}/wake`: makes sure that a worker listens. An agent that has left memory gets a new run;
//! it needs no place in the queue, because somebody is waiting for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::agent::Keeper;
use super::store::Then;
use super::{Answer, Msg, Owner, Request, spawn, start};
use crate::protocol::{ApiError, Awake, ErrorCode, WakeRequest};

/// How long a worker may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// The shortest and the longest pause between two looks; in between it grows with the time that was waited.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// Which part of the time that was waited a pause is.
const PAUSE_PART: u32 = 8;
/// What is said of an agent whose new run is not on the disk yet.
const WOKEN: &str = "woken";

/// Where a worker listens, or will soon.
#[derive(Debug)]
pub(super) struct Waking {
    id: AgentId,
    /// None while its worker leaves memory: whoever still listens there takes no message any more.
    socket: Option<PathBuf>,
    /// Why it takes so long, when that is known.
    note: Option<String>,
}

impl Owner {
    pub(super) fn wake(&mut self, query: &str, request: &WakeRequest) -> Result<Answer, ApiError> {
        self.refresh();
        let id = self.resolve(query)?;
        let gone = || ApiError::new(ErrorCode::NotFound, format!("agent {id} is gone"));
        let agent = self.agents.get_mut(&id).ok_or_else(gone)?;
        if let Some(refusal) = agent.not_woken.take() {
            return Err(refusal);
        }
        let is_leaving = agent.own_report().is_some_and(|report| report.hibernated);
        let socket = (!is_leaving).then(|| agent.socket(&self.places));
        let waking = Answer::Waking(Waking { id, socket, note: agent.record.note.clone() });
        match agent.busy {
            Some(WOKEN) if !agent.state().is_ending() => return Ok(waking),
            // Killed meanwhile.
            Some(WOKEN) => {}
            Some(what) => {
                return Err(ApiError::new(ErrorCode::Conflict, format!("agent {id} is being {what}")));
            }
            None => {}
        }
        if agent.state().is_ending() {
            let text = format!("agent {id} has ended {}{}", agent.state(), agent.ending_in_words());
            return Err(
                ApiError::new(ErrorCode::Ended, text).hint(format!("`caliban resume {id}` lets it go on"))
            );
        }
        if agent.is_queued() {
            let text = match agent.record.after.first() {
                Some(other) => format!("agent {id} waits for {other}"),
                None => format!("agent {id} waits for a place"),
            };
            return Err(ApiError::new(ErrorCode::Queued, text));
        }
        if agent.state() == State::Idle && matches!(agent.keeper, Keeper::Nobody) {
            // A run that could not be started is void by now, or was never launched: the next is another one.
            if agent.retry_at.is_none_or(|at| at <= Instant::now()) {
                let secrets = self.places.agent_secrets(id);
                if agent.record.has_secrets && !secrets.exists() {
                    if request.secrets.is_empty() {
                        let text = format!("the keys of agent {id} are gone with the runtime directory");
                        return Err(ApiError::new(ErrorCode::SecretsGone, text).hint(format!(
                            "`caliban attach {id}` or `caliban agents send {id}` hands over yours"
                        )));
                    }
                    spawn::write_secrets(&secrets, &request.secrets)
                        .map_err(|error| spawn::file_refusal("its secrets cannot be written", &error))?;
                }
                let nonce = spawn::new_nonce()?;
                agent.missing_since = start::still_missing(agent.missing_since, agent.retry_at);
                let before = agent.change_run(nonce);
                agent.record.runs += 1;
                agent.record.resume_prompt = None;
                agent.busy = Some(WOKEN);
                tracing::info!(%id, "woken");
                self.save(id, Then::Woken { id, before });
            }
        }
        Ok(waking)
    }

    /// Its new run is on the disk.
    pub(super) fn woken(&mut self, id: AgentId) {
        self.unbusy(id);
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.other_runs.clear();
        }
        self.start_run(id);
    }

    /// Its new run could not be saved: it sleeps on, and whoever asked is told.
    pub(super) fn not_woken(&mut self, id: AgentId, before: String, refusal: ApiError) {
        self.unbusy(id);
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.change_run(before);
            agent.record.runs -= 1;
            agent.unsaved = true;
            agent.not_woken = Some(refusal);
        }
    }
}

/// Asks until somebody listens; for the server, which has the time.
pub(super) async fn until_awake(
    query: String,
    request: WakeRequest,
    inbox: &mpsc::Sender<Msg>,
) -> Result<Awake, ApiError> {
    let request = Arc::new(request);
    let since = Instant::now();
    let (shortest, longest) = PAUSES;
    let mut query = query;
    loop {
        let (reply, answer) = oneshot::channel();
        let stopping = || ApiError::new(ErrorCode::Stopping, "the daemon is leaving");
        inbox
            .send(Msg::Request(Request::Wake(query, request.clone()), reply))
            .await
            .map_err(|_| stopping())?;
        let Answer::Waking(waking) = answer.await.map_err(|_| stopping())?? else { return Err(stopping()) };
        if let Some(socket) = waking.socket
            && let Ok(stream) = UnixStream::connect(&socket).await
            && stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::getuid().as_raw())
        {
            return Ok(Awake { id: waking.id, socket });
        }
        let waited = since.elapsed();
        if waited > LISTEN_LIMIT {
            let why = waking.note.map(|note| format!(": {note}")).unwrap_or_default();
            let text =
                format!("the worker of agent {} does not listen (waited {LISTEN_LIMIT:?}){why}", waking.id);
            return Err(ApiError::new(ErrorCode::Timeout, text).hint("its worker.log may say why"));
        }
        query = waking.id.to_string();
        tokio::time::sleep((waited / PAUSE_PART).clamp(shortest, longest)).await;
    }
}
