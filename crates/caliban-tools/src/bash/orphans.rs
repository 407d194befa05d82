//! The last resort when the reaper of a command was killed: what is left of the command is found by a variable in its
//! environment.

use std::{ffi::OsString, hash::BuildHasher};

use caliban_keeper::{Traces, end_strays};
use caliban_process::Keepers;

/// The variable that marks a command's processes. An agent that a command spawns must not have it.
pub const MARK: &str = caliban_contract::variables::JOB;

/// A mark that no other command has, and the daemons and shims that do not belong to the command.
#[derive(Debug, Clone)]
pub(super) struct CommandMark {
    value: String,
    spared: Option<Keepers>,
}

impl CommandMark {
    pub(super) fn new(env: &[(OsString, OsString)]) -> Self {
        let random = std::hash::RandomState::new().hash_one(std::process::id());
        let value = format!("{}-{random:016x}", std::process::id());
        Self { value, spared: Keepers::of_environment(env) }
    }

    pub(super) fn variable(&self) -> (OsString, OsString) {
        (MARK.into(), self.value.clone().into())
    }

    /// Kills whatever has the mark, and what is below it, until nothing is left; returns how many processes that were.
    pub(super) fn sweep(self) -> usize {
        let Self { value: marker, spared } = self;
        let traces = Traces { variable: MARK, marker, known: Vec::new(), session: None, group: None };
        end_strays(&[traces], spared.as_ref()).map_or(0, |strays| strays.ended)
    }
}
