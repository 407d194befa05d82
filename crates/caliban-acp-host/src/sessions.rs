//! The sessions that a server offers: those that a factory makes and loads, or exactly one.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use caliban_acp::{
    extension::AgentState,
    v1::{McpServer, Meta, SessionInfo},
};
use caliban_core::BoxFuture;
use tokio::sync::mpsc;

use crate::{
    client_files::ClientFiles,
    commands::Commands,
    failure::{AcpFailure, FailureKind},
    host::{Clients, Hosted, SessionHost},
};

/// A conversation that a factory has made.
pub struct OpenedSession {
    /// The agent.
    pub agent: Box<dyn Hosted>,
    /// The commands that the program adds.
    pub commands: Option<Arc<dyn Commands>>,
    /// Whether it goes on by itself with a turn that was cut short.
    pub goes_on: bool,
}

impl From<Box<dyn Hosted>> for OpenedSession {
    fn from(agent: Box<dyn Hosted>) -> Self {
        Self { agent, commands: None, goes_on: false }
    }
}

/// Makes agents: what the binary knows of settings, providers and session directories.
pub trait Factory: Send + Sync {
    /// A new conversation. An [`Agent`](caliban_agent::Agent) must have `Attendance::Somebody`.
    fn create(&self, wanted: NewSession) -> BoxFuture<'_, Result<OpenedSession, AcpFailure>>;

    /// A recorded one, resumed: its feed holds the history.
    fn load(&self, wanted: LoadSession) -> BoxFuture<'_, Result<OpenedSession, AcpFailure>>;

    /// The recorded ones, newest first; only those of a directory when one is given.
    fn list(&self, cwd: Option<PathBuf>) -> BoxFuture<'_, Result<Vec<SessionInfo>, AcpFailure>>;

    /// Whether MCP servers that a client brings along may be reached over HTTP; those over stdio always may.
    fn takes_mcp_over_http(&self) -> bool {
        false
    }
}

/// A session that a client wants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewSession {
    /// Where it works; absolute.
    pub cwd: PathBuf,
    /// Further directories that belong to the work.
    pub additional_directories: Vec<PathBuf>,
    /// MCP servers that the client brings along.
    pub mcp_servers: Vec<McpServer>,
    /// What else the client says.
    pub meta: Option<Meta>,
    /// The client's own files, where it offers them.
    pub files: Option<ClientFiles>,
}

/// A recorded session that a client wants.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSession {
    /// Its id.
    pub id: String,
    /// As for a new one.
    pub place: NewSession,
}

/// The sessions that a server offers.
pub struct Sessions {
    source: SessionSource,
    open: Mutex<BTreeMap<String, SessionHost>>,
    /// One at a time, so that a session is never loaded twice.
    loading: tokio::sync::Mutex<()>,
    /// Who wants to know of sessions that are opened.
    told: Mutex<Option<mpsc::UnboundedSender<SessionHost>>>,
}

enum SessionSource {
    Factory(Arc<dyn Factory>),
    One(SessionHost),
}

impl Sessions {
    /// Sessions of a factory, for one client: `caliban acp`, and the foreground.
    pub fn made_by(factory: Arc<dyn Factory>) -> Self {
        Self::of(SessionSource::Factory(factory))
    }

    /// One session, for any number of clients: a fleet worker.
    pub fn only(host: SessionHost) -> Self {
        Self::of(SessionSource::One(host))
    }

    fn of(source: SessionSource) -> Self {
        Self { source, open: Mutex::default(), loading: Default::default(), told: Mutex::default() }
    }

    /// The sessions that a client opens from now on, one after the other. Whoever asks last is told.
    pub fn opened_ones(&self) -> mpsc::UnboundedReceiver<SessionHost> {
        let (sender, hosts) = mpsc::unbounded_channel();
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        hosts
    }

