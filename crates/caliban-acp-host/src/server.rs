//! Serves sessions to one client over one connection.
//!
//! Owns the order of the protocol (initialise first, once) and which method does what. Handlers never run a turn: they
//! hand it to the session's host and return, so a cancel is always heard.

use std::{
    collections::HashMap,
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use caliban_acp::{
    ProtocolVersion,
    v1::{
        AGENT_METHOD_NAMES, AgentCapabilities, AuthenticateResponse, CancelNotification, CloseSessionRequest,
        CloseSessionResponse, Error, Implementation, InitializeRequest, InitializeResponse,
        ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, McpCapabilities, NewSessionRequest,
        PromptCapabilities, PromptRequest, ResumeSessionRequest, SessionAdditionalDirectoriesCapabilities,
        SessionCapabilities, SessionCloseCapabilities, SessionListCapabilities, SessionResumeCapabilities,
        SetSessionConfigOptionRequest, SetSessionModeRequest, SetSessionModeResponse,
    },
};
use caliban_acp::{
    connection::{ConnError, ConnectionLimits, Inbox, Incoming, Params, Peer, Responder},
    extension::{
        ANSWER, AnswerRequest, BEHALF, Behalf, LEAVE, LOAD, NO_SAY, PROMPTS, SECRETS, SEND, SecretsRequest,
        SendParams, SessionRequest, TAKES_ANSWERS, field, meta, metas,
    },
};
use caliban_agent::fork;
use caliban_core::{
    ask::GivenAnswer,
    message::{Block, Message},
};
use caliban_permissions::Mode;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};

use crate::{
    attach::{Arrival, AttachedClient, Attachment, Shows},
    client_files::{ClientFiles, FileAbilities},
    commands::{CommandAnswer, SlashCommand},
    config, content,
    host::{SessionHost, Speech, Unsaid},
    render::Abilities,
    sessions::{LoadSession, NewSession, Sessions},
};

/// The longest line before the client has introduced itself.
const GATE_LINE_BYTES: usize = 64 * 1024;
/// How long a client of a socket may take to introduce itself.
pub const INITIALIZE_WITHIN: Duration = Duration::from_secs(30);

/// How clients are served.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The caps of the connection.
    pub limits: ConnectionLimits,
    /// How long a client may take to introduce itself; for ever when absent.
    pub initialize_within: Option<Duration>,
    /// The version that clients are told.
    pub version: String,
    /// Who the client is.
    pub caller: Caller,
    /// What a process may decide that the client speaks for. Only for a client that is believed: without this, whom it
    /// says to speak for does not matter.
    pub judge: Option<Judge>,
    /// Learns the secrets that a client with a say tells.
    pub learn: Option<Learn>,
}

/// Learns what a client has told.
#[derive(Clone)]
pub struct Learn(pub Arc<dyn Fn(SecretsRequest) + Send + Sync>);

impl std::fmt::Debug for Learn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Learn")
    }
}

/// Who a client is, or whom it speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// What it may decide.
    pub say: Say,
    /// The program, for people: `caliban (pid 4711)`.
    pub name: Option<String>,
}

/// Says who a process is.
#[derive(Clone)]
pub struct Judge(pub Arc<dyn Fn(Behalf) -> Caller + Send + Sync>);

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

/// What a client may decide in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Say {
    /// It answers questions, changes the permission mode, cancels turns and gives commands, for a person.
    Full,
    /// None of these, because this is who it is (`a process of agent a3f8b2c1`): it is not asked at all, and what it says
    /// is not taken for the user's words.
    None(String),
    /// Nor does it speak to the agent: it belongs to one that has not started this one.
    Nothing(String),
}

impl Say {
    /// Why it decides nothing.
    fn refusal(&self) -> Option<String> {
        match self {
            Self::Full => None,
            Self::None(who) | Self::Nothing(who) => {
                Some(format!("{who} cannot decide what an agent may do: a person does"))
            }
        }
    }

