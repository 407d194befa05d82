//! One live conversation, for any number of clients.
//!
//! The agent runs in a task of its own and belongs to the host; a client that comes, goes or sleeps changes nothing for
//! it. A prompt while a turn runs is steering and ends with that turn. A cancel ends everything that was said before it:
//! what the agent has not heard is taken down in the conversation and not worked on. Knows nothing of connections.

mod answering;
mod hosted;
mod runner;
mod ticket;
mod work_queue;

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, Hasher as _},
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock, Weak, atomic::AtomicU64},
};

use caliban_agent::{
    AgentChange,
    background::Background,
    choices::Choices,
    event::{Ask, Author, Outcome, Record},
    feed::{Cursor, FeedEntry},
    handle::Handle,
};
use caliban_contract::records::AskRecord;
use caliban_core::message::{Block, Effort, Message};
use caliban_permissions::{Mode, Policy, SourcedRule};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub use self::{
    hosted::{About, Hosted},
    ticket::{EndedTurn, TakenPrompt, Ticket, Unavailable, Unsaid},
};
use self::{
    runner::{Gone, HostShared, RunnerJob},
    work_queue::{HostBoard, Lined, NextWork, Prompt},
};
pub(crate) use self::{ticket::Speech, work_queue::Utterance};
use crate::{commands::Commands, permission};

/// How soon to look again whether a message that is on its way has arrived.
const SETTLING: std::time::Duration = std::time::Duration::from_millis(20);

/// Who answers a question of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// Exactly one client, for the whole life of the session: when it cannot decide, nobody can, and the call is
    /// refused.
    One,
    /// Clients come and go: what one cannot decide waits for the next.
    Many,
}

/// Which model answers, and how hard it thinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// The model.
    pub model: String,
    /// How hard it thinks.
    pub effort: Effort,
}

/// A live conversation. Cheap to clone; when the last clone is dropped, the turn is cancelled and the agent closed.
#[derive(Clone)]
pub struct SessionHost(Arc<Owned>);

struct Owned {
    shared: Arc<HostShared>,
    jobs: mpsc::UnboundedSender<RunnerJob>,
    runner: Mutex<Option<JoinHandle<()>>>,
    about: About,
    /// For digests of calls: new in every process, and known to nobody else.
    key: [u8; 16],
    /// The digests of the questions that lists show.
    listed: watch::Sender<BTreeSet<String>>,
    mode: watch::Sender<Mode>,
    clients: Clients,
    background: Option<Background>,
    commands: Option<Arc<dyn Commands>>,
    settings: watch::Sender<ModelSettings>,
    _wakes: Option<AbortOnDropHandle<()>>,
}

/// Begins a turn when a background agent has something for a model that rests.
async fn wake(owned: Weak<Owned>, background: Background) {
    loop {
        background.woken().await;
        loop {
            let Some(host) = owned.upgrade().map(SessionHost) else { return };
            let mut rested = host.0.shared.rested.subscribe();
            // A turn that runs hears it by itself. What runs and is no turn does not: looked at again when it has ended.
            if !host.handle().is_queue_waiting() || !matches!(host.go_on(), Err(Unavailable::Busy)) {
                break;
            }
            drop(host);
            if rested.changed().await.is_err() {
                return;
            }
        }
    }
}

impl SessionHost {
    /// Gives the agent a task of its own.
    pub fn start(agent: impl Hosted, clients: Clients) -> Self {
        Self::start_with(Box::new(agent), clients, None)
    }

