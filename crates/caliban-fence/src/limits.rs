//! What a fenced program and all that it starts may take of the machine (a20).

use caliban_core::size::in_words;
use serde::{Deserialize, Serialize};

/// The limits; none where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FenceLimits {
    /// Processes at the same time.
    pub pids: Option<u64>,
    /// Bytes of memory of all of them together.
    pub memory: Option<u64>,
    /// Bytes in its `/tmp`, and of what it changes in places that it can write.
    pub disk: Option<u64>,
}

/// What a program took too much of, and how much it might have taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Excess {
    /// Processes.
    Pids(u64),
    /// Bytes of memory.
    Memory(u64),
    /// Bytes of disk.
    Disk(u64),
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pids(most) => write!(f, "killed: had more than {most} processes (fleet.pids_max)"),
            Self::Memory(most) => {
                write!(f, "killed: used more than {} of memory (fleet.memory_max)", in_words(*most))
            }
            Self::Disk(most) => {
                write!(f, "killed: used more than {} of disk (fleet.disk_max)", in_words(*most))
            }
        }
    }
}