    /// An error for whoever may not speak either.
    fn silence(&self) -> Result<(), Error> {
        match self {
            Self::Full | Self::None(_) => Ok(()),
            Self::Nothing(who) => Err(Error::new(
                Error::invalid_request().code.into(),
                format!("{who} cannot speak to an agent that its own has not started"),
            )),
        }
    }

    /// What the agent is told about whose words follow (a10).
    fn heading(&self) -> Option<String> {
        match self {
            Self::Full => None,
            Self::None(who) | Self::Nothing(who) => Some(caliban_acp::not_the_users(who)),
        }
    }
}

impl Caller {
    /// A person's program of which nothing more is known.
    pub const PERSON: Self = Self { say: Say::Full, name: None };

    /// Who decides nothing, and why.
    pub fn nobody(who: impl Into<String>) -> Self {
        Self { say: Say::None(who.into()), name: None }
    }
}

impl ServeOptions {
    /// For clients that come over a socket.
    pub fn socket(version: impl Into<String>) -> Self {
        let initialize_within = Some(INITIALIZE_WITHIN);
        let limits = ConnectionLimits::default();
        let caller = Caller::PERSON;
        Self { limits, initialize_within, version: version.into(), caller, judge: None, learn: None }
    }

    /// For the one client that started us, or lives in the same process: it may take its time.
    pub fn private(version: impl Into<String>) -> Self {
        let limits = ConnectionLimits { write_timeout: None, ..ConnectionLimits::default() };
        Self { limits, initialize_within: None, ..Self::socket(version) }
    }
}

/// Serves one client until it hangs up. The sessions stay as they are.
pub async fn serve(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    sessions: Arc<Sessions>,
    mut options: ServeOptions,
) -> Result<(), ConnError> {
    let mut inbox = Inbox::open(reader, writer, ConnectionLimits { line: GATE_LINE_BYTES, ..options.limits });
    let result = match introduction(&mut inbox, &sessions, &mut options).await {
        Ok(Some(abilities)) => {
            inbox.set_line_limit(options.limits.line);
            let ServeOptions { caller, learn, .. } = options;
            let server = AcpServer { sessions, abilities, caller, learn, attached: Arc::default() };
            server.run(&mut inbox).await
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    inbox.close().await;
    result
}

/// Waits for `initialize`; everything else is refused. `None` when the client hangs up first.
async fn introduction(
    inbox: &mut Inbox,
    sessions: &Sessions,
    options: &mut ServeOptions,
) -> Result<Option<Abilities>, ConnError> {
    let limit = options.initialize_within;
    let gate = async {
        while let Some(incoming) = inbox.next().await? {
            let Incoming::Request { method, params, responder } = incoming else { continue };
            if method != AGENT_METHOD_NAMES.initialize {
                let error = Error::invalid_request().data("initialize first");
                responder.answer::<()>(Err(error)).await?;
                continue;
            }
            match params.parse::<InitializeRequest>() {
                Ok(request) => {
                    if let Some(behalf) = field(request.meta.as_ref(), BEHALF).cloned() {
                        let judged = options.judge.as_ref().zip(serde_json::from_value(behalf).ok());
                        // Who speaks for another and is not the daemon that we know has no say, whoever it is: an agent
                        // could have taken the daemon's lock away.
                        options.caller = match judged {
                            Some((Judge(judge), behalf)) => judge(behalf),
                            None => Caller::nobody("a process that speaks for another"),
                        };
                    }
                    responder.answer(Ok(welcome(sessions, options))).await?;
                    let client = request.client_capabilities;
                    let files =
                        FileAbilities { read: client.fs.read_text_file, write: client.fs.write_text_file };
                    return Ok(Some(Abilities {
                        notices: client.session.is_some_and(|session| session.notices.is_some()),
                        files,
                    }));
                }
                Err(error) => responder.answer::<()>(Err(error)).await?,
            }
        }
        Ok(None)
    };
    match limit {
        Some(limit) => tokio::time::timeout(limit, gate).await.unwrap_or_else(|_| {
            Err(ConnError::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "no initialize came")))
        }),
        None => gate.await,
    }
}