    /// What the open sessions are at, taken together: a question counts more than work.
    pub(crate) fn state(&self) -> AgentState {
        let open = self.open();
        let mut hosts: Vec<&SessionHost> = open.values().collect();
        if let SessionSource::One(host) = &self.source {
            hosts.push(host);
        }
        if hosts.iter().any(|host| !host.handle().asks().open().is_empty()) {
            AgentState::Asking
        } else if hosts.iter().any(|host| host.is_running()) {
            AgentState::Working
        } else {
            AgentState::Idle
        }
    }

    /// Whether clients can make and close sessions.
    pub(crate) fn are_the_clients(&self) -> bool {
        matches!(self.source, SessionSource::Factory(_))
    }

    pub(crate) fn takes_mcp_over_http(&self) -> bool {
        match &self.source {
            SessionSource::Factory(factory) => factory.takes_mcp_over_http(),
            SessionSource::One(_) => false,
        }
    }

    /// A new session.
    pub async fn create(&self, wanted: NewSession) -> Result<SessionHost, AcpFailure> {
        match &self.source {
            SessionSource::Factory(factory) => {
                let agent = factory.create(wanted).await?;
                Ok(self.opened(agent))
            }
            SessionSource::One(host) => Err(AcpFailure::new(
                FailureKind::Invalid,
                "this agent has one session, and no others can be made here",
            )
            .with_hint(format!("load session {}", host.id()))),
        }
    }

    /// A session that is open, or recorded.
    pub async fn load(&self, wanted: LoadSession) -> Result<SessionHost, AcpFailure> {
        match &self.source {
            SessionSource::Factory(factory) => {
                let _turn = self.loading.lock().await;
                if let Some(host) = self.find(&wanted.id) {
                    return Ok(host);
                }
                let agent = factory.load(wanted).await?;
                Ok(self.opened(agent))
            }
            SessionSource::One(host) if host.id() == wanted.id => Ok(host.clone()),
            SessionSource::One(host) => {
                let message = format!("there is no session {}", wanted.id);
                let failure = AcpFailure::new(FailureKind::NotFound, message);
                Err(failure.with_hint(format!("this agent's session is {}", host.id())))
            }
        }
    }

    /// All sessions that can be loaded.
    pub async fn list(&self, cwd: Option<PathBuf>) -> Result<Vec<SessionInfo>, AcpFailure> {
        match &self.source {
            SessionSource::Factory(factory) => factory.list(cwd).await,
            SessionSource::One(host) => {
                let info = SessionInfo::new(host.id().to_owned(), host.cwd());
                let info = info.title(host.label().map(str::to_owned));
                Ok(vec![info]
                    .into_iter()
                    .filter(|info| cwd.as_ref().is_none_or(|cwd| *cwd == info.cwd))
                    .collect())
            }
        }
    }

    /// Closes a session that a client has made. The one session of a fleet worker stays.
    pub async fn close(&self, id: &str) {
        let host = self.open().remove(id);
        if let Some(host) = host {
            host.close().await;
        }
    }

    /// Closes all that clients have made.
    pub async fn close_all(&self) {
        let hosts = std::mem::take(&mut *self.open());
        for host in hosts.values() {
            host.cancel();
        }
        for host in hosts.into_values() {
            host.close().await;
        }
    }

    fn opened(&self, OpenedSession { agent, commands, goes_on }: OpenedSession) -> SessionHost {
        let host = SessionHost::start_with(agent, Clients::One, commands);
        if goes_on {
            // Nobody else can have begun something yet, or have closed it.
            let _nobody_waits = host.go_on();
        }
        self.open().insert(host.id().to_owned(), host.clone());
        if let Some(told) = &*self.told.lock().unwrap_or_else(PoisonError::into_inner) {
            // Whoever asked may be gone.
            let _nobody = told.send(host.clone());
        }
        host
    }

    /// A session that is open.
    pub(crate) fn find(&self, id: &str) -> Option<SessionHost> {
        match &self.source {
            SessionSource::One(host) => Some(host.clone()).filter(|host| host.id() == id),
            SessionSource::Factory(_) => self.open().get(id).cloned(),
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, SessionHost>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
