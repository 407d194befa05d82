//! One live conversation, for any number of clients.
//!
//! The agent runs in a task of its own and belongs to the host; a client that comes, goes or sleeps changes nothing for
//! it. A prompt while a turn runs is steering and ends with that turn. A cancel ends everything that was said before it:
//! what the agent has not heard is taken down in the conversation and not worked on. Knows nothing of connections.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, Hasher as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use caliban_agent::{
    Agent, TurnReport,
    budget::Purse,
    event::{Ask, Author, Outcome},
    feed::Cursor,
    handle::Handle,
    transcript::TranscriptError,
};
use caliban_core::{
    message::{Block, Message},
    redact::Redactor,
    usage::Usage,
};
use caliban_permissions::{Mode, Policy};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::permission::Listed;

/// Who answers a question of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// Exactly one client, for the whole life of the session: when it cannot decide, nobody can, and the call is
    /// refused.
    One,
    /// Clients come and go: what one cannot decide waits for the next.
    Many,
}

/// Why something cannot be said to the agent.
#[derive(Debug, thiserror::Error)]
pub enum Unsaid {
    /// The session is closed, or its agent has crashed.
    #[error("the session is closed")]
    Closed,
    /// It cannot be recorded.
    #[error("the transcript cannot be written: {0}")]
    Storage(#[from] TranscriptError),
}

/// Something cannot be done while the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// A turn is running.
    #[error("the agent is at work; wait for the turn to end, or cancel it")]
    Busy,
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
}

/// A live conversation. Cheap to clone; when the last clone is dropped, the turn is cancelled and the agent closed.
#[derive(Clone)]
pub struct SessionHost(Arc<Owned>);

struct Owned {
    shared: Arc<Shared>,
    jobs: mpsc::UnboundedSender<Job>,
    runner: Mutex<Option<JoinHandle<()>>>,
    about: About,
    policy: Arc<RwLock<Policy>>,
    mode: watch::Sender<Mode>,
    clients: Clients,
}

/// What does not change about a session.
struct About {
    id: String,
    cwd: PathBuf,
    label: Option<String>,
    model: String,
    provider: String,
    purse: Purse,
    redactor: Redactor,
    /// For digests; new in every process, and nobody else's.
    key: [u8; 16],
}

/// What the host and the agent's task share.
struct Shared {
    handle: Handle,
    window: Arc<AtomicU64>,
    board: Mutex<Board>,
    /// A message has come to the disk, or cannot.
    arrived: Notify,
}

/// What the agent does, and who waits for it.
#[derive(Default)]
struct Board {
    /// Ends what runs; absent when the agent rests.
    running: Option<CancellationToken>,
    waiting: Vec<oneshot::Sender<Ended>>,
    /// What cannot join the turn that runs: each begins one of its own when that has ended.
    next: VecDeque<Lined>,
    /// Messages that are on their way to the disk.
    coming: usize,
    /// How often somebody has cancelled: what was said before a cancel is told from what was said after it.
    cancels: u64,
    /// The prompts that began a turn, in order: each is the first prompt of a person in the feed behind its place.
    speakers: Vec<(Cursor, Option<Utterance>)>,
    /// The last turn.
    last: Option<Ended>,
    closed: bool,
}

/// The name of one thing that a client has said. It goes with the words through the queue into the record, so whoever
/// walks the log knows whose they are.
pub(crate) type Utterance = Arc<str>;

/// A prompt, and whose it is.
struct Prompt {
    message: Message,
    author: Author,
    utterance: Option<Utterance>,
}

/// A turn that waits for its place.
struct Lined {
    /// Without one, what is queued.
    prompt: Option<Prompt>,
    cancel: CancellationToken,
    waiter: oneshot::Sender<Ended>,
}

enum Job {
    Prompt { prompt: Prompt, cancel: CancellationToken },
    GoOn { cancel: CancellationToken },
    Compact { cancel: CancellationToken, done: oneshot::Sender<Result<(), Outcome>> },
    Close,
}

/// What the agent does next.
enum Next {
    Prompt {
        prompt: Prompt,
        cancel: CancellationToken,
    },
    GoOn {
        cancel: CancellationToken,
        so_far: Option<TurnReport>,
    },
    /// Wait for what is on its way to the disk.
    Settle {
        so_far: TurnReport,
    },
    Rest,
}

