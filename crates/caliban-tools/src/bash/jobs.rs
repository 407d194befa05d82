//! All commands of one workspace: nothing is started that shutdown does not wait for.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use caliban_contract::tree_limits::{Excess, TreeLimits};
use caliban_keeper::{agent_exceeded, heaviest};
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::job::{JobRequest, RunningCommand};
use crate::{blocking::INTERRUPTED, error_text, limits::JOBS};

/// How a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Something of it is running.
    Running,
    /// Nothing of it is left.
    Ended(Option<i32>),
}

impl JobState {
    pub(super) fn is_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// A background job, for people who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobInfo {
    /// What BashOutput and KillShell call it.
    pub id: String,
    /// The command line.
    pub command: String,
    /// What the model said that it does.
    pub description: Option<String>,
    /// How it is.
    pub state: JobState,
    /// Whether it runs in a terminal: then it may wait for somebody who types.
    pub has_terminal: bool,
}

#[derive(Default)]
pub(crate) struct Jobs {
    end: CancellationToken,
    tasks: TaskTracker,
    /// Of the workspaces that this one is a child of: they wait for our tasks too.
    above: Vec<TaskTracker>,
    background: Mutex<Background>,
    /// Of this workspace and all its children.
    together: Arc<HeldTogether>,
    /// Told whenever a command has ended.
    ended: Arc<Notify>,
}

/// Ended jobs that can still be asked about; older ones are forgotten, their output files stay.
const ENDED_KEPT: usize = 64;

/// The background jobs that can be asked about.
#[derive(Default)]
struct Background {
    jobs: Vec<(String, Arc<RunningCommand>)>,
    started: usize,
}

impl Jobs {
    /// For a child workspace: ended with this one, and on its own.
    pub(crate) fn child(&self) -> Self {
        let mut above = self.above.clone();
        above.push(self.tasks.clone());
        Self {
            end: self.end.child_token(),
            tasks: TaskTracker::new(),
            above,
            background: Mutex::default(),
            together: self.together.clone(),
            ended: Arc::default(),
        }
    }

