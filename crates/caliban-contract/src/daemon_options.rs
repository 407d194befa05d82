//! The daemon's settings, as the binary hands them over.

use caliban_core::quiet_hours::QuietHours;
use serde::{Deserialize, Serialize};

use crate::archive;
use crate::tree_limits::TreeLimits;

/// How many agents run at once, when nobody says.
pub const MAX_RUNNING: u32 = 8;
/// How many living agents one agent or session may have started, when nobody says.
pub const MAX_BY_MODEL: u32 = 16;
/// How long a tree gets between TERM and KILL, when nobody says.
pub const GRACE_MS: u64 = 5_000;

/// How long a daemon without any agent stays, when nobody says.
pub const STAY_MS: u64 = 10 * 60 * 1_000;

/// Settings of one daemon. Passed as JSON with `--options`; fields that are absent take their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonOptions {
    /// How many agents run at once; more wait in order (`fleet.max_running`). Idle ones do not count.
    pub max_running: u32,
    /// How many agents of the user run at once, over all repos (`fleet.max_running_user`). Not passed on when there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running_user: Option<u32>,
    /// How many living agents an agent may have started (`fleet.max_by_model`). Not passed on when it is the default.
    #[serde(skip_serializing_if = "is_default_by_model")]
    pub max_by_model: u32,
    /// When agents begin nothing that costs (`fleet.quiet_hours`). Not passed on when there are none.
    #[serde(skip_serializing_if = "QuietHours::is_empty")]
    pub quiet_hours: QuietHours,
    /// How long a tree gets between TERM and KILL (`fleet.grace`).
    pub grace_ms: u64,
    /// What an agent may take with all that it started (`fleet.pids_max`, `fleet.memory_max`). Not passed on when it is the default.
    #[serde(skip_serializing_if = "TreeLimits::is_usual")]
    pub limits: TreeLimits,
    /// What becomes of worktrees of agents that are in no registry, when a daemon starts (`fleet.sweep`).
    pub sweep: Sweep,
    /// Whether worktrees are removed at all (`CALIBAN_KEEP_WORKTREES`, `worktrees.keep`).
    pub keep_worktrees: bool,
    /// How long a daemon without any agent stays when nobody asks it anything. Not passed on when it is the default, so
    /// that a daemon of another version can be started.
    #[serde(skip_serializing_if = "is_default_stay")]
    pub stay_ms: u64,
    /// How many days removed and respawned agents are kept (`fleet.archive_days`). Not passed on when it is the default.
    #[serde(skip_serializing_if = "is_default_days")]
    pub archive_days: u32,
    /// How many bytes they may have together (`fleet.archive_mb`). Not passed on when it is the default.
    #[serde(skip_serializing_if = "is_default_bytes")]
    pub archive_bytes: u64,
}

/// The orphan sweep at start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sweep {
    /// Worktrees of agents that nobody knows are removed; what is nowhere else goes under a rescue ref first.
    #[default]
    Remove,
    /// They stay.
    Off,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            max_running: MAX_RUNNING,
            max_running_user: None,
            max_by_model: MAX_BY_MODEL,
            quiet_hours: QuietHours::default(),
            grace_ms: GRACE_MS,
            limits: TreeLimits::usual(),
            sweep: Sweep::Remove,
            keep_worktrees: false,
            stay_ms: STAY_MS,
            archive_days: archive::DAYS,
            archive_bytes: u64::from(archive::MEBIBYTES) * archive::MIB,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_default_stay(stay_ms: &u64) -> bool {
    *stay_ms == STAY_MS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_default_by_model(count: &u32) -> bool {
    *count == MAX_BY_MODEL
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_default_days(days: &u32) -> bool {
    *days == archive::DAYS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_default_bytes(bytes: &u64) -> bool {
    *bytes == u64::from(archive::MEBIBYTES) * archive::MIB
}