/// What became of words at once. A cancel from here on is meant for them, too.
pub(crate) enum Speech {
    /// They have a turn.
    Taken(Ticket),
    /// They are on their way to the disk, in a task of their own: who speaks may leave in the middle, and what is on the
    /// disk then must be heard.
    Coming(JoinHandle<Result<Ticket, Unsaid>>),
}

impl Speech {
    /// Waits until they are on the disk, if they have to be.
    pub(crate) async fn ticket(self) -> Result<Ticket, Unsaid> {
        match self {
            Self::Taken(ticket) => Ok(ticket),
            Self::Coming(task) => task.await.unwrap_or(Err(Unsaid::Closed)),
        }
    }
}

/// A turn has ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Everything that the turn has shown stands before this place in the feed.
    pub at: Cursor,
    /// What came of it.
    pub report: Arc<TurnReport>,
}

/// How a prompt was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It began a turn.
    Began,
    /// It goes into the turn that was running.
    Joined,
}

/// Somebody waits for the end of a turn.
#[derive(Debug)]
pub struct Ticket {
    /// How the prompt was taken.
    pub taken: Taken,
    ended: oneshot::Receiver<Ended>,
}

impl Ticket {
    /// Waits for the end of the turn; `None` when the session was closed first.
    pub async fn ended(&mut self) -> Option<Ended> {
        (&mut self.ended).await.ok()
    }
}

impl SessionHost {
    /// Gives the agent a task of its own.
    pub fn start(agent: Agent, clients: Clients) -> Self {
        let kit = agent.kit();
        let about = About {
            id: kit.session.clone(),
            cwd: kit.workspace.root().to_owned(),
            label: kit.label.clone(),
            model: kit.model.clone(),
            provider: kit.provider.name().to_owned(),
            purse: kit.purse.clone(),
            redactor: kit.redactor.clone(),
            key: key(),
        };
        let policy = kit.policy.clone();
        let mode = policy.read().unwrap_or_else(PoisonError::into_inner).mode;
        let shared = Arc::new(Shared {
            handle: agent.handle(),
            window: Arc::new(AtomicU64::new(agent.window())),
            board: Mutex::default(),
            arrived: Notify::new(),
        });
        let (jobs, inbox) = mpsc::unbounded_channel();
        let runner = tokio::spawn(run(agent, inbox, Gone(shared.clone())));
        let (runner, mode) = (Mutex::new(Some(runner)), watch::Sender::new(mode));
        Self(Arc::new(Owned { shared, jobs, runner, about, policy, mode, clients }))
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.0.about.id
    }

    /// Where the agent works.
    pub fn cwd(&self) -> &Path {
        &self.0.about.cwd
    }

    /// Its name for people.
    pub fn label(&self) -> Option<&str> {
        self.0.about.label.as_deref()
    }

    /// The agent's handle: its feed and its asks.
    pub fn handle(&self) -> &Handle {
        &self.0.shared.handle
    }

    /// Who answers its questions.
    pub fn clients(&self) -> Clients {
        self.0.clients
    }

    /// How many tokens the model can hold, as far as is known.
    pub(crate) fn window(&self) -> Arc<AtomicU64> {
        self.0.shared.window.clone()
    }

    /// Whether the agent is at work.
    pub fn is_running(&self) -> bool {
        self.0.shared.board().running.is_some()
    }

    /// Says something to the agent: begins a turn, or goes into the one that runs (and is on the disk when this
    /// returns). Pictures cannot go into a running turn; they begin the next one.
    pub async fn prompt(&self, message: Message, author: Author) -> Result<Ticket, Unsaid> {
        self.say(message, author, None)?.ticket().await
    }

    /// Says something to the agent, whatever it does. It is on the disk when this returns; the same `sender` id twice is
    /// one message.
    pub async fn deliver(&self, text: String, sender: Option<String>) -> Result<Ticket, Unsaid> {
        self.speak(text, sender)?.ticket().await
    }

    /// Takes a prompt. It is part of the session when this returns.
    pub(crate) fn say(
        &self,
        message: Message,
        author: Author,
        utterance: Option<Utterance>,
    ) -> Result<Speech, Unsaid> {
        let mut board = self.0.shared.board();
        if board.closed {
            return Err(Unsaid::Closed);
        }
        let is_text = message.blocks.iter().all(|block| matches!(block, Block::Text { .. }));
        let (waiter, ended) = oneshot::channel();
        let cancel = CancellationToken::new();
        match &board.running {
            None => {
                board.running = Some(cancel.clone());
                board.waiting.push(waiter);
                let prompt = Prompt { message, author, utterance };
                self.0.jobs.send(Job::Prompt { prompt, cancel }).map_err(|_| Unsaid::Closed)?;
                Ok(Speech::Taken(Ticket { taken: Taken::Began, ended }))
            }
            Some(running) if is_text && !running.is_cancelled() => {
                let sender = utterance.as_deref().map(str::to_owned);
                Ok(self.come(&mut board, message.text(), sender))
            }
            // Nothing joins a turn that is being cancelled.
            Some(_) => {
                let prompt = Some(Prompt { message, author, utterance });
                board.next.push_back(Lined { prompt, cancel, waiter });
                Ok(Speech::Taken(Ticket { taken: Taken::Joined, ended }))
            }
        }
    }