/// Whatever version the client speaks, ours is 1: it decides whether that will do.
fn welcome(sessions: &Sessions, options: &ServeOptions) -> InitializeResponse {
    let mut session = SessionCapabilities::new()
        .list(SessionListCapabilities::new())
        .resume(SessionResumeCapabilities::new());
    if sessions.are_the_clients() {
        session = session
            .close(SessionCloseCapabilities::new())
            .additional_directories(SessionAdditionalDirectoriesCapabilities::new());
    }
    let capabilities = AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
        .mcp_capabilities(McpCapabilities::new().http(sessions.takes_mcp_over_http()))
        .session_capabilities(session);
    let welcome = InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .agent_info(Implementation::new("caliban", options.version.clone()).title("Caliban"));
    match options.caller.say.refusal() {
        None => welcome.meta(meta(TAKES_ANSWERS, json!(true))),
        Some(why) => welcome.meta(metas([(TAKES_ANSWERS, json!(true)), (NO_SAY, json!(why))])),
    }
}

/// Where a session works, from the fields that the three requests which open one share.
macro_rules! place_of {
    ($request:ident, $files:ident) => {
        NewSession {
            files: $files.clone(),
            cwd: $request.cwd,
            additional_directories: $request.additional_directories,
            mcp_servers: $request.mcp_servers,
            meta: $request.meta,
        }
    };
}

#[derive(Clone)]
struct AcpServer {
    sessions: Arc<Sessions>,
    abilities: Abilities,
    caller: Caller,
    learn: Option<Learn>,
    attached: Arc<Mutex<HashMap<String, Attachment>>>,
}

impl AcpServer {
    async fn run(self, inbox: &mut Inbox) -> Result<(), ConnError> {
        let mut handlers = JoinSet::new();
        loop {
            tokio::select! {
                incoming = inbox.next() => match incoming? {
                    Some(Incoming::Request { method, params, responder }) => {
                        self.request(inbox, &mut handlers, &method, &params, responder);
                    }
                    Some(Incoming::Notification { method, params }) => self.notification(&method, &params),
                    None => break,
                },
                Some(_) = handlers.join_next(), if !handlers.is_empty() => {}
            }
        }
        Ok(())
    }

    fn notification(&self, method: &str, params: &Params) {
        // A notification has no answer: the cancel of a client that decides nothing is dropped (a11).
        if method == AGENT_METHOD_NAMES.session_cancel
            && self.caller.say == Say::Full
            && let Ok(cancel) = params.parse::<CancelNotification>()
            && let Some(attachment) = self.attached().get(&*cancel.session_id.0)
        {
            attachment.host().cancel();
        }
    }