    /// Starts a command; waits where there is no room for its process, until the call is cancelled. The receiver gets its live
    /// output.
    pub(super) async fn start(
        &self,
        request: JobRequest,
        cancel: &CancellationToken,
    ) -> Result<(Arc<RunningCommand>, mpsc::Receiver<String>), String> {
        let (helper, held) = (request.helper.clone(), request.held_together);
        let started = tokio::select! {
            biased;
            () = self.end.cancelled() => {
                return Err("the session is ending: no command is started any more".into());
            }
            () = cancel.cancelled() => return Err(INTERRUPTED.into()),
            started = RunningCommand::start(request, self.end.child_token()) => started,
        };
        let (job, live, task) = started.map_err(|error| {
            format!("the command could not be started ({}): {}", helper.display(), error_text::reason(&error))
        })?;
        self.together.add(&job, held);
        let tokens: Vec<_> = self.above.iter().map(TaskTracker::token).collect();
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            task.await;
            ended.notify_waiters();
            drop(tokens);
        });
        Ok((job, live))
    }

    /// Starts a command that goes on after the call.
    pub(super) async fn start_background(
        &self,
        request: JobRequest,
        cancel: &CancellationToken,
    ) -> Result<(String, Arc<RunningCommand>), String> {
        let running = self.list().iter().filter(|job| job.state == JobState::Running).count();
        if running >= JOBS {
            return Err(format!("{running} background jobs are running; end one with KillShell first"));
        }
        let (job, _nobody_watches) = self.start(request, cancel).await?;
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        background.started += 1;
        let id = format!("bash_{}", background.started);
        background.jobs.push((id.clone(), job.clone()));
        background.forget_some();
        Ok((id, job))
    }

    /// The background job of that name; the error names those that there are.
    pub(super) fn find(&self, id: &str) -> Result<Arc<RunningCommand>, String> {
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, job)) = background.jobs.iter().find(|(name, _)| name == id) {
            return Ok(job.clone());
        }
        let names: Vec<&str> = background.jobs.iter().map(|(name, _)| name.as_str()).collect();
        match names[..] {
            [] => Err(format!("there is no background job `{id}`: none was started")),
            _ => Err(format!("there is no background job `{id}`; there are {}", names.join(", "))),
        }
    }

    pub(crate) fn list(&self) -> Vec<JobInfo> {
        let info = |(id, job): &(String, Arc<RunningCommand>)| JobInfo {
            id: id.clone(),
            command: job.command.clone(),
            description: job.description.clone(),
            state: *job.state.borrow(),
            has_terminal: job.keyboard.is_some(),
        };
        self.background.lock().unwrap_or_else(PoisonError::into_inner).jobs.iter().map(info).collect()
    }

    /// The background jobs that have ended and of whose end the model does not know.
    pub(super) fn unreported(&self) -> Vec<(String, Arc<RunningCommand>)> {
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = background.jobs.iter();
        jobs.filter(|(_, job)| job.state.borrow().is_ended() && !job.is_reported()).cloned().collect()
    }

    /// Ends when one of the background jobs ends that run now; never when none does.
    pub(crate) async fn one_ended(&self) {
        let is_running = |job: &JobInfo| job.state == JobState::Running;
        let before: Vec<String> = self.list().into_iter().filter(is_running).map(|job| job.id).collect();
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // From here on no end is missed.
            ended.as_mut().enable();
            if self.list().iter().any(|job| !is_running(job) && before.contains(&job.id)) {
                return;
            }
            ended.await;
        }
    }

    /// Whether a command of this workspace, or of one that is above or below it, can change files now.
    pub(crate) fn writes(&self) -> bool {
        self.together.held().running().iter().any(|(_, command)| command.writes)
    }

    pub(crate) async fn shutdown(&self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A workspace that is dropped ends its commands, although nobody waits for them then.
impl Drop for Jobs {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// Commands that are held to limits together: none of them takes too much by itself, which its keeper would see. The one that takes the
/// most is ended, and the others go on.
#[derive(Default)]
struct HeldTogether(Mutex<Held>);

#[derive(Default)]
struct Held {
    commands: Vec<Weak<RunningCommand>>,
    is_watched: bool,
}

/// How long the watch goes on when there is no command.
const WATCHED_ON: Duration = Duration::from_secs(60);

impl HeldTogether {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without limits it is only known.
    fn add(self: &Arc<Self>, command: &Arc<RunningCommand>, limits: Option<TreeLimits>) {
        let mut held = self.held();
        held.running();
        held.commands.push(Arc::downgrade(command));
        let Some(limits) = limits else { return };
        if !std::mem::replace(&mut held.is_watched, true) {
            tokio::spawn(Self::watch(Arc::downgrade(self), limits));
        }
    }

    async fn watch(together: Weak<Self>, limits: TreeLimits) {
        loop {
            let exceeded = tokio::time::timeout(WATCHED_ON, agent_exceeded(limits)).await;
            let Some(together) = together.upgrade() else { return };
            let mut held = together.held();
            let running = held.running();
            match exceeded {
                Ok(excess) => end_heaviest(&running, excess),
                Err(_) if running.is_empty() => {
                    held.is_watched = false;
                    return;
                }
                Err(_) => {}
            }
        }
    }
}

impl Held {
    fn running(&mut self) -> Vec<(i32, Arc<RunningCommand>)> {
        let running = self.commands.iter().filter_map(|command| {
            let command = command.upgrade()?;
            Some((command.keeper()?, command))
        });
        let running: Vec<_> = running.collect();
        self.commands = running.iter().map(|(_, command)| Arc::downgrade(command)).collect();
        running
    }
}

fn end_heaviest(running: &[(i32, Arc<RunningCommand>)], excess: Excess) {
    let keepers: Vec<i32> = running.iter().map(|(keeper, _)| *keeper).collect();
    let heaviest = heaviest(&keepers, excess);
    if let Some((_, command)) = running.iter().find(|(keeper, _)| Some(*keeper) == heaviest) {
        command.end_for(excess);
    }
}

impl Background {
    fn forget_some(&mut self) {
        let ended = self.jobs.iter().filter(|(_, job)| job.state.borrow().is_ended()).count();
        let mut too_many = ended.saturating_sub(ENDED_KEPT);
        self.jobs.retain(|(_, job)| {
            let forget = too_many > 0 && job.state.borrow().is_ended();
            too_many -= usize::from(forget);
            !forget
        });
    }
}
