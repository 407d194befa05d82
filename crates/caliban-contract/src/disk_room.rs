//! Room on a disk that may be full.
//!
//! A record that must be writable on a full disk has a [`ReservedRoom`] file beside it. When the record finds no room it is
//! written into that file, which then takes the record's name. [`probe`] tells beforehand whether something fits.
//! File systems allocate blocks on write, so a reserved file is filled with bytes. It is never synced: nobody needs its
//! content after a power failure.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::Serialize;

use crate::records;

/// How the activity of an agent begins that waits for room on a disk.
pub const WAITS_FOR_ROOM: &str = "disk full: waiting for room";

/// The file that [`probe`] writes and removes.
const PROBE: &str = ".room";

/// Room for one record of a directory.
#[derive(Debug, Clone, Copy)]
pub struct ReservedRoom {
    record: &'static str,
    file: &'static str,
    bytes: usize,
    uses: Uses,
}

/// How often the room is needed while the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uses {
    /// Once. Bytes that the record does not need are given back.
    Once,
    /// Again and again: the record keeps the whole room and is overwritten in place.
    Often,
}

impl ReservedRoom {
    /// `bytes` of room in `file`, for one write of `record` on a full disk.
    #[must_use]
    pub const fn once(record: &'static str, file: &'static str, bytes: usize) -> Self {
        Self { record, file, bytes, uses: Uses::Once }
    }

    /// The same for any number of writes.
    #[must_use]
    pub const fn often(record: &'static str, file: &'static str, bytes: usize) -> Self {
        Self { record, file, bytes, uses: Uses::Often }
    }

    /// Takes the room, if it is not taken.
    ///
    /// # Errors
    /// There is no room, or the directory cannot be written.
    pub fn take(&self, dir: &Path) -> io::Result<()> {
        let path = dir.join(self.file);
        let is_taken = |file: &File| file.metadata().is_ok_and(|found| found.len() >= self.bytes as u64);
        if OpenOptions::new().write(true).open(&path).is_ok_and(|file| is_taken(&file)) {
            return Ok(());
        }
        fill(&path, self.bytes)
    }

    /// Gives the room back. Best effort: a file that stays costs its bytes.
    pub fn give_back(&self, dir: &Path) {
        let _not_taken = fs::remove_file(dir.join(self.file));
    }

    /// Writes the record; into the reserved room when there is no other.
    ///
    /// # Errors
    /// The record cannot be written; [`is_full`] says whether because the reserved room is used up.
    pub fn write(&self, dir: &Path, value: &impl Serialize) -> io::Result<()> {
        let written = records::write(dir, self.record, value);
        self.or_reserved(dir, value, written, |_| Ok(()))
    }

    /// Like [`write`](Self::write), and on the disk when it returns.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_durably(&self, dir: &Path, value: &impl Serialize) -> io::Result<()> {
        let written = records::write_durably(dir, self.record, value);
        self.or_reserved(dir, value, written, |file| file.sync_all())
    }

    fn or_reserved(
        &self,
        dir: &Path,
        value: &impl Serialize,
        written: io::Result<()>,
        sync: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let full = match written {
            Err(error) if is_full(&error) => error,
            Ok(()) => {
                // The record may have been the room, and is a small file now. Best effort: the record is written.
                if self.uses == Uses::Often {
                    let _tried = self.take(dir);
                }
                return Ok(());
            }
            other => return other,
        };
        let mut bytes = serde_json::to_vec(value).map_err(io::Error::other)?;
        if bytes.len() > self.bytes {
            return Err(full);
        }
        let length = bytes.len() as u64;
        bytes.resize(self.bytes, b' ');
        let (reserved, record) = (dir.join(self.file), dir.join(self.record));
        let open = |path: &Path| OpenOptions::new().write(true).open(path);
        match (open(&reserved), self.uses) {
            (Ok(file), uses) => {
                file.write_all_at(&bytes, 0)?;
                if uses == Uses::Once {
                    file.set_len(length)?;
                }
                sync(&file)?;
                fs::rename(&reserved, &record)?;
                sync(&File::open(dir)?)
            }
            // The reserved file has become the record, with all its room.
            (Err(_), Uses::Often) => {
                let file = open(&record)?;
                if file.metadata()?.len() < self.bytes as u64 {
                    return Err(full);
                }
                file.write_all_at(&bytes, 0)?;
                sync(&file)
            }
            (Err(_), Uses::Once) => Err(full),
        }
    }
}

