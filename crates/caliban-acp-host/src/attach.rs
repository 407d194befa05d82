//! One client at one session: a task that walks the session's log and writes what it shows.
//!
//! Nothing is queued here: a client that does not read stops its own walk and nobody else's. Answers and questions go
//! out at their place in the log. Replay, the answer to `session/load`, going live and asking what still waits for a
//! person are one walk: nothing is missed, nothing comes twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use caliban_acp::v1::{
    AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, ConfigOptionUpdate, ContentBlock, ContentChunk,
    CurrentModeUpdate, Error, LoadSessionResponse, Meta, NewSessionResponse, PromptResponse,
    ResumeSessionResponse, SessionInfoUpdate, SessionMode, SessionModeState, SessionNotification,
    SessionUpdate, StopReason,
};
use caliban_acp::{
    connection::{CallError, Closed, Peer, Responder},
    extension::{BACKGROUND, BackgroundNotice, CLOSED, HEARD, SessionRequest, TURN_ENDED, meta},
};
use caliban_agent::{
    background::Background,
    event::{Answer, Ask, Author, Event, GivenAnswer, Outcome},
    feed::{Cursor, Feed, FeedEntry},
};
use caliban_core::{BoxFuture, message::Message};
use caliban_permissions::Mode;
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    commands, config,
    host::{Clients, EndedTurn, ModelSettings, SessionHost, Speech, TakenPrompt, Ticket, Unsaid, Utterance},
    permission,
    render::{Abilities, ClientUpdate, EntryTime, Renderer},
    turn_end::{self, TurnEnded},
};

/// Live output of a command is shown at most this often.
const LIVE_OUTPUT_EVERY: Duration = Duration::from_millis(100);
/// The list of background agents is sent at most this often.
const BACKGROUND_EVERY: Duration = Duration::from_millis(250);

/// A client of one connection.
pub(crate) struct AttachedClient {
    pub(crate) peer: Peer,
    pub(crate) abilities: Abilities,
    /// Whether it answers questions.
    pub(crate) is_asked: bool,
    /// The program, for people.
    pub(crate) name: Option<String>,
}

/// How a client comes to a session.
pub(crate) enum Arrival {
    /// It made it: the answer first, then what happens.
    New(Responder),
    /// It wants the history: replay, then the answer.
    Load(Responder),
    /// It knows the history: the answer, then what happens from now on.
    Resume(Responder),
}

/// A client at a session. The walk ends when this is dropped.
pub(crate) struct Attachment {
    host: SessionHost,
    tell: mpsc::UnboundedSender<Tell>,
    mine: Mine,
    walk: AbortOnDropHandle<()>,
}

/// What the client itself has said and will not be told again.
#[derive(Clone)]
struct Mine(Arc<Mutex<Said>>);

struct Said {
    /// Names this attachment among all that a conversation ever has: names of what was said stay in its transcript.
    nonce: u64,
    count: u64,
    /// What the log has not shown yet.
    unheard: BTreeSet<Utterance>,
    /// Prompts that are not answered.
    waiting: usize,
}

