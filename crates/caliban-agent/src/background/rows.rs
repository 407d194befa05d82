//! The rows of a session's background agents. Pure bookkeeping.

use std::collections::BTreeMap;

use caliban_core::{
    background::{BackgroundRow, BackgroundStatus},
    usage::Usage,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{BackgroundRefusal, Ground, Spawner};
use crate::budget::Purse;

#[derive(Default)]
pub(super) struct BackgroundBoard {
    next: u32,
    agents: BTreeMap<u32, Member>,
    tasks: Vec<JoinHandle<()>>,
    closed: bool,
}

struct Member {
    row: BackgroundRow,
    cancel: CancellationToken,
    /// Its account; absent until it is made.
    purse: Option<Purse>,
    /// What it is for; absent until it works.
    assignment: Option<Assignment>,
    /// The branch that has its work, when it had a worktree and changed something.
    branch: Option<String>,
    /// Whether it goes on elsewhere: its end is not told here.
    leaves: Leaves,
}

/// What a background agent is for.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    pub(super) task: String,
    pub(super) ground: Ground,
    pub(super) spawner: Spawner,
    pub(super) model: String,
}

/// One that has ended and goes on.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) assignment: Assignment,
    pub(super) branch: Option<String>,
}

/// Whether an agent goes on elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leaves {
    No,
    /// It is being stopped for that.
    Soon,
    /// It is stopped.
    Now,
}

impl Member {
    fn is_running(&self) -> bool {
        self.row.status == BackgroundStatus::Running
    }

    /// Its row, with what it has spent by now.
    fn row(&self) -> BackgroundRow {
        let usage = self.purse.as_ref().map_or(Usage::default(), |purse| purse.spent().usage);
        BackgroundRow { tokens: usage.fresh(), cached: usage.cache_read, ..self.row.clone() }
    }
}

impl BackgroundBoard {
    pub(super) fn starting_at(next: u32) -> Self {
        Self { next, ..Self::default() }
    }

    /// Gives one a number and a row, if there is a place for it.
    pub(super) fn admit(
        &mut self,
        max: u32,
        cancel: CancellationToken,
        row: impl FnOnce(u32) -> BackgroundRow,
    ) -> Result<u32, BackgroundRefusal> {
        if self.closed {
            return Err(BackgroundRefusal::Closed);
        }
        self.check_place(max)?;
        let id = self.next;
        self.next += 1;
        let member =
            Member { row: row(id), cancel, purse: None, assignment: None, branch: None, leaves: Leaves::No };
        self.agents.insert(id, member);
        Ok(id)
    }

    fn check_place(&self, max: u32) -> Result<(), BackgroundRefusal> {
        let running = self.agents.values().filter(|agent| agent.is_running()).count();
        if running >= max as usize { Err(BackgroundRefusal::TooMany(max)) } else { Ok(()) }
    }

    /// One that has ended at its budget works again, if there is a place for it.
    pub(super) fn raise(
        &mut self,
        id: u32,
        max: u32,
        cancel: CancellationToken,
        now_ms: u64,
    ) -> Result<Again, BackgroundRefusal> {
        match self.agents.get(&id).map(|agent| agent.row.status) {
            None => Err(BackgroundRefusal::Unknown(id)),
            Some(BackgroundStatus::BudgetExceeded) => {
                self.check_place(max)?;
                self.again(id, cancel, now_ms)
            }
            Some(status) => Err(BackgroundRefusal::Ended(id, status)),
        }
    }

    /// One that has ended works again. What it rested does not count as its time.
    pub(super) fn again(
        &mut self,
        id: u32,
        cancel: CancellationToken,
        now_ms: u64,
    ) -> Result<Again, BackgroundRefusal> {
        if self.closed {
            return Err(BackgroundRefusal::Closed);
        }
        let agent = self.agents.get_mut(&id).ok_or(BackgroundRefusal::Unknown(id))?;
        let assignment = agent.assignment.clone().ok_or(BackgroundRefusal::Unknown(id))?;
        let rested = agent.row.ended_ms.take().map_or(0, |ended| now_ms.saturating_sub(ended));
        agent.row.started_ms = agent.row.started_ms.saturating_add(rested);
        agent.row.status = BackgroundStatus::Running;
        (agent.cancel, agent.leaves) = (cancel, Leaves::No);
        Ok(Again { assignment, branch: agent.branch.take() })
    }

