//! The end of a run: what it means is decided in `decide.rs`, and happens here.

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::LifecycleEvent;

use super::agent::DaemonAgent;
use super::decide::{self, RunEnd};
use super::phase::{Hibernating, Keeper, Phase};
use super::{Owner, resume};
use crate::records::{Again, ExitRecord};

impl Owner {
    /// A run is over and its whole process tree is gone.
    pub(super) fn gone(&mut self, id: AgentId, nonce: &str, exit: Option<&ExitRecord>) {
        let is_it = |agent: &&mut DaemonAgent| agent.record.nonce == nonce && agent.run().is_some();
        let Some(agent) = self.agents.get_mut(&id).filter(is_it) else { return };
        agent.read_report(&self.places);
        let is_missing = exit.is_some_and(|exit| exit.again == Again::IfReplaced);
        let is_program_lost = is_missing && agent.run_mut().is_some_and(|run| run.tries.is_program_lost());
        let end = decide::end_of_run(&decide::RunFacts {
            state: agent.state(),
            wanted: agent.record.wanted,
            timed_out_ms: agent.run().and_then(|run| run.stop.as_ref()?.timed_out_ms),
            report: agent.own_report(),
            exit,
            is_program_lost,
        });
        self.watch.remove(id);
        match end {
            RunEnd::NotBegun(text) => return self.not_begun(id, text),
            RunEnd::Hibernates { events, note } => {
                self.run_ended(id, note);
                self.leave_run(id, events, Phase::Hibernating(Hibernating::default()));
            }
            RunEnd::Over { events, note } => {
                self.run_ended(id, note);
                self.leave_run(id, events, Phase::Ended);
            }
        }
        self.start_ready();
    }

    fn run_ended(&mut self, id: AgentId, note: Option<String>) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.record.note = note;
        if agent.record.resume_prompt.is_some() && resume::was_heard(&self.places.agent_dir(id)) {
            agent.record.resume_prompt = None;
            agent.unsaved = true;
        }
        let _nobodys = std::fs::remove_file(self.places.agent_socket(id));
    }

    /// An agent leaves its run for another phase, by these events.
    pub(super) fn leave_run(&mut self, id: AgentId, events: Vec<LifecycleEvent>, next: Phase) {
        let Some(run) = self.agents.get_mut(&id).and_then(|agent| agent.run_mut()) else { return };
        run.keeper = Keeper::Clearing;
        for event in events {
            self.apply(id, event);
        }
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let stop = match std::mem::replace(&mut agent.phase, next) {
            Phase::Running(run) => run.stop,
            other => {
                agent.phase = other;
                return;
            }
        };
        self.publish(id);
        self.run_over(id, stop);
    }

    /// A run that never began, of an agent that is to end.
    pub(super) fn killed_before_start(&mut self, id: AgentId) {
        self.leave_run(id, vec![LifecycleEvent::Killed { signal: None }], Phase::Ended);
    }
}