    /// Takes a message that goes to the disk first. It is part of the session when this returns.
    pub(crate) fn speak(&self, text: String, sender: Option<String>) -> Result<Speech, Unsaid> {
        let mut board = self.0.shared.board();
        if board.closed {
            return Err(Unsaid::Closed);
        }
        Ok(self.come(&mut board, text, sender))
    }

    fn come(&self, board: &mut Board, text: String, sender: Option<String>) -> Speech {
        board.coming += 1;
        let (host, before) = (self.clone(), board.cancels);
        Speech::Coming(tokio::spawn(async move { host.hear(text, sender, before).await }))
    }

    /// Brings words to the disk; then they are heard in the turn that runs, or in one of their own. `before` is how often
    /// somebody had cancelled when they were said.
    async fn hear(&self, text: String, sender: Option<String>, before: u64) -> Result<Ticket, Unsaid> {
        let recorded = self.handle().steer(text, sender).await;
        let (waiter, ended) = oneshot::channel();
        let mut board = self.0.shared.board();
        board.coming -= 1;
        self.0.shared.arrived.notify_one();
        recorded?;
        if board.closed {
            return Err(Unsaid::Closed);
        }
        let is_stopped = board.cancels != before;
        let is_waiting = self.handle().is_queue_waiting();
        let joined = |ended| Ok(Ticket { taken: Taken::Joined, ended });
        match &board.running {
            // Said before a cancel, and another turn has begun since: that hears it, and is not theirs to wait for.
            Some(running) if is_stopped && !running.is_cancelled() => {
                let _here = waiter.send(self.0.shared.over(Outcome::Cancelled));
                joined(ended)
            }
            // Said after a cancel, and what was cancelled has not ended yet.
            Some(running) if !is_stopped && running.is_cancelled() => {
                board.next.push_back(Lined { prompt: None, cancel: CancellationToken::new(), waiter });
                joined(ended)
            }
            Some(_) => {
                board.waiting.push(waiter);
                joined(ended)
            }
            // The turn has heard it and ended meanwhile, or it was said before.
            None if !is_waiting => {
                let last = board.last.clone();
                let _here = waiter.send(last.unwrap_or_else(|| self.0.shared.over(Outcome::Done)));
                joined(ended)
            }
            None => {
                let cancel = CancellationToken::new();
                if is_stopped {
                    cancel.cancel();
                }
                board.running = Some(cancel.clone());
                board.waiting.push(waiter);
                self.0.jobs.send(Job::GoOn { cancel }).map_err(|_| Unsaid::Closed)?;
                Ok(Ticket { taken: Taken::Began, ended })
            }
        }
    }

    /// Who said the prompt whose record ends at this place in the feed.
    pub(crate) fn speaker(&self, behind: Cursor) -> Option<Utterance> {
        let board = self.0.shared.board();
        let at = board.speakers.partition_point(|(begun, _)| *begun < behind);
        board.speakers[..at].last().and_then(|(_, utterance)| utterance.clone())
    }

    /// Goes on with a turn that a crash or a kill cut short.
    pub fn go_on(&self) -> Result<Ticket, Unavailable> {
        let mut board = self.0.shared.board();
        let cancel = board.occupy()?;
        let (sender, ended) = oneshot::channel();
        board.waiting.push(sender);
        self.0.jobs.send(Job::GoOn { cancel }).map_err(|_| Unavailable::Closed)?;
        Ok(Ticket { taken: Taken::Began, ended })
    }

    /// Makes room in the model's window now.
    pub fn compact(&self) -> Result<oneshot::Receiver<Result<(), Outcome>>, Unavailable> {
        let cancel = self.0.shared.board().occupy()?;
        let (done, result) = oneshot::channel();
        self.0.jobs.send(Job::Compact { cancel, done }).map_err(|_| Unavailable::Closed)?;
        Ok(result)
    }

