//! The refusal to run programs that a repo makes git run, where nobody can be asked (`caliban_worktrees::Repo::unaccepted`).

use caliban_worktrees::{HOW_TO_ACCEPT, Programs, When};

use crate::landing::words::LandingError;

/// In words.
#[must_use]
pub fn refused(programs: &Programs, when: When) -> LandingError {
    LandingError::new(programs.named(when)).hint(HOW_TO_ACCEPT)
}
