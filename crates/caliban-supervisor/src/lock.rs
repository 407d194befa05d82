//! Locks between processes: the daemon's for life, and the one under which clients start a daemon.
//!
//! A lock belongs to an open file and is released by the kernel when its holder dies, so a stale lock file means
//! nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    file: File,
}

impl Held {
    /// Takes the lock if nobody holds it.
    pub(crate) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Writes who holds it, for people and for error messages.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())
    }
}

/// Who says to hold it.
pub(crate) fn holder(path: &Path) -> Option<String> {
    let bytes = crate::records::read_capped(path, 256).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned()).filter(|text| !text.is_empty())
}
