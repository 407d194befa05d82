//! What both sides agreed on last, and what is being changed outside at this moment. Written whole or not at all.

use std::collections::BTreeSet;
use std::path::Path;

use caliban_rooted::{
    Below,
    tree::{self, WriteUntil},
};
use serde::{Deserialize, Serialize};

use super::side::SideMark;
use super::words;
use crate::error::{Error, Result};
use crate::marker::Oid;

const FILE: &str = "state.json";
const CAP: u64 = 1 << 30;

/// The agreed state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Base {
    /// When the worktree was made: another one of its name begins anew.
    pub(super) made: u64,
    pub(super) inside: SideMark,
    pub(super) outside: SideMark,
    pub(super) stash: BTreeSet<Oid>,
    /// Of the agent's files when they were last published.
    pub(super) signature: String,
    /// Of the user's files beside refs and the record that the agent has copies of.
    pub(super) copied: String,
    pub(super) journal: Option<Journal>,
}

/// What a publisher that was killed may have left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The inode of the file that becomes the lock of the index, and then the index.
    pub(super) lock: Option<u64>,
    /// Refs that are changed.
    pub(super) refs: Vec<String>,
    /// When, in nanoseconds since 1970.
    pub(super) at: u128,
}

impl Journal {
    pub(super) fn time(&self) -> i128 {
        i128::try_from(self.at).unwrap_or(i128::MAX)
    }
}

impl Base {
    /// Whether nothing was taken in yet.
    pub(super) fn is_new(&self) -> bool {
        self.outside.refs.is_empty()
    }

    /// The one that is there, if there is one. One that cannot be read is an error: the agent's work may depend on it.
    pub(super) fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(FILE);
        match tree::read_small(&path, CAP) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| words(&format!("{} cannot be read: {error}", path.display()))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::at("reading", &path, e)),
        }
    }

    /// On the disk when it returns.
    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        serde_json::to_vec(self)
            .map_err(std::io::Error::other)
            .and_then(|bytes| tree::write_whole(dir, &Below::fixed(FILE), &bytes, WriteUntil::OnDisk))
            .map_err(|e| Error::at("writing", &dir.join(FILE), e))
    }
}