    /// Stops what runs, and whatever was said and not heard: it stays in the conversation, and nothing is done about it
    /// before somebody speaks again.
    pub fn cancel(&self) {
        self.0.shared.board().cancel();
    }

    /// What may be done when no rule says anything.
    pub fn mode(&self) -> Mode {
        *self.0.mode.borrow()
    }

    /// Changes that; all clients are told.
    pub fn set_mode(&self, mode: Mode) {
        self.0.policy.write().unwrap_or_else(PoisonError::into_inner).mode = mode;
        self.0.mode.send_replace(mode);
    }

    pub(crate) fn modes(&self) -> watch::Receiver<Mode> {
        self.0.mode.subscribe()
    }

    /// A call that waits for a person, as it may be written down: without secrets.
    pub fn listed(&self, ask: &Ask) -> Listed {
        Listed::new(ask, &self.0.about.redactor, &self.0.about.key)
    }

    /// The state of things in a few lines.
    pub(crate) fn status(&self) -> String {
        let about = &self.0.about;
        let spent = about.purse.spent().usage;
        let cost =
            about.purse.micro_usd().map(|micro| format!(", ${}.{:06}", micro / 1_000_000, micro % 1_000_000));
        format!(
            "session: {}\nmodel: {} ({})\ndirectory: {}\npermission mode: {}\ntokens: {} in, {} out, {} from the cache{}",
            about.id,
            about.model,
            about.provider,
            about.cwd.display(),
            self.mode(),
            spent.input + spent.cache_write,
            spent.output,
            spent.cache_read,
            cost.unwrap_or_default(),
        )
    }

    /// Takes no more prompts and messages, unless the agent is at work or is just being told something: after this,
    /// nothing that was acknowledged can be left unheard by closing.
    pub fn retire(&self) -> Result<(), Unavailable> {
        let mut board = self.0.shared.board();
        if board.running.is_some() || board.coming > 0 {
            return Err(Unavailable::Busy);
        }
        board.closed = true;
        Ok(())
    }

    /// Cancels what runs, ends everything that the agent has started, and waits for that.
    pub async fn close(&self) {
        self.0.shared.shut();
        // The task may have ended already.
        let _gone = self.0.jobs.send(Job::Close);
        let runner = self.0.runner.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runner) = runner
            && let Err(error) = runner.await
        {
            tracing::error!(session = self.id(), %error, "the agent's task has crashed");
        }
    }
}

impl Board {
    fn cancel(&mut self) {
        self.cancels += 1;
        for cancel in self.running.iter().chain(self.next.iter().map(|lined| &lined.cancel)) {
            cancel.cancel();
        }
    }

    /// The turn that was lined up, or rest.
    fn next_turn(&mut self) -> Next {
        self.running = None;
        let Some(Lined { prompt, cancel, waiter }) = self.next.pop_front() else { return Next::Rest };
        self.running = Some(cancel.clone());
        self.waiting.push(waiter);
        match prompt {
            Some(prompt) => Next::Prompt { prompt, cancel },
            None => Next::GoOn { cancel, so_far: None },
        }
    }

    /// A turn for what is queued; one that was cancelled takes it down and ends.
    fn hear_queue(&mut self, is_cancelled: bool, so_far: Option<TurnReport>) -> Next {
        let cancel = CancellationToken::new();
        if is_cancelled {
            cancel.cancel();
        }
        self.running = Some(cancel.clone());
        Next::GoOn { cancel, so_far }
    }

