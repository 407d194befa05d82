//! A connection to the socket of one agent of the fleet: found, checked, introduced, and its one session known.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::{
    AcpClient, AcpEvents, ClientError,
    connection::ConnError,
    extension::{AgentState, Behalf, STATE, StateAnswer},
};

/// How long an agent may be silent before the caller is told that it is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may be silent at all.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A connection to one agent.
pub struct Link {
    /// For requests.
    pub client: AcpClient,
    /// What comes from the agent.
    pub events: AcpEvents,
    /// Its one session.
    pub session: String,
    /// Where it works.
    pub cwd: PathBuf,
}

/// Why an agent was not reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unreached {
    /// In words.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether it is gone or about to go: a caller that wakes it may reach it. Otherwise it refused, or cannot be talked to.
    pub is_gone: bool,
}

impl From<ClientError> for Unreached {
    fn from(error: ClientError) -> Self {
        Self { message: error.to_string(), hint: error.hint(), is_gone: error.is_gone() }
    }
}

impl Link {
    /// Connects to a worker that listens. `behalf` is the process that is spoken for; `on_wait` is told, once, when the
    /// agent takes long to answer.
    pub async fn open(
        socket: &Path,
        version: &str,
        behalf: Option<Behalf>,
        on_wait: impl FnOnce(&str),
    ) -> Result<Self, Unreached> {
        let cannot = |why: String, is_gone: bool| Unreached {
            message: format!("the agent cannot be reached at {}: {why}", socket.display()),
            hint: Some(
                "if `caliban agents list` shows it at work: `caliban kill` it, then `caliban resume` it"
                    .to_owned(),
            ),
            is_gone,
        };
        let stream = UnixStream::connect(socket).await.map_err(|error| cannot(error.to_string(), true))?;
        let peer = stream.peer_cred().map_err(|error| cannot(error.to_string(), false))?;
        if peer.uid() != rustix::process::getuid().as_raw() {
            return Err(cannot(format!("it is served by another user (uid {})", peer.uid()), false));
        }
        let introduced = async {
            let (reader, writer) = stream.into_split();
            let (client, mut events) = AcpClient::connect_for(reader, writer, version, behalf).await?;
            let listing = {
                let client = client.clone();
                async move { client.list_sessions().await }
            };
            let sessions = events.until(listing).await??;
            Ok::<_, ClientError>((client, events, sessions))
        };
        let (client, events, sessions) = in_time(introduced, peer.pid(), on_wait).await??;
        let no_session = || cannot("it has no session".to_owned(), true);
        let session = sessions.sessions.into_iter().next().ok_or_else(no_session)?;
        Ok(Self { client, events, session: session.session_id.to_string(), cwd: session.cwd })
    }

    /// Ends the turn. Returns when the agent has heard it.
    ///
    /// Only who is attached to a session may cancel its turn. The notification has no answer of its own; that to the question behind
    /// it says that the notification was read, and that dropping the link loses nothing.
    pub async fn cancel(&mut self) -> Result<(), Unreached> {
        let (client, session, cwd) = (self.client.clone(), self.session.clone(), self.cwd.clone());
        let cancelled = async move {
            client.resume_session(&session, &cwd).await?;
            client.cancel(&session).await?;
            client.list_sessions().await.map(drop)
        };
        Ok(self.events.until(cancelled).await??)
    }

    /// Calls one of our own methods and waits for its answer; what else comes is dropped.
    pub async fn call(&mut self, method: &str, mut params: Value) -> Result<Value, Unreached> {
        params["sessionId"] = json!(self.session);
        let peer = self.client.peer().clone();
        let answer = async move { peer.call::<Value>(method, &params).await };
        Ok(self.events.until(answer).await?.map_err(ClientError::from)?)
    }
}

/// Asks the agent behind a member's socket what it is at.
pub async fn state_at(socket: &Path, version: &str) -> Result<AgentState, ClientError> {
    let stream = UnixStream::connect(socket).await.map_err(ConnError::from)?;
    let (reader, writer) = stream.into_split();
    let (client, mut events) = AcpClient::connect(reader, writer, version).await?;
    let peer = client.peer().clone();
    let answer = async move { peer.call::<StateAnswer>(STATE, &json!({})).await };
    Ok(events.until(answer).await??.state)
}

/// Waits for a living process to answer: tells when that takes long, and gives up on one that does not.
async fn in_time<T>(
    answer: impl Future<Output = T>,
    pid: Option<i32>,
    on_wait: impl FnOnce(&str),
) -> Result<T, Unreached> {
    tokio::pin!(answer);
    if let Ok(answer) = tokio::time::timeout(PATIENCE, &mut answer).await {
        return Ok(answer);
    }
    let process = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    on_wait(&format!("waiting for the agent's process{process} to answer"));
    tokio::time::timeout(ANSWER_LIMIT - PATIENCE, answer).await.map_err(|_| Unreached {
        message: format!("the agent's process{process} does not answer: it may be stopped"),
        hint: Some(match pid {
            Some(pid) => {
                format!("let it go on (kill -CONT {pid}), or `caliban kill` it and `caliban resume` it")
            }
            None => "`caliban kill` it and `caliban resume` it".to_owned(),
        }),
        is_gone: false,
    })
}
