//! Whether a process belongs to an agent: seen in the processes above it, not believed (a11).
//!
//! A shim or a worker of any fleet is known by its command line. Neither `setsid` nor a double fork leads out from below
//! one, because shims adopt what is orphaned below them.
//!
//! Refuses: taking a process for a person's when it cannot be seen.

use std::path::{Path, PathBuf};

use crate::{
    process,
    records::{self, ShimRecord},
    shim::SHIM_MODE,
};

/// The first argument of a worker.
const WORKER_MODE: &str = "__worker";
/// The largest command line that is looked at.
const COMMAND_CAP: u64 = 256 * 1024;
/// How many processes may stand above one. More is nothing that a person does.
const DEPTH: usize = 1024;
/// How often the walk begins anew because a process ended under it.
const ATTEMPTS: usize = 20;

/// Whose process it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// No agent stands above it.
    Persons,
    /// A process of this agent, or of one that cannot be named.
    Agents(Option<String>),
    /// It is gone, or hidden: nobody can say.
    Unknown,
}

/// The agent that stands next above a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Above {
    /// None.
    Nobody,
    /// This one.
    Agent {
        /// Its directory.
        dir: PathBuf,
        /// Its run.
        nonce: String,
        /// Which of its processes it is.
        which: Which,
    },
    /// One that cannot be named.
    Unnamed,
    /// The process is gone, or hidden.
    Unknown,
}

/// Which process of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The agent itself.
    Worker,
    /// Something that it started.
    Command,
}

/// Whose process this is. `keepers` are further modes, as first arguments, below which everything is an agent's.
pub fn whose(pid: i32, keepers: &[&str]) -> Whose {
    match above(pid, keepers) {
        Above::Nobody => Whose::Persons,
        Above::Agent { dir, .. } => {
            Whose::Agents(dir.file_name().and_then(|name| name.to_str()).map(str::to_owned))
        }
        Above::Unnamed => Whose::Agents(None),
        Above::Unknown => Whose::Unknown,
    }
}

/// The agent next above a process; the process may be the agent itself.
pub(crate) fn above(pid: i32, keepers: &[&str]) -> Above {
    (0..ATTEMPTS).find_map(|_| walk(pid, keepers)).unwrap_or(Above::Unknown)
}

/// Walks up; `None` when a process ended meanwhile.
fn walk(pid: i32, keepers: &[&str]) -> Option<Above> {
    let (mut at, mut born) = (pid, u64::MAX);
    let mut is_kept = false;
    for _ in 0..DEPTH {
        // Nothing stands above the first process.
        if at == 0 && born != u64::MAX {
            return Some(if is_kept { Above::Unnamed } else { Above::Nobody });
        }
        let stat = process::stat(at)?;
        // A parent is older than its child; a younger one has the number of one that is gone.
        if stat.start_time > born {
            return None;
        }
        let line = records::read_capped(Path::new(&format!("/proc/{at}/cmdline")), COMMAND_CAP).ok()?;
        let mut arguments = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).skip(1);
        if let Some(mode) = arguments.next() {
            if mode == SHIM_MODE || mode == WORKER_MODE {
                let directory = arguments.next().unwrap_or_default();
                if let Some(record) = kept(Path::new(&*directory), at, stat.start_time) {
                    let which = if record.worker_pid == Some(pid) { Which::Worker } else { Which::Command };
                    return Some(Above::Agent { dir: (&*directory).into(), nonce: record.nonce, which });
                }
                // A shim names its worker a moment after it has started it.
                is_kept = true;
            }
            // Whose it is stands further up, if that is one of the fleet.
            is_kept |= keepers.contains(&&*mode);
        }
        (at, born) = (stat.parent, stat.start_time);
    }
    Some(Above::Unnamed)
}

/// The record in an agent's directory, when it is about this very process.
fn kept(directory: &Path, pid: i32, start_time: u64) -> Option<ShimRecord> {
    let record: ShimRecord = records::read(directory, records::SHIM)?;
    let is_shim = (record.pid, record.start_time) == (pid, start_time);
    let is_worker = (record.worker_pid, record.worker_start_time) == (Some(pid), Some(start_time));
    let is_now = process::boot_id().is_ok_and(|boot| boot == record.boot_id);
    (is_now && (is_shim || is_worker)).then_some(record)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a11_what_stands_below_a_shim_is_an_agents_and_what_is_gone_is_nobodys() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(whose(own, &[]), Whose::Persons);
        assert_eq!(whose(0, &[]), Whose::Unknown);
        // A shell that is called like a shim, with a process below it.
        for (mode, keepers, is) in [
            (SHIM_MODE, &[][..], Whose::Agents(None)),
            ("__keeps", &["__keeps"][..], Whose::Agents(None)),
            ("__keeps", &[][..], Whose::Persons),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let script = dir.path().join(mode);
            std::fs::write(&script, "sleep 60 & echo $!; wait").unwrap();
            let mut shell =
                Command::new("sh").arg(mode).current_dir(dir.path()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            let out = shell.stdout.as_mut().unwrap();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
            let child: i32 = line.trim().parse().unwrap();
            let found = whose(child, keepers);
            let pid = rustix::process::Pid::from_raw(child).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            shell.wait().unwrap();
            assert_eq!(found, is, "{mode}");
            assert_eq!(whose(child, keepers), Whose::Unknown);
        }
    }
}
