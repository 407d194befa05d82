//! One agent as lists show it. The daemon and a list without a daemon build every [`AgentRow`] here.

use std::path::PathBuf;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, Status};
use caliban_core::priority::Priority;
use caliban_core::recurrence::LATE_MS;
use caliban_core::review::Review;
use caliban_core::setup::AgentSetup;
use caliban_core::spec::{Isolation, Occurrence, SpawnSpec, StartedBy};
use caliban_core::wait::QueuedFor;
use caliban_store::fleet::AgentRecord;

use crate::protocol::AgentRow;
use caliban_contract::limits::RaisedLimits;
use caliban_contract::records::{BegunRecord, ShimRecord, WorkerStatus};

/// Characters of a prompt's first line that a row shows.
const PROMPT_CHARS: usize = 200;

/// What of the request is shown or needed all the time. The rest, with the environment, is in the registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The label.
    pub label: Option<String>,
    /// The first line of the prompt.
    pub prompt: String,
    /// The caller's directory.
    pub cwd: PathBuf,
    /// The model, where the request names one.
    pub model: Option<String>,
    /// The agent that asked.
    pub parent: Option<AgentId>,
    /// For whom else it counts.
    pub started_by: Option<StartedBy>,
    /// How many agents are above it.
    pub depth: u32,
    /// Whether it works in a worktree of its own.
    pub has_worktree: bool,
    /// Who comes first.
    pub priority: Priority,
    /// Whether quiet hours hold for it.
    pub keeps_quiet_hours: bool,
    /// It does not start before this moment, in milliseconds since 1970.
    pub start_at_ms: Option<u64>,
    /// The same moment since the boot ([`caliban_process::boot_ms`]), where it was asked for as a time from then on and
    /// this daemon was there. Holds whatever the clock is set to.
    pub start_boot_ms: Option<u64>,
    /// How long it may run by the clock.
    pub timeout_ms: Option<u64>,
    /// The run of a schedule that it is.
    pub schedule: Option<Occurrence>,
}

impl About {
    /// Of a request.
    #[must_use]
    pub fn of(spec: &SpawnSpec) -> Self {
        let line = spec.prompt.trim_start().lines().next().unwrap_or_default();
        Self {
            label: spec.label.as_ref().map(|label| label.as_str().to_owned()),
            prompt: line.chars().take(PROMPT_CHARS).collect(),
            cwd: spec.cwd.clone(),
            model: spec.setup.model.clone(),
            parent: spec.parent,
            started_by: spec.started_by,
            depth: spec.depth,
            has_worktree: matches!(spec.isolation, Isolation::Worktree(_)),
            priority: spec.setup.priority.unwrap_or_default(),
            keeps_quiet_hours: spec.setup.keeps_quiet_hours(),
            start_at_ms: spec.start_at_ms.filter(|at| *at > 0),
            start_boot_ms: None,
            timeout_ms: spec.timeout_ms,
            schedule: spec.schedule.clone(),
        }
    }

    /// Of a stored request with what was changed since. One that cannot be read (a later version's) is shown as such.
    #[must_use]
    pub fn of_json(spec: &str, changed: RaisedLimits) -> Self {
        match SpawnSpec::from_json(spec) {
            Ok(mut spec) => {
                changed.apply_to(&mut spec);
                Self::of(&spec)
            }
            Err(error) => Self {
                prompt: error.to_string(),
                cwd: "/".into(),
                has_worktree: true,
                keeps_quiet_hours: true,
                ..Self::default()
            },
        }
    }

    /// Puts in what a person has changed.
    pub fn change(&mut self, changed: RaisedLimits) {
        self.keeps_quiet_hours = match changed.priority {
            Some(Priority::High) => false,
            // What it asked for beside a priority is not known here any more: it stays as it was.
            Some(_) if self.priority == Priority::High => true,
            Some(_) | None => self.keeps_quiet_hours,
        };
        self.priority = changed.priority.unwrap_or(self.priority);
        self.timeout_ms = changed.timeout_ms.or(self.timeout_ms);
        self.start_at_ms = changed.start_at_ms.or(self.start_at_ms).filter(|at| *at > 0);
    }

    /// How long it is until its time to start, by the wall clock or since the boot.
    #[must_use]
    pub fn time_to_start(&self, wall_ms: u64, boot_ms: u64) -> u64 {
        match self.start_boot_ms {
            Some(at) => at.saturating_sub(boot_ms),
            None => self.start_at_ms.map_or(0, |at| at.saturating_sub(wall_ms)),
        }
    }

    /// What of its setup decides when it comes.
    #[must_use]
    pub fn standing(&self) -> AgentSetup {
        let ignores_quiet_hours = !self.keeps_quiet_hours && self.priority != Priority::High;
        AgentSetup { priority: Some(self.priority), ignores_quiet_hours, ..AgentSetup::default() }
    }

