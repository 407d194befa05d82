//! The client side: one HTTP connection on the daemon's socket, for short commands and long ones alike.
//!
//! Owns finding, starting and talking to the daemon. Refuses to trust a socket or an answer that is not the
//! daemon's of this user and this protocol.

mod daemon_end;
mod events;
mod schedules;
mod start;

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use caliban_process::{ElapsedTime, Patience};
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

pub use daemon_end::{SignalResult, end_by_signal};
pub use events::DaemonEvents;
pub use start::StartOptions;

use crate::protocol::{
    ANSWER_CAP, AgentList, AgentRow, Answered, ApiError, Approval, ApprovalList, ApproveRequest, Awake,
    DATA_HEADER, DaemonStatus, DenyRequest, Diff, ErrorBody, ErrorCode, HEADER, History, KillRequest,
    LogPart, MergeAnswer, MergeRequest, REQUEST_HEADER, Removed, RespawnRequest, Respawned, ResumeRequest,
    RmRequest, SendRequest, Sent, SpawnRequest, Spawned, Stopping, VERSION, WakeRequest,
    routes::{self, Route, Verb},
};
use caliban_contract::lock;
use caliban_contract::places::{Places, PlacesError};

/// How long a daemon may take for the answer to a question that it answers from memory.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long a daemon may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long a daemon that holds its lock and does not listen is waited for: its socket may have been taken away, and it
/// looks every second; or it starts, or leaves.
const LISTEN_LIMIT: Duration = Duration::from_secs(4);
/// How long a request that may be sent twice is tried, when daemons die under it.
const AGAIN_LIMIT: Duration = Duration::from_secs(15);
/// The pause between two tries; it doubles up to the longest.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A connection to the daemon of one repo.
#[derive(Debug)]
pub struct Client {
    places: Places,
    start: Option<StartOptions>,
    connection: Option<DaemonConnection>,
    has_started: bool,
    /// The name of the next effect; a random one when there is none.
    name: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no place for a socket.
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// Nobody listens.
    #[error("no daemon is running for {repo}", repo = .0.display())]
    NotRunning(PathBuf),
    /// There is one, and it does not listen.
    #[error("the daemon of {repo} (pid {pid}) runs and does not listen", repo = repo.display())]
    Deaf {
        /// The repo.
        repo: PathBuf,
        /// Its process.
        pid: i32,
    },
    /// A daemon could not be started.
    #[error("the daemon could not be started: {0}")]
    Start(String),
    /// The socket belongs to somebody else.
    #[error("the daemon's socket {socket} is served by another user (uid {uid}); it is not trusted", socket = socket.display())]
    Stranger {
        /// The socket.
        socket: PathBuf,
        /// Who serves it.
        uid: u32,
    },
    /// Another version of the protocol.
    #[error("the daemon speaks protocol {0}, this program {VERSION}")]
    Protocol(String),
    /// The daemon refused, in its words.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The connection broke.
    #[error("the connection to the daemon broke: {0}")]
    Broken(String),
    /// No answer within the limit.
    #[error("the daemon does not answer (waited {0:?})")]
    Silent(Duration),
    /// It may have done what it was asked for, and nobody can tell.
    #[error("{0}; it may have begun all the same")]
    Unsure(Box<ClientError>),
}

impl ClientError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Places(error) => Some(error.hint().to_owned()),
            Self::NotRunning(_) => Some("any `caliban agents` command that needs it starts one".to_owned()),
            Self::Deaf { .. } => {
                Some("it may be leaving just now; `caliban daemon restart` replaces it".to_owned())
            }
            Self::Start(_) => Some("`caliban daemon logs` may say more".to_owned()),
            Self::Stranger { .. } => {
                Some("set CALIBAN_DAEMON_RUNTIME_DIR to a directory that only you can write".to_owned())
            }
            Self::Protocol(_) => {
                Some("run `caliban daemon restart`: running agents live on and are adopted".to_owned())
            }
            Self::Refused(error) => error.hint.clone(),
            Self::Broken(_) => Some("try again".to_owned()),
            Self::Unsure(_) => Some(
                "look before you ask again: `caliban agents list`; `caliban daemon status` says how it is"
                    .to_owned(),
            ),
            Self::Silent(_) => {
                Some("is it stopped or swapped out? `caliban daemon restart` replaces it".to_owned())
            }
        }
    }
}

