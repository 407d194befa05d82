//! The client's side: attach, the terminal UI and print mode speak to an agent through this.
//!
//! [`AcpEvents`] drives the connection: whoever waits for an answer must keep taking events. In return an answer never
//! overtakes the updates that came before it.

use std::path::Path;

use agent_client_protocol_schema::{
    ProtocolVersion,
    v1::{
        AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, CancelNotification, ClientCapabilities,
        ClientSessionCapabilities, CloseSessionRequest, ContentBlock, Error, Implementation,
        InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest,
        LoadSessionResponse, McpServer, NewSessionRequest, NewSessionResponse, NoticeCapabilities,
        PromptRequest, PromptResponse, RequestPermissionOutcome, RequestPermissionRequest,
        RequestPermissionResponse, ResumeSessionRequest, SelectedPermissionOutcome, SessionNotification,
        SetSessionModeRequest,
    },
};
use caliban_core::ask::{Answer, GivenAnswer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::{CallError, Closed, ConnError, ConnectionLimits, Inbox, Incoming, Params, Peer, Responder},
    extension::{
        self, ANSWER, AnswerRequest, BACKGROUND, BEHALF, BackgroundNotice, Behalf, CLOSED, HEARD, KEEP,
        NO_SAY, PROMPTS, SessionRequest, TAKES_ANSWERS, TURN_ENDED, TurnEndedNotice, choice, meta,
    },
};

/// Why a client cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The agent said no, or is gone.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The connection failed.
    #[error(transparent)]
    Conn(#[from] ConnError),
    /// The agent hung up before it answered.
    #[error("the agent hung up")]
    HungUp,
    /// The agent speaks another protocol.
    #[error("the agent speaks version {0} of the protocol; this caliban speaks 1")]
    Version(u16),
}

impl ClientError {
    /// What the agent suggests to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Call(CallError::Refused(error)) => {
                Some(error.data.as_ref()?.get("hint")?.as_str()?.to_owned())
            }
            Self::Call(_) | Self::Conn(_) | Self::HungUp | Self::Version(_) => None,
        }
    }

    /// Whether the agent is gone or about to go, and has not taken what it was told; or has, and could not say so.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Call(CallError::Closed) | Self::Conn(_) | Self::HungUp => true,
            Self::Call(CallError::Refused(error)) => extension::is_closed_error(error),
            Self::Call(CallError::Nonsense(_)) | Self::Version(_) => false,
        }
    }
}

/// Sends requests. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AcpClient {
    peer: Peer,
    /// What the agent said of itself.
    pub agent: InitializeResponse,
}

/// What comes from the agent. The connection ends when this is dropped.
pub struct AcpEvents {
    inbox: Inbox,
    takes_answers: bool,
}

/// Something that the agent tells or asks.
#[derive(Debug)]
pub enum ClientEvent {
    /// Something happened in a session.
    Update(SessionNotification),
    /// The agent asks whether it may do something.
    Permission(Question),
    /// A turn that somebody else began has ended.
    TurnEnded(TurnEndedNotice),
    /// The background agents of a session, all of them.
    Background(BackgroundNotice),
    /// The next of the things that this client has said in a session, in their order, is on the disk.
    Heard(String),
    /// A session is closed.
    Closed(String),
}

/// The agent's question. Dropped without an answer, it stays open for others.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub request: RequestPermissionRequest,
    responder: Responder,
    /// Takes the answer as a request of ours; none for an agent of an earlier build.
    door: Option<Peer>,
}

impl AcpClient {
    /// Introduces us to the agent at the other end.
    pub async fn connect(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        version: &str,
    ) -> Result<(Self, AcpEvents), ClientError> {
        Self::connect_for(reader, writer, version, None).await
    }

