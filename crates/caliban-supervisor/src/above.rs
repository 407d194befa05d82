//! Whether a process belongs to an agent: seen in the processes above it, not believed (a11).
//!
//! A shim or a worker of any fleet is known by its command line. Neither `setsid` nor a double fork leads out from below
//! one, because shims adopt what is orphaned below them.
//!
//! Where `/proc` hides the processes of other users (`hidepid`), the walk ends at the first of those: what is above it is no
//! agent's, because agents are ours. One of ours that hides by itself (`sshd` does) proves nothing.
//!
//! Refuses: taking a process for a person's when it cannot be seen.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::Pid;

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
    (0..ATTEMPTS).find_map(|_| walk(&Proc, pid, keepers)).unwrap_or(Above::Unknown)
}

/// How processes are looked at.
trait Sight {
    /// Its parent and when it was started; none when it is gone or hidden.
    fn stat(&self, pid: i32) -> Option<(i32, u64)>;
    /// Its command line.
    fn command(&self, pid: i32) -> Option<Vec<u8>>;
    /// Whether there is one, be it hidden.
    fn reach(&self, pid: i32) -> Reach;
    /// All that can be seen.
    fn visible(&self) -> Option<Vec<i32>>;
    /// Its children, hidden ones too.
    fn children(&self, pid: i32) -> Option<Vec<i32>>;
}

/// Whom a signal would reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Nobody,
    Ours,
    Others,
}

/// `/proc`.
struct Proc;

impl Sight for Proc {
    fn stat(&self, pid: i32) -> Option<(i32, u64)> {
        process::stat(pid).map(|stat| (stat.parent, stat.start_time))
    }

    fn command(&self, pid: i32) -> Option<Vec<u8>> {
        records::read_capped(Path::new(&format!("/proc/{pid}/cmdline")), COMMAND_CAP).ok()
    }

    fn reach(&self, pid: i32) -> Reach {
        let Some(pid) = Pid::from_raw(pid) else { return Reach::Nobody };
        match rustix::process::test_kill_process(pid) {
            Ok(()) => Reach::Ours,
            Err(Errno::PERM) => Reach::Others,
            Err(_) => Reach::Nobody,
        }
    }

    fn visible(&self) -> Option<Vec<i32>> {
        let names = std::fs::read_dir("/proc").ok()?.flatten();
        let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Some(pids.filter(|pid| self.stat(*pid).is_some()).collect())
    }

    fn children(&self, pid: i32) -> Option<Vec<i32>> {
        let mut all = Vec::new();
        for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
            let line = std::fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
            all.extend(line.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        Some(all)
    }
}

/// Walks up; `None` when a process ended meanwhile.
fn walk(sight: &impl Sight, pid: i32, keepers: &[&str]) -> Option<Above> {
    let (mut at, mut born) = (pid, u64::MAX);
    let mut below = None;
    let mut is_kept = false;
    for _ in 0..DEPTH {
        // Nothing stands above the first process.
        if at == 0 && born != u64::MAX {
            return Some(if is_kept { Above::Unnamed } else { Above::Nobody });
        }
        let Some((parent, start_time)) = sight.stat(at) else {
            let top = beyond(sight, at, below?)?;
            return Some(if is_kept { Above::Unnamed } else { top });
        };
        // A parent is older than its child; a younger one has the number of one that is gone.
        if start_time > born {
            return None;
        }
        let line = sight.command(at)?;
        let mut arguments = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).skip(1);
        if let Some(mode) = arguments.next() {
            if is_agents(&mode) {
                let directory = arguments.next().unwrap_or_default();
                if let Some(record) = kept(Path::new(&*directory), at, start_time) {
                    let which = if record.worker_pid == Some(pid) { Which::Worker } else { Which::Command };
                    return Some(Above::Agent { dir: (&*directory).into(), nonce: record.nonce, which });
                }
                // A shim names its worker a moment after it has started it.
                is_kept = true;
            }
            // Whose it is stands further up, if that is one of the fleet.
            is_kept |= keepers.contains(&&*mode);
        }
        below = Some((at, start_time));
        (at, born) = (parent, start_time);
    }
    Some(Above::Unnamed)
}

fn is_agents(mode: &str) -> bool {
    mode == SHIM_MODE || mode == WORKER_MODE
}

/// What stands above a process (`below`) whose parent cannot be seen; `None` when the parent has only ended meanwhile.
fn beyond(sight: &impl Sight, hidden: i32, below: (i32, u64)) -> Option<Above> {
    let reach = sight.reach(hidden);
    // As long as it is the parent of somebody, its number is nobody else's.
    if sight.stat(below.0) != Some((hidden, below.1)) || sight.stat(hidden).is_some() {
        return None;
    }
    match reach {
        Reach::Nobody => None,
        Reach::Others => Some(Above::Nobody),
        Reach::Ours if is_hidden_below_an_agent(sight) => Some(Above::Unknown),
        Reach::Ours => Some(Above::Nobody),
    }
}