impl Mine {
    fn new() -> Self {
        // Seeded by the system: different in every process and every time.
        let nonce = std::hash::RandomState::new().build_hasher().finish();
        Self(Arc::new(Mutex::new(Said { nonce, count: 0, unheard: BTreeSet::new(), waiting: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name for what is about to be said.
    fn name(&self) -> Utterance {
        let mut said = self.lock();
        said.count += 1;
        let name: Utterance = format!("client-{:016x}-{}", said.nonce, said.count).into();
        said.unheard.insert(name.clone());
        name
    }

    /// Another one, that its sender has chosen.
    fn named(&self, name: &str) {
        self.lock().unheard.insert(name.into());
    }

    /// Whether the client has said this. The log shows it once.
    fn hears(&self, name: &str) -> bool {
        self.lock().unheard.remove(name)
    }

    fn wait(&self) -> Waiting {
        self.lock().waiting += 1;
        Waiting(self.clone())
    }
}

/// A prompt that is not answered yet.
struct Waiting(Mine);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// What a command shows to the client that gave it.
pub(crate) struct Shows {
    pub(crate) text: String,
    pub(crate) meta: Meta,
}

enum Tell {
    Prompt(Responder, Ticket, Waiting),
    /// What came of a command.
    Said(Responder, Result<Shows, String>),
}

impl Attachment {
    pub(crate) fn start(host: SessionHost, client: AttachedClient, arrival: Arrival) -> Self {
        let AttachedClient { peer, abilities, is_asked, name } = client;
        let (tell, told) = mpsc::unbounded_channel();
        let mine = Mine::new();
        let walk = Walk {
            feed: host.handle().feed().clone(),
            renderer: Renderer::new(abilities, host.window(), Some(host.purse())),
            modes: host.modes(),
            settings: host.settings(),
            cursor: Cursor::default(),
            told,
            mine: mine.clone(),
            queued: BTreeSet::new(),
            prompts: FuturesUnordered::new(),
            due: Vec::new(),
            announced: BTreeSet::new(),
            asked: BTreeMap::new(),
            questions: JoinSet::new(),
            flush_at: None,
            background: host.background().map(Background::changes),
            background_at: None,
            host: host.clone(),
            peer,
            is_asked,
            name,
        };
        let task = tokio::spawn(async move {
            // An error means that the client is gone; its connection ends with it.
            let _gone = walk.run(arrival).await;
        });
        Self { host, tell, mine, walk: AbortOnDropHandle::new(task) }
    }

    pub(crate) fn host(&self) -> &SessionHost {
        &self.host
    }

    /// Whether the client waits for the end of a prompt.
    pub(crate) fn is_waiting(&self) -> bool {
        self.mine.lock().waiting > 0
    }

    /// Says something to the agent; answered at the end of the turn. It is said when this returns, whenever the future
    /// runs: a cancel that comes next is meant for it, too.
    pub(crate) fn prompt(&self, message: Message, responder: Responder) -> impl Future<Output = ()> + use<> {
        let (waiting, tell) = (self.mine.wait(), self.tell.clone());
        let said = self.host.say(message, Author::User, Some(self.mine.name()));
        async move {
            let ticket = match said {
                Ok(speech) => speech.ticket().await,
                Err(error) => Err(error),
            };
            match ticket {
                // When the walk has ended, the responder answers by itself.
                Ok(ticket) => drop(tell.send(Tell::Prompt(responder, ticket, waiting))),
                Err(error) => drop(responder.answer::<()>(Err(error.into())).await),
            }
        }
    }

    /// Says something to the agent and does not wait for the end of the turn. As with a prompt, it is said when this
    /// returns.
    pub(crate) fn send(&self, text: String, sender: Option<String>) -> Result<Speech, Unsaid> {
        let name = match sender {
            Some(sender) => {
                self.mine.named(&sender);
                sender
            }
            None => self.mine.name().as_ref().to_owned(),
        };
        self.host.speak(text, Some(name))
    }

    /// Says what came of a command, to this client alone.
    pub(crate) fn say(&self, result: Result<Shows, String>, responder: Responder) {
        // When the walk has ended, the responder answers by itself.
        drop(self.tell.send(Tell::Said(responder, result)));
    }

    /// Waits for the walk to end by itself, when its session is closed.
    pub(crate) async fn over(self) {
        if let Err(error) = self.walk.await {
            tracing::error!(%error, "a client's walk has crashed");
        }
    }

    /// Whether the walk has ended: the client or the session is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.walk.is_finished()
    }
}

/// How a prompt of this client ended.
enum Over {
    Ended(Responder, Option<EndedTurn>, Waiting),
    /// The client has taken its request back; what it said stays said.
    Cancelled(Responder),
}

struct Walk {
    host: SessionHost,
    peer: Peer,
    is_asked: bool,
    name: Option<String>,
    feed: Feed,
    cursor: Cursor,
    renderer: Renderer,
    modes: watch::Receiver<Mode>,
    settings: watch::Receiver<ModelSettings>,
    told: mpsc::UnboundedReceiver<Tell>,
    mine: Mine,
    /// What this client has said and the agent has not heard yet, by its number in the queue.
    queued: BTreeSet<u64>,
    prompts: FuturesUnordered<BoxFuture<'static, Over>>,
    /// Turns that have ended at a place where the walk is not yet.
    due: Vec<(Responder, EndedTurn, Waiting)>,
    /// Asks that the log has opened and not closed.
    announced: BTreeSet<String>,
    /// Those that this client was asked, with what takes the question back.
    asked: BTreeMap<String, CancellationToken>,
    questions: JoinSet<()>,
    flush_at: Option<Instant>,
    /// Tells that the list of background agents has changed.
    background: Option<watch::Receiver<()>>,
    /// When it may be sent again, if it has changed.
    background_at: Option<Instant>,
}

impl Drop for Walk {
    fn drop(&mut self) {
        // An answer that has come counts, also when its client left right after it. They end by themselves: each of them
        // waits for the connection, too.
        self.questions.detach_all();
    }
}

impl Walk {
    async fn run(mut self, arrival: Arrival) -> Result<(), Closed> {
        let end = self.feed.end();
        let _ = self.modes.borrow_and_update();
        match arrival {
            Arrival::New(responder) => {
                let response = NewSessionResponse::new(self.host.id().to_owned()).modes(self.mode_state());
                let response = response.config_options(config::options(&self.host)).meta(self.standing());
                responder.answer(Ok(response)).await?;
            }
            Arrival::Load(responder) => {
                self.replay(end, EntryTime::Replay, true).await?;
                let response = LoadSessionResponse::new().modes(self.mode_state());
                let response = response.config_options(config::options(&self.host)).meta(self.standing());
                responder.answer(Ok(response)).await?;
            }
            Arrival::Resume(responder) => {
                self.replay(end, EntryTime::Replay, false).await?;
                let response = ResumeSessionResponse::new().modes(self.mode_state());
                let response = response.config_options(config::options(&self.host)).meta(self.standing());
                responder.answer(Ok(response)).await?;
            }
        }
        self.update(commands::available(&self.host)).await?;
        if self.host.background().is_some_and(|background| !background.rows().is_empty()) {
            self.background_rows().await?;
        }
        for id in self.announced.clone() {
            self.ask(&id).await?;
        }
        self.live().await
    }

    /// What a client is told when it arrives, beside what the protocol has fields for.
    fn standing(&self) -> Meta {
        let ModelSettings { model, effort } = self.host.settings().borrow().clone();
        let standing = json!({"running": self.host.is_running(), "model": model, "effort": effort});
        Meta::from_iter([("caliban".to_owned(), standing)])
    }

    /// Walks up to `end`.
    async fn replay(&mut self, end: Cursor, when: EntryTime, is_shown: bool) -> Result<(), Closed> {
        while self.cursor < end {
            let Some(entry) = self.feed.next(&mut self.cursor) else { break };
            let is_mine = self.is_mine(&entry);
            let shown = self.renderer.take(&entry, when, is_mine);
            self.note_asks(&entry);
            if is_shown {
                self.show(shown).await?;
            }
        }
        Ok(())
    }

    async fn live(mut self) -> Result<(), Closed> {
        loop {
            self.answer_due().await?;
            tokio::select! {
                biased;
                () = self.peer.closed() => return Err(Closed),
                Some(over) = self.prompts.next(), if !self.prompts.is_empty() => self.over(over).await?,
                Some(tell) = self.told.recv() => self.take(tell).await?,
                Ok(()) = self.settings.changed() => {
                    let standing = self.standing();
                    self.settings.mark_unchanged();
                    let update = SessionInfoUpdate::new().meta(standing);
                    self.update(SessionUpdate::SessionInfoUpdate(update)).await?;
                    if let Some(options) = config::options(&self.host) {
                        let update = ConfigOptionUpdate::new(options);
                        self.update(SessionUpdate::ConfigOptionUpdate(update)).await?;
                    }
                }
                Ok(()) = self.modes.changed() => {
                    let mode = self.modes.borrow_and_update().name();
                    self.update(SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode))).await?;
                }
                () = changed(&mut self.background), if self.background_at.is_none() => {
                    // At once, then not again for a while.
                    self.background_rows().await?;
                    self.background_at = Some(Instant::now() + BACKGROUND_EVERY);
                }
                () = tokio::time::sleep_until(self.background_at.unwrap_or_else(Instant::now)),
                    if self.background_at.is_some() => self.background_at = None,
                Some(_) = self.questions.join_next(), if !self.questions.is_empty() => {}
                () = tokio::time::sleep_until(self.flush_at.unwrap_or_else(Instant::now)),
                    if self.flush_at.is_some() => {
                    self.flush_at = None;
                    for update in self.renderer.live_output() {
                        self.update(update).await?;
                    }
                }
                entry = self.feed.wait(&mut self.cursor) => match entry {
                    Some(entry) => self.entry(&entry).await?,
                    None => break,
                },
            }
        }
        // The session is closed: whoever still waits is told.
        while let Some(over) = self.prompts.next().await {
            self.over(over).await?;
        }
        self.answer_due().await?;
        let closed = SessionRequest { session_id: self.host.id().to_owned() };
        self.peer.notify(CLOSED, &closed).await
    }

    async fn entry(&mut self, entry: &FeedEntry) -> Result<(), Closed> {
        let unheard = self.mine.lock().unheard.len();
        let is_mine = self.is_mine(entry);
        if self.mine.lock().unheard.len() < unheard {
            let heard = SessionRequest { session_id: self.host.id().to_owned() };
            self.peer.notify(HEARD, &heard).await?;
        }
        let shown = self.renderer.take(entry, EntryTime::Live, is_mine);
        if self.flush_at.is_none() && self.renderer.has_live_output() {
            self.flush_at = Some(Instant::now() + LIVE_OUTPUT_EVERY);
        }
        self.show(shown).await?;
        let opened = self.note_asks(entry);
        match opened {
            Some(id) => self.ask(&id).await,
            None => Ok(()),
        }
    }

    /// Whether the entry, which the walk has just passed, is what this client has said itself. The record that words were
    /// queued names them and gives them a number; the record that they are heard has the number.
    fn is_mine(&mut self, entry: &FeedEntry) -> bool {
        let FeedEntry::Record(record) = entry else { return false };
        match &record.event {
            Event::Queued { number, sender: Some(sender), .. } => {
                if self.mine.hears(sender) {
                    self.queued.insert(*number);
                }
                false
            }
            Event::Prompt { queued: Some(number), .. } => self.queued.remove(number),
            Event::Prompt { author: Author::User, .. } => {
                self.host.speaker(self.cursor).is_some_and(|name| self.mine.hears(&name))
            }
            _ => false,
        }
    }

    async fn show(&mut self, shown: Vec<ClientUpdate>) -> Result<(), Closed> {
        for shown in shown {
            match shown {
                ClientUpdate::Update(update) => self.update(update).await?,
                ClientUpdate::TurnEnded(ended) => self.turn_ended(&ended).await?,
            }
        }
        Ok(())
    }

    async fn update(&mut self, update: SessionUpdate) -> Result<(), Closed> {
        let notification = SessionNotification::new(self.host.id().to_owned(), update);
        self.peer.notify(CLIENT_METHOD_NAMES.session_update, &notification).await
    }

    async fn background_rows(&mut self) -> Result<(), Closed> {
        let Some(background) = self.host.background() else { return Ok(()) };
        let notice = BackgroundNotice { session_id: self.host.id().to_owned(), agents: background.rows() };
        self.peer.notify(BACKGROUND, &notice).await?;
        // What they spend counts for the session.
        let usage = self.renderer.usage(None);
        self.update(usage).await
    }

    /// Bystanders have no answer to wait for: they are told.
    async fn turn_ended(&mut self, ended: &TurnEnded) -> Result<(), Closed> {
        if !self.prompts.is_empty() || !self.due.is_empty() {
            return Ok(());
        }
        if let Outcome::Failed { error, .. } = &ended.outcome {
            let chunk = ContentChunk::new(ContentBlock::from(format!("[the turn failed: {error}]")));
            self.update(SessionUpdate::AgentMessageChunk(chunk.meta(meta("failed", json!(true))))).await?;
        }
        self.peer.notify(TURN_ENDED, &ended.notice(self.host.id())).await
    }

    async fn take(&mut self, tell: Tell) -> Result<(), Closed> {
        match tell {
            Tell::Prompt(responder, ticket, waiting) => {
                self.prompts.push(Box::pin(wait(self.host.clone(), responder, ticket, waiting)));
                Ok(())
            }
            Tell::Said(responder, Ok(Shows { text, meta })) => {
                if !text.is_empty() {
                    let chunk = ContentChunk::new(ContentBlock::from(text)).meta(meta);
                    self.update(SessionUpdate::AgentMessageChunk(chunk)).await?;
                }
                responder.answer(Ok(PromptResponse::new(StopReason::EndTurn))).await
            }
            Tell::Said(responder, Err(why)) => {
                let error = Error::new(Error::internal_error().code.into(), why);
                responder.answer::<()>(Err(error)).await
            }
        }
    }

    async fn over(&mut self, over: Over) -> Result<(), Closed> {
        match over {
            Over::Ended(responder, Some(ended), waiting) => {
                self.due.push((responder, ended, waiting));
                Ok(())
            }
            Over::Ended(responder, None, _) => {
                let error = Error::new(Error::internal_error().code.into(), "the session was closed");
                responder.answer::<()>(Err(error)).await
            }
            Over::Cancelled(responder) => responder.answer::<()>(Err(Error::request_cancelled())).await,
        }
    }

    /// Answers the prompts whose turn has been shown to its end.
    async fn answer_due(&mut self) -> Result<(), Closed> {
        let cursor = self.cursor;
        let (due, later) =
            std::mem::take(&mut self.due).into_iter().partition(|(_, ended, _)| ended.at <= cursor);
        self.due = later;
        for (responder, ended, waiting) in due {
            drop(waiting);
            responder.answer(turn_end::answer(&ended.report, self.renderer.stop())).await?;
        }
        Ok(())
    }

    /// Keeps track of which asks are open; the one that the entry opens.
    fn note_asks(&mut self, entry: &FeedEntry) -> Option<String> {
        match entry {
            FeedEntry::SubAsked(ask) => return self.opened(ask),
            FeedEntry::SubAnswered { id } => self.closed(id),
            FeedEntry::Record(record) => match &record.event {
                Event::AskOpened(ask) => return self.opened(ask),
                Event::AskAnswered { id, .. }
                | Event::CallRefused { id, .. }
                | Event::CallEnded { id, .. } => {
                    self.closed(id);
                }
                Event::TurnEnded { .. } => {
                    // Sub-agents end with the turn that started them. Background agents go on, and so do their asks.
                    let open: BTreeSet<String> =
                        self.host.handle().asks().open().into_iter().map(|ask| ask.id).collect();
                    for id in self.announced.difference(&open).cloned().collect::<Vec<_>>() {
                        self.closed(&id);
                    }
                }
                Event::Started(_)
                | Event::Resumed { .. }
                | Event::Prompt { .. }
                | Event::Queued { .. }
                | Event::Asked { .. }
                | Event::Counted { .. }
                | Event::Unanswered { .. }
                | Event::Reply { .. }
                | Event::CallStarted { .. }
                | Event::ResultsCleared { .. }
                | Event::Summarised { .. }
                | Event::Background { .. }
                | Event::Note { .. } => {}
            },
            FeedEntry::Text(_)
            | FeedEntry::Thinking(_)
            | FeedEntry::ToolUse { .. }
            | FeedEntry::ToolOutput { .. }
            | FeedEntry::Restart { .. }
            | FeedEntry::Waiting(_)
            | FeedEntry::Broken { .. } => {}
        }
        None
    }

    fn opened(&mut self, ask: &Ask) -> Option<String> {
        self.announced.insert(ask.id.clone());
        Some(ask.id.clone())
    }

    fn closed(&mut self, id: &str) {
        self.announced.remove(id);
        if let Some(withdraw) = self.asked.remove(id) {
            withdraw.cancel();
        }
    }

    /// Asks the client, when the ask is still open.
    async fn ask(&mut self, id: &str) -> Result<(), Closed> {
        if !self.is_asked {
            return Ok(());
        }
        let asks = self.host.handle().asks().clone();
        let Some(ask) = asks.open().into_iter().find(|ask| ask.id == id) else { return Ok(()) };
        if let Some(older) = self.asked.remove(id) {
            older.cancel();
        }
        let listed = self.host.listed(&ask);
        let question = permission::question(self.host.id(), &ask, &listed, self.renderer.root());
        let pending = self.peer.request(CLIENT_METHOD_NAMES.session_request_permission, &question).await;
        let Ok(mut pending) = pending else { return Err(Closed) };
        let withdraw = CancellationToken::new();
        self.asked.insert(id.to_owned(), withdraw.clone());
        let (clients, by) = (self.host.clients(), self.name.clone());
        self.questions.spawn(async move {
            let answer = tokio::select! {
                answer = &mut pending => answer,
                () = withdraw.cancelled() => {
                    // Somebody else was first, or the call is gone.
                    let _gone = pending.cancel().await;
                    return;
                }
            };
            // Nobody has decided anything: the question stays.
            if answer.as_ref().is_err_and(|error| *error == CallError::Closed) {
                return;
            }
            let choice = permission::choice(&ask, answer.as_ref().map(|raw| raw.get()).map_err(Clone::clone));
            let answer = match (choice, clients) {
                (Ok(answer), _) => answer,
                (Err(why), Clients::One) => Answer::No(Some(why)),
                (Err(why), Clients::Many) => {
                    tracing::info!(ask = ask.id, why, "a client left a question open");
                    return;
                }
            };
            if !asks.answer_exactly(&ask, GivenAnswer { answer, by }) {
                tracing::debug!(ask = ask.id, "an answer came too late");
            }
        });
        Ok(())
    }

    fn mode_state(&self) -> SessionModeState {
        let modes = Mode::NAMES.iter().filter_map(|name| name.parse::<Mode>().ok());
        let modes =
            modes.map(|mode| SessionMode::new(mode.name(), mode.name()).description(mode.words().to_owned()));
        SessionModeState::new(self.host.mode().name(), modes.collect())
    }
}

/// Ends when there is a change; never without something that can change.
async fn changed(receiver: &mut Option<watch::Receiver<()>>) {
    let changed = match receiver {
        Some(receiver) => receiver.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

/// Waits for the end of a turn, or for the client to take its request back.
async fn wait(host: SessionHost, responder: Responder, mut ticket: Ticket, waiting: Waiting) -> Over {
    let taken = ticket.taken;
    tokio::select! {
        ended = ticket.ended() => return Over::Ended(responder, ended, waiting),
        () = responder.cancelled().cancelled() => {}
    }
    match taken {
        TakenPrompt::Began => {
            tracing::debug!(method = AGENT_METHOD_NAMES.session_prompt, "cancelled by its author");
            host.cancel();
            let ended = ticket.ended().await;
            Over::Ended(responder, ended, waiting)
        }
        TakenPrompt::Joined => Over::Cancelled(responder),
    }
}
