//! The rows of a session's background agents. Pure bookkeeping.

use std::collections::BTreeMap;

use caliban_core::background::{BackgroundRow, BackgroundStatus};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Refusal;
use crate::budget::Purse;

#[derive(Default)]
pub(super) struct Board {
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
}

impl Member {
    fn is_running(&self) -> bool {
        self.row.status == BackgroundStatus::Running
    }

    fn tokens(&self) -> u64 {
        self.purse.as_ref().map_or(0, |purse| purse.spent().usage.total())
    }
}

impl Board {
    pub(super) fn starting_at(next: u32) -> Self {
        Self { next, ..Self::default() }
    }

    /// Gives one a number and a row, if there is a place for it.
    pub(super) fn admit(
        &mut self,
        max: u32,
        cancel: CancellationToken,
        row: impl FnOnce(u32) -> BackgroundRow,
    ) -> Result<u32, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        let running = self.agents.values().filter(|agent| agent.is_running()).count();
        if running >= max as usize {
            return Err(Refusal::TooMany(max));
        }
        let id = self.next;
        self.next += 1;
        self.agents.insert(id, Member { row: row(id), cancel, purse: None });
        Ok(id)
    }

    /// It was not started after all. Its number is not given again.
    pub(super) fn forget(&mut self, id: u32) {
        self.agents.remove(&id);
    }

    pub(super) fn works(&mut self, id: u32, purse: Purse) {
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.purse = Some(purse);
        }
    }

    pub(super) fn keep(&mut self, task: JoinHandle<()>) {
        self.tasks.retain(|task| !task.is_finished());
        self.tasks.push(task);
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
    pub(super) fn running(&self, id: u32) -> Result<CancellationToken, Refusal> {
        match self.agents.get(&id) {
            None => Err(Refusal::Unknown(id)),
            Some(agent) if agent.is_running() => Ok(agent.cancel.clone()),
            Some(agent) => Err(Refusal::Ended(id, agent.row.status)),
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