/// Whether an agent may have processes of ours that cannot be seen. The topmost of those is the child of one that can.
fn is_hidden_below_an_agent(sight: &impl Sight) -> bool {
    let Some(visible) = sight.visible() else { return true };
    visible.into_iter().filter(|pid| is_seen_below_an_agent(sight, *pid)).any(|pid| {
        let hides = |child: i32| sight.reach(child) == Reach::Ours && sight.stat(child).is_none();
        match sight.children(pid) {
            Some(children) => children.into_iter().any(hides),
            // It has ended, or the kernel does not say.
            None => sight.stat(pid).is_some(),
        }
    })
}

fn is_seen_below_an_agent(sight: &impl Sight, pid: i32) -> bool {
    let mut at = pid;
    for _ in 0..DEPTH {
        let (Some((parent, _)), Some(line)) = (sight.stat(at), sight.command(at)) else { return false };
        let mode = line.split(|byte| *byte == 0).nth(1).map(String::from_utf8_lossy).unwrap_or_default();
        if is_agents(&mode) {
            return true;
        }
        at = parent;
    }
    true
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
    use std::collections::BTreeMap;
    use std::process::{Command, Stdio};

    use super::*;

    /// Processes with their parents and modes; whoever is not in `seen` is hidden, and ours when it is in `ours`.
    #[derive(Default)]
    struct Fake {
        all: BTreeMap<i32, (i32, &'static str)>,
        seen: Vec<i32>,
        ours: Vec<i32>,
    }

    impl Sight for Fake {
        fn stat(&self, pid: i32) -> Option<(i32, u64)> {
            let (parent, _) = self.all.get(&pid).filter(|_| self.seen.contains(&pid))?;
            Some((*parent, u64::try_from(pid).unwrap()))
        }

        fn command(&self, pid: i32) -> Option<Vec<u8>> {
            Some(format!("x\0{}\0/none\0", self.all.get(&pid)?.1).into_bytes())
        }

        fn reach(&self, pid: i32) -> Reach {
            match self.all.contains_key(&pid) {
                false => Reach::Nobody,
                true if self.ours.contains(&pid) => Reach::Ours,
                true => Reach::Others,
            }
        }

        fn visible(&self) -> Option<Vec<i32>> {
            Some(self.seen.clone())
        }

        fn children(&self, pid: i32) -> Option<Vec<i32>> {
            Some(self.all.iter().filter(|(_, (parent, _))| *parent == pid).map(|(child, _)| *child).collect())
        }
    }

    #[test]
    fn a11_hidden_processes_of_others_are_no_agents_and_hidden_ones_of_ours_prove_nothing() {
        let fake = |all: &[(i32, i32, &'static str)], seen: &[i32], ours: &[i32]| Fake {
            all: all.iter().map(|(pid, parent, mode)| (*pid, (*parent, *mode))).collect(),
            seen: seen.to_vec(),
            ours: ours.to_vec(),
        };
        // A person's shell below a login of the system's.
        let login = [(1, 0, ""), (2, 1, ""), (3, 2, ""), (4, 3, "")];
        let hidden = fake(&login, &[3, 4], &[3, 4]);
        assert_eq!(walk(&hidden, 4, &[]), Some(Above::Nobody));
        // The caller itself must be seen.
        assert_eq!(walk(&hidden, 2, &[]), None);
        // sshd gives itself another user, and is hidden from it.
        assert_eq!(walk(&fake(&login, &[3, 4], &[2, 3, 4]), 4, &[]), Some(Above::Nobody));
        // An agent's command that hides, however deep, while an agent has one that is hidden.
        let agents = [(1, 0, ""), (5, 1, SHIM_MODE), (6, 5, ""), (7, 6, ""), (8, 7, ""), (9, 8, "")];
        assert_eq!(walk(&fake(&agents, &[5, 6, 9], &[5, 6, 7, 8, 9]), 9, &[]), Some(Above::Unknown));
        // What is seen below one is an agent's, whoever is hidden above.
        assert_eq!(walk(&fake(&agents, &[5, 6, 7, 8, 9], &[5, 6, 7, 8, 9]), 9, &[]), Some(Above::Unnamed));
        // A person's, while an agent hides nothing.
        let both = [(1, 0, ""), (2, 1, ""), (3, 2, ""), (5, 1, SHIM_MODE), (6, 5, "")];
        assert_eq!(walk(&fake(&both, &[3, 5, 6], &[2, 3, 5, 6]), 3, &[]), Some(Above::Nobody));
        // A parent that has only ended.
        assert_eq!(walk(&fake(&[(3, 2, "")], &[3], &[3]), 3, &[]), None);
    }

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
