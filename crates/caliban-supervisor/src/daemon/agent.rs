//! One agent in memory: what the registry has, what its files say, and its phase.

use std::path::PathBuf;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, WaitingFor};
use caliban_core::spec::{Isolation, SpawnSpec};
use caliban_keeper::Group;
use caliban_store::fleet::{Record, Wanted};

use super::phase::{Keeper, Phase, Registering, Renewing, Run};
use crate::places::Places;
use crate::process::{MARKER, Traces};
use crate::protocol::AgentRow;
use crate::records::{self, ShimRecord, WorkerStatus};

/// Characters of a prompt's first line that a row shows.
const PROMPT_CHARS: usize = 200;
/// Runs that are remembered besides the present one.
const OTHER_RUNS: usize = 4;

pub(super) struct Agent {
    pub(super) record: Record,
    pub(super) about: About,
    /// Names that the registry may have for the present run: its own name is not there yet, or did not come there.
    pub(super) other_runs: Vec<String>,
    /// What the worker said last, in this run or an earlier one.
    pub(super) report: Option<WorkerStatus>,
    /// Whether its record could not be saved.
    pub(super) unsaved: bool,
    pub(super) phase: Phase,
}

/// What of the request is shown or needed all the time. The rest, with the environment, is in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    pub(super) label: Option<String>,
    pub(super) prompt: String,
    pub(super) cwd: PathBuf,
    pub(super) model: Option<String>,
    pub(super) parent: Option<AgentId>,
    pub(super) depth: u32,
    pub(super) has_worktree: bool,
}

impl About {
    pub(super) fn of(spec: &SpawnSpec) -> Self {
        let line = spec.prompt.trim_start().lines().next().unwrap_or_default();
        Self {
            label: spec.label.as_ref().map(|label| label.as_str().to_owned()),
            prompt: line.chars().take(PROMPT_CHARS).collect(),
            cwd: spec.cwd.clone(),
            model: spec.setup.model.clone(),
            parent: spec.parent,
            depth: spec.depth,
            has_worktree: matches!(spec.isolation, Isolation::Worktree(_)),
        }
    }

    /// Of a stored request. One that cannot be read (a later version's) is shown as such.
    pub(super) fn of_json(spec: &str) -> Self {
        match SpawnSpec::from_json(spec) {
            Ok(spec) => Self::of(&spec),
            Err(error) => Self {
                label: None,
                prompt: error.to_string(),
                cwd: "/".into(),
                model: None,
                parent: None,
                depth: 0,
                has_worktree: true,
            },
        }
    }
}

impl Agent {
    pub(super) fn new(record: Record, about: About, phase: Phase) -> Self {
        Self { record, about, other_runs: Vec::new(), report: None, unsaved: false, phase }
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

    /// Whether it waits for its start.
    pub(super) fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued(_) | Phase::Renewing(Renewing::Resume))
    }

    /// Whether those who are queued after it wait for its start. Agents that wait on `--after` do not count.
    pub(super) fn is_ahead(&self) -> bool {
        self.is_queued() && self.record.after.is_empty()
    }

    /// Whether it takes one of the places.
    pub(super) fn takes_place(&self) -> bool {
        match &self.phase {
            Phase::Registering(_) | Phase::Queued(_) | Phase::Hibernating(_) => false,
            Phase::Stopping(_) | Phase::Ended | Phase::Leaving(_) => false,
            Phase::Renewing(renewing) => matches!(renewing, Renewing::Void(_)),
            Phase::Running(run) => match run.keeper {
                Keeper::Starting | Keeper::Unconfirmed | Keeper::Settling | Keeper::Clearing => true,
                // An agent that waits for a person costs nothing; after the answer it goes on, over the limit if need be.
                Keeper::Alive(_) | Keeper::Unwatched(_) => {
                    self.state() != State::Idle && !self.waits_for_a_person()
                }
            },
        }
    }

    /// Whether the next daemon might start this ended agent again, or not know how it ended, as long as the registry does
    /// not say so: a worker that ended by itself has said how, one that was killed or never ran has not.
    pub(super) fn needs_order(&self) -> bool {
        self.record.wanted == Wanted::Kill
            || self.own_report().is_none_or(|report| report.outcome().is_none())
    }

    fn waits_for_a_person(&self) -> bool {
        matches!(self.record.status.waiting_for(), Some(WaitingFor::Approval { .. } | WaitingFor::Input))
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
    pub(super) fn row(&self, places: &Places, queued_behind: Option<u64>) -> AgentRow {
        let silent = WorkerStatus::default();
        let report = self.report.as_ref().unwrap_or(&silent);
        let status = &self.record.status;
        // What an earlier run did or asked is over.
        let now = self.own_report().filter(|_| !status.state().is_ending());
        let id = self.record.id;
        AgentRow {
            id,
            label: self.about.label.clone(),
            state: status.state(),
            waiting_for: status.waiting_for().cloned(),
            activity: now.and_then(|report| report.activity.clone()),
            asks: now.map(|report| report.asks.clone()).unwrap_or_default(),
            turns: report.turns,
            usage: report.usage,
            micro_usd: report.micro_usd,
            created_at: self.record.created_at,
            age_ms: crate::wall_ms().saturating_sub(self.record.created_at),
            updated_at: self.record.updated_at.max(report.updated_at),
            branch: report.branch.clone(),
            worktree: report.worktree.clone(),
            base_commit: report.base_commit.clone(),
            cwd: self.about.cwd.clone(),
            prompt: self.about.prompt.clone(),
            pid: self.shim().and_then(|shim| shim.worker_pid),
            shim_pid: self.shim().map(|shim| shim.pid),
            socket: self.socket(places),
            dir: places.agent_dir(id),
            ending: status.ending().cloned(),
            note: self.record.note.clone(),
            model: report.model.clone().or_else(|| self.about.model.clone()),
            last_text: report.last_text.clone(),
            parent: self.about.parent,
            after: self.record.after.clone(),
            queued_behind,
            hibernated: matches!(self.phase, Phase::Hibernating(_) | Phase::Renewing(Renewing::Wake(_))),
            runs: self.record.runs,
        }
    }
}
