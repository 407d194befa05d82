//! The archive of a fleet: the directories of agents that were removed or respawned, `<base>/archive/<id>/`.
//!
//! Owns the layout and the record of why an agent is there. The daemon fills and prunes it; `caliban sessions` reads it.

use std::path::{Path, PathBuf};

use caliban_core::ids::AgentId;
use serde::{Deserialize, Serialize};

use crate::records::{self, LEAVING, StopOrder};

/// The directory below a fleet's base.
pub const DIRECTORY: &str = "archive";
/// In an archived agent's directory: when and why it came there ([`Archived`]).
pub const RECORD: &str = "archived.json";
/// The format of [`RECORD`] written today.
pub const VERSION: u32 = 1;

/// How long archived agents are kept, when nobody says.
pub const DAYS: u32 = 30;
/// How many mebibytes they may have together, when nobody says.
pub const MEBIBYTES: u32 = 1024;
/// One of these.
pub const MIB: u64 = 1024 * 1024;

/// `archived.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archived {
    /// [`VERSION`].
    pub version: u32,
    /// When, in milliseconds since 1970.
    #[serde(with = "caliban_core::instant")]
    pub at: u64,
    /// Why.
    pub why: ArchiveReason,
}

/// Why an agent is in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveReason {
    /// A person removed it.
    Removed,
    /// Another agent was started anew from its request.
    Respawned,
    /// A daemon found its directory and no row in the registry.
    NoRow,
}

/// Where an agent is archived.
#[must_use]
pub fn place(base: &Path, id: AgentId) -> PathBuf {
    base.join(DIRECTORY).join(id.to_string())
}

/// Whether an agent that has a row was removed: its directory is in the archive, has the name of one that is being
/// deleted, or says so itself (on a full disk). The daemon that removed it may have ended before it could delete the row.
#[must_use]
pub fn was_removed(base: &Path, id: AgentId) -> bool {
    let agents = base.join("agents");
    let dir = agents.join(id.to_string());
    let is_archived = || place(base, id).exists() && !dir.exists();
    let is_marked = || records::read::<StopOrder>(&dir, records::STOP).is_some_and(|order| order.removed);
    agents.join(format!("{LEAVING}{id}")).exists() || is_archived() || is_marked()
}
