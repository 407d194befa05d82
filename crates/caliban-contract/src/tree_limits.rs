//! What a command, or an agent, may take of the machine with all that it starts (a20).

use caliban_core::size::in_words;
use serde::{Deserialize, Serialize};

/// The limits; none where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TreeLimits {
    /// Processes at the same time.
    pub pids: Option<u64>,
    /// Bytes of memory of all of them together.
    pub memory: Option<u64>,
    /// Bytes in its `/tmp`, and of what it changes in places that it can write.
    pub disk: Option<u64>,
}

impl TreeLimits {
    /// When nobody says otherwise: more than a large build takes, and three quarters of the machine's memory.
    #[must_use]
    pub fn usual() -> Self {
        // In whole megabytes, to be said in words.
        let memory = Self::machine_memory().map(|all| ((all >> 20) * 3 / 4) << 20);
        Self { pids: Some(PIDS), memory, disk: Some(DISK) }
    }

    /// For a program that stays: all that others write near it meanwhile would count as its own.
    #[must_use]
    pub fn without_disk(self) -> Self {
        Self { disk: None, ..self }
    }

    /// All of the machine's memory, in bytes.
    #[must_use]
    pub fn machine_memory() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    }

    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::usual()
    }
}

const PIDS: u64 = 8192;
const DISK: u64 = 64 << 30;

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
    /// Changed files.
    Files(u64),
    /// Nothing that could be seen: a process in its fence hides what it takes.
    Hidden,
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
            Self::Files(most) => write!(f, "killed: changed more than {most} files (fleet.disk_max)"),
            Self::Hidden => write!(
                f,
                "killed: one of its programs hid its open files from the limits (fleet.memory_max, fleet.disk_max)"
            ),
        }
    }
}