    /// Begins to handle a request. What can take long goes on in a task.
    fn request(
        &self,
        inbox: &Inbox,
        handlers: &mut JoinSet<()>,
        method: &str,
        params: &Params,
        responder: Responder,
    ) {
        let names = AGENT_METHOD_NAMES;
        let (server, peer, params) = (self.clone(), inbox.peer().clone(), params.clone());
        if method == names.session_prompt {
            self.prompt(handlers, &params, responder);
        } else if method == names.session_new {
            handlers.spawn(async move {
                let made = cancellable(&responder, server.create(&params, &peer)).await;
                server.arrive(made, responder, peer, Arrival::New).await;
            });
        } else if method == names.session_load {
            handlers.spawn(async move {
                let loaded = cancellable(&responder, server.load(&params, &peer)).await;
                server.arrive(loaded, responder, peer, Arrival::Load).await;
            });
        } else if method == names.session_resume {
            handlers.spawn(async move {
                let loaded = cancellable(&responder, server.resume(&params, &peer)).await;
                server.arrive(loaded, responder, peer, Arrival::Resume).await;
            });
        } else if method == names.session_list {
            handlers.spawn(async move {
                let listed = cancellable(&responder, server.list(&params)).await;
                let _gone = responder.answer(listed).await;
            });
        } else if method == names.session_close && self.sessions.are_the_clients() {
            answer(
                handlers,
                responder,
                async move { server.close(&params).await.map(|closed| json!(closed)) },
            );
        } else if method == names.session_set_mode {
            answer(handlers, responder, ready(self.set_mode(&params).map(|set| json!(set))));
        } else if method == names.session_set_config_option {
            let wanted = self.config_option(&params);
            answer(handlers, responder, async move {
                let (host, request) = wanted?;
                config::set(&host, request).await.map(|set| json!(set))
            });
        } else if method == names.authenticate {
            // Keys come from the settings; there is nothing to log in to.
            answer(handlers, responder, ready(Ok(json!(AuthenticateResponse::new()))));
        } else if method == SEND {
            let request = params.parse::<SendParams>().and_then(|mut request| {
                self.caller.say.silence()?;
                if let Some(heading) = self.caller.say.heading() {
                    request.text = format!("{heading}\n\n{}", request.text);
                }
                Ok(request)
            });
            let sent = request.map(|request| match self.attached().get(&request.session_id) {
                // Said before the next line is read: a cancel that follows is meant for it, too.
                Some(attachment) => OutgoingMessage::Said(attachment.send(request.text, request.id)),
                None => OutgoingMessage::Stranger(request),
            });
            answer(handlers, responder, async move {
                match sent? {
                    OutgoingMessage::Said(said) => recorded(said).await,
                    OutgoingMessage::Stranger(request) => server.send(request).await,
                }
            });
        } else if method == SECRETS {
            let told = params.parse::<SecretsRequest>().map(|request| {
                // An agent's process teaches nothing: it could hide what was done from whoever reads the transcript.
                if let (Say::Full, Some(Learn(learn))) = (&self.caller.say, &self.learn) {
                    learn(request);
                }
                json!({})
            });
            answer(handlers, responder, ready(told));
        } else if method == ANSWER {
            // Given before the next line is read: a client that hangs up then has answered.
            let given = params.parse::<AnswerRequest>().and_then(|request| self.answer_ask(request));
            answer(handlers, responder, async move { given?.await.map(|given| json!(given)) });
        } else if method == PROMPTS {
            let points = params.parse::<SessionRequest>().and_then(|request| {
                let attached = self.attached();
                let attachment = attached
                    .get(&request.session_id)
                    .ok_or_else(|| Error::session_not_found(request.session_id.clone()))?;
                Ok(json!({"prompts": fork::points(&attachment.host().records())}))
            });
            answer(handlers, responder, ready(points));
        } else if method == names.initialize {
            refuse(handlers, responder, Error::invalid_request().data("initialize comes once"));
        } else {
            refuse(handlers, responder, Error::method_not_found().data(method.to_owned()));
        }
    }

    /// A person's answer to a call that waits. No session has to be loaded for it.
    fn answer_ask(
        &self,
        request: AnswerRequest,
    ) -> Result<impl Future<Output = Result<GivenAnswer, Error>> + use<>, Error> {
        if let Some(why) = self.caller.say.refusal() {
            return Err(Error::new(Error::invalid_request().code.into(), why));
        }
        let host = self.sessions.find(&request.session_id);
        let host = host.ok_or_else(|| Error::session_not_found(request.session_id.clone()))?;
        host.answer(request, self.caller.name.clone())
    }

    /// Says something without waiting for the end of the turn; it is on the disk when this is answered. No session has
    /// to be loaded for it.
    async fn send(&self, request: SendParams) -> Result<Value, Error> {
        if self.sessions.are_the_clients() {
            return Err(Error::session_not_found(request.session_id));
        }
        let load = LoadSession { id: request.session_id, place: NewSession::default() };
        let host = self.sessions.load(load).await?;
        recorded(host.speak(request.text, request.id)).await
    }

    async fn create(&self, params: &Params, peer: &Peer) -> Result<SessionHost, Error> {
        let request: NewSessionRequest = params.parse()?;
        let files = ClientFiles::of(peer.clone(), self.abilities.files);
        Ok(at(files.as_ref(), self.sessions.create(place_of!(request, files)).await?))
    }

