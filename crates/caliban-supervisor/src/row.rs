//! One agent as lists show it. The daemon and a list without a daemon build every [`AgentRow`] here.

use std::path::PathBuf;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::Status;
use caliban_core::spec::{Isolation, SpawnSpec};
use caliban_store::fleet::Record;

use crate::protocol::AgentRow;
use crate::records::{ShimRecord, WorkerStatus};

/// Characters of a prompt's first line that a row shows.
const PROMPT_CHARS: usize = 200;

/// What of the request is shown or needed all the time. The rest, with the environment, is in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// How many agents are above it.
    pub depth: u32,
    /// Whether it works in a worktree of its own.
    pub has_worktree: bool,
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
            depth: spec.depth,
            has_worktree: matches!(spec.isolation, Isolation::Worktree(_)),
        }
    }

    /// Of a stored request. One that cannot be read (a later version's) is shown as such.
    #[must_use]
    pub fn of_json(spec: &str) -> Self {
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

/// What is known of an agent.
#[derive(Debug)]
pub struct RowFacts<'a> {
    /// What the registry has.
    pub record: &'a Record,
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
    /// Whether it has left memory.
    pub hibernated: bool,
}

impl RowFacts<'_> {
    /// The row.
    #[must_use]
    pub fn row(self) -> AgentRow {
        let Self { record, status, about, shim, .. } = self;
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
            age_ms: crate::wall_ms().saturating_sub(record.created_at),
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
            after: record.after.clone(),
            queued_behind: self.queued_behind,
            hibernated: self.hibernated,
            runs: record.runs,
        }
    }
}