/// Whether `bytes` of room are in a directory: takes them and gives them back.
///
/// # Errors
/// The directory cannot be written; [`is_full`] says whether for want of room.
pub fn probe(dir: &Path, bytes: usize) -> io::Result<()> {
    let path = dir.join(PROBE);
    fill(&path, bytes)?;
    fs::remove_file(path)
}

/// Whether an error says that there is no room.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Bytes that are left on the disk of a path; none when the file system does not say.
#[must_use]
pub fn left(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// A new file of this size, or none.
fn fill(path: &Path, bytes: usize) -> io::Result<()> {
    // One that another process left may have other permissions.
    let _none = fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let filled = file.write_all_at(&vec![b' '; bytes], 0);
    if filled.is_err() {
        let _part = fs::remove_file(path);
    }
    filled
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const RECORD: &str = "r.json";
    const ROOM: &str = ".r.reserved";

    fn full() -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn write(reserved: ReservedRoom, dir: &Path, text: &str, written: io::Result<()>) -> io::Result<()> {
        reserved.or_reserved(dir, &text, written, File::sync_all)
    }

    fn file(dir: &Path, name: &str) -> Option<(u64, u64)> {
        fs::metadata(dir.join(name)).ok().map(|file| (file.ino(), file.len()))
    }

    #[test]
    fn r11_a_record_is_written_into_its_reserved_room_and_gives_back_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let reserved = ReservedRoom::once(RECORD, ROOM, 100);
        reserved.take(dir.path()).unwrap();
        let (room, length) = file(dir.path(), ROOM).unwrap();
        assert_eq!(length, 100);
        // Taken once is taken.
        reserved.take(dir.path()).unwrap();
        assert_eq!(file(dir.path(), ROOM), Some((room, 100)));
        assert!(write(reserved, dir.path(), &"x".repeat(100), full()).is_err());
        write(reserved, dir.path(), "one", full()).unwrap();
        assert_eq!((file(dir.path(), ROOM), file(dir.path(), RECORD)), (None, Some((room, 5))));
        assert_eq!(records::read::<String>(dir.path(), RECORD).as_deref(), Some("one"));
        let used_up = write(reserved, dir.path(), "two", full()).unwrap_err();
        assert!(is_full(&used_up), "{used_up}");
        // Another error is no reason to use the room.
        reserved.take(dir.path()).unwrap();
        let other = write(reserved, dir.path(), "two", Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(file(dir.path(), ROOM).map(|(_, length)| length), Some(100));
        reserved.give_back(dir.path());
        assert_eq!(file(dir.path(), ROOM), None);
    }

    #[test]
    fn r11_room_that_is_needed_often_is_written_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let reserved = ReservedRoom::often(RECORD, ROOM, 100);
        // A record that is small is no room itself.
        records::write(dir.path(), RECORD, &"none").unwrap();
        assert!(write(reserved, dir.path(), "full", full()).is_err());
        reserved.take(dir.path()).unwrap();
        let room = file(dir.path(), ROOM);
        for text in ["the first one", "two"] {
            write(reserved, dir.path(), text, full()).unwrap();
            assert_eq!((file(dir.path(), ROOM), file(dir.path(), RECORD)), (None, room));
            assert_eq!(records::read::<String>(dir.path(), RECORD).as_deref(), Some(text));
        }
        // The room is taken again by every write that finds other room.
        reserved.write_durably(dir.path(), &"with room").unwrap();
        assert_eq!(file(dir.path(), ROOM).map(|(_, length)| length), Some(100));
        write(reserved, dir.path(), "full again", full()).unwrap();
        assert_eq!(records::read::<String>(dir.path(), RECORD).as_deref(), Some("full again"));
        assert!(write(reserved, &dir.path().join("gone"), "x", full()).is_err());
    }
}
