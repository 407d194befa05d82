//! `--timeout`: an agent ends this long after it left the queue, whatever it does or waits for. Its work stays, and a resume
//! gives it its time anew.
//!
//! The time counts from `begun.json` by the monotonic clock, so neither restarts nor a clock that jumps change it. It ends
//! as by a kill; `stop.json` says why before the first signal, so that the next daemon knows it too.

use caliban_contract::monotonic_ms;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::LifecycleEvent;
use caliban_store::fleet::WantedState;

use super::Owner;
use super::agent::DaemonAgent;
use super::phase::{Phase, WantedStop};
use super::store::Then;
use crate::places::Places;
use crate::records::{self, BegunRecord};

impl DaemonAgent {
    /// When it left the queue, as it was written down.
    pub(super) fn read_begun(&mut self, places: &Places) {
        if self.about.is_timed() {
            self.begun = records::read(&places.agent_dir(self.record.id), records::BEGUN);
        }
    }

    /// How much of its time is left, while it counts.
    pub(super) fn time_left_ms(&self) -> Option<u64> {
        let is_counted = match &self.phase {
            Phase::Running(run) => run.stop.is_none(),
            Phase::Hibernating(_) => true,
            Phase::Registering(_) | Phase::Queued(_) | Phase::Renewing(_) => false,
            Phase::Stopping(_) | Phase::Ended | Phase::Leaving(_) => false,
        };
        let (timeout, begun) = (self.about.timeout_ms.filter(|_| is_counted)?, self.begun.as_ref()?);
        // Without a boot id nobody can tell which clock it was.
        let boot_id = crate::process::boot_id().ok()?;
        Some(timeout.saturating_sub(begun.elapsed_ms(&boot_id, monotonic_ms(), crate::wall_ms())))
    }
}

impl Owner {
    /// An agent leaves the queue: its time begins. Best effort, as far as the next daemon is concerned.
    pub(super) fn begins(&mut self, id: AgentId) {
        let dir = self.places.agent_dir(id);
        let Some(agent) = self.agents.get_mut(&id).filter(|agent| agent.about.is_timed()) else { return };
        let at = crate::wall_ms();
        let first_at = agent.begun.as_ref().map_or(at, |before| before.first_at);
        let (monotonic_ms, boot_id) = (monotonic_ms(), self.boot_id.clone());
        let begun = BegunRecord { first_at, at, monotonic_ms, boot_id };
        if let Err(error) = records::write(&dir, records::BEGUN, &begun) {
            tracing::warn!(%id, "begun.json cannot be written: {error}");
        }
        agent.begun = Some(begun);
    }

    pub(super) fn end_overdue(&mut self) {
        for id in self.ids_of(|agent| agent.time_left_ms() == Some(0)) {
            self.time_out(id);
        }
    }

    fn time_out(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let Some(after_ms) = agent.about.timeout_ms else { return };
        tracing::info!(%id, "its time is up after {}", caliban_core::calendar::short(after_ms));
        agent.record.wanted = WantedState::Kill;
        match &mut agent.phase {
            Phase::Running(run) => {
                run.stop = Some(WantedStop { timed_out_ms: Some(after_ms), ..WantedStop::default() });
                self.save(id, Then::Nothing(id));
            }
            // It sleeps: there is no process to end.
            _ => {
                agent.phase = Phase::Stopping(Vec::new());
                self.apply(id, LifecycleEvent::TimedOut { after_ms });
            }
        }
        self.order_stop(id, self.options.grace_ms, true, Some(after_ms));
    }
}
