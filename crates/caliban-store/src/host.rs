//! Which machine a row belongs to.
//!
//! A pane, a process id and a worktree exist on one machine only. Rows that name one carry the machine's id, so that
//! several machines can share a store. Refuses: finding out which machine this is; the caller says it.

use std::fmt;

use caliban_core::hex;
use sha2::{Digest, Sha256};

/// Number of hexadecimal digits of an id.
const DIGITS: usize = 16;

/// A machine: a hash of its name, because the machine id itself should not be disclosed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostId(String);

impl HostId {
    /// The machine with this `name` (its machine id, or its host name if it has none).
    #[must_use]
    pub fn of(name: &str) -> Self {
        let digest = Sha256::new().chain_update("caliban host\0").chain_update(name).finalize();
        Self(hex::encode(&digest[..DIGITS / 2]))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::HostId;

    #[test]
    fn an_id_is_stable_and_does_not_show_the_name() {
        assert_eq!(HostId::of("laptop").to_string(), "a7ccf58167f379e4");
        assert_ne!(HostId::of("laptop"), HostId::of("desktop"));
    }
}