impl Client {
    /// Connects, and starts a daemon if there is none (f06).
    pub async fn connect_or_start(places: &Places, start: StartOptions) -> Result<Self, ClientError> {
        let mut has_started = false;
        let connection = match places.prepare_runtime() {
            Ok(()) => match connect(places).await {
                Err(ClientError::NotRunning(_)) => {
                    has_started = true;
                    start::start(places, &start).await?
                }
                other => other?,
            },
            Err(error) => connect_elsewhere(places).await.unwrap_or(Err(error.into()))?,
        };
        let start = Some(start);
        Ok(Self { start, connection: Some(connection), has_started, ..Self::at(places) })
    }

    /// Connects to a daemon that runs; [`ClientError::NotRunning`] when there is none.
    pub async fn connect(places: &Places) -> Result<Self, ClientError> {
        let trusted = if places.runtime().exists() { places.prepare_runtime() } else { Ok(()) };
        let connection = match trusted {
            Ok(()) => connect_patiently(places).await?,
            Err(error) => connect_elsewhere(places).await.unwrap_or(Err(error.into()))?,
        };
        Ok(Self { connection: Some(connection), ..Self::at(places) })
    }

    /// A client that connects with its first request, and starts a daemon whenever there is none.
    pub fn with_start(places: &Places, start: StartOptions) -> Self {
        Self { start: Some(start), ..Self::at(places) }
    }

    /// A second client of the same daemon, for requests at the same time. It connects with its first request.
    pub fn another(&self) -> Self {
        Self { start: self.start.clone(), ..Self::at(&self.places) }
    }

    fn at(places: &Places) -> Self {
        Self { places: places.clone(), start: None, connection: None, has_started: false, name: None }
    }

