//! Locks between processes: the daemon's for life, and the one under which clients start a daemon.
//!
//! A lock belongs to an open file and is released by the kernel when its holder dies, so a stale lock file means
//! nothing. What stands in the daemon's says who holds it and where it listens: whoever has another environment
//! than the daemon finds it there.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub use caliban_process::{holder_line, parse_holder};

/// The largest lock file that is read.
const LOCK_CAP: u64 = 8 * 1024;
/// What stands before the path of the socket, on the second line.
const SOCKET: &[u8] = b"\nsocket ";

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct HeldLock {
    file: File,
}

impl HeldLock {
    /// Takes the lock if nobody holds it.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
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

    /// Takes the lock of a keeper, and writes that it is this process's: by that others know it.
    pub fn try_keep(path: &Path) -> io::Result<Option<Self>> {
        let Some(mut held) = Self::try_take(path)? else { return Ok(None) };
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let started =
            caliban_process::try_stat(own)?.ok_or_else(|| io::Error::other("/proc cannot be read"))?;
        held.say(&holder_line(own, started.start_time), None)?;
        Ok(Some(held))
    }

    /// Writes who holds it and, once that is known, where it listens.
    pub fn say(&mut self, who: &str, socket: Option<&Path>) -> io::Result<()> {
        let mut text = who.as_bytes().to_vec();
        if let Some(socket) = socket {
            text.extend_from_slice(SOCKET);
            text.extend_from_slice(socket.as_os_str().as_bytes());
        }
        // In this order: a daemon that says it again is never without its first line for those who look.
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(text.len() as u64)
    }
}

/// Whether somebody holds it; makes no file.
pub fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Who says to hold it: its first line.
pub fn holder(path: &Path) -> Option<String> {
    let bytes = crate::records::read_capped(path, LOCK_CAP).ok()?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Some(String::from_utf8_lossy(line).trim().to_owned()).filter(|text| !text.is_empty())
}

/// Where the holder says that it listens, or the last one did.
pub fn socket(path: &Path) -> Option<PathBuf> {
    let bytes = crate::records::read_capped(path, LOCK_CAP).ok()?;
    let at = bytes.windows(SOCKET.len()).position(|part| part == SOCKET)?;
    let socket = PathBuf::from(OsString::from_vec(bytes.get(at + SOCKET.len()..)?.to_vec()));
    socket.is_absolute().then_some(socket)
}

/// A handle on the process that says to be the daemon, with its id; none when it is gone.
pub fn process(path: &Path) -> io::Result<Option<(i32, OwnedFd)>> {
    let Some((pid, start_time)) = holder(path).as_deref().and_then(parse_holder) else { return Ok(None) };
    Ok(caliban_process::open(pid, start_time)?.map(|process| (pid, process)))
}

/// Whether this process is the daemon that holds the lock. An agent believes it whom it speaks for (ADR 0041).
#[must_use]
pub fn is_daemon(path: &Path, pid: i32) -> bool {
    let started = caliban_process::stat(pid).map(|stat| stat.start_time);
    let said = holder(path).as_deref().and_then(parse_holder);
    started.is_some_and(|started| said == Some((pid, started))) && is_held(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_says_who_and_where_and_again() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("lock");
        let mut held = HeldLock::try_take(&path).unwrap().unwrap();
        assert!(is_held(&path));
        let line = holder_line(12, 345);
        held.say(&line, None).unwrap();
        assert_eq!((holder(&path), socket(&path)), (Some(line.clone()), None));
        for place in ["/run/user/1000/caliban/x.sock", "/tmp/a b\nc/x.sock", "/x.sock"] {
            held.say(&line, Some(place.as_ref())).unwrap();
            assert_eq!((holder(&path), socket(&path)), (Some(line.clone()), Some(place.into())));
        }
        let own = i32::try_from(std::process::id()).unwrap();
        let started = caliban_process::stat(own).unwrap().start_time;
        assert!(!is_daemon(&path, own));
        held.say(&holder_line(own, started + 1), None).unwrap();
        assert!(!is_daemon(&path, own));
        held.say(&holder_line(own, started), None).unwrap();
        assert!(is_daemon(&path, own) && !is_daemon(&path, 1));
        drop(held);
        assert!(!is_daemon(&path, own));
        assert!(!is_held(&path) && !is_held(&temp.path().join("none")));
    }
}
