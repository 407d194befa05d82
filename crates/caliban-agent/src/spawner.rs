//! The seam to whoever runs agents in the background.

use caliban_core::spec::SpawnSpec;

/// Takes work that shall survive the session.
pub trait Spawner: Send + Sync {
    /// Whether there is somebody who would take this; an error is worded for people.
    fn check<'a>(&'a self, spec: &'a SpawnSpec) -> caliban_tools::BoxFuture<'a, Result<(), String>>;

    /// Starts an agent and returns its id; an error is worded for the model.
    fn spawn<'a>(&'a self, spec: SpawnSpec) -> caliban_tools::BoxFuture<'a, Result<String, String>>;
}
