//! The rows of a session's background agents. Pure bookkeeping.

use std::collections::BTreeMap;

use caliban_core::background::{BackgroundRow, BackgroundStatus};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{BackgroundRefusal, Ground};
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
    /// What it was started for, and where it works; absent until it works.
    order: Option<(String, Ground)>,
    /// Whether it goes on elsewhere: its end is not told here.
    leaves: Leaves,
}

/// Whether an agent goes on elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leaves {
    No,
    /// It is being stopped for that.
    Soon,
    /// It is stopped; its work is on this branch, when it had a worktree and changed something.
    Now(Option<String>),
}

impl Member {
    fn is_running(&self) -> bool {
        self.row.status == BackgroundStatus::Running
    }

    fn tokens(&self) -> u64 {
        self.purse.as_ref().map_or(0, |purse| purse.spent().usage.total())
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
        let running = self.agents.values().filter(|agent| agent.is_running()).count();
        if running >= max as usize {
            return Err(BackgroundRefusal::TooMany(max));
        }
        let id = self.next;
        self.next += 1;
        self.agents.insert(id, Member { row: row(id), cancel, purse: None, order: None, leaves: Leaves::No });
        Ok(id)
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

    pub(super) fn works(&mut self, id: u32, task: JoinHandle<()>, order: (String, Ground)) {
        self.tasks.retain(|task| !task.is_finished());
        self.tasks.push(task);
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.order = Some(order);
        }
    }

    /// What one that runs was started for: its task, where it works, and its model.
    pub(super) fn order(&self, id: u32) -> Result<(String, Ground, String), BackgroundRefusal> {
        self.running(id)?;
        let agent = self.agents.get(&id).ok_or(BackgroundRefusal::Unknown(id))?;
        let (task, ground) = agent.order.clone().ok_or(BackgroundRefusal::Unknown(id))?;
        Ok((task, ground, agent.row.model.clone()))
    }

    /// One that runs shall go on elsewhere; what stops it here.
    pub(super) fn leave(&mut self, id: u32) -> Result<CancellationToken, BackgroundRefusal> {
        let cancel = self.running(id)?;
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.leaves = Leaves::Soon;
        }
        Ok(cancel)
    }

    /// It was stopped: whether it goes on elsewhere. Its work is on this branch.
    pub(super) fn stopped(&mut self, id: u32, branch: Option<&str>) -> bool {
        match self.agents.get_mut(&id) {
            Some(agent) if agent.leaves == Leaves::Soon => {
                agent.leaves = Leaves::Now(branch.map(str::to_owned));
                true
            }
            _ => false,
        }
    }

    /// The branch of one that was stopped to go on elsewhere; refused when it had ended by itself.
    pub(super) fn left(&self, id: u32) -> Result<Option<String>, BackgroundRefusal> {
        let agent = self.agents.get(&id).ok_or(BackgroundRefusal::Unknown(id))?;
        match &agent.leaves {
            Leaves::Now(branch) => Ok(branch.clone()),
            Leaves::No | Leaves::Soon => Err(BackgroundRefusal::Ended(id, agent.row.status)),
        }
    }

    /// The numbers of those that run.
    pub(super) fn at_work(&self) -> Vec<u32> {
        self.agents.iter().filter(|(_, agent)| agent.is_running()).map(|(id, _)| *id).collect()
    }

    pub(super) fn rows(&self) -> Vec<BackgroundRow> {
        self.agents
            .values()
            .map(|agent| BackgroundRow { tokens: agent.tokens(), ..agent.row.clone() })
            .collect()
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
        Some(BackgroundRow { tokens: agent.tokens(), ..agent.row.clone() })
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
