//! Which files this agent knows, and in what state it saw them.
//!
//! Owns the answers to "has it changed since?" and "has it been seen whole?". A file up to [`FILE_BYTES`] is known by
//! its content, a larger one by size, times and inode.
//!
//! [`FILE_BYTES`]: crate::limits::FILE_BYTES

use std::{
    collections::HashMap,
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest, Sha256};

/// The state of a file at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    place: FileIdentity,
    content: Option<Hash>,
}

/// What `stat` says of a file, as far as it tells two states apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

pub(crate) type Hash = [u8; 32];

/// What the ledger says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKnowledge {
    /// This agent has neither read nor written it.
    Never,
    /// It is as this agent knows it.
    Same,
    /// It is as this agent saw it, and it saw a part.
    Part,
    /// It was changed by somebody else.
    Changed,
}

impl FileIdentity {
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
        Self { place: FileIdentity::of(meta), content }
    }

    /// Where and when the file was.
    pub(crate) fn place(&self) -> FileIdentity {
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

pub(crate) fn hash(content: &[u8]) -> Hash {
    Sha256::digest(content).into()
}

/// The lines of a file that were shown whole, from 1: in order, and with a gap between two ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lines(Vec<(u64, u64)>);

impl Lines {
    /// One more line.
    pub(crate) fn add(&mut self, line: u64) {
        self.join((line, line));
    }

    fn join(&mut self, (mut first, mut last): (u64, u64)) {
        self.0.retain(|range| {
            let apart = range.1.saturating_add(1) < first || last.saturating_add(1) < range.0;
            if !apart {
                (first, last) = (first.min(range.0), last.max(range.1));
            }
            apart
        });
        let at = self.0.partition_point(|range| range.0 < first);
        self.0.insert(at, (first, last));
    }

    fn are_all_of(&self, total: u64) -> bool {
        total == 0 || self.0.as_slice() == [(1, total)]
    }
}

/// How much of a state was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SeenPart {
    /// All of it.
    Whole,
    /// These lines, of so many where that is known.
    Lines { lines: Lines, total: Option<u64> },
}

impl SeenPart {
    /// With what was seen of the same state before.
    fn and(self, before: Self) -> Self {
        let Self::Lines { mut lines, total } = self else { return Self::Whole };
        let Self::Lines { lines: more, total: known } = before else { return Self::Whole };
        for range in more.0 {
            lines.join(range);
        }
        Self::Lines { lines, total: total.or(known) }.settled()
    }

    fn settled(self) -> Self {
        match self {
            Self::Lines { lines, total: Some(total) } if lines.are_all_of(total) => Self::Whole,
            part => part,
        }
    }
}

#[derive(Debug)]
struct LedgerEntry {
    stamp: Stamp,
    seen: SeenPart,
}

/// The files one agent knows, by real path.
#[derive(Debug, Default)]
pub(crate) struct FileLedger(Mutex<HashMap<PathBuf, LedgerEntry>>);

impl FileLedger {
    /// The agent has now seen so much of this state; what it saw of the same state before counts, too.
    pub(crate) fn saw(&self, real: &Path, stamp: Stamp, seen: SeenPart) {
        let mut files = self.files();
        let seen = match files.remove(real) {
            Some(before) if before.stamp.same(&stamp) => seen.and(before.seen),
            _ => seen.settled(),
        };
        files.insert(real.to_owned(), LedgerEntry { stamp, seen });
    }

    /// The agent has written this state.
    pub(crate) fn wrote(&self, real: &Path, stamp: Stamp) {
        self.files().insert(real.to_owned(), LedgerEntry { stamp, seen: SeenPart::Whole });
    }

    /// The agent has changed a part of the file, of which it knew so much before. If it had not seen the file as it was, it
    /// now knows only the part that matched; lines that were seen may have other numbers now.
    pub(crate) fn changed(&self, real: &Path, stamp: Stamp, known: FileKnowledge) {
        if let Some(entry) = self.files().get_mut(real) {
            entry.stamp = stamp;
            if known != FileKnowledge::Same {
                entry.seen = SeenPart::Lines { lines: Lines::default(), total: None };
            }
        }
    }

    /// How the state that is there now relates to what the agent knows.
    pub(crate) fn judge(&self, real: &Path, now: &Stamp) -> FileKnowledge {
        match self.files().get(real) {
            None => FileKnowledge::Never,
            Some(entry) if !entry.stamp.same(now) => FileKnowledge::Changed,
            Some(entry) if entry.seen == SeenPart::Whole => FileKnowledge::Same,
            Some(_) => FileKnowledge::Part,
        }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<PathBuf, LedgerEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(ledger.judge(&path, &stamp(&path)), FileKnowledge::Never);
        ledger.wrote(&path, stamp(&path));
        fs::write(&path, "one").unwrap();
        assert_eq!(ledger.judge(&path, &stamp(&path)), FileKnowledge::Same);
        // Same size, possibly the same clock tick.
        fs::write(&path, "two").unwrap();
        assert_eq!(ledger.judge(&path, &stamp(&path)), FileKnowledge::Changed);
    }

    #[test]
    fn a_file_too_large_to_hash_is_known_by_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let ledger = FileLedger::default();
        fs::write(&path, "one").unwrap();
        let bare = |path: &Path| Stamp::new(&fs::metadata(path).unwrap(), None);
        ledger.wrote(&path, bare(&path));
        assert_eq!(ledger.judge(&path, &bare(&path)), FileKnowledge::Same);
        fs::write(&path, "longer").unwrap();
        assert_eq!(ledger.judge(&path, &bare(&path)), FileKnowledge::Changed);
    }

    #[test]
    fn lines_seen_one_after_the_other_make_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let ledger = FileLedger::default();
        fs::write(&path, "1\n2\n3\n4\n5\n").unwrap();
        let see = |first: u64, last: u64, total: Option<u64>| {
            let mut lines = Lines::default();
            (first..=last).for_each(|line| lines.add(line));
            ledger.saw(&path, stamp(&path), SeenPart::Lines { lines, total });
            ledger.judge(&path, &stamp(&path))
        };
        assert_eq!(see(4, 5, Some(5)), FileKnowledge::Part);
        assert_eq!(see(1, 2, None), FileKnowledge::Part);
        assert_eq!(see(3, 3, None), FileKnowledge::Same);
        // What was whole stays so, until somebody changes it.
        assert_eq!(see(1, 1, Some(5)), FileKnowledge::Same);
        fs::write(&path, "1\n2\n3\n4\n6\n").unwrap();
        assert_eq!(see(5, 5, Some(5)), FileKnowledge::Part);
        ledger.changed(&path, stamp(&path), FileKnowledge::Part);
        assert_eq!(see(1, 4, Some(5)), FileKnowledge::Part);
        assert_eq!(see(1, 5, Some(5)), FileKnowledge::Same);
    }
}
