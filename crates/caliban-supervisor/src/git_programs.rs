//! The refusal to run programs that a repo makes git run, where nobody can be asked (`caliban_worktrees::Repo::unaccepted`).

use caliban_worktrees::{GitOccasion, HOW_TO_ACCEPT, Programs};

use crate::landing::words::LandingError;

/// In words.
#[must_use]
pub fn refused(programs: &Programs, when: GitOccasion) -> LandingError {
    LandingError::new(programs.named(when)).hint(HOW_TO_ACCEPT)
}
