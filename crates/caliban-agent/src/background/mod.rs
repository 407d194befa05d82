//! Background agents of a session: `/bg` and the tool `spawn_background` are one function, [`Background::start`].
//!
//! They are composed like sub-agents, work in the session's process and directory, and end with the session. Their
//! tokens are reserved in an account of their own below the session's. A background agent starts no others.

mod board;
pub mod command;
mod run;
pub mod text;
pub mod tool;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use caliban_core::{
    background::{BackgroundRow, BackgroundStatus},
    budget,
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::board::Board;
use crate::{
    blueprint::{Kin, Wanted, WorkspaceSource},
    event::{Author, Event, Record},
    handle::Handle,
    spent,
    subagent::Starter,
    transcript::{self, Durability, Transcript, TranscriptError},
};

/// The tool's name.
pub const TOOL: &str = "spawn_background";
/// The longest summary of a task.
const SUMMARY_CHARS: usize = 80;

/// How many there may be, and what they may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many work at the same time.
    pub max_agents: u32,
    /// Tokens of each of them, cache reads and writes included.
    pub per_agent: u64,
    /// Tokens of all of them together; those that have ended count, too.
    pub global: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_agents: 3, per_agent: 50_000, global: 200_000 }
    }
}

/// Who started a background agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spawner {
    /// A person, with `/bg`. Its end is told to the model with the next prompt.
    Person,
    /// The model. Its end begins a turn when the main agent rests.
    Model,
}

/// Why a background agent was not started or stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As many as may work at the same time do.
    #[error(
        "as many background agents as may work at the same time ({0}) are running (background_agents.max_agents); wait \
         for one, stop one with `/bg kill <id>`, or hand the task to the fleet with `caliban --bg \"<task>\"`"
    )]
    TooMany(u32),
    /// The session is being closed.
    #[error("the session is closed")]
    Closed,
    /// There is none of that number.
    #[error("there is no background agent {0}; `/bg list` shows them")]
    Unknown(u32),
    /// It does not run any more.
    #[error("background agent {0} has ended already: {1}")]
    Ended(u32, BackgroundStatus),
    /// It cannot be made or recorded.
    #[error("the background agent cannot be started: {0}")]
    Impossible(String),
}

/// The background agents of one session. Cheap to clone.
#[derive(Clone)]
pub struct Background(Arc<Inner>);

struct Inner {
    starter: Starter,
    limits: Limits,
    board: Mutex<Board>,
    /// Set when the main agent has its transcript.
    home: OnceLock<Home>,
    /// Changes with every row.
    changed: watch::Sender<()>,
    /// The model has to hear of something, and may be at rest.
    woken: Notify,
    /// Stops them all.
    stop: CancellationToken,
}

/// Where the main agent and its people are told of what happens.
struct Home {
    handle: Handle,
    transcript: Transcript,
}

impl Background {
    /// The background agents of the session that the starter belongs to; what was spent in earlier processes counts.
    pub(crate) fn new(mut starter: Starter, limits: Limits) -> Result<Self, budget::AccountError<String>> {
        let pool = budget::Limits { tokens: Some(limits.global), ..budget::Limits::NONE };
        // Nothing is asked in the name of the pool itself, so it needs no price.
        let pool = starter.parent.purse.child("the background agents", pool, None)?;
        spent::below(&starter.directory, spent::BACKGROUND).book(&pool, starter.blueprint.billing);
        let next_id = run::next_id(&starter.directory.join(spent::BACKGROUND));
        starter.parent.purse = pool;
        starter.blueprint.budget = budget::Limits { tokens: Some(limits.per_agent), ..budget::Limits::NONE };
        Ok(Self(Arc::new(Inner {
            starter,
            limits,
            board: Mutex::new(Board::starting_at(next_id)),
            home: OnceLock::new(),
            changed: watch::Sender::new(()),
            woken: Notify::new(),
            stop: CancellationToken::new(),
        })))
    }

    /// The main agent is made. Returns what stops all background agents.
    pub(crate) fn settle(&self, handle: Handle, transcript: Transcript) -> CancellationToken {
        // An agent is made once of each kit.
        let _first = self.0.home.set(Home { handle, transcript });
        self.0.stop.clone()
    }

