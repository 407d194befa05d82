//! Why an agent makes no progress for a while, other than because a person has to decide.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

/// What an agent waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum Wait {
    /// The transcript cannot be written because its disk is full. It is tried again until there is room.
    DiskFull {
        /// The file that could not be written.
        path: PathBuf,
    },
    /// The machine's ledger was deleted, cut or replaced while it was in use. Nothing is sent before it is whole.
    Ledger {
        /// Its file.
        path: PathBuf,
    },
    /// The model's server has asked us to wait.
    RateLimit(Pause),
    /// The model's server cannot be reached. It is tried again.
    Outage(Pause),
    /// A model request has failed and will be made again.
    Retry(Pause),
    /// It is quiet: nothing that costs begins before the pause is over.
    QuietHours(Pause),
    /// Background commands of a run that would end with it.
    Jobs {
        /// Their ids and command lines.
        commands: Vec<String>,
    },
    /// The older part of the conversation is being summarised to make room in the model's window.
    Summary,
    /// A budget is used up, and another agent asks already whether it is raised.
    Budget {
        /// That agent.
        asked_by: String,
    },
}

/// What an agent waits for before its start, beside the agents that it is to start after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum QueuedFor {
    /// A place: as many agents of the repo run as may (`fleet.max_running`).
    Place,
    /// A place: as many agents of the user run, over all repos, as may (`fleet.max_running_user`).
    UserLimit {
        /// How many may.
        limit: u32,
    },
    /// Its time (`--at`).
    Time {
        /// When that is, in milliseconds since 1970.
        #[serde(rename = "start_at", with = "crate::instant")]
        at_ms: u64,
    },
    /// The end of the quiet hours.
    QuietHours {
        /// When they are over, in milliseconds since 1970.
        #[serde(rename = "until_at", with = "crate::instant")]
        until_ms: u64,
    },
}

/// A wait whose end is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    /// Why, in words.
    pub reason: String,
    /// How long it takes in all, in milliseconds.
    pub ms: u64,
    /// When it ends, in milliseconds since 1970.
    pub until_ms: u64,
}

impl Wait {
    /// The pause, if the end of the wait is known.
    pub fn pause(&self) -> Option<&Pause> {
        match self {
            Self::RateLimit(pause) | Self::Outage(pause) | Self::Retry(pause) | Self::QuietHours(pause) => {
                Some(pause)
            }
            Self::DiskFull { .. }
            | Self::Ledger { .. }
            | Self::Jobs { .. }
            | Self::Summary
            | Self::Budget { .. } => None,
        }
    }
}

/// The reason, without how long it takes.
impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DiskFull { path } => write!(f, "the disk is full ({})", path.display()),
            Self::Ledger { path } => write!(
                f,
                "the ledger was deleted or damaged ({}): restore it, or let `caliban budget show` begin a new one",
                path.display()
            ),
            Self::RateLimit(pause) | Self::Outage(pause) | Self::Retry(pause) | Self::QuietHours(pause) => {
                f.write_str(&pause.reason)
            }
            Self::Jobs { commands } => write!(f, "waiting for background commands: {}", commands.join("; ")),
            Self::Summary => f.write_str("making room: summarising the older part"),
            Self::Budget { asked_by } => {
                write!(f, "the budget is used up: waits for your answer to {asked_by}")
            }
        }
    }
}