    async fn load(&self, params: &Params, peer: &Peer) -> Result<SessionHost, Error> {
        let request: LoadSessionRequest = params.parse()?;
        let files = ClientFiles::of(peer.clone(), self.abilities.files);
        let (id, place) = (request.session_id.to_string(), place_of!(request, files));
        Ok(at(files.as_ref(), self.sessions.load(LoadSession { id, place }).await?))
    }

    async fn resume(&self, params: &Params, peer: &Peer) -> Result<SessionHost, Error> {
        let request: ResumeSessionRequest = params.parse()?;
        let files = ClientFiles::of(peer.clone(), self.abilities.files);
        let (id, place) = (request.session_id.to_string(), place_of!(request, files));
        Ok(at(files.as_ref(), self.sessions.load(LoadSession { id, place }).await?))
    }

    async fn list(&self, params: &Params) -> Result<ListSessionsResponse, Error> {
        let request: ListSessionsRequest = params.parse()?;
        Ok(ListSessionsResponse::new(self.sessions.list(request.cwd).await?))
    }

    async fn close(&self, params: &Params) -> Result<CloseSessionResponse, Error> {
        let request: CloseSessionRequest = params.parse()?;
        let id = request.session_id.to_string();
        let Some(attachment) = self.attached().remove(&id) else {
            return Err(Error::session_not_found(id));
        };
        self.sessions.close(&id).await;
        // It answers the prompts that still wait, and tells the end of the session.
        attachment.over().await;
        Ok(CloseSessionResponse::new())
    }

    /// The client's walk of the session begins; it gives the answer.
    async fn arrive(
        &self,
        host: Result<SessionHost, Error>,
        responder: Responder,
        peer: Peer,
        arrival: fn(Responder) -> Arrival,
    ) {
        let host = match host {
            Ok(host) => host,
            Err(error) => {
                let _gone = responder.answer::<()>(Err(error)).await;
                return;
            }
        };
        let id = host.id().to_owned();
        let refused = {
            let mut attached = self.attached();
            attached.retain(|_, attachment| !attachment.is_over());
            if attached.get(&id).is_some_and(Attachment::is_waiting) {
                Some(responder)
            } else {
                let Caller { say, name } = self.caller.clone();
                let is_asked = say == Say::Full;
                let client = AttachedClient { peer, abilities: self.abilities, is_asked, name };
                attached.insert(id, Attachment::start(host, client, arrival(responder)));
                None
            }
        };
        if let Some(responder) = refused {
            let error =
                Error::invalid_request().data("a prompt of this connection is running in this session");
            let _gone = responder.answer::<()>(Err(error)).await;
        }
    }