    /// Starts one. It works when this returns; its number is the answer.
    pub async fn start(&self, task: &str, model: Option<String>, spawner: Spawner) -> Result<u32, Refusal> {
        let inner = &self.0;
        let model = model.unwrap_or_else(|| inner.starter.blueprint.model.clone());
        let cancel = inner.stop.child_token();
        let summary = self.summary(task);
        let row = |id| BackgroundRow {
            id,
            status: BackgroundStatus::Running,
            summary: summary.clone(),
            model: model.clone(),
            started_ms: now_ms(),
            ended_ms: None,
            tokens: 0,
            activity: None,
        };
        let id = inner.board().admit(inner.limits.max_agents, cancel.clone(), row)?;
        let made = match self.kit(id, model) {
            Ok(kit) => {
                let text = format!("background agent {id} started: {summary}");
                let recorded = self.record(id, BackgroundStatus::Running, text).await;
                recorded.map(|()| kit).map_err(|error| error.to_string())
            }
            Err(problem) => Err(problem),
        };
        let kit = match made {
            Ok(kit) => kit,
            Err(problem) => {
                inner.board().forget(id);
                return Err(Refusal::Impossible(problem));
            }
        };
        let task = run::Task { id, prompt: task.to_owned(), spawner, cancel };
        inner.board().works(id, kit.purse.clone());
        let running = tokio::spawn(run::run(self.clone(), kit, task));
        inner.board().keep(running);
        self.changed();
        Ok(id)
    }

    /// All that were not cleared, in the order of their numbers.
    pub fn rows(&self) -> Vec<BackgroundRow> {
        self.0.board().rows()
    }

    /// Changes when a row does.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Ends when there is something for the model to hear and it should not wait for the next prompt.
    pub async fn woken(&self) {
        self.0.woken.notified().await;
    }

    /// Stops one and waits for its end.
    pub async fn kill(&self, id: u32) -> Result<(), Refusal> {
        let mut changes = self.changes();
        let cancel = self.0.board().running(id)?;
        cancel.cancel();
        while self.0.board().running(id).is_ok() && changes.changed().await.is_ok() {}
        Ok(())
    }

    /// Drops those that have ended from the list; how many those were. What they spent still counts.
    pub fn clear(&self) -> usize {
        let cleared = self.0.board().clear();
        self.changed();
        cleared
    }

    /// Stops all and waits for their end. No more can be started.
    pub(crate) async fn close(&self) {
        let running = self.0.board().close();
        self.0.stop.cancel();
        for task in running {
            if let Err(error) = task.await {
                tracing::error!(%error, "the task of a background agent has crashed");
            }
        }
    }

    fn kit(&self, id: u32, model: String) -> Result<crate::agent::Kit, String> {
        let starter = &self.0.starter;
        let mut blueprint = starter.blueprint.clone();
        blueprint.model = model;
        let policy = starter.parent.policy.read().unwrap_or_else(PoisonError::into_inner).clone();
        blueprint.policy = policy;
        let workspace =
            starter.workspace.child(starter.workspace.root()).map_err(|error| error.to_string())?;
        let directory = starter.directory.join(spent::BACKGROUND).join(id.to_string());
        transcript::make_private_directory(&directory).map_err(|error| error.to_string())?;
        let session = format!("{}-bg-{id}", starter.session);
        let wanted = Wanted {
            label: Some(format!("background agent {id}")),
            kin: Kin::Background(starter.parent.clone()),
            ..Wanted::new(session, directory, WorkspaceSource::Ready(workspace))
        };
        blueprint.kit(wanted).map_err(|error| error.to_string())
    }

    /// Tells people, in the session's own transcript.
    async fn record(&self, id: u32, status: BackgroundStatus, text: String) -> Result<(), TranscriptError> {
        let home = self.0.home.get().ok_or(TranscriptError::Closed)?;
        home.transcript.append(Event::Background { id, status, text }, Durability::Written).await
    }

    /// Tells the model, before its next request.
    async fn tell_model(&self, text: String, spawner: Spawner) -> Result<(), TranscriptError> {
        let home = self.0.home.get().ok_or(TranscriptError::Closed)?;
        home.handle.queue(text, Author::Caliban, None).await?;
        if spawner == Spawner::Model {
            self.0.woken.notify_one();
        }
        Ok(())
    }

    fn summary(&self, task: &str) -> String {
        let line = task.trim().lines().next().unwrap_or_default();
        let line = self.0.starter.blueprint.redactor.redact(line);
        caliban_core::inert::line(&line).chars().take(SUMMARY_CHARS).collect()
    }

    fn changed(&self) {
        self.0.changed.send_replace(());
    }
}

impl Inner {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The background agents that had not ended when the process of these records did: nothing runs of them any more.
pub(crate) fn unfinished(records: &[Record]) -> BTreeSet<u32> {
    let mut running = BTreeSet::new();
    for record in records {
        match record.event {
            Event::Background { id, status: BackgroundStatus::Running, .. } => {
                running.insert(id);
            }
            Event::Background { id, .. } => {
                running.remove(&id);
            }
            _ => {}
        }
    }
    running
}

fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}
