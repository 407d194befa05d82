//! Background agents of a session, as every surface shows them: `/bg list`, a sidebar, an editor.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::status_word::StatusWord;

/// How a background agent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundStatus {
    /// It works, or waits for an answer.
    Running,
    /// It has done its task.
    Completed,
    /// It could not go on.
    Failed,
    /// Somebody stopped it, or its session ended.
    Killed,
    /// It has spent its tokens.
    BudgetExceeded,
}

impl BackgroundStatus {
    /// The status that agents of a fleet have, too.
    pub const fn status(self) -> StatusWord {
        match self {
            Self::Running => StatusWord::Running,
            Self::Completed => StatusWord::Done,
            Self::Failed => StatusWord::Failed,
            Self::Killed => StatusWord::Killed,
            Self::BudgetExceeded => StatusWord::Budget,
        }
    }

    /// One character for lists.
    pub const fn icon(self) -> &'static str {
        self.status().icon()
    }
}

impl fmt::Display for BackgroundStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            // The task is done; its session goes on.
            Self::Completed => "completed",
            Self::Running | Self::Failed | Self::Killed | Self::BudgetExceeded => self.status().words(),
        })
    }
}

/// How many there may be, what they may spend, and where they work unless somebody says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackgroundLimits {
    /// How many work at the same time.
    pub max_agents: u32,
    /// Tokens of each of them: those that were not read from the cache.
    pub per_agent: u64,
    /// Tokens of all of them together; those that have ended count, too.
    pub global: u64,
    /// Where they work.
    pub ground: Ground,
}

/// Where a background agent works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ground {
    /// In the session's directory.
    #[default]
    None,
    /// In a git worktree of its own; its work is on a branch when it ends.
    Worktree,
}

impl Default for BackgroundLimits {
    fn default() -> Self {
        Self { max_agents: 3, per_agent: 50_000, global: 200_000, ground: Ground::None }
    }
}

/// What the background agent of this number is called.
pub fn name(id: u32) -> String {
    format!("background agent {id}")
}

/// One background agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackgroundRow {
    /// Counts 0, 1, 2 … in each session.
    pub id: u32,
    /// How it stands.
    pub status: BackgroundStatus,
    /// The first line of its task; inert and short.
    pub summary: String,
    /// Its model.
    pub model: String,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended; absent while it runs.
    pub ended_ms: Option<u64>,
    /// What it has spent, as its budget counts: all but what was read from the cache.
    pub tokens: u64,
    /// What was read from the cache.
    #[serde(default)]
    pub cached: u64,
    /// What it does now, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
}

impl BackgroundRow {
    /// What it is called in questions and notices.
    pub fn name(&self) -> String {
        name(self.id)
    }

    /// How long it has worked, in milliseconds.
    pub fn elapsed_ms(&self, now_ms: u64) -> u64 {
        self.ended_ms.unwrap_or(now_ms).saturating_sub(self.started_ms)
    }
}
