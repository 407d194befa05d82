//! `POST /v1/agents/{id}/wake`: makes sure that a worker listens. An agent that has left memory gets a new run;
//! it needs no place in the queue, because a client is waiting for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use caliban_contract::HandedOver;
use caliban_core::ids::AgentId;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::new_run::Renewal;
use super::phase::{Phase, Renewing};
use super::store::Then;
use super::{DaemonAnswer, DaemonRequest, Msg, Owner, answers, gone, spawn, stopping};
use crate::protocol::{ApiError, Awake, ErrorCode, WakeRequest};

/// How long a worker may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// The shortest and the longest pause between two looks; in between it grows with the time that was waited.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// Which part of the time that was waited a pause is.
const PAUSE_PART: u32 = 8;
/// Where a worker listens, or will soon.
#[derive(Debug)]
pub(super) struct Waking {
    id: AgentId,
    /// None while its worker leaves memory: it may still listen, but takes no message any more.
    socket: Option<PathBuf>,
    /// Why it takes so long, when that is known.
    note: Option<String>,
}

#[cfg(test)]
impl Waking {
    /// Somebody listens there.
    pub(super) fn at(id: AgentId, socket: PathBuf) -> Self {
        Self { id, socket: Some(socket), note: None }
    }
}

impl Owner {
    pub(super) fn wake(&mut self, query: &str, request: &WakeRequest) -> Result<DaemonAnswer, ApiError> {
        self.refresh();
        let id = self.resolve(query)?;
        let agent = self.agents.get_mut(&id).ok_or_else(|| gone(id))?;
        let is_leaving = agent.own_report().is_some_and(|report| report.hibernated);
        let socket = (!is_leaving).then(|| agent.socket(&self.places));
        let waking = DaemonAnswer::Waking(Waking { id, socket, note: agent.record.note.clone() });
        let tries = match &mut agent.phase {
            Phase::Registering(_) => return Err(gone(id)),
            Phase::Queued(_) => {
                let text = match agent.record.after.first() {
                    Some(other) => format!("agent {id} waits for {other}"),
                    None => format!("agent {id} waits for a place"),
                };
                return Err(ApiError::new(ErrorCode::Queued, text));
            }
            Phase::Renewing(Renewing::Void(_) | Renewing::Wake(_)) | Phase::Running(_) => return Ok(waking),
            Phase::Renewing(Renewing::Resume) | Phase::Leaving(_) => {
                self.resolve_free(&id.to_string())?;
                return Ok(waking);
            }
            Phase::Stopping(_) | Phase::Ended => {
                let text = format!("agent {id} has ended {}{}", agent.state(), agent.ending_in_words());
                let hint = format!("`caliban resume {id}` lets it go on");
                return Err(ApiError::new(ErrorCode::Ended, text).hint(hint));
            }
            Phase::Hibernating(hibernating) => match hibernating.refused.take() {
                Some(refusal) => return Err(refusal),
                None => hibernating.tries,
            },
        };
        if !tries.is_due() {
            return Ok(waking);
        }
        let secrets = self.places.agent_secrets(id);
        if agent.record.has_secrets && !secrets.exists() {
            if request.secrets.is_empty() {
                let text = format!("the keys of agent {id} are gone with the runtime directory");
                return Err(ApiError::new(ErrorCode::SecretsGone, text)
                    .hint(format!("`caliban attach {id}` or `caliban agents send {id}` hands over yours")));
            }
            HandedOver::from(request.secrets.clone())
                .write(&secrets)
                .map_err(|error| spawn::file_refusal("its secrets cannot be written", &error))?;
        }
        // A run that could not be started is void by now, or was never launched: the next is another one.
        let nonce = spawn::new_nonce()?;
        let before = agent.change_run(nonce.clone());
        agent.record.runs += 1;
        agent.record.resume_prompt = None;
        agent.phase = Phase::Renewing(Renewing::Wake(tries.for_wake()));
        tracing::info!(%id, "woken");
        self.save(id, Then::Renewed { id, nonce, renewal: Renewal::Wake { before } });
        Ok(waking)
    }
}

/// Asks the owner until a worker listens. Runs in the task of the connection, which may wait.
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
        let DaemonAnswer::Waking(waking) =
            answers::ask(inbox, DaemonRequest::Wake(query, request.clone())).await?
        else {
            return Err(stopping());
        };
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