    /// The same with commands that the program adds.
    pub fn start_with(agent: Box<dyn Hosted>, clients: Clients, commands: Option<Arc<dyn Commands>>) -> Self {
        let about = agent.about();
        let mode = about.policy.read().unwrap_or_else(PoisonError::into_inner).mode;
        let shared = Arc::new(HostShared {
            handle: agent.handle(),
            window: Arc::new(AtomicU64::new(agent.window())),
            board: Mutex::default(),
            arrived: Notify::new(),
            rested: watch::Sender::new(()),
        });
        let background = agent.background();
        let (jobs, inbox) = mpsc::unbounded_channel();
        let runner = tokio::spawn(runner::run(agent, inbox, Gone(shared.clone())));
        let (runner, mode) = (Mutex::new(Some(runner)), watch::Sender::new(mode));
        let settings = ModelSettings { model: about.model.clone(), effort: about.effort };
        let settings = watch::Sender::new(settings);
        Self(Arc::new_cyclic(|owned: &Weak<Owned>| {
            let wakes = background
                .clone()
                .map(|background| AbortOnDropHandle::new(tokio::spawn(wake(owned.clone(), background))));
            Owned {
                shared,
                jobs,
                runner,
                about,
                key: key(),
                listed: watch::Sender::default(),
                mode,
                clients,
                background,
                commands,
                settings,
                _wakes: wakes,
            }
        }))
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

    /// The session's background agents, where it can have any.
    pub fn background(&self) -> Option<&Background> {
        self.0.background.as_ref()
    }

    /// The commands that the program has added.
    pub fn commands(&self) -> Option<&Arc<dyn Commands>> {
        self.0.commands.as_ref()
    }

    /// Which model answers, and how hard it thinks.
    pub fn settings(&self) -> watch::Receiver<ModelSettings> {
        self.0.settings.subscribe()
    }

    /// Another model answers from the next turn on, or thinks as hard as this. Returns when that is so; while a turn runs,
    /// when it is sure to be.
    pub async fn configure(&self, change: AgentChange) -> Result<(), String> {
        let is_running = self.is_running();
        let (done, result) = oneshot::channel();
        let job = RunnerJob::Configure { change: change.clone(), done };
        self.0.jobs.send(job).map_err(|_| "the session was closed".to_owned())?;
        if !is_running {
            result.await.map_err(|_| "the session was closed".to_owned())??;
        }
        let provider = &self.0.about.provider;
        self.note_choice(|choices| {
            choices.model =
                change.model.clone().map(|model| (provider.clone(), model)).or(choices.model.take());
            choices.effort = change.effort.or(choices.effort);
        });
        self.0.settings.send_modify(|settings| {
            if let Some(model) = change.model {
                settings.model = model;
            }
            settings.effort = change.effort.unwrap_or(settings.effort);
        });
        Ok(())
    }

    /// The files that a person's words name, for the model.
    pub fn mentioned(&self, words: &str) -> Vec<Block> {
        self.bring(caliban_contract::mentions::named(words))
    }

    /// The files with these names.
    pub fn bring<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<Block> {
        self.0.about.mentions.as_ref().map(|mentions| mentions.bring(names)).unwrap_or_default()
    }

    /// The models that can be chosen.
    pub(crate) fn models(&self) -> &[String] {
        &self.0.about.models
    }

    /// What the agent may do.
    pub fn policy(&self) -> &Arc<RwLock<Policy>> {
        &self.0.about.policy
    }

    /// The records of the conversation so far.
    pub fn records(&self) -> Vec<Record> {
        let (feed, mut cursor) = (self.handle().feed(), Cursor::default());
        let end = feed.end();
        let mut records = Vec::new();
        while cursor < end {
            match feed.next(&mut cursor) {
                Some(FeedEntry::Record(record)) => records.push(record.as_ref().clone()),
                Some(_) => {}
                None => break,
            }
        }
        records
    }

    /// How many tokens the model can hold, as far as is known.
    pub(crate) fn window(&self) -> Arc<AtomicU64> {
        self.0.shared.window.clone()
    }

    /// What the session has spent is known here.
    pub(crate) fn purse(&self) -> caliban_agent::budget::Purse {
        self.0.about.purse.clone()
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
                self.begin(NextWork::Prompt { prompt, cancel }).map_err(|_| Unsaid::Closed)?;
                Ok(Speech::Taken(Ticket { taken: TakenPrompt::Began, ended }))
            }
            Some(running) if is_text && !running.is_cancelled() => {
                let sender = utterance.as_deref().map(str::to_owned);
                Ok(self.come(&mut board, message.text(), sender))
            }
            // Nothing joins a turn that is being cancelled.
            Some(_) => {
                let prompt = Some(Prompt { message, author, utterance });
                board.next.push_back(Lined { prompt, cancel, waiter });
                Ok(Speech::Taken(Ticket { taken: TakenPrompt::Joined, ended }))
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

    fn come(&self, board: &mut HostBoard, text: String, sender: Option<String>) -> Speech {
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
        let joined = |ended| Ok(Ticket { taken: TakenPrompt::Joined, ended });
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
                self.begin(NextWork::GoOn { cancel, so_far: None }).map_err(|_| Unsaid::Closed)?;
                Ok(Ticket { taken: TakenPrompt::Began, ended })
            }
        }
    }

