//! Detached commands: services that an agent started and that outlive it, by a rule or an approval of their own. Each has a
//! directory `<repo>/jobs/<id>/` with a record, the lock that its keeper holds for life, and its output.

use std::fs;
use std::path::{Path, PathBuf};

use caliban_core::inert;
use serde::{Deserialize, Serialize};

use crate::tree_limits::Excess;
use crate::{lock, records};

/// Characters of a command that are quoted.
const QUOTED_CHARACTERS: usize = 80;

/// The directory of a repo's detached commands.
pub const DIRECTORY: &str = "jobs";
/// The record.
pub const RECORD: &str = "job.json";
/// The lock that the keeper holds for life.
pub const LOCK: &str = caliban_process::JOB_LOCK;
/// What the command says.
pub const OUTPUT: &str = "output.log";

/// What is known of a detached command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedRecord {
    /// Its id, also the name of its directory.
    pub id: String,
    /// The command line.
    pub command: String,
    /// Where it runs.
    pub directory: PathBuf,
    /// The session or agent that started it.
    pub agent: String,
    /// When, in milliseconds since 1970.
    pub started_at: u64,
    /// Its keeper.
    pub pid: i32,
    /// When the kernel started that.
    pub start_time: u64,
    /// In which boot.
    pub boot_id: String,
    /// Where its output is.
    pub output: PathBuf,
    /// How it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<DetachedEnd>,
}

/// How a detached command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedEnd {
    /// The exit code of its main process, 128 + signal when that was killed.
    pub code: Option<i32>,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What it took too much of, when it was ended for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<Excess>,
}

/// How a detached command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DetachedState {
    /// Something of it runs.
    Running,
    /// Nothing of it is left.
    Ended,
    /// Its keeper was killed: nobody knows what is left of it.
    Lost,
}

impl DetachedRecord {
    /// How it stands now.
    #[must_use]
    pub fn state(&self, jobs: &Path) -> DetachedState {
        match &self.ended {
            _ if lock::is_held(&jobs.join(&self.id).join(LOCK)) => DetachedState::Running,
            Some(_) => DetachedState::Ended,
            None => DetachedState::Lost,
        }
    }
}

/// All detached commands of a repo, the oldest first.
#[must_use]
pub fn list(jobs: &Path) -> Vec<DetachedRecord> {
    let directories = fs::read_dir(jobs).into_iter().flatten().flatten();
    let found = directories.filter_map(|entry| {
        let record: DetachedRecord = records::read(&entry.path(), RECORD)?;
        (entry.file_name().to_str() == Some(&record.id)).then_some(record)
    });
    let mut found: Vec<DetachedRecord> = found.collect();
    found.sort_by(|a, b| (a.started_at, &a.id).cmp(&(b.started_at, &b.id)));
    found
}

/// What is said about commands that are left running; nothing when none is.
#[must_use]
pub fn left_running(records: &[DetachedRecord]) -> Option<String> {
    let named = |record: &DetachedRecord| {
        let command: String = inert::line(&record.command).chars().take(QUOTED_CHARACTERS).collect();
        format!("{} ({command})", record.id)
    };
    let all: Vec<String> = records.iter().map(named).collect();
    (!all.is_empty()).then(|| format!("left running: {}; `caliban jobs stop ID` ends one", all.join("; ")))
}

/// Those that an agent started and that run.
#[must_use]
pub fn running_of(jobs: &Path, agent: &str) -> Vec<DetachedRecord> {
    let is_its =
        |record: &DetachedRecord| record.agent == agent && record.state(jobs) == DetachedState::Running;
    list(jobs).into_iter().filter(is_its).collect()
}
