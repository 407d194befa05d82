//! Who a process is: its id, its start time and the boot. A reused id has another start time.
//!
//! Nothing here asks the kernel by system call for a group or session: one that is led from outside of our namespace
//! of processes is 0, which `rustix::process::getsid` and its like take for impossible.

use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The largest file that is read; environments are the largest.
const CAP: usize = 4 * 1024 * 1024;
/// How much is read at once: whatever a file of the system usually has.
const CHUNK: usize = 4096;

/// What `/proc/<pid>/stat` says. Ids are 0 where our namespace of processes does not show who that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// As the kernel's letter.
    pub state: u8,
    /// Its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// The group that has its terminal in the foreground; -1 without a terminal.
    pub foreground_group: i32,
    /// When the kernel started it, in clock ticks since boot.
    pub start_time: u64,
    threads: u64,
}

impl Stat {
    /// Whether it has ended and only waits for its parent. One whose first thread has ended while others go on
    /// looks the same but for their number.
    pub fn is_over(self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// When it started, in a form that no other process of its number has, ever, given the boot.
    pub fn started(self, boot: &str) -> String {
        format!("{boot}/{}", self.start_time)
    }
}

/// Reads it; none when there is no such process.
pub fn stat(pid: i32) -> Option<Stat> {
    try_stat(pid).ok().flatten()
}

/// The same, and an error when nothing can be said (out of file descriptors).
pub fn try_stat(pid: i32) -> io::Result<Option<Stat>> {
    Ok(read(Path::new(&format!("/proc/{pid}/stat")))?.and_then(|text| parse(&text)))
}

/// This boot.
pub fn boot_id() -> io::Result<String> {
    let bytes = read(Path::new("/proc/sys/kernel/random/boot_id"))?;
    let bytes = bytes.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "this system has no boot id"))?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// What this machine calls itself for life: its machine id, or its host name where it has none, as in many containers.
pub fn machine() -> io::Result<String> {
    for path in ["/etc/machine-id", "/proc/sys/kernel/hostname"] {
        let name = read(Path::new(path))?.unwrap_or_default();
        let name = String::from_utf8_lossy(&name).trim().to_owned();
        if !name.is_empty() {
            return Ok(name);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "this system has no machine id and no host name"))
}

/// A file of `/proc`, up to a cap; none when the process is gone or not to be looked at. Few system calls: some look at
/// many processes before every command.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // Never waits: a pipe that somebody put there has nothing to say.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let read = rustix::fs::open(path, flags, Mode::empty()).and_then(|file| {
        let (mut bytes, mut chunk) = (Vec::new(), [0_u8; CHUNK]);
        loop {
            let count = match rustix::io::read(&file, &mut chunk[..]) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
            // Files of the system come whole when there is room for them.
            if count < CHUNK || bytes.len() >= CAP {
                return Ok(bytes);
            }
        }
    });
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::SRCH | Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn parse(text: &[u8]) -> Option<Stat> {
    // The name may hold anything, a parenthesis too: what counts comes after the last one.
    let rest = text.get(text.iter().rposition(|byte| *byte == b')')? + 1..)?;
    let fields: Vec<&str> = std::str::from_utf8(rest).ok()?.split_ascii_whitespace().collect();
    // Field 3 of the whole line is the first here.
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        foreground_group: fields.get(5)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything_and_a_session_from_outside_of_the_container_is_nobodys() {
        let line = b"12 (a) R (b) S 1 0 0 0 -1 4194304 75 0 0 0 0 0 0 0 20 0 3 0 2152999 3133440 380\n";
        let expected = Stat {
            state: b'S',
            parent: 1,
            group: 0,
            session: 0,
            foreground_group: -1,
            start_time: 2_152_999,
            threads: 3,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b"12 (cut off) S 1"), None);
    }

    #[test]
    fn a_zombie_with_other_threads_is_not_over() {
        let own = stat(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(!own.is_over());
        assert!(Stat { state: b'Z', threads: 1, ..own }.is_over());
        assert!(!Stat { state: b'Z', threads: 2, ..own }.is_over());
    }

    #[test]
    fn what_is_gone_is_none_and_the_boot_has_an_id() {
        assert_eq!(stat(i32::MAX), None);
        assert_eq!(boot_id().unwrap().len(), 36);
        assert!(!machine().unwrap().is_empty());
    }

    #[test]
    fn files_longer_than_a_chunk_come_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..CHUNK * 2 + 7).map(|at| u8::try_from(at % 251).unwrap()).collect();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        assert_eq!(read(file.path()).unwrap(), Some(bytes));
    }
}
