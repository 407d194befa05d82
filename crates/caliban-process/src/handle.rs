//! A handle on a process that no reuse of its pid can change.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::stat::{read, try_stat};

/// A handle on the living process `pid` that the kernel started at `start_time`, if there is one and it is ours.
/// An error says nothing about the process (out of file descriptors).
pub fn open(pid: i32, start_time: u64) -> io::Result<Option<OwnedFd>> {
    let Some(id) = Pid::from_raw(pid) else { return Ok(None) };
    let fd = match rustix::process::pidfd_open(id, PidfdFlags::NONBLOCK) {
        Ok(fd) => fd,
        Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Looked at after opening: the handle stays with the process that had the id then.
    let fits = try_stat(pid)?.is_some_and(|stat| stat.start_time == start_time && !stat.is_over());
    Ok((fits && is_ours(pid)).then_some(fd))
}

/// Whether a process is this user's. One that hides its memory (as our agents do) seems to be the administrator's: then its
/// status tells.
pub fn is_ours(pid: i32) -> bool {
    const ADMINISTRATOR: u32 = 0;
    let own = rustix::process::getuid().as_raw();
    match fs::metadata(format!("/proc/{pid}")).map(|found| found.uid()) {
        Ok(owner) if owner == own => true,
        Ok(ADMINISTRATOR) => effective_user(pid) == Some(own),
        Ok(_) | Err(_) => false,
    }
}

fn effective_user(pid: i32) -> Option<u32> {
    let status = read(Path::new(&format!("/proc/{pid}/status"))).ok().flatten()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::stat;

    #[test]
    fn r04_a_process_with_another_start_time_is_a_stranger() {
        let own = i32::try_from(std::process::id()).unwrap();
        let start_time = stat(own).unwrap().start_time;
        assert!(open(own, start_time).unwrap().is_some());
        assert!(open(own, start_time + 1).unwrap().is_none());
        assert!(open(own, start_time - 1).unwrap().is_none());
    }
}