    fn occupy(&mut self) -> Result<CancellationToken, Unavailable> {
        if self.closed {
            return Err(Unavailable::Closed);
        }
        if self.running.is_some() {
            return Err(Unavailable::Busy);
        }
        let cancel = CancellationToken::new();
        self.running = Some(cancel.clone());
        Ok(cancel)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // The task sees that nobody can send it jobs any more, closes the agent and ends.
        self.shared.shut();
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut(&self) {
        let mut board = self.board();
        board.closed = true;
        board.cancel();
    }

    /// The end of a turn that was not needed.
    fn over(&self, outcome: Outcome) -> Ended {
        let report = TurnReport {
            outcome,
            text: String::new(),
            usage: Usage::default(),
            micro_usd: None,
            turns: 0,
            refused: Vec::new(),
            elapsed: Duration::ZERO,
        };
        Ended { at: self.handle.feed().end(), report: Arc::new(report) }
    }

    /// Somebody's prompt is the next in the feed.
    fn speaks(&self, utterance: Option<Utterance>) {
        let begun = self.handle.feed().end();
        self.board().speakers.push((begun, utterance));
    }

    /// The turn is over: decides what comes next, and tells who waited for it.
    fn end_turn(&self, report: TurnReport) -> Next {
        let mut board = self.board();
        // After a failure the queue is left alone: the next attempt would fail, too.
        let can_hear =
            matches!(report.outcome, Outcome::Done | Outcome::TurnLimit { .. } | Outcome::Cancelled);
        let is_cancelled = report.outcome == Outcome::Cancelled
            || board.running.as_ref().is_some_and(|it| it.is_cancelled());
        // Said too late for this turn: heard in another one, or taken down when it was cancelled. Who waits, waits for that.
        if can_hear && !board.closed && self.handle.is_queue_waiting() {
            return board.hear_queue(is_cancelled, Some(report));
        }
        // What was said after the cancel does not overtake what was said before it.
        if is_cancelled && !board.next.is_empty() && board.coming > 0 {
            return Next::Settle { so_far: report };
        }
        let ended = Ended { at: self.handle.feed().end(), report: Arc::new(report) };
        board.last = Some(ended.clone());
        for waiter in std::mem::take(&mut board.waiting) {
            // A client that has gone needs no answer.
            let _gone = waiter.send(ended.clone());
        }
        board.next_turn()
    }

    /// Ends when nothing is on its way to the disk.
    async fn settled(&self) {
        while self.board().coming > 0 {
            self.arrived.notified().await;
        }
    }

    /// Something other than a turn is over.
    fn rest(&self, is_cancelled: bool) -> Next {
        let mut board = self.board();
        if !board.closed && self.handle.is_queue_waiting() {
            return board.hear_queue(is_cancelled, None);
        }
        board.next_turn()
    }
}

/// When the agent's task ends, in whatever way, nobody waits for it in vain.
struct Gone(Arc<Shared>);

impl Drop for Gone {
    fn drop(&mut self) {
        let mut board = self.0.board();
        board.closed = true;
        board.running = None;
        board.waiting.clear();
        board.next.clear();
        drop(board);
        self.0.handle.feed().close();
    }
}

async fn run(mut agent: Agent, mut jobs: mpsc::UnboundedReceiver<Job>, gone: Gone) {
    let shared = gone.0.clone();
    while let Some(job) = jobs.recv().await {
        let mut next = match job {
            Job::Prompt { prompt, cancel } => Next::Prompt { prompt, cancel },
            Job::GoOn { cancel } => Next::GoOn { cancel, so_far: None },
            Job::Compact { cancel, done } => {
                let result = agent.compact(&cancel).await;
                let next = shared.rest(cancel.is_cancelled());
                // Who asked may have gone.
                let _gone = done.send(result);
                next
            }
            Job::Close => break,
        };
        loop {
            next = match next {
                Next::Prompt { prompt: Prompt { message, author, utterance }, cancel } => {
                    shared.speaks(utterance);
                    shared.end_turn(agent.prompt(message, author, &cancel).await)
                }
                Next::GoOn { cancel, so_far } => {
                    let report = agent.go_on(&cancel).await;
                    shared.end_turn(match so_far {
                        Some(earlier) => both(earlier, report),
                        None => report,
                    })
                }
                Next::Settle { so_far } => {
                    shared.settled().await;
                    shared.end_turn(so_far)
                }
                Next::Rest => break,
            };
            // The server may have told it with the first answer.
            shared.window.store(agent.window(), Ordering::Relaxed);
        }
    }
    agent.close().await;
    drop(gone);
}

/// Seeded by the system: different in every process and every time.
fn key() -> [u8; 16] {
    let half = || std::hash::RandomState::new().build_hasher().finish().to_le_bytes();
    let mut key = [0; 16];
    key[..8].copy_from_slice(&half());
    key[8..].copy_from_slice(&half());
    key
}

/// Two turns that are one for those who wait.
fn both(earlier: TurnReport, later: TurnReport) -> TurnReport {
    TurnReport {
        usage: earlier.usage + later.usage,
        micro_usd: earlier.micro_usd.zip(later.micro_usd).map(|(a, b)| a.saturating_add(b)),
        turns: earlier.turns.saturating_add(later.turns),
        refused: earlier.refused.into_iter().chain(later.refused).collect(),
        elapsed: earlier.elapsed + later.elapsed,
        outcome: later.outcome,
        text: later.text,
    }
}
