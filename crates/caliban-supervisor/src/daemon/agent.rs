//! One agent in memory: what the registry has, what its files say, and who keeps it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, WaitingFor};
use caliban_core::spec::{Isolation, SpawnSpec};
use caliban_store::fleet::{Record, Wanted};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::Reply;
use super::inherit::Given;
use crate::places::Places;
use crate::process::Traces;
use crate::protocol::{AgentRow, ApiError, RespawnRequest, RmRequest};
use crate::records::{self, ShimRecord, WorkerStatus};
use crate::shim::cgroup::Group;

/// Characters of a prompt's first line that a row shows.
const PROMPT_CHARS: usize = 200;
/// Runs that are remembered besides the present one.
const OTHER_RUNS: usize = 4;

pub(super) struct Agent {
    pub(super) record: Record,
    pub(super) about: About,
    pub(super) keeper: Keeper,
    /// Runs that the registry may have instead of the present one: that is not there yet, or did not come there.
    pub(super) other_runs: Vec<String>,
    /// What the worker said last, in this run or an earlier one.
    pub(super) report: Option<WorkerStatus>,
    /// Whether it is on the disk; before that nobody sees it.
    pub(super) registered: bool,
    /// What is being done to it (`removed`), during which nothing else is.
    pub(super) busy: Option<&'static str>,
    /// Who waits for its registration.
    pub(super) spawning: Vec<Reply>,
    /// Who waits for the end of its run.
    pub(super) waiting: Vec<Waiter>,
    /// The grace of its end, once it is on the disk that it should end; before that no signal is sent.
    pub(super) stop_with: Option<u64>,
    /// Orders to end it that are on their way to the disk.
    pub(super) orders: u32,
    /// Whether its record could not be saved.
    pub(super) unsaved: bool,
    /// When a start that failed for a passing reason is tried again.
    pub(super) retry_at: Option<Instant>,
    /// Since when its program is missing.
    pub(super) missing_since: Option<Instant>,
    /// Why it was not woken, for whoever asks again.
    pub(super) not_woken: Option<ApiError>,
    /// What it takes of its parent's budget, until it is registered.
    pub(super) given: Option<Box<Given>>,
    /// The whole request, only between its arrival and its start.
    pub(super) spec: Option<Box<SpawnSpec>>,
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

/// Who keeps the worker.
#[derive(Debug, Clone)]
pub(super) enum Keeper {
    /// Nobody: not started, hibernating or ended.
    Nobody,
    /// Nobody, and nobody is started before the name of the next run is on the disk.
    Renewing,
    /// A start is on its way.
    Starting,
    /// A shim was launched, and nobody knows what became of it: to be settled before anything else.
    InDoubt,
    /// A shim that is watched.
    Alive(Alive),
    /// A shim that lives and cannot be watched just now (out of file descriptors).
    Unwatched(ShimRecord),
}

/// A shim that is watched.
#[derive(Debug, Clone)]
pub(super) struct Alive {
    pub(super) shim: ShimRecord,
    pub(super) process: Arc<AsyncFd<OwnedFd>>,
}

/// Who waits for the end of a run, and what for.
#[derive(Debug)]
pub(super) enum Waiter {
    Kill(Reply),
    Respawn(RespawnRequest, Reply),
    Rm(RmRequest, Reply),
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
    pub(super) fn new(record: Record, about: About) -> Self {
        Self {
            record,
            about,
            keeper: Keeper::Nobody,
            other_runs: Vec::new(),
            report: None,
            registered: true,
            busy: None,
            spawning: Vec::new(),
            waiting: Vec::new(),
            stop_with: None,
            orders: 0,
            unsaved: false,
            retry_at: None,
            missing_since: None,
            not_woken: None,
            given: None,
            spec: None,
        }
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

    /// All runs that the registry may have.
    pub(super) fn runs(&self) -> BTreeSet<String> {
        self.other_runs.iter().chain([&self.record.nonce]).cloned().collect()
    }

    /// Whether it waits for its start.
    pub(super) fn is_queued(&self) -> bool {
        self.registered
            && self.state() == State::Spawning
            && matches!(self.keeper, Keeper::Nobody)
            && self.record.wanted == Wanted::Run
    }

    /// Whether it takes one of the places.
    pub(super) fn takes_place(&self) -> bool {
        match self.keeper {
            Keeper::Nobody => false,
            Keeper::Renewing | Keeper::Starting | Keeper::InDoubt => true,
            // One that waits for a person costs nothing; when it is answered it goes on, over the limit if need be.
            Keeper::Alive(_) | Keeper::Unwatched(_) => {
                self.state() != State::Idle && !self.waits_for_a_person()
            }
        }
    }

    fn waits_for_a_person(&self) -> bool {
        matches!(self.record.status.waiting_for(), Some(WaitingFor::Approval { .. } | WaitingFor::Input))
    }

    pub(super) fn shim(&self) -> Option<&ShimRecord> {
        match &self.keeper {
            Keeper::Nobody | Keeper::Renewing | Keeper::Starting | Keeper::InDoubt => None,
            Keeper::Alive(alive) => Some(&alive.shim),
            Keeper::Unwatched(shim) => Some(shim),
        }
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
        Traces { marker: self.marker(), known, session: shim.map(|shim| shim.pid), group }
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
            hibernated: status.state() == State::Idle && matches!(self.keeper, Keeper::Nobody),
            runs: self.record.runs,
        }
    }
}
