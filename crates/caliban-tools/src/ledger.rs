//! Which files this agent knows, and in what state it saw them.
//!
//! Owns the answer to "has it changed since?". A file up to [`FILE_BYTES`] is known by its content, a
//! larger one by size, times and inode.
//!
//! [`FILE_BYTES`]: crate::limits::FILE_BYTES

use std::{
    collections::HashMap,
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use sha2::{Digest, Sha256};

/// The state of a file at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    place: Place,
    content: Option<Hash>,
}

/// What `stat` says of a file, as far as it tells two states apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A content's hash.
pub(crate) type Hash = [u8; 32];

/// What the ledger says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// This agent has neither read nor written it.
    Never,
    /// It is as this agent knows it.
    Same,
    /// It was changed by somebody else.
    Changed,
}

impl Place {
    /// The state behind an open file.
    pub(crate) fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

impl Stamp {
    /// A stamp of a file whose content was hashed, or was too large for it.
    pub(crate) fn new(meta: &Metadata, content: Option<Hash>) -> Self {
        Self { place: Place::of(meta), content }
    }

    /// Where and when the file was.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Same content where both contents are known: then a `touch` or a `chmod` is no change, and a
    /// change within one clock tick is.
    fn same(&self, other: &Self) -> bool {
        match (&self.content, &other.content) {
            (Some(a), Some(b)) => a == b,
            (None, None) => self.place == other.place,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// The hash of a whole content.
pub(crate) fn hash(content: &[u8]) -> Hash {
    Sha256::digest(content).into()
}

/// The files one agent knows, by real path.
#[derive(Debug, Default)]
pub(crate) struct FileLedger(Mutex<HashMap<PathBuf, Stamp>>);

impl FileLedger {
    /// The agent has now seen or written this state.
    pub(crate) fn record(&self, real: &Path, stamp: Stamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(real.to_owned(), stamp);
    }

    /// How the state that is there now relates to what the agent knows.
    pub(crate) fn judge(&self, real: &Path, now: &Stamp) -> Known {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).get(real) {
            None => Known::Never,
            Some(seen) if seen.same(now) => Known::Same,
            Some(_) => Known::Changed,
        }
    }

    /// Whether the agent knows this file in any state.
    pub(crate) fn knows(&self, real: &Path) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(real)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn stamp(path: &Path) -> Stamp {
        Stamp::new(&fs::metadata(path).unwrap(), Some(hash(&fs::read(path).unwrap())))
    }

    #[test]
    fn content_decides_not_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let ledger = FileLedger::default();
        fs::write(&path, "one").unwrap();
        assert_eq!(ledger.judge(&path, &stamp(&path)), Known::Never);
        ledger.record(&path, stamp(&path));
        fs::write(&path, "one").unwrap();
        assert_eq!(ledger.judge(&path, &stamp(&path)), Known::Same);
        // Same size, possibly the same clock tick.
        fs::write(&path, "two").unwrap();
        assert_eq!(ledger.judge(&path, &stamp(&path)), Known::Changed);
    }

    #[test]
    fn a_file_too_large_to_hash_is_known_by_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let ledger = FileLedger::default();
        fs::write(&path, "one").unwrap();
        let bare = |path: &Path| Stamp::new(&fs::metadata(path).unwrap(), None);
        ledger.record(&path, bare(&path));
        assert_eq!(ledger.judge(&path, &bare(&path)), Known::Same);
        fs::write(&path, "longer").unwrap();
        assert_eq!(ledger.judge(&path, &bare(&path)), Known::Changed);
    }
}