    /// The same for a client that speaks for another process.
    pub async fn connect_for(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        version: &str,
        behalf: Option<Behalf>,
    ) -> Result<(Self, AcpEvents), ClientError> {
        let limits = ConnectionLimits { write_timeout: None, ..ConnectionLimits::default() };
        let mut events = AcpEvents { inbox: Inbox::open(reader, writer, limits), takes_answers: false };
        let peer = events.inbox.peer().clone();
        let session = ClientSessionCapabilities::new().notices(NoticeCapabilities::new());
        let request = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::new().session(session))
            .client_info(Implementation::new("caliban", version))
            .meta(behalf.map(|behalf| meta(BEHALF, json!(behalf))));
        let answer = peer.call::<InitializeResponse>(AGENT_METHOD_NAMES.initialize, &request);
        let agent = events.until(answer).await??;
        if agent.protocol_version != ProtocolVersion::V1 {
            return Err(ClientError::Version(agent.protocol_version.as_u16()));
        }
        let client = Self { peer, agent };
        events.takes_answers = client.takes_answers();
        Ok((client, events))
    }

    /// Why the agent asks this client nothing and takes no decision from it; none when it does.
    pub fn no_say(&self) -> Option<&str> {
        extension::field(self.agent.meta.as_ref(), NO_SAY)?.as_str()
    }

    /// Whether the agent takes [`ANSWER`].
    pub fn takes_answers(&self) -> bool {
        extension::field(self.agent.meta.as_ref(), TAKES_ANSWERS).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Answers a call that waits; what is recorded, and whose answer it is.
    pub async fn answer(&self, request: &AnswerRequest) -> Result<GivenAnswer, ClientError> {
        Ok(self.peer.call(ANSWER, request).await?)
    }

    /// A new session.
    pub async fn new_session(
        &self,
        cwd: &Path,
        mcp_servers: Vec<McpServer>,
    ) -> Result<NewSessionResponse, ClientError> {
        let request = NewSessionRequest::new(cwd).mcp_servers(mcp_servers);
        Ok(self.peer.call(AGENT_METHOD_NAMES.session_new, &request).await?)
    }

    /// Attaches to a session: its history comes as updates, then the answer, then what happens.
    pub async fn load_session(&self, session: &str, cwd: &Path) -> Result<LoadSessionResponse, ClientError> {
        let request = LoadSessionRequest::new(session.to_owned(), cwd);
        Ok(self.peer.call(AGENT_METHOD_NAMES.session_load, &request).await?)
    }

    /// Attaches to a session without its history.
    pub async fn resume_session(&self, session: &str, cwd: &Path) -> Result<(), ClientError> {
        let request = ResumeSessionRequest::new(session.to_owned(), cwd.to_owned());
        let _: Value = self.peer.call(AGENT_METHOD_NAMES.session_resume, &request).await?;
        Ok(())
    }

    /// The sessions that can be loaded.
    pub async fn list_sessions(&self) -> Result<ListSessionsResponse, ClientError> {
        Ok(self.peer.call(AGENT_METHOD_NAMES.session_list, &ListSessionsRequest::new()).await?)
    }

    /// Says something; answers when the turn has ended.
    pub async fn prompt(
        &self,
        session: &str,
        prompt: Vec<ContentBlock>,
    ) -> Result<PromptResponse, ClientError> {
        let request = PromptRequest::new(session.to_owned(), prompt);
        Ok(self.peer.call(AGENT_METHOD_NAMES.session_prompt, &request).await?)
    }

    /// The prompts of a session that began a turn, in order.
    pub async fn prompts(&self, session: &str) -> Result<Vec<String>, ClientError> {
        let answer: Value =
            self.peer.call(PROMPTS, &SessionRequest { session_id: session.to_owned() }).await?;
        let prompts = answer.get("prompts").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(prompts.iter().filter_map(|prompt| Some(prompt.get("text")?.as_str()?.to_owned())).collect())
    }

    /// Stops the turn that runs.
    pub async fn cancel(&self, session: &str) -> Result<(), ClientError> {
        let notification = CancelNotification::new(session.to_owned());
        let sent = self.peer.notify(AGENT_METHOD_NAMES.session_cancel, &notification).await;
        Ok(sent.map_err(CallError::from)?)
    }

    /// Changes the permission mode.
    pub async fn set_mode(&self, session: &str, mode: &str) -> Result<(), ClientError> {
        let request = SetSessionModeRequest::new(session.to_owned(), mode.to_owned());
        let _: Value = self.peer.call(AGENT_METHOD_NAMES.session_set_mode, &request).await?;
        Ok(())
    }

    /// Closes a session that this client has made.
    pub async fn close_session(&self, session: &str) -> Result<(), ClientError> {
        let request = CloseSessionRequest::new(session.to_owned());
        let _: Value = self.peer.call(AGENT_METHOD_NAMES.session_close, &request).await?;
        Ok(())
    }

    /// The connection, for what has no method here.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl AcpEvents {
    /// What comes next; `None` when the agent has hung up. Safe to drop at any await.
    pub async fn next(&mut self) -> Result<Option<ClientEvent>, ConnError> {
        loop {
            let Some(incoming) = self.inbox.next().await? else { return Ok(None) };
            match incoming {
                Incoming::Notification { method, params } => {
                    if let Some(event) = told(&method, &params) {
                        return Ok(Some(event));
                    }
                }
                Incoming::Request { method, params, responder } => {
                    let known = method == CLIENT_METHOD_NAMES.session_request_permission;
                    let error = match known.then(|| params.parse::<RequestPermissionRequest>()) {
                        Some(Ok(request)) => {
                            let door = self.takes_answers.then(|| self.inbox.peer().clone());
                            return Ok(Some(ClientEvent::Permission(Question { request, responder, door })));
                        }
                        Some(Err(error)) => error,
                        None => Error::method_not_found().data(method),
                    };
                    responder.answer::<()>(Err(error)).await?;
                }
            }
        }
    }

    /// Waits for an answer and throws away what comes before it.
    pub async fn until<T>(&mut self, answer: impl Future<Output = T>) -> Result<T, ClientError> {
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                event = self.next() => {
                    let gone = match event {
                        Ok(Some(_)) => continue,
                        Ok(None) => ClientError::HungUp,
                        Err(error) => error.into(),
                    };
                    // The answer may have been the last that came.
                    return match futures_util::poll!(&mut answer) {
                        std::task::Poll::Ready(answer) => Ok(answer),
                        std::task::Poll::Pending => Err(gone),
                    };
                }
            }
        }
    }

    /// Hangs up after what is queued is written.
    pub async fn close(self) {
        self.inbox.close().await;
    }
}