    /// When it was planned to begin, where somebody has planned it.
    fn planned_at(&self) -> Option<u64> {
        self.start_at_ms.or(self.schedule.as_ref().map(|run| run.due_at))
    }

    /// Whether it matters when it begins.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.timeout_ms.is_some() || self.planned_at().is_some()
    }
}

/// What is known of an agent.
#[derive(Debug)]
pub struct RowFacts<'a> {
    /// What the registry has.
    pub record: &'a AgentRecord,
    /// How it stands. The registry's word may be older.
    pub status: &'a Status,
    /// What was asked for.
    pub about: &'a About,
    /// What its worker said last, in this run or an earlier one.
    pub report: Option<&'a WorkerStatus>,
    /// The keeper of the present run, while it runs.
    pub shim: Option<&'a ShimRecord>,
    /// Where its worker listens, or will.
    pub socket: PathBuf,
    /// Its directory.
    pub dir: PathBuf,
    /// How many are before it in the queue, when it waits for a place.
    pub queued_behind: Option<u64>,
    /// What it waits for before its start.
    pub queued_for: Option<QueuedFor>,
    /// When it left the queue.
    pub begun: Option<&'a BegunRecord>,
    /// How much of its time is left, while it counts.
    pub time_left_ms: Option<u64>,
    /// How its work stood when somebody looked last.
    pub review: Option<Review>,
    /// Whether it has left memory.
    pub hibernated: bool,
}

impl RowFacts<'_> {
    /// The row.
    #[must_use]
    pub fn row(self) -> AgentRow {
        let Self { record, status, about, shim, .. } = self;
        let late_ms = about
            .planned_at()
            .and_then(|planned| Some(self.begun?.first_at.saturating_sub(planned)))
            .filter(|by| *by >= LATE_MS);
        let silent = WorkerStatus::default();
        let report = self.report.unwrap_or(&silent);
        // What an earlier run did or asked is over.
        let now = self.report.filter(|report| report.nonce == record.nonce && !status.state().is_ending());
        let is_gone = status.state().is_ending() || report.nonce != record.nonce;
        let (usage, micro_usd) =
            if is_gone { report.spent_when_gone() } else { (report.usage, report.micro_usd) };
        AgentRow {
            id: record.id,
            label: about.label.clone(),
            state: status.state(),
            waiting_for: status.waiting_for().cloned(),
            activity: now.and_then(|report| report.activity.clone()),
            asks: now.map(|report| report.asks.clone()).unwrap_or_default(),
            turns: report.turns,
            usage,
            micro_usd,
            near_limit: now.and_then(|report| report.near_limit.clone()),
            created_at: record.created_at,
            age_ms: caliban_contract::wall_ms().saturating_sub(record.created_at),
            updated_at: record.updated_at.max(report.updated_at),
            branch: report.branch.clone(),
            worktree: report.worktree.clone(),
            base_commit: report.base_commit.clone(),
            cwd: about.cwd.clone(),
            prompt: about.prompt.clone(),
            pid: shim.and_then(|shim| shim.worker_pid),
            shim_pid: shim.map(|shim| shim.pid),
            socket: self.socket,
            dir: self.dir,
            ending: status.ending().cloned(),
            note: record.note.clone(),
            model: report.model.clone().or_else(|| about.model.clone()),
            last_text: report.last_text.clone(),
            parent: about.parent,
            started_by: about.started_by,
            after: record.after.clone(),
            queued_behind: self.queued_behind,
            queued_for: self.queued_for,
            priority: about.priority,
            schedule: about.schedule.clone(),
            late_ms,
            timeout_ms: about.timeout_ms,
            time_left_ms: self.time_left_ms,
            // What somebody changes now is nothing to look at yet.
            review: self.review.filter(|_| status.state().is_ending() || status.state() == State::Idle),
            hibernated: self.hibernated,
            runs: record.runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r15_a_clock_that_is_set_changes_a_time_of_day_and_no_time_from_now() {
        let minute = 60_000;
        let day = 24 * 60 * minute;
        let at = About { start_at_ms: Some(2 * day + minute), ..About::default() };
        let from_now = About { start_boot_ms: Some(5_000 + minute), ..at.clone() };
        assert_eq!([&at, &from_now].map(|it| it.time_to_start(2 * day, 5_000)), [minute; 2]);
        // A day back, and forth.
        assert_eq!([&at, &from_now].map(|it| it.time_to_start(day, 5_000)), [day + minute, minute]);
        assert_eq!([&at, &from_now].map(|it| it.time_to_start(3 * day, 5_000)), [0, minute]);
        assert_eq!(from_now.time_to_start(day, 5_000 + minute), 0);
    }
}