    fn prompt(&self, handlers: &mut JoinSet<()>, params: &Params, responder: Responder) {
        let parsed = params.parse::<PromptRequest>().and_then(|request| {
            self.caller.say.silence()?;
            let message = content::message(&request.prompt)?;
            Ok((request.session_id.to_string(), message, content::typed(&request.prompt)))
        });
        let (id, message, typed) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return refuse(handlers, responder, error),
        };
        let attached = self.attached();
        let Some(attachment) = attached.get(&id) else {
            return refuse(handlers, responder, Error::session_not_found(id));
        };
        let Some(command) = SlashCommand::of(&message, attachment.host().commands()) else {
            let mut message = message;
            match self.caller.say.heading() {
                // Only a person's words bring files along.
                None => drop(message.blocks.splice(0..0, attachment.host().mentioned(&typed))),
                Some(heading) => message.blocks.insert(0, Block::Text { text: heading }),
            }
            let host = attachment.host();
            let Some(commands) =
                host.commands().filter(|_| self.caller.say.heading().is_none() && names_resources(&typed))
            else {
                handlers.spawn(attachment.prompt(message, responder));
                return;
            };
            let (server, commands) = (self.clone(), commands.clone());
            handlers.spawn(async move {
                let texts = commands.named_in(&typed).await;
                message.blocks.extend(texts.into_iter().map(|text| Block::Text { text }));
                let prompted = server.attached().get(&id).map(|at| at.prompt(message, responder));
                if let Some(prompted) = prompted {
                    prompted.await;
                }
            });
            return;
        };
        if let Some(why) = self.caller.say.refusal().filter(|_| command.changes_session()) {
            return refuse(handlers, responder, Error::new(Error::invalid_request().code.into(), why));
        }
        let (server, host) = (self.clone(), attachment.host().clone());
        handlers.spawn(async move {
            let is_command = || meta("command", json!(true));
            let said = match command.run(&host, server.abilities).await {
                Ok(CommandAnswer::Text(text)) => Ok(Shows { text, meta: is_command() }),
                Ok(CommandAnswer::Load { session, draft, text }) => {
                    Ok(Shows { text, meta: meta(LOAD, json!({"session": session, "draft": draft})) })
                }
                Ok(CommandAnswer::Leave { text }) => Ok(Shows { text, meta: meta(LEAVE, json!(true)) }),
                Ok(CommandAnswer::Prompt(text)) => {
                    let prompted =
                        server.attached().get(&id).map(|at| at.prompt(Message::user(text), responder));
                    if let Some(prompted) = prompted {
                        prompted.await;
                    }
                    return;
                }
                Err(why) => Err(why),
            };
            if let Some(attachment) = server.attached().get(&id) {
                attachment.say(said, responder);
            }
        });
    }

    fn set_mode(&self, params: &Params) -> Result<SetSessionModeResponse, Error> {
        let request: SetSessionModeRequest = params.parse()?;
        let host = self.changeable(&request.session_id)?;
        let mode: Mode = request.mode_id.0.parse().map_err(|error: caliban_permissions::ModeError| {
            Error::invalid_params().data(error.to_string())
        })?;
        host.set_mode(mode);
        Ok(SetSessionModeResponse::new())
    }

    /// The session whose option is to be changed.
    fn config_option(&self, params: &Params) -> Result<(SessionHost, SetSessionConfigOptionRequest), Error> {
        let request: SetSessionConfigOptionRequest = params.parse()?;
        Ok((self.changeable(&request.session_id)?, request))
    }

    /// A session that this client is at, when it may change it.
    fn changeable(&self, id: &caliban_acp::v1::SessionId) -> Result<SessionHost, Error> {
        if let Some(why) = self.caller.say.refusal() {
            return Err(Error::new(Error::invalid_request().code.into(), why));
        }
        let attached = self.attached();
        let attachment = attached.get(&*id.0).ok_or_else(|| Error::session_not_found(id.clone()))?;
        Ok(attachment.host().clone())
    }

    fn attached(&self) -> MutexGuard<'_, HashMap<String, Attachment>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message on its way.
enum OutgoingMessage {
    /// By a client that is at the session.
    Said(Result<Speech, Unsaid>),
    Stranger(SendParams),
}

/// Waits until a message is on the disk; nobody waits for the end of the turn.
async fn recorded(said: Result<Speech, Unsaid>) -> Result<Value, Error> {
    let _nobody_waits = said?.ticket().await?;
    Ok(json!({}))
}

/// The client's files belong to the session that it has opened with them.
fn at(files: Option<&ClientFiles>, host: SessionHost) -> SessionHost {
    if let Some(files) = files {
        files.belong_to(host.id());
    }
    host
}

fn refuse(handlers: &mut JoinSet<()>, responder: Responder, error: Error) {
    answer(handlers, responder, ready(Err(error)));
}

/// Answers with what comes of the work. A client that is gone needs no answer.
fn answer(
    handlers: &mut JoinSet<()>,
    responder: Responder,
    work: impl Future<Output = Result<Value, Error>> + Send + 'static,
) {
    handlers.spawn(async move {
        let _gone = responder.answer(work.await).await;
    });
}

/// Does the work unless the client takes its request back.
async fn cancellable<T>(
    responder: &Responder,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        result = work => result,
        () = responder.cancelled().cancelled() => Err(Error::request_cancelled()),
    }
}

/// Whether somebody may have to be asked what the words name: `@server:uri`.
fn names_resources(words: &str) -> bool {
    words.split_whitespace().any(|word| word.starts_with('@') && word.contains(':'))
}
