//! The agent's side: requests run as tasks, their answers and what the agent says come back as events.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use caliban_acp::{
    AcpClient, AcpEvents, ClientError, ClientEvent,
    client::Question,
    extension,
    v1::{ContentBlock, Meta, SessionInfo, SessionModeState, StopReason},
};
use caliban_core::{ask::Answer, turn::TurnOutcome};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    asks::AskedQuestion,
    events::{AgentEvent, FailureEvent, PromptDone},
};

/// What hands all background agents to the fleet.
const KEEP_ALL: &str = "/bg keep all";

/// Which session is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChoice {
    /// A new one.
    New,
    /// This one.
    Load(String),
    /// A new one; the list of the others is open, to choose from.
    Ask,
}

/// A connection to an agent.
pub(super) struct Link {
    client: AcpClient,
    events: AcpEvents,
    cwd: PathBuf,
    session: Option<String>,
    /// Sessions that were left: what they still say is not for this screen.
    left: BTreeSet<String>,
    /// Counts the sessions: answers to requests of an earlier one are dropped.
    generation: u64,
    jobs: JoinSet<(u64, RequestResult)>,
    questions: BTreeMap<u64, Question>,
    asked: u64,
    is_hung_up: bool,
}

/// What came of a request.
#[expect(clippy::large_enum_variant, reason = "short-lived, one for each request")]
enum RequestResult {
    /// The session, its modes, and what else is said of it.
    Opened(Result<(String, Option<SessionModeState>, Option<Meta>), ClientError>),
    Event(AgentEvent),
    Nothing,
}

impl Link {
    pub(super) fn new(client: AcpClient, events: AcpEvents, cwd: PathBuf) -> Self {
        Self {
            client,
            events,
            cwd,
            session: None,
            left: BTreeSet::new(),
            generation: 0,
            jobs: JoinSet::new(),
            questions: BTreeMap::new(),
            asked: 0,
            is_hung_up: false,
        }
    }

    /// The session that is open.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Leaves the session that is open, if one is, and opens another.
    pub(super) fn open(&mut self, open: SessionChoice) {
        self.generation += 1;
        self.questions.clear();
        let old = self.session.take();
        self.left.extend(old.clone());
        if let SessionChoice::Load(session) = &open {
            self.left.remove(session);
            self.session = Some(session.clone());
        }
        let (client, cwd) = (self.client.clone(), self.cwd.clone());
        self.spawn(async move {
            if let Some(old) = old {
                // Best effort: a session that cannot be closed ends with the program.
                let _open = client.close_session(&old).await;
            }
            RequestResult::Opened(match open {
                SessionChoice::New | SessionChoice::Ask => {
                    let answer = client.new_session(&cwd, Vec::new()).await;
                    answer.map(|answer| (answer.session_id.to_string(), answer.modes, answer.meta))
                }
                SessionChoice::Load(session) => {
                    let answer = client.load_session(&session, &cwd).await;
                    answer.map(|answer| (session, answer.modes, answer.meta))
                }
            })
        });
    }

    pub(super) fn prompt(&mut self, text: String) {
        let Some(session) = self.session.clone() else { return };
        let client = self.client.clone();
        self.spawn(async move {
            let answer = client.prompt(&session, vec![ContentBlock::from(text.as_str())]).await;
            RequestResult::Event(match answer {
                Ok(answer) => AgentEvent::PromptEnded(Ok(PromptDone {
                    is_cancelled: answer.stop_reason == StopReason::Cancelled,
                })),
                Err(error) if error.is_gone() => AgentEvent::NotSent(text, failure(&error)),
                Err(error) => AgentEvent::PromptEnded(Err(failure(&error))),
            })
        });
    }

    pub(super) fn keep_agents(&mut self) {
        let Some(session) = self.session.clone() else { return };
        let client = self.client.clone();
        self.spawn(async move {
            let answer = client.prompt(&session, vec![ContentBlock::from(KEEP_ALL)]).await;
            RequestResult::Event(AgentEvent::AgentsKept(answer.map(drop).map_err(|error| failure(&error))))
        });
    }

