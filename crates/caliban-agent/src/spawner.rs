//! The seam to whoever runs agents in the background.

use caliban_core::spec::SpawnSpec;

use crate::hooks::CommandHook;

/// What is handed over for a background agent.
#[derive(Debug, Clone)]
pub struct Handover {
    /// What it shall do.
    pub spec: SpawnSpec,
    /// The hooks that can cross a process boundary.
    pub hooks: Vec<CommandHook>,
}

/// Takes work that shall survive the session.
pub trait Spawner: Send + Sync {
    /// Starts an agent and returns its id; an error is worded for the model.
    fn spawn<'a>(&'a self, work: Handover) -> caliban_tools::BoxFuture<'a, Result<String, String>>;
}