    fn begin(&self, turn: NextWork) -> Result<(), Unavailable> {
        self.0.jobs.send(RunnerJob::Turn(Box::new(turn))).map_err(|_| Unavailable::Closed)
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
        self.begin(NextWork::GoOn { cancel, so_far: None })?;
        Ok(Ticket { taken: TakenPrompt::Began, ended })
    }

    /// Does something while the agent rests, as one step: what is said meanwhile begins a turn afterwards.
    pub async fn while_at_rest<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let cancel = self.0.shared.board().occupy()?;
        let (done, result) = oneshot::channel();
        let work = Box::new(move || {
            // Who asked may have gone.
            let _gone = done.send(work());
        });
        self.0.jobs.send(RunnerJob::Work { cancel, work }).map_err(|_| Unavailable::Closed)?;
        result.await.map_err(|_| Unavailable::Closed)
    }

    /// Makes room in the model's window now.
    pub fn compact(&self) -> Result<oneshot::Receiver<Result<(), Outcome>>, Unavailable> {
        let cancel = self.0.shared.board().occupy()?;
        let (done, result) = oneshot::channel();
        self.0.jobs.send(RunnerJob::Compact { cancel, done }).map_err(|_| Unavailable::Closed)?;
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
        self.note_choice(|choices| choices.mode = Some(mode));
        self.0.about.policy.write().unwrap_or_else(PoisonError::into_inner).mode = mode;
        self.0.mode.send_replace(mode);
    }

    /// Adds a rule for the rest of the session.
    pub fn add_rule(&self, rule: SourcedRule) {
        if let Some(directory) = &self.0.about.directory {
            Choices::note_rule(directory, rule.clone());
        }
        self.0.about.policy.write().unwrap_or_else(PoisonError::into_inner).rules.push(rule);
    }

    fn note_choice(&self, change: impl FnOnce(&mut Choices)) {
        if let Some(directory) = &self.0.about.directory {
            Choices::note(directory, change);
        }
    }

    pub(crate) fn modes(&self) -> watch::Receiver<Mode> {
        self.0.mode.subscribe()
    }

    /// A call that waits for a person, as it may be written down: without secrets.
    pub fn listed(&self, ask: &Ask) -> AskRecord {
        permission::listed(ask, &self.0.about.redactor, &self.0.key)
    }

    /// The state of things in a few lines.
    pub(crate) fn status(&self) -> String {
        let about = &self.0.about;
        let spent = about.purse.spent().usage;
        let cost =
            about.purse.micro_usd().map(|micro| format!(", ${}.{:06}", micro / 1_000_000, micro % 1_000_000));
        format!(
            "session: {}\nmodel: {} ({})\ndirectory: {}\npermission mode: {}\nspent: {}{}",
            about.id,
            self.0.settings.borrow().model,
            about.provider,
            about.cwd.display(),
            self.mode(),
            spent.words(),
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

    /// Cancels what runs, waits for its end and takes no more prompts; whether something ran. [`Self::take_up`] undoes it.
    pub async fn lay_down(&self) -> Result<bool, Unavailable> {
        let mut was_running = false;
        loop {
            let mut rested = self.0.shared.rested.subscribe();
            match self.retire() {
                Ok(()) => return Ok(was_running),
                Err(Unavailable::Closed) => return Err(Unavailable::Closed),
                Err(Unavailable::Busy) => {}
            }
            was_running |= self.is_running();
            self.cancel();
            tokio::select! {
                changed = rested.changed() => changed.map_err(|_| Unavailable::Closed)?,
                // A message that was on its way, and did not arrive, begins nothing.
                () = tokio::time::sleep(SETTLING) => {}
            }
        }
    }

    /// Takes prompts again.
    pub fn take_up(&self) {
        self.0.shared.board().closed = false;
    }

    /// Cancels what runs, ends everything that the agent has started, and waits for that.
    pub async fn close(&self) {
        self.0.shared.shut();
        // The task may have ended already.
        let _gone = self.0.jobs.send(RunnerJob::Close);
        let runner = self.0.runner.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runner) = runner
            && let Err(error) = runner.await
        {
            tracing::error!(session = self.id(), %error, "the agent's task has crashed");
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // The task sees that nobody can send it jobs any more, closes the agent and ends.
        self.shared.shut();
    }
}

/// Seeded by the system: different in every process and every time.
fn key() -> [u8; 16] {
    let half = || std::hash::RandomState::new().build_hasher().finish().to_le_bytes();
    let mut key = [0; 16];
    key[..8].copy_from_slice(&half());
    key[8..].copy_from_slice(&half());
    key
}