    pub(super) fn cancel(&mut self) {
        let Some(session) = self.session.clone() else { return };
        let client = self.client.clone();
        self.request(async move { client.cancel(&session).await });
    }

    pub(super) fn set_mode(&mut self, mode: String) {
        let Some(session) = self.session.clone() else { return };
        let client = self.client.clone();
        self.request(async move { client.set_mode(&session, &mode).await });
    }

    pub(super) fn list_sessions(&mut self) {
        let client = self.client.clone();
        let current = self.session.clone();
        self.spawn(async move {
            RequestResult::Event(match client.list_sessions().await {
                Ok(mut answer) => {
                    answer.sessions.retain(|info| current.as_deref() != Some(&*info.session_id.0));
                    AgentEvent::Sessions(answer.sessions)
                }
                Err(error) => AgentEvent::Failed(failure(&error)),
            })
        });
    }

    /// Looks for a session before the open one is left.
    pub(super) fn find_session(&mut self, query: String) {
        let client = self.client.clone();
        self.spawn(async move {
            let found = match client.list_sessions().await {
                Ok(answer) => found(&answer.sessions, &query),
                Err(error) => Err(error.to_string()),
            };
            RequestResult::Event(AgentEvent::FoundSession(found))
        });
    }

    pub(super) fn list_prompts(&mut self) {
        let Some(session) = self.session.clone() else { return };
        let client = self.client.clone();
        self.spawn(async move {
            RequestResult::Event(match client.prompts(&session).await {
                Ok(prompts) => AgentEvent::Prompts(prompts),
                Err(error) => AgentEvent::Failed(failure(&error)),
            })
        });
    }

    pub(super) fn answer(&mut self, number: u64, answer: Answer) {
        let Some(question) = self.questions.remove(&number) else { return };
        self.spawn(async move {
            match question.answer(answer).await {
                Ok(()) => RequestResult::Nothing,
                Err(_) => RequestResult::Event(AgentEvent::NotAnswered(number)),
            }
        });
    }

    /// Something that is not the agent's, and comes back the same way.
    pub(super) fn later(&mut self, event: impl Future<Output = AgentEvent> + Send + 'static) {
        self.spawn(async move { RequestResult::Event(event.await) });
    }

    fn request(&mut self, request: impl Future<Output = Result<(), ClientError>> + Send + 'static) {
        self.spawn(async move {
            match request.await {
                Ok(()) => RequestResult::Nothing,
                Err(error) => RequestResult::Event(AgentEvent::Failed(failure(&error))),
            }
        });
    }

    fn spawn(&mut self, job: impl Future<Output = RequestResult> + Send + 'static) {
        let generation = self.generation;
        self.jobs.spawn(async move { (generation, job.await) });
    }

