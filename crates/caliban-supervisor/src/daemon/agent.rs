//! One agent in memory: what the registry has, what its files say, and its phase.

use std::path::PathBuf;

use caliban_core::lifecycle::{State, WaitingFor};
use caliban_core::wait::QueuedFor;
use caliban_keeper::Group;
use caliban_store::fleet::{AgentRecord, WantedState};

use super::phase::{Keeper, Phase, Registering, Renewing, Run};
use super::review::LastReview;
use crate::places::Places;
use crate::process::{MARKER, Traces};
use crate::protocol::AgentRow;
use crate::records::{self, BegunRecord, ShimRecord, WorkerStatus};
use crate::row::{About, RowFacts};

/// Runs that are remembered besides the present one.
const OTHER_RUNS: usize = 4;

pub(super) struct DaemonAgent {
    pub(super) record: AgentRecord,
    pub(super) about: About,
    /// Names that the registry may have for the present run: its own name is not there yet, or did not come there.
    pub(super) other_runs: Vec<String>,
    /// What the worker said last, in this run or an earlier one.
    pub(super) report: Option<WorkerStatus>,
    /// When it left the queue, where that matters.
    pub(super) begun: Option<BegunRecord>,
    /// How its work stood when somebody looked last, since it stopped.
    pub(super) review: LastReview,
    /// Whether its record could not be saved.
    pub(super) unsaved: bool,
    pub(super) phase: Phase,
}

impl DaemonAgent {
    pub(super) fn new(record: AgentRecord, about: About, phase: Phase) -> Self {
        let (other_runs, report, begun, review) = (Vec::new(), None, None, LastReview::default());
        Self { record, about, other_runs, report, begun, review, unsaved: false, phase }
    }

    pub(super) fn state(&self) -> State {
        self.record.status.state()
    }

    /// Its present run becomes another one, which the registry does not have yet; returns the one that it was.
    pub(super) fn change_run(&mut self, nonce: String) -> String {
        let before = std::mem::replace(&mut self.record.nonce, nonce);
        self.other_runs.push(before.clone());
        // The newest: what the registry has for sure was the present one until now.
        self.other_runs.drain(..self.other_runs.len().saturating_sub(OTHER_RUNS));
        before
    }

    /// Whether the present run has this name, or has it in the registry.
    pub(super) fn is_named(&self, nonce: &str) -> bool {
        self.other_runs.iter().chain([&self.record.nonce]).any(|name| name == nonce)
    }

    /// Whether it is in the registry; before that nobody sees it.
    pub(super) fn is_registered(&self) -> bool {
        !matches!(self.phase, Phase::Registering(_))
    }

    /// It is in the registry, or will never be; what was waiting for that.
    pub(super) fn register(&mut self) -> Option<Registering> {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Registering(registering) => Some(registering),
            other => {
                self.phase = other;
                None
            }
        }
    }

    pub(super) fn run(&self) -> Option<&Run> {
        if let Phase::Running(run) = &self.phase { Some(run) } else { None }
    }

    pub(super) fn run_mut(&mut self) -> Option<&mut Run> {
        if let Phase::Running(run) = &mut self.phase { Some(run) } else { None }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued(_) | Phase::Renewing(Renewing::Resume))
    }

    pub(super) fn takes_place(&self) -> bool {
        match &self.phase {
            Phase::Registering(_) | Phase::Queued(_) | Phase::Hibernating(_) => false,
            Phase::Stopping(_) | Phase::Ended | Phase::Leaving(_) => false,
            Phase::Renewing(renewing) => matches!(renewing, Renewing::Void(_)),
            Phase::Running(run) => match run.keeper {
                Keeper::Starting | Keeper::Unconfirmed | Keeper::Settling | Keeper::Clearing => true,
                // An agent that waits for a person, or for the end of quiet hours, costs nothing; afterwards it goes on, over
                // the limit if need be.
                Keeper::Alive(_) | Keeper::Unwatched(_) => self.state() != State::Idle && !self.waits_long(),
            },
        }
    }

    /// Whether the next daemon might start this ended agent again, or not know how it ended, as long as the registry does
    /// not say so: a worker that ended by itself has said how, one that was killed or never ran has not.
    pub(super) fn needs_order(&self) -> bool {
        self.record.wanted == WantedState::Kill
            || self.own_report().is_none_or(|report| report.outcome().is_none())
    }

    fn waits_long(&self) -> bool {
        match self.record.status.waiting_for() {
            Some(WaitingFor::Approval { .. } | WaitingFor::Input | WaitingFor::QuietHours { .. }) => true,
            Some(WaitingFor::RateLimit { .. } | WaitingFor::Model { .. }) | None => false,
        }
    }

    pub(super) fn shim(&self) -> Option<&ShimRecord> {
        self.run().and_then(|run| run.keeper.shim())
    }

    /// Where its worker listens, or will.
    pub(super) fn socket(&self, places: &Places) -> PathBuf {
        match self.shim() {
            Some(ShimRecord { socket: Some(told), .. }) => crate::sockets::reachable(told),
            _ => places.agent_socket(self.record.id),
        }
    }

    /// What the worker of the present run said last.
    pub(super) fn own_report(&self) -> Option<&WorkerStatus> {
        self.report.as_ref().filter(|report| report.nonce == self.record.nonce)
    }

    /// How to find what is left of the present run.
    pub(super) fn traces(&self, shim: Option<&ShimRecord>) -> Traces {
        let mut known = Vec::new();
        let mut group = None;
        if let Some(shim) = shim {
            let (id, nonce) = (self.record.id.to_string(), &self.record.nonce);
            group = shim.group.as_ref().and_then(|path| Group::recorded(path, &id, nonce, shim.pid));
            known.push((shim.pid, shim.start_time));
            known.extend(shim.worker_pid.zip(shim.worker_start_time));
        }
        Traces { variable: MARKER, marker: self.marker(), known, session: shim.map(|shim| shim.pid), group }
    }

    /// The value of `CALIBAN_AGENT_ID` for the present run.
    pub(super) fn marker(&self) -> String {
        format!("{}:{}", self.record.id, self.record.nonce)
    }

    pub(super) fn ending_in_words(&self) -> String {
        self.record.status.ending().map_or_else(String::new, |ending| format!(" ({ending})"))
    }

    /// Reads what the worker says; true when that is news.
    pub(super) fn read_report(&mut self, places: &Places) -> bool {
        let found = records::read::<WorkerStatus>(&places.agent_dir(self.record.id), records::STATUS);
        match found {
            // A later format may mean something else by the same words (r22).
            Some(report) if report.version > records::STATUS_VERSION => false,
            Some(report) if self.report.as_ref() != Some(&report) => {
                self.report = Some(report);
                true
            }
            _ => false,
        }
    }

    /// As lists show it.
    pub(super) fn row(
        &self,
        places: &Places,
        (queued_behind, queued_for): (Option<u64>, Option<QueuedFor>),
    ) -> AgentRow {
        let facts = RowFacts {
            record: &self.record,
            status: &self.record.status,
            about: &self.about,
            report: self.report.as_ref(),
            shim: self.shim(),
            socket: self.socket(places),
            dir: places.agent_dir(self.record.id),
            queued_behind,
            queued_for,
            begun: self.begun.as_ref(),
            time_left_ms: self.time_left_ms(),
            review: self.review.found(),
            hibernated: matches!(self.phase, Phase::Hibernating(_) | Phase::Renewing(Renewing::Wake(_))),
        };
        facts.row()
    }
}
