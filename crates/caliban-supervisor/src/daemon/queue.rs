//! The queue: agents start by priority, then in the order of spawning, as places get free, after the agents and the time that
//! they wait for, and not in quiet hours.

use std::cmp::Reverse;

use caliban_contract::local_time;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{LifecycleEvent, State};
use caliban_core::priority::Priority;
use caliban_core::wait::QueuedFor;
use caliban_store::fleet::RegistryChange;

use super::Owner;
use super::agent::DaemonAgent;
use super::phase::Phase;
use super::slots::WantedSlot;
use super::store::Then;

/// The place of an agent in the queue: the lower one starts first.
type QueueOrder = (Reverse<Priority>, i64);

/// What the clock says to those who wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hour {
    wall_ms: u64,
    boot_ms: u64,
    /// Until when it is quiet, if it is.
    quiet_until: Option<u64>,
}

impl DaemonAgent {
    fn turn(&self) -> QueueOrder {
        (Reverse(self.about.priority), self.record.seq)
    }

    /// What keeps it from starting, whether there is a place or not.
    fn held(&self, hour: Hour) -> Option<QueuedFor> {
        let left = self.about.time_to_start(hour.wall_ms, hour.boot_ms);
        let at_ms = (left > 0).then(|| hour.wall_ms.saturating_add(left));
        let until_ms = hour.quiet_until.filter(|_| self.about.keeps_quiet_hours);
        at_ms
            .map(|at_ms| QueuedFor::Time { at_ms })
            .or(until_ms.map(|until_ms| QueuedFor::QuietHours { until_ms }))
    }

    /// Whether those who are queued after it wait for its start. Agents that wait on `--after` or for a time do not count.
    fn is_ahead(&self, hour: Hour) -> bool {
        self.is_queued() && self.record.after.is_empty() && self.held(hour).is_none()
    }
}

impl Owner {
    pub(super) fn start_ready(&mut self) {
        if self.stop.is_cancelled() || self.adopting {
            return;
        }
        let hour = self.hour();
        let free = self.free_places();
        let is_ready = |agent: &&DaemonAgent| {
            let is_due = matches!(&agent.phase, Phase::Queued(queued) if queued.tries.is_due());
            is_due && agent.is_ahead(hour)
        };
        let mut ready: Vec<&DaemonAgent> = self.agents.values().filter(is_ready).collect();
        ready.sort_unstable_by_key(|agent| agent.turn());
        let first = ready.into_iter().take(free);
        if let Some(limit) = self.options.max_running_user {
            let wanted = first.map(|agent| WantedSlot {
                id: agent.record.id,
                nonce: agent.record.nonce.clone(),
                priority: agent.about.priority,
            });
            return self.take_slots(wanted.collect(), limit);
        }
        let first: Vec<AgentId> = first.map(|agent| agent.record.id).collect();
        for id in first {
            self.start_run(id);
        }
    }

    /// How many more agents of this repo may run.
    fn free_places(&self) -> usize {
        let taken = self.agents.values().filter(|agent| agent.takes_place()).count();
        usize::try_from(self.options.max_running).unwrap_or(usize::MAX).saturating_sub(taken)
    }

    /// The present, as far as the queue depends on it.
    pub(super) fn hour(&self) -> Hour {
        let quiet = &self.options.quiet_hours;
        let until = if quiet.is_empty() { None } else { quiet.until(&local_time::now()) };
        let quiet_until = until.and_then(|until| u64::try_from(until.as_millisecond()).ok());
        Hour { wall_ms: crate::wall_ms(), boot_ms: caliban_process::boot_ms(), quiet_until }
    }

    /// What an agent waits for before its start, and how many are before it; of many at once, see [`Owner::waits_of_all`].
    pub(super) fn waits_of(&self, id: AgentId) -> (Option<u64>, Option<QueuedFor>) {
        let Some(agent) = self.agents.get(&id).filter(|agent| agent.is_queued()) else { return (None, None) };
        let hour = self.hour();
        let is_before = |other: &&DaemonAgent| other.is_ahead(hour) && other.turn() < agent.turn();
        let before = self.agents.values().filter(is_before).count() as u64;
        (Some(before), self.queued_for(agent, hour, self.free_places()))
    }

    /// The same for every agent, counted once.
    pub(super) fn waits_of_all(&self) -> impl Fn(&DaemonAgent) -> (Option<u64>, Option<QueuedFor>) {
        let (hour, free) = (self.hour(), self.free_places());
        let mut ahead: Vec<QueueOrder> =
            self.agents.values().filter(|agent| agent.is_ahead(hour)).map(DaemonAgent::turn).collect();
        ahead.sort_unstable();
        move |agent| {
            if !agent.is_queued() {
                return (None, None);
            }
            let before = ahead.partition_point(|turn| *turn < agent.turn()) as u64;
            (Some(before), self.queued_for(agent, hour, free))
        }
    }

    fn queued_for(&self, agent: &DaemonAgent, hour: Hour, free: usize) -> Option<QueuedFor> {
        if !agent.record.after.is_empty() {
            return None;
        }
        let place = match self.options.max_running_user {
            Some(limit) if free > 0 && self.slots.is_full() => QueuedFor::UserLimit { limit },
            _ => QueuedFor::Place,
        };
        Some(agent.held(hour).unwrap_or(place))
    }

    /// An agent has ended: agents that wait for it may start if it is done, else they fail.
    pub(super) fn ended(&mut self, id: AgentId, state: State) {
        for other in self.who_waits_for(id) {
            if state == State::Done {
                if let Some(agent) = self.agents.get_mut(&other) {
                    agent.record.after.retain(|after| *after != id);
                }
                self.save(other, Then::Nothing(other));
                self.publish(other);
            } else {
                let text = format!("it was to start after {id}, which ended {state}");
                self.apply(other, LifecycleEvent::SpawnFailed { text });
            }
        }
    }

    /// An agent was removed: agents that wait for it fail.
    pub(super) fn replaced_by_nobody(&mut self, id: AgentId) {
        for other in self.who_waits_for(id) {
            let text = format!("it was to start after {id}, which was removed");
            self.apply(other, LifecycleEvent::SpawnFailed { text });
        }
    }

    /// Agents that wait for `old` wait for its successor from now on, in the same transaction as the respawn: no row ever
    /// waits for an agent that has none. Rows of ended agents change, too: these may be resumed.
    pub(super) fn hand_over(&mut self, old: AgentId, new: AgentId) {
        for id in self.exchange(old, new) {
            if let Some(agent) = self.agents.get(&id) {
                self.batch.add(RegistryChange::Update(Box::new(agent.record.clone())), Then::Nothing(id));
            }
        }
    }

    /// Replaces `old` in what agents wait for, in memory; returns those agents.
    pub(super) fn exchange(&mut self, old: AgentId, new: AgentId) -> Vec<AgentId> {
        let mut changed = Vec::new();
        for agent in self.agents.values_mut() {
            for after in agent.record.after.iter_mut().filter(|after| **after == old) {
                *after = new;
                changed.push(agent.record.id);
            }
        }
        changed
    }

    /// The agents that have not begun because they wait for an agent.
    pub(super) fn who_waits_for(&self, id: AgentId) -> Vec<AgentId> {
        self.ids_of(|agent| agent.record.after.contains(&id) && !agent.state().is_ending())
    }
}
