//! The question about programs that a repo makes git run, at a terminal.

use std::io::{BufRead, IsTerminal};

use caliban_worktrees::{FoundPrograms, GitOccasion};

use super::say;

/// Whether a person at the terminal says yes.
pub(super) fn is_accepted(programs: &FoundPrograms, when: GitOccasion) -> bool {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    if caliban_contract::ancestry::own().agent_in_words().is_some() {
        return false;
    }
    say(&programs.named(when));
    say("may they run, now and from now on? [y/N]");
    let mut line = String::new();
    stdin.lock().read_line(&mut line).is_ok() && matches!(line.trim(), "y" | "Y" | "yes")
}
