//! Keeps a member's worktree from being swept: a file beside the database, which exists while the member is registered
//! (`caliban-contract/src/member.rs`). A member that lost its pane can be recovered, so its worktree stays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use caliban_contract::member;
use caliban_contract::places::private_dir;
use caliban_store::broker::{Agent, AgentId, AgentStatus, Broker, BrokerError};

use crate::settings::Settings;

/// The file of a member; the worktree's marker names it before it exists.
pub(crate) fn path(database_dir: &Path, id: AgentId) -> PathBuf {
    member::holder(database_dir, &id.to_string())
}

/// Holds the worktree of a member that is already in the store.
pub(crate) fn hold(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        private_dir(directory).map_err(io::Error::other)?;
    }
    fs::write(path, "")
}

/// Releases the worktrees of members that are not registered any more. Best effort: a file that is left over only keeps
/// a worktree, and the next command tries again.
pub(crate) async fn let_go(broker: &mut Broker, settings: &Settings) -> Result<(), BrokerError> {
    let Ok(database_dir) = settings.database_dir() else { return Ok(()) };
    let Ok(files) = fs::read_dir(member::directory(&database_dir)) else { return Ok(()) };
    for file in files.flatten() {
        let Some(id) = file.file_name().to_str().and_then(AgentId::parse) else { continue };
        let is_registered = |agent: &Agent| agent.status == AgentStatus::Active;
        if !broker.agent_of_any(id).await?.as_ref().is_some_and(is_registered) {
            let _next_time = fs::remove_file(file.path());
        }
    }
    Ok(())
}
