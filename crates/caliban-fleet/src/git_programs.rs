//! The refusal to run programs that a repo makes git run, where nobody can be asked (`caliban_worktrees::Repo::unaccepted`).

use caliban_worktrees::{FoundPrograms, GitOccasion, HOW_TO_ACCEPT};

use crate::landing::words::LandingError;

/// In words.
#[must_use]
pub fn refused(programs: &FoundPrograms, when: GitOccasion) -> LandingError {
    LandingError::new(programs.named(when)).hint(HOW_TO_ACCEPT)
}