    /// The account of one.
    pub(super) fn purse(&self, id: u32) -> Option<Purse> {
        self.agents.get(&id)?.purse.clone()
    }

    /// It was not started after all. Its number is not given again.
    pub(super) fn forget(&mut self, id: u32) {
        self.agents.remove(&id);
    }

    pub(super) fn pays(&mut self, id: u32, purse: Purse) {
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.purse = Some(purse);
        }
    }

    pub(super) fn works(&mut self, id: u32, task: JoinHandle<()>, assignment: Assignment) {
        self.tasks.retain(|task| !task.is_finished());
        self.tasks.push(task);
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.assignment = Some(assignment);
        }
    }

    /// What one that runs is for.
    pub(super) fn assignment(&self, id: u32) -> Result<Assignment, BackgroundRefusal> {
        self.running(id)?;
        let agent = self.agents.get(&id).ok_or(BackgroundRefusal::Unknown(id))?;
        agent.assignment.clone().ok_or(BackgroundRefusal::Unknown(id))
    }

    /// The branch that has its work.
    pub(super) fn leaves_work(&mut self, id: u32, branch: Option<&str>) {
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.branch = branch.map(str::to_owned);
        }
    }

    /// One that runs shall go on elsewhere; what stops it here.
    pub(super) fn leave(&mut self, id: u32) -> Result<CancellationToken, BackgroundRefusal> {
        let cancel = self.running(id)?;
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.leaves = Leaves::Soon;
        }
        Ok(cancel)
    }

    /// It was stopped: whether it goes on elsewhere.
    pub(super) fn stopped(&mut self, id: u32) -> bool {
        match self.agents.get_mut(&id) {
            Some(agent) if agent.leaves == Leaves::Soon => {
                agent.leaves = Leaves::Now;
                true
            }
            _ => false,
        }
    }

    /// The branch of one that was stopped to go on elsewhere; refused when it had ended by itself.
    pub(super) fn left(&self, id: u32) -> Result<Option<String>, BackgroundRefusal> {
        let agent = self.agents.get(&id).ok_or(BackgroundRefusal::Unknown(id))?;
        match &agent.leaves {
            Leaves::Now => Ok(agent.branch.clone()),
            Leaves::No | Leaves::Soon => Err(BackgroundRefusal::Ended(id, agent.row.status)),
        }
    }

    /// The numbers of those that run.
    pub(super) fn at_work(&self) -> Vec<u32> {
        self.agents.iter().filter(|(_, agent)| agent.is_running()).map(|(id, _)| *id).collect()
    }

    pub(super) fn rows(&self) -> Vec<BackgroundRow> {
        self.agents.values().map(Member::row).collect()
    }

    pub(super) fn does(&mut self, id: u32, activity: Option<String>) {
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.row.activity = activity;
        }
    }

    /// It has ended; its row as it is now.
    pub(super) fn ended(&mut self, id: u32, status: BackgroundStatus, now_ms: u64) -> Option<BackgroundRow> {
        let agent = self.agents.get_mut(&id)?;
        agent.row.status = status;
        agent.row.ended_ms = Some(now_ms);
        agent.row.activity = None;
        Some(agent.row())
    }

    /// What stops one that runs.
    pub(super) fn running(&self, id: u32) -> Result<CancellationToken, BackgroundRefusal> {
        match self.agents.get(&id) {
            None => Err(BackgroundRefusal::Unknown(id)),
            Some(agent) if agent.is_running() => Ok(agent.cancel.clone()),
            Some(agent) => Err(BackgroundRefusal::Ended(id, agent.row.status)),
        }
    }

    pub(super) fn clear(&mut self) -> usize {
        let before = self.agents.len();
        self.agents.retain(|_, agent| agent.is_running());
        before - self.agents.len()
    }

    /// Admits nobody from now on; the tasks of those that run.
    pub(super) fn close(&mut self) -> Vec<JoinHandle<()>> {
        self.closed = true;
        std::mem::take(&mut self.tasks)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}
