//! The queue: agents start in the order of spawning, as places get free, after the agents that they wait for.

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Event, State};
use caliban_store::fleet::Change;

use super::Owner;
use super::agent::Agent;
use super::phase::Phase;
use super::store::Then;

impl Owner {
    /// Starts the agents that may start now.
    pub(super) fn start_ready(&mut self) {
        if self.stop.is_cancelled() || self.adopting {
            return;
        }
        let taken = self.agents.values().filter(|agent| agent.takes_place()).count();
        let free = usize::try_from(self.options.max_running).unwrap_or(usize::MAX).saturating_sub(taken);
        if free == 0 {
            return;
        }
        let is_ready = |agent: &&Agent| {
            let is_due = matches!(&agent.phase, Phase::Queued(queued) if queued.tries.is_due());
            is_due && agent.record.after.is_empty()
        };
        let mut ready: Vec<(i64, AgentId)> =
            self.agents.values().filter(is_ready).map(|agent| (agent.record.seq, agent.record.id)).collect();
        ready.sort_unstable();
        for (_, id) in ready.into_iter().take(free) {
            self.start_run(id);
        }
    }

    /// How many are before an agent in the queue.
    pub(super) fn queued_behind(&self, id: AgentId) -> Option<u64> {
        let agent = self.agents.get(&id).filter(|agent| agent.is_queued())?;
        let is_before = |other: &&Agent| other.is_ahead() && other.record.seq < agent.record.seq;
        Some(self.agents.values().filter(is_before).count() as u64)
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
                self.apply(other, Event::SpawnFailed { text });
            }
        }
    }

    /// An agent was removed: agents that wait for it fail.
    pub(super) fn replaced_by_nobody(&mut self, id: AgentId) {
        for other in self.who_waits_for(id) {
            let text = format!("it was to start after {id}, which was removed");
            self.apply(other, Event::SpawnFailed { text });
        }
    }

    /// Agents that wait for `old` wait for its successor from now on, in the same transaction as the respawn: no row ever
    /// waits for an agent that has none. Rows of ended agents change, too: these may be resumed.
    pub(super) fn hand_over(&mut self, old: AgentId, new: AgentId) {
        for id in self.exchange(old, new) {
            if let Some(agent) = self.agents.get(&id) {
                self.batch.add(Change::Update(Box::new(agent.record.clone())), Then::Nothing(id));
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
        let waits = |agent: &&Agent| agent.record.after.contains(&id) && !agent.state().is_ending();
        self.agents.values().filter(waits).map(|agent| agent.record.id).collect()
    }
}
