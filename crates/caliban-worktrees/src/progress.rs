//! How far a creation is, for a progress bar: phases, and the numbers that git prints while it checks out.

use serde::Serialize;

/// A step of making a worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CreationPhase {
    /// Finding the base, checking the request.
    Resolve,
    /// Writing files.
    Checkout,
    /// Linking shared directories.
    Links,
    /// Copying `.worktreeinclude` files.
    Include,
    /// Running the setup command.
    Setup,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The step.
    pub phase: CreationPhase,
    /// Files done.
    pub done: u64,
    /// Files in all; 0 when nobody knows.
    pub total: u64,
}

impl Progress {
    pub(crate) fn begin(phase: CreationPhase) -> Self {
        Self { phase, done: 0, total: 0 }
    }
}

/// Reads `Updating files:  12% (6000/50000)`.
pub(crate) fn parse_checkout(line: &str) -> Option<Progress> {
    let (_, numbers) = line.trim().strip_prefix("Updating files:")?.split_once('(')?;
    let (done, total) = numbers.split_once(')')?.0.split_once('/')?;
    Some(Progress { phase: CreationPhase::Checkout, done: done.parse().ok()?, total: total.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_lines_of_git_are_read() {
        let read = |line| parse_checkout(line).map(|p| (p.done, p.total));
        assert_eq!(read("Updating files:  12% (6000/50000)"), Some((6000, 50000)));
        assert_eq!(read("Updating files: 100% (50000/50000), done."), Some((50000, 50000)));
        assert_eq!(read("Preparing worktree (new branch 'x')"), None);
        assert_eq!(read("Updating files: x% (a/b)"), None);
    }
}