impl Question {
    /// Answers; the first answer of all clients counts. Returns when the answer is on its way.
    pub async fn answer(self, answer: Answer) -> Result<(), Closed> {
        let (Some(door), Some(digest)) = (&self.door, self.digest()) else {
            return self.choose(answer).await;
        };
        let request = AnswerRequest {
            session_id: self.request.session_id.to_string(),
            ask: self.request.tool_call.tool_call_id.to_string(),
            digest: digest.to_owned(),
            answer,
        };
        let Ok(recorded) = door.request(ANSWER, &request).await else { return Err(Closed) };
        // Until it is recorded nothing is said to the question: that would be an answer, too.
        tokio::spawn(async move {
            let _recorded = recorded.await;
            drop(self);
        });
        Ok(())
    }

    /// Answers with one of the options: the way of the protocol, which agents of earlier builds know alone.
    async fn choose(self, answer: Answer) -> Result<(), Closed> {
        let outside = choice::ALLOW_ALWAYS_OUTSIDE;
        let always = if self.offers_always() { choice::ALLOW_ALWAYS } else { outside };
        let (option, more) = match answer {
            Answer::Once => (choice::ALLOW_ONCE, None),
            Answer::Always => (always, None),
            Answer::AlwaysOutside => (outside, None),
            Answer::Keep(kept) => (always, Some(meta(KEEP, json!(kept)))),
            Answer::No(reason) => (choice::REJECT_ONCE, reason.map(|reason| meta("reason", json!(reason)))),
        };
        let selected = SelectedPermissionOutcome::new(option).meta(more);
        let outcome = RequestPermissionOutcome::Selected(selected);
        self.responder.answer(Ok(RequestPermissionResponse::new(outcome))).await
    }

    /// Stands for the exact call, where the agent says so.
    pub fn digest(&self) -> Option<&str> {
        extension::field(self.request.tool_call.meta.as_ref(), "ask")?.get("digest")?.as_str()
    }

    /// Whether "always" can be chosen.
    pub fn offers_always(&self) -> bool {
        self.offers(choice::ALLOW_ALWAYS)
    }

    /// Whether "always, outside the fence" can be chosen.
    pub fn offers_outside(&self) -> bool {
        self.offers(choice::ALLOW_ALWAYS_OUTSIDE)
    }

    fn offers(&self, choice: &str) -> bool {
        self.request.options.iter().any(|option| &*option.option_id.0 == choice)
    }

    /// The rules that "always" would add, and those of "always, outside the fence".
    pub fn rules(&self) -> [Vec<String>; 2] {
        let about = crate::extension::field(self.request.tool_call.meta.as_ref(), "ask");
        let rules = |name: &str, is_offered: bool| -> Vec<String> {
            let rules = about.and_then(|about| about.get(name)?.as_array()).filter(|_| is_offered);
            rules.into_iter().flatten().filter_map(|rule| rule.as_str().map(str::to_owned)).collect()
        };
        [rules("rules", self.offers_always()), rules("outside", self.offers_outside())]
    }

    /// Fires when the question is moot: somebody else has answered, or the call is gone.
    pub fn withdrawn(&self) -> &CancellationToken {
        self.responder.cancelled()
    }
}

fn told(method: &str, params: &Params) -> Option<ClientEvent> {
    let event = match method {
        _ if method == CLIENT_METHOD_NAMES.session_update => params.parse().map(ClientEvent::Update),
        TURN_ENDED => params.parse().map(ClientEvent::TurnEnded),
        HEARD => params.parse::<SessionRequest>().map(|heard| ClientEvent::Heard(heard.session_id)),
        BACKGROUND => params.parse().map(ClientEvent::Background),
        CLOSED => params.parse::<SessionRequest>().map(|closed| ClientEvent::Closed(closed.session_id)),
        _ => return None,
    };
    match event {
        Ok(event) => Some(event),
        Err(error) => {
            tracing::debug!(method, %error, "a notification cannot be understood");
            None
        }
    }
}