    /// What happens next. Safe to drop at any await.
    pub(super) async fn next(&mut self) -> AgentEvent {
        loop {
            tokio::select! {
                biased;
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    let event = done.ok().and_then(|(generation, job)| self.done(generation, job));
                    if let Some(event) = event {
                        return event;
                    }
                }
                event = self.events.next(), if !self.is_hung_up => match event {
                    Ok(Some(event)) => {
                        if let Some(event) = self.heard(event) {
                            return event;
                        }
                    }
                    Ok(None) => {
                        self.is_hung_up = true;
                        return AgentEvent::HungUp("the agent has hung up".to_owned());
                    }
                    Err(error) => {
                        self.is_hung_up = true;
                        return AgentEvent::HungUp(format!("the agent cannot be heard any more: {error}"));
                    }
                },
                () = std::future::pending(), if self.is_hung_up && self.jobs.is_empty() => {}
            }
        }
    }

    fn done(&mut self, generation: u64, job: RequestResult) -> Option<AgentEvent> {
        let is_current = generation == self.generation;
        match job {
            RequestResult::Opened(Ok((session, modes, meta))) if is_current => {
                let field = |name: &str| extension::field(meta.as_ref(), name);
                let is_running = field("running").and_then(Value::as_bool).unwrap_or(false);
                let model = field("model").and_then(Value::as_str).map(str::to_owned);
                self.session = Some(session);
                Some(AgentEvent::Opened { modes, is_running, model })
            }
            RequestResult::Opened(Err(error)) if is_current => {
                self.session = None;
                Some(AgentEvent::NotOpened(failure(&error)))
            }
            RequestResult::Event(event) => is_current.then_some(event),
            RequestResult::Opened(_) | RequestResult::Nothing => None,
        }
    }

    fn heard(&mut self, event: ClientEvent) -> Option<AgentEvent> {
        match event {
            ClientEvent::Update(update) => {
                self.is_ours(&update.session_id.0).then_some(AgentEvent::Update(update.update))
            }
            ClientEvent::Permission(question) => {
                // Dropped without an answer, it stays open for others.
                if !self.is_ours(&question.request.session_id.0) {
                    return None;
                }
                self.asked += 1;
                let number = self.asked;
                let asked = asked(number, &question);
                let withdrawn = question.withdrawn().clone();
                self.questions.insert(number, question);
                self.spawn(async move {
                    withdrawn.cancelled().await;
                    RequestResult::Event(AgentEvent::Withdrawn(number))
                });
                Some(AgentEvent::Asked(asked))
            }
            ClientEvent::TurnEnded(ended) => self.is_ours(&ended.session_id).then(|| {
                // That it failed is told by an update.
                let failure = match ended.outcome {
                    TurnOutcome::Budget { limit } => Some(format!("stopped: {limit}")),
                    TurnOutcome::Done
                    | TurnOutcome::Failed { .. }
                    | TurnOutcome::TurnLimit { .. }
                    | TurnOutcome::Cancelled => None,
                };
                AgentEvent::TurnEnded { failure }
            }),
            ClientEvent::Background(notice) => {
                self.is_ours(&notice.session_id).then_some(AgentEvent::Background(notice.agents))
            }
            ClientEvent::Heard(session) => self.is_ours(&session).then_some(AgentEvent::Heard),
            ClientEvent::Closed(session) => {
                self.is_ours(&session).then(|| AgentEvent::HungUp("the session was closed".to_owned()))
            }
        }
    }

    fn is_ours(&self, session: &str) -> bool {
        match &self.session {
            Some(open) => open == session,
            None => !self.left.contains(session),
        }
    }

    /// Hangs up after everything is written that was said.
    pub(super) async fn close(self) {
        self.events.close().await;
    }
}

/// The session that an id, or the beginning of one, means.
fn found(sessions: &[SessionInfo], query: &str) -> Result<String, String> {
    let mut ids = sessions.iter().map(|info| &*info.session_id.0).filter(|id| id.starts_with(query));
    match (ids.next(), ids.next()) {
        (Some(id), None) => Ok(id.to_owned()),
        (Some(_), Some(_)) => Err(format!("several sessions begin with {query}; nothing was changed")),
        (None, _) => Err(format!("there is no session {query}; /resume lists them. Nothing was changed")),
    }
}

fn asked(number: u64, question: &Question) -> AskedQuestion {
    let call = &question.request.tool_call;
    let about = extension::field(call.meta.as_ref(), "ask");
    let word = |name: &str| about.and_then(|about| about.get(name)?.as_str()).map(str::to_owned);
    let [rules, outside] = question.rules();
    AskedQuestion {
        number,
        tool: word("tool").or(call.fields.title.clone()).unwrap_or_else(|| "a call".to_owned()),
        agent: word("agent"),
        input: call.fields.raw_input.clone().unwrap_or_default(),
        preview: word("preview"),
        why: word("why").unwrap_or_default(),
        rules,
        outside,
    }
}

fn failure(error: &ClientError) -> FailureEvent {
    FailureEvent { message: error.to_string(), hint: error.hint() }
}
