//! The last resort when the keeper of a command was killed itself: what is left of the command is found
//! by a mark in its environment.

use std::{ffi::OsString, hash::BuildHasher};

/// The variable that marks a command's processes. An agent that a command spawns must not have it.
pub const MARK: &str = caliban_contract::variables::JOB;

/// A mark that no other command has.
#[derive(Debug, Clone)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn new() -> Self {
        let random = std::hash::RandomState::new().hash_one(std::process::id());
        Self(format!("{}-{random:016x}", std::process::id()))
    }

    pub(super) fn variable(&self) -> (OsString, OsString) {
        (MARK.into(), self.0.clone().into())
    }

    /// Kills whatever has the mark until nothing has; returns how many processes that were.
    #[cfg(target_os = "linux")]
    pub(super) fn sweep(&self) -> usize {
        use std::time::{Duration, Instant};
        /// How long to go on against a tree that keeps forking.
        const LIMIT: Duration = Duration::from_secs(5);
        let wanted = format!("{MARK}={}", self.0).into_bytes();
        let give_up = Instant::now() + LIMIT;
        let mut swept = 0;
        loop {
            let killed = sweep_once(&wanted);
            swept += killed;
            if killed == 0 || Instant::now() > give_up {
                return swept;
            }
        }
    }

    /// Processes cannot be found by their environment here.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn sweep(&self) -> usize {
        0
    }
}

#[cfg(target_os = "linux")]
fn sweep_once(wanted: &[u8]) -> usize {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut killed = 0;
    for pid in pids.filter_map(Pid::from_raw) {
        // The descriptor first: what is then read belongs to the process that is signalled, or that
        // process is gone and the signal reaches nobody.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let environ = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|variable| variable == wanted)
            && pidfd_send_signal(&process, Signal::KILL).is_ok()
        {
            killed += 1;
        }
    }
    killed
}
