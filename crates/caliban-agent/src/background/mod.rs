//! Background agents of a session: `/bg` and the tool `spawn_background` are one function, [`Background::start`].
//!
//! They are composed like sub-agents, work in the session's process, in its directory or in a worktree of their own, and
//! end with the session unless a person hands them to the fleet (`keep.rs`). Their tokens are reserved in an account of their own below the session's. A background agent starts no others.

pub mod command;
mod keep;
mod raise;
mod rows;
mod run;
pub mod text;
pub mod tool;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use caliban_contract::wall_ms;
use caliban_core::{
    background::{BackgroundLimits, BackgroundRow, BackgroundStatus, Ground, name},
    budget, model_alias,
};
use caliban_permissions::Mode;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::rows::{Assignment, BackgroundBoard};
use crate::{
    blueprint::{Kin, WantedAgent, WorkspaceSource},
    event::{Author, Event, Record},
    handle::Handle,
    past_spending,
    subagent::{Starter, policy_in_worktree},
    transcript::{self, Durability, Transcript, TranscriptError},
};

/// The tool's name.
pub const TOOL: &str = "spawn_background";
/// The longest summary of a task.
const SUMMARY_CHARS: usize = 80;

/// What a background agent is started for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackgroundOrder {
    /// What it shall do.
    pub task: String,
    /// Another model than the session's.
    pub model: Option<String>,
    /// Where it works, when that is not what the settings say.
    pub ground: Option<Ground>,
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
pub enum BackgroundRefusal {
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
    /// The fleet does not take it.
    #[error("background agent {0} was not handed to the fleet: {1}")]
    NotTaken(u32, String),
    /// It had ended, and does not work again.
    #[error("background agent {0} cannot go on: {1}")]
    NotAgain(u32, String),
}

/// The background agents of one session. Cheap to clone.
#[derive(Clone)]
pub struct Background(Arc<BackgroundInner>);

struct BackgroundInner {
    starter: Starter,
    limits: BackgroundLimits,
    board: Mutex<BackgroundBoard>,
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
    pub(crate) fn new(
        mut starter: Starter,
        limits: BackgroundLimits,
    ) -> Result<Self, budget::AccountError<String>> {
        let pool = budget::Limits { fresh: Some(limits.global), ..budget::Limits::NONE };
        // Nothing is asked in the name of the pool itself, so it needs no price.
        let pool = starter.parent.purse.child("the background agents", pool, None)?;
        past_spending::below(&starter.directory, past_spending::BACKGROUND)
            .book(&pool, starter.blueprint.billing);
        let next_id = run::next_id(&starter.directory.join(past_spending::BACKGROUND));
        starter.parent.purse = pool;
        starter.blueprint.budget = budget::Limits { fresh: Some(limits.per_agent), ..budget::Limits::NONE };
        Ok(Self(Arc::new(BackgroundInner {
            starter,
            limits,
            board: Mutex::new(BackgroundBoard::starting_at(next_id)),
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
    pub async fn start(&self, order: BackgroundOrder, spawner: Spawner) -> Result<u32, BackgroundRefusal> {
        let inner = &self.0;
        let main = &inner.starter.blueprint.model;
        let model = order.model.map_or_else(|| main.clone(), |model| model_alias::resolved(&model, main));
        let ground = order.ground.unwrap_or(inner.limits.ground);
        if ground == Ground::Worktree {
            self.check_worktree().map_err(BackgroundRefusal::Impossible)?;
        }
        let cancel = inner.stop.child_token();
        let summary = self.summary(&order.task);
        let row = |id| BackgroundRow {
            id,
            status: BackgroundStatus::Running,
            summary: summary.clone(),
            model: model.clone(),
            started_ms: wall_ms(),
            ended_ms: None,
            tokens: 0,
            cached: 0,
            activity: None,
        };
        let id = inner.board().admit(inner.limits.max_agents, cancel.clone(), row)?;
        let assignment = Assignment { task: order.task, ground, spawner, model };
        let task = run::BackgroundTask { id, assignment, cancel, again: None };
        if let Err(problem) = self.begin(task, format!("{} started: {summary}", name(id))).await {
            inner.board().forget(id);
            return Err(BackgroundRefusal::Impossible(problem));
        }
        self.changed();
        Ok(id)
    }

    /// Lets one work, and tells people so.
    async fn begin(&self, task: run::BackgroundTask, text: String) -> Result<(), String> {
        let (id, assignment) = (task.id, task.assignment.clone());
        // A worktree takes its time: the agent of one is made when it is there.
        let kit = match assignment.ground {
            Ground::None => Some(self.kit(id, assignment.model.clone(), None)?),
            Ground::Worktree => None,
        };
        self.record(id, BackgroundStatus::Running, text).await.map_err(|error| error.to_string())?;
        let running = tokio::spawn(run::run(self.clone(), kit, task));
        self.0.board().works(id, running, assignment);
        Ok(())
    }

    /// A worktree is a branch, files and a setup command: nothing for an agent that may change nothing.
    fn check_worktree(&self) -> Result<(), String> {
        let starter = &self.0.starter;
        if starter.blueprint.isolation.repo.is_none() {
            return Err("a worktree needs a git repository, and this directory is in none".to_owned());
        }
        let mode = starter.parent.policy.read().unwrap_or_else(PoisonError::into_inner).mode;
        match mode {
            Mode::Plan => Err("plan mode changes nothing, so no worktree is made".to_owned()),
            _ => Ok(()),
        }
    }

    /// Where they work unless somebody says otherwise.
    pub(crate) fn usual_ground(&self) -> Ground {
        self.0.limits.ground
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
    pub async fn kill(&self, id: u32) -> Result<(), BackgroundRefusal> {
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

    /// What one is made of, in the session's directory or in this worktree.
    fn kit(&self, id: u32, model: String, worktree: Option<&Path>) -> Result<crate::agent::Kit, String> {
        let starter = &self.0.starter;
        let mut blueprint = starter.blueprint.clone();
        blueprint.model = model;
        let root = worktree.unwrap_or_else(|| starter.workspace.root());
        let workspace = starter.workspace.child(root).map_err(|error| error.to_string())?;
        let policy = starter.parent.policy.read().unwrap_or_else(PoisonError::into_inner).clone();
        blueprint.policy = match worktree {
            Some(_) => policy_in_worktree(policy, workspace.root()),
            None => policy,
        };
        let directory = self.directory(id);
        transcript::make_private_directory(&directory).map_err(|error| error.to_string())?;
        let wanted = WantedAgent {
            label: Some(name(id)),
            kin: Kin::Background(starter.parent.clone()),
            purse: self.0.board().purse(id),
            ..WantedAgent::new(self.session(id), directory, WorkspaceSource::Ready(workspace))
        };
        let kit = blueprint.kit(wanted).map_err(|error| error.to_string())?;
        self.0.board().pays(id, kit.purse.clone());
        Ok(kit)
    }

    /// Where its transcript is.
    fn directory(&self, id: u32) -> PathBuf {
        self.0.starter.directory.join(past_spending::BACKGROUND).join(id.to_string())
    }

    fn session(&self, id: u32) -> String {
        format!("{}-bg-{id}", self.0.starter.session)
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

impl BackgroundInner {
    fn board(&self) -> MutexGuard<'_, BackgroundBoard> {
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
