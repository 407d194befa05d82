//! `POST /v1/agents/{id}/wake`: makes sure that a worker listens. An agent that has left memory gets a new run;
//! it needs no place in the queue, because somebody is waiting for it.

use std::path::PathBuf;
use std::time::Duration;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::agent::Keeper;
use super::store::Then;
use super::{Answer, Msg, Owner, Request, spawn};
use crate::protocol::{ApiError, Awake, ErrorCode};

/// How long a worker may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// The first and the longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// What is said of an agent whose new run is not on the disk yet.
const WOKEN: &str = "woken";

/// Where a worker listens, or will soon.
#[derive(Debug)]
pub(super) struct Waking {
    id: AgentId,
    socket: PathBuf,
}

impl Owner {
    pub(super) fn wake(&mut self, query: &str) -> Result<Answer, ApiError> {
        let id = self.resolve(query)?;
        let waking = Answer::Waking(Waking { id, socket: self.places.agent_socket(id) });
        let Some(agent) = self.agents.get_mut(&id) else { return Ok(waking) };
        match agent.busy {
            Some(WOKEN) => return Ok(waking),
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
            agent.record.nonce = spawn::new_nonce()?;
            agent.record.runs += 1;
            agent.record.resume_prompt = None;
            agent.busy = Some(WOKEN);
            tracing::info!(%id, "woken");
            self.save(id, Then::Start(id));
        }
        Ok(waking)
    }
}

/// Asks until somebody listens; for the server, which has the time.
pub(super) async fn until_awake(query: String, inbox: &mpsc::Sender<Msg>) -> Result<Awake, ApiError> {
    let give_up = Instant::now() + LISTEN_LIMIT;
    let (mut pause, longest) = PAUSES;
    let mut query = query;
    loop {
        let (reply, answer) = oneshot::channel();
        let stopping = || ApiError::new(ErrorCode::Stopping, "the daemon is leaving");
        inbox.send(Msg::Request(Request::Wake(query), reply)).await.map_err(|_| stopping())?;
        let Answer::Waking(waking) = answer.await.map_err(|_| stopping())?? else { return Err(stopping()) };
        if let Ok(stream) = UnixStream::connect(&waking.socket).await
            && stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::getuid().as_raw())
        {
            return Ok(Awake { id: waking.id, socket: waking.socket });
        }
        if Instant::now() > give_up {
            let text = format!("the worker of agent {} does not listen (waited {LISTEN_LIMIT:?})", waking.id);
            return Err(ApiError::new(ErrorCode::Timeout, text).hint("its worker.log may say why"));
        }
        query = waking.id.to_string();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}
