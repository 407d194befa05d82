//! A connection to an agent's own socket (ACP), for attach, send and answers.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use caliban_acp::{Client, ClientError, Events};
use caliban_core::inert;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::report::Failure;

/// Says something to the agent; answered when it is recorded.
pub(super) use caliban_acp::extension::SEND;

/// How long an agent may be silent before it is said that it is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may be silent at all.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A connection to one agent.
pub(super) struct Link {
    pub client: Client,
    pub events: Events,
    /// Its one session.
    pub session: String,
    /// Where it works.
    pub cwd: PathBuf,
}

/// Why an agent was not reached.
#[derive(Debug)]
pub(super) enum Unreached {
    /// It is gone or about to go: whoever wakes it may reach it.
    Gone(Failure),
    /// It said no, or cannot be talked to.
    Refused(Failure),
}

impl From<Unreached> for Failure {
    fn from(unreached: Unreached) -> Self {
        match unreached {
            Unreached::Gone(failure) | Unreached::Refused(failure) => failure,
        }
    }
}

impl From<ClientError> for Unreached {
    fn from(error: ClientError) -> Self {
        let is_gone = error.is_gone();
        let failure = worded(error);
        if is_gone { Self::Gone(failure) } else { Self::Refused(failure) }
    }
}

impl Link {
    /// Connects to a worker that listens.
    pub(super) async fn open(socket: &Path) -> Result<Self, Unreached> {
        let cannot = |why: String| {
            Failure::new(format!("the agent cannot be reached at {}: {why}", socket.display())).hint(
                "if `caliban agents list` shows it at work: `caliban kill` it, then `caliban resume` it",
            )
        };
        let stream =
            UnixStream::connect(socket).await.map_err(|error| Unreached::Gone(cannot(error.to_string())))?;
        let peer = stream.peer_cred().map_err(|error| Unreached::Refused(cannot(error.to_string())))?;
        if peer.uid() != rustix::process::getuid().as_raw() {
            let why = format!("it is served by another user (uid {})", peer.uid());
            return Err(Unreached::Refused(cannot(why)));
        }
        let pid = peer.pid();
        let introduced = async {
            let (reader, writer) = stream.into_split();
            let (client, mut events) = Client::connect(reader, writer, env!("CARGO_PKG_VERSION")).await?;
            let listing = {
                let client = client.clone();
                async move { client.list_sessions().await }
            };
            let sessions = events.until(listing).await??;
            Ok::<_, ClientError>((client, events, sessions))
        };
        let (client, events, sessions) = in_time(introduced, pid).await??;
        let session = sessions
            .sessions
            .into_iter()
            .next()
            .ok_or_else(|| Unreached::Gone(cannot("it has no session".to_owned())))?;
        Ok(Self { client, events, session: session.session_id.to_string(), cwd: session.cwd })
    }

    /// Calls one of our own methods and waits for its answer; what else comes is not shown.
    pub(super) async fn call(&mut self, method: &str, mut params: Value) -> Result<Value, Unreached> {
        params["sessionId"] = json!(self.session);
        let peer = self.client.peer().clone();
        let answer = async move { peer.call::<Value>(method, &params).await };
        Ok(self.events.until(answer).await?.map_err(ClientError::from)?)
    }
}

/// Waits for a living process to answer: says so when that takes long, and gives up on one that does not.
async fn in_time<T>(answer: impl Future<Output = T>, pid: Option<i32>) -> Result<T, Unreached> {
    tokio::pin!(answer);
    if let Ok(answer) = tokio::time::timeout(PATIENCE, &mut answer).await {
        return Ok(answer);
    }
    let process = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    super::say(&format!("waiting for the agent's process{process} to answer"));
    tokio::time::timeout(ANSWER_LIMIT - PATIENCE, answer).await.map_err(|_| {
        let failure =
            Failure::new(format!("the agent's process{process} does not answer: it may be stopped"));
        Unreached::Refused(failure.hint(match pid {
            Some(pid) => {
                format!("let it go on (kill -CONT {pid}), or `caliban kill` it and `caliban resume` it")
            }
            None => "`caliban kill` it and `caliban resume` it".to_owned(),
        }))
    })
}

/// The agent's words, with what to do about them.
pub(super) fn worded(error: ClientError) -> Failure {
    let failure = Failure::new(inert::block(&error.to_string()).into_owned());
    match error.hint() {
        Some(hint) => failure.hint(inert::block(&hint).into_owned()),
        None => failure,
    }
}