    /// Gives the client's next spawn, send, respawn, resume or removal a name of the caller's instead of a random one. The
    /// daemon carries out two requests with one name once, also when another client sends the second one.
    #[must_use]
    pub fn with_name(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    fn take_name(&mut self) -> Result<String, ClientError> {
        let random =
            || caliban_contract::random_hex::<16>().map_err(|error| ClientError::Broken(error.to_string()));
        self.name.take().map_or_else(random, Ok)
    }

    /// Whether no daemon was there when it connected.
    pub fn has_started(&self) -> bool {
        self.has_started
    }

    /// The places of the repo.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// How the daemon is.
    pub async fn status(&mut self) -> Result<DaemonStatus, ClientError> {
        self.again(&RouteCall::new(Verb::Status), None).await
    }

    /// All agents.
    pub async fn list(&mut self) -> Result<Vec<AgentRow>, ClientError> {
        let list: AgentList = self.again(&RouteCall::new(Verb::List), None).await?;
        Ok(list.agents)
    }

    /// One agent, by id, unique prefix or label.
    pub async fn show(&mut self, agent: &str) -> Result<AgentRow, ClientError> {
        self.again(&RouteCall::on(Verb::Show, agent)?, None).await
    }

    /// Registers an agent. When this returns, it is on the disk and will run, whatever happens to the daemon.
    /// A broken connection is tried again with the same key, so it is registered once.
    pub async fn spawn(&mut self, mut request: SpawnRequest) -> Result<Spawned, ClientError> {
        if request.key.is_none() {
            request.key = Some(self.take_name()?);
        }
        let spawned = self.again(&RouteCall::new(Verb::Spawn), Some(body(&request)?)).await;
        spawned.map_err(|error| match error {
            ClientError::Silent(_) | ClientError::Broken(_) => ClientError::Unsure(Box::new(error)),
            other => other,
        })
    }

    /// Ends an agent; returns when its whole process tree is gone. One that has ended stays as it is.
    pub async fn kill(&mut self, agent: &str, request: &KillRequest) -> Result<AgentRow, ClientError> {
        self.again(&RouteCall::on(Verb::Kill, agent)?, Some(body(request)?)).await
    }

    /// Starts anew from the original spec: new id, the old one is gone. When the daemon dies meanwhile, the next one is asked
    /// again, and it happens once.
    pub async fn respawn(&mut self, agent: &str, request: &RespawnRequest) -> Result<Respawned, ClientError> {
        let call = RouteCall::on(Verb::Respawn, agent)?.named(self.take_name()?);
        self.again(&call, Some(body(request)?)).await
    }

    /// Lets an ended agent go on in its conversation; once, as for a respawn.
    pub async fn resume(&mut self, agent: &str, request: &ResumeRequest) -> Result<AgentRow, ClientError> {
        let call = RouteCall::on(Verb::Resume, agent)?.named(self.take_name()?);
        self.again(&call, Some(body(request)?)).await
    }

    /// Removes a stopped agent (or any, with force) from the registry; once, as for a respawn.
    pub async fn rm(&mut self, agent: &str, request: RmRequest) -> Result<Removed, ClientError> {
        let mut call = RouteCall::on(Verb::Rm, agent)?.named(self.take_name()?);
        call.path += &format!("?force={}&keep={}", request.force, request.keep);
        // A daemon of before does not know it.
        if request.purge {
            call.path += "&purge=true";
        }
        self.again(&call, None).await
    }

    /// Makes sure that the agent's worker listens, and says where (for attach and send).
    pub async fn wake(&mut self, agent: &str) -> Result<Awake, ClientError> {
        self.again(&RouteCall::on(Verb::Wake, agent)?, None).await
    }

    /// The same, with the caller's secrets for one whose own are gone ([`ErrorCode::SecretsGone`]).
    pub async fn wake_with(&mut self, agent: &str, request: &WakeRequest) -> Result<Awake, ClientError> {
        self.again(&RouteCall::on(Verb::Wake, agent)?, Some(body(request)?)).await
    }

    /// Says something to an agent; returns when the agent has it on its disk. A broken connection is tried again with the
    /// same id, so it is said once.
    pub async fn send(&mut self, agent: &str, mut request: SendRequest) -> Result<Sent, ClientError> {
        if request.id.is_none() {
            request.id = Some(self.take_name()?);
        }
        self.again(&RouteCall::on(Verb::Send, agent)?, Some(body(&request)?)).await
    }

    /// What agents ask.
    pub async fn approvals(&mut self) -> Result<Vec<Approval>, ClientError> {
        let list: ApprovalList = self.again(&RouteCall::new(Verb::Approvals), None).await?;
        Ok(list.approvals)
    }

    /// Allows exactly one call.
    pub async fn approve(&mut self, agent: &str, request: &ApproveRequest) -> Result<Answered, ClientError> {
        self.once(&RouteCall::on(Verb::Approve, agent)?, Some(body(request)?)).await
    }

    /// Refuses exactly one call.
    pub async fn deny(&mut self, agent: &str, request: &DenyRequest) -> Result<Answered, ClientError> {
        self.once(&RouteCall::on(Verb::Deny, agent)?, Some(body(request)?)).await
    }

    /// What an agent changed; without the patch when only the figures are wanted.
    pub async fn diff(&mut self, agent: &str, only_figures: bool) -> Result<Diff, ClientError> {
        let mut call = RouteCall::on(Verb::Diff, agent)?;
        call.path += &format!("?stat={only_figures}");
        self.again(&call, None).await
    }

    /// A part of what an agent did: its transcript from this position on ([`LogPart::next`]; 0 is the beginning).
    pub async fn log(&mut self, agent: &str, after: u64) -> Result<LogPart, ClientError> {
        let mut call = RouteCall::on(Verb::Log, agent)?;
        call.path += &format!("?after={after}");
        self.again(&call, None).await
    }

    /// The changes of state from one moment to another, in milliseconds since 1970.
    pub async fn history(&mut self, from: u64, to: u64) -> Result<History, ClientError> {
        let mut call = RouteCall::new(Verb::History);
        call.path += &format!("?from={from}&to={to}");
        self.again(&call, None).await
    }

    /// One agent, after a look at how its work stands now.
    pub async fn review(&mut self, agent: &str) -> Result<AgentRow, ClientError> {
        self.again(&RouteCall::on(Verb::Review, agent)?, None).await
    }

    /// Lands an agent's work, or tells why not.
    pub async fn merge(&mut self, agent: &str, request: &MergeRequest) -> Result<MergeAnswer, ClientError> {
        self.once(&RouteCall::on(Verb::Merge, agent)?, Some(body(request)?)).await
    }

    /// Asks the daemon to leave; returns when it has let go of everything. Agents live on.
    pub async fn shutdown(mut self) -> Result<(), ClientError> {
        // Of whatever version it is: that is how an old daemon is replaced.
        let daemon = self.daemon();
        match self.once::<Stopping>(&RouteCall::new(Verb::Shutdown), None).await {
            Ok(_) | Err(ClientError::Protocol(_)) => {}
            Err(error) => return Err(error),
        }
        drop(self.connection.take());
        daemon_end::wait_until_gone(&self.places, daemon).await
    }

    /// What happens, from now on: first every agent, then news. Uses a connection of its own.
    pub async fn events(&self) -> Result<DaemonEvents, ClientError> {
        let mut connection = connect(&self.places).await?;
        let answer = connection.send(&RouteCall::new(Verb::Events), None).await?;
        if !answer.status().is_success() {
            return Err(refusal(answer).await);
        }
        Ok(DaemonEvents::new(connection, answer.into_body()))
    }

    /// The description of the protocol.
    pub async fn openapi(&mut self) -> Result<serde_json::Value, ClientError> {
        self.again(&RouteCall::new(Verb::OpenApi), None).await
    }

    /// A request that may be sent twice: on a broken connection it is, over new ones.
    async fn again<T: DeserializeOwned>(
        &mut self,
        call: &RouteCall,
        body: Option<Bytes>,
    ) -> Result<T, ClientError> {
        let (mut left, mut pause) = (ElapsedTime::new(), CONNECT_PAUSE);
        loop {
            let answered = self.once(call, body.clone()).await;
            let is_over = left.so_far() > AGAIN_LIMIT;
            match answered {
                // A daemon that is just dying may still seem to listen.
                Err(ClientError::Broken(_)) if !is_over => {
                    tokio::time::sleep(pause).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                Err(ClientError::Refused(error)) if !is_over && error.code == ErrorCode::Stopping => {
                    let daemon = self.daemon();
                    self.connection = None;
                    // One that takes too long is asked again: its answer says how it stands.
                    let _late = daemon_end::wait_until_gone(&self.places, daemon).await;
                }
                other => return other,
            }
        }
    }

    /// The process that we talk to.
    fn daemon(&self) -> Option<i32> {
        self.connection.as_ref().and_then(|connection| connection.daemon)
    }

    async fn once<T: DeserializeOwned>(
        &mut self,
        call: &RouteCall,
        body: Option<Bytes>,
    ) -> Result<T, ClientError> {
        // One that the daemon has closed meanwhile, because it was idle, is no reason to fail.
        let mut connection = match self.connection.take().filter(|kept| !kept.sender.is_closed()) {
            Some(connection) => connection,
            None => match (connect(&self.places).await, &self.start) {
                (Err(ClientError::NotRunning(_)), Some(options)) => {
                    start::start(&self.places, options).await?
                }
                (other, _) => other?,
            },
        };
        let sent = connection.send(call, body);
        let answer = match call.is_answered_at_once() {
            true => {
                let mut patience = Patience::new(ANSWER_LIMIT);
                tokio::select! {
                    biased;
                    answer = sent => answer?,
                    () = patience.over() => return Err(ClientError::Silent(ANSWER_LIMIT)),
                }
            }
            false => sent.await?,
        };
        if !answer.status().is_success() {
            let refused = refusal(answer).await;
            self.connection = Some(connection);
            return Err(refused);
        }
        let value = read_json(answer).await?;
        self.connection = Some(connection);
        Ok(value)
    }
}

/// A request: the route of a verb, and the path with the agent's name in it.
#[derive(Debug)]
struct RouteCall {
    route: &'static Route,
    path: String,
    /// The name by which the daemon knows the request when it comes again.
    name: Option<String>,
}

impl RouteCall {
    fn new(verb: Verb) -> Self {
        let route = routes::of(verb);
        Self { route, path: route.path.to_owned(), name: None }
    }

    /// What a person typed is encoded, so it stays one segment of the path.
    fn on(verb: Verb, agent: &str) -> Result<Self, ClientError> {
        if agent.is_empty() {
            let error = ApiError::new(ErrorCode::BadRequest, "which agent? its name is empty");
            return Err(error.hint("`caliban agents list` shows all agents").into());
        }
        let route = routes::of(verb);
        let path = route.path.replace("{id}", &encoded(agent.as_bytes(), b""));
        Ok(Self { route, path, name: None })
    }

    /// With a name, so that it can be sent twice and is carried out once.
    fn named(self, name: String) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Whether the daemon answers from memory, or after one commit. The others take as long as processes and git do.
    fn is_answered_at_once(&self) -> bool {
        match self.route.verb {
            Verb::Status
            | Verb::List
            | Verb::Spawn
            | Verb::Show
            | Verb::Log
            | Verb::Approvals
            | Verb::History
            | Verb::Requeue
            | Verb::Schedules
            | Verb::Schedule
            | Verb::Unschedule
            | Verb::PauseSchedule
            | Verb::RunSchedule
            | Verb::ScheduleKeys
            | Verb::Events
            | Verb::Shutdown
            | Verb::OpenApi => true,
            Verb::Kill | Verb::Respawn | Verb::Resume | Verb::Rm | Verb::Wake => false,
            Verb::Send | Verb::Approve | Verb::Deny | Verb::Diff | Verb::Review | Verb::Merge => false,
        }
    }
}

/// One connection, and the task that drives it.
#[derive(Debug)]
struct DaemonConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// The process at the other end.
    daemon: Option<i32>,
    /// Where we keep our data, for it to compare.
    data: String,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for DaemonConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl DaemonConnection {
    async fn open(stream: UnixStream, places: &Places) -> Result<Self, ClientError> {
        let daemon = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let data = encoded(places.base().as_os_str().as_bytes(), b"/");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let driver = tokio::spawn(async move {
            // What goes wrong is seen by the request that waits.
            let _seen_elsewhere = connection.await;
        });
        Ok(Self { sender, daemon, data, driver })
    }

    /// Sends a request and waits for the head of the answer, whose protocol is checked.
    async fn send(
        &mut self,
        call: &RouteCall,
        body: Option<Bytes>,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::builder();
        if let Some(name) = &call.name {
            request = request.header(REQUEST_HEADER, name);
        }
        let request = request
            .method(call.route.method)
            .uri(call.path.as_str())
            .header(header::HOST, "caliband")
            .header(header::CONTENT_TYPE, "application/json")
            .header(HEADER, VERSION)
            .header(DATA_HEADER, &self.data)
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| ClientError::Broken(error.to_string()))?;
        self.sender.ready().await.map_err(broken)?;
        let answer = self.sender.send_request(request).await.map_err(broken)?;
        match answer.headers().get(HEADER).map(|value| value.to_str().unwrap_or("?")) {
            Some(version) if version == VERSION.to_string() => Ok(answer),
            // A refusal of our version says so in its own words.
            Some(version) => Err(ClientError::Protocol(version.to_owned())),
            None => Err(ClientError::Protocol("none".to_owned())),
        }
    }
}

/// The same as [`connect`], with patience for a daemon that is there and does not listen just now.
async fn connect_patiently(places: &Places) -> Result<DaemonConnection, ClientError> {
    let give_up = tokio::time::Instant::now() + LISTEN_LIMIT;
    loop {
        match connect(places).await {
            Err(ClientError::NotRunning(repo)) => {
                let lock = places.daemon_lock();
                if !lock::is_held(&lock) {
                    return Err(ClientError::NotRunning(repo));
                }
                if tokio::time::Instant::now() > give_up {
                    let pid = lock::process(&lock).ok().flatten().map_or(0, |(pid, _)| pid);
                    return Err(ClientError::Deaf { repo, pid });
                }
                tokio::time::sleep(CONNECT_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Connects to a listening daemon and checks who it is. One that was started in another environment says in its lock
/// where it listens.
async fn connect(places: &Places) -> Result<DaemonConnection, ClientError> {
    match connect_at(places, &places.socket()).await {
        Err(ClientError::NotRunning(repo)) => {
            connect_elsewhere(places).await.unwrap_or(Err(ClientError::NotRunning(repo)))
        }
        other => other,
    }
}

/// Connects to a daemon that does not listen where we look; none when it says nothing else.
async fn connect_elsewhere(places: &Places) -> Option<Result<DaemonConnection, ClientError>> {
    let lock = places.daemon_lock();
    let elsewhere =
        lock::socket(&lock).filter(|socket| *socket != places.socket() && lock::is_held(&lock))?;
    Some(connect_at(places, &elsewhere).await)
}

async fn connect_at(places: &Places, socket: &Path) -> Result<DaemonConnection, ClientError> {
    let give_up = tokio::time::Instant::now() + CONNECT_LIMIT;
    let stream = loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => break stream,
            Err(error) => match error.kind() {
                // A reset: the daemon has left or died before it took the connection.
                io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::NotADirectory => {
                    return Err(ClientError::NotRunning(places.repo().to_owned()));
                }
                // Too many at once; the daemon takes them in turn.
                io::ErrorKind::WouldBlock if tokio::time::Instant::now() < give_up => {
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
                io::ErrorKind::WouldBlock => return Err(ClientError::Silent(CONNECT_LIMIT)),
                _ => return Err(ClientError::Broken(format!("{}: {error}", socket.display()))),
            },
        }
    };
    check_peer(&stream, socket)?;
    if is_left(&stream) {
        return Err(ClientError::NotRunning(places.repo().to_owned()));
    }
    DaemonConnection::open(stream, places).await
}

/// Whether who listened there is gone: a child that a daemon was starting when it was killed holds its socket open for a
/// moment, and nobody answers.
fn is_left(stream: &UnixStream) -> bool {
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    // None in another namespace of processes.
    let Some(pid) = peer.and_then(Pid::from_raw) else { return false };
    rustix::process::test_kill_process(pid) == Err(Errno::SRCH)
        || caliban_process::stat(pid.as_raw_nonzero().get()).is_some_and(caliban_process::Stat::is_over)
}

/// A socket that another user serves is not trusted (a01).
fn check_peer(stream: &UnixStream, socket: &Path) -> Result<(), ClientError> {
    let peer = stream.peer_cred().map_err(|error| ClientError::Broken(error.to_string()))?;
    if peer.uid() == rustix::process::getuid().as_raw() {
        Ok(())
    } else {
        Err(ClientError::Stranger { socket: socket.to_owned(), uid: peer.uid() })
    }
}

async fn read_json<T: DeserializeOwned>(answer: Response<Incoming>) -> Result<T, ClientError> {
    let bytes = read_all(answer).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| ClientError::Broken(format!("the answer cannot be read: {error}")))
}

async fn read_all(answer: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = Limited::new(answer.into_body(), ANSWER_CAP).collect();
    match tokio::time::timeout(ANSWER_LIMIT, body).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) => Err(ClientError::Broken(error.to_string())),
        Err(_) => Err(ClientError::Silent(ANSWER_LIMIT)),
    }
}

async fn refusal(answer: Response<Incoming>) -> ClientError {
    let status = answer.status();
    match read_json::<ErrorBody>(answer).await {
        Ok(body) => ClientError::Refused(body.error),
        Err(_) => ClientError::Broken(format!("the daemon answered {status}")),
    }
}

fn broken(error: hyper::Error) -> ClientError {
    ClientError::Broken(error.to_string())
}

fn body(value: &impl Serialize) -> Result<Bytes, ClientError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| ClientError::Broken(error.to_string()))
}

/// Percent-encoded, but for letters, digits, `-`, `_`, `.` and those of `plain`.
fn encoded(bytes: &[u8], plain: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => text.push(char::from(*byte)),
            other if plain.contains(other) => text.push(char::from(*other)),
            other => text += &format!("%{other:02X}"),
        }
    }
    text
}
