//! Whose process this is: a fleet agent's, or a person's (a11).
//!
//! Seen, not believed. The processes above this one are walked through up to the first; a shim or a worker of the fleet
//! among them is known by its command line, and counts as that of the directory it names only when `shim.json` there has
//! this very process: number, start time and boot, so that a reused number is nobody. Neither `setsid` nor a double fork
//! leads out, because shims adopt what is orphaned below them. The variable that the fleet's processes carry is only a
//! hint, and only against whoever has it.
//!
//! Refuses: being more than it is. ADR 0040 says what a process that is not fenced in can do all the same.

use std::path::{Path, PathBuf};

use caliban_process::read;
use caliban_store::broker::{Owner, Speaker};
use serde_json::Value;

/// The first argument of a fleet agent's keeper and of its worker; the second is the agent's directory.
const MODES: [&[u8]; 2] = [b"__shim", b"__worker"];
/// The keeper's word on who it is and whom it keeps.
const RECORD: &str = "shim.json";
/// How many processes may stand above one. More is nothing that a person does.
const DEPTH: usize = 1024;
/// How often the walk begins anew because a process ended under it.
const ATTEMPTS: usize = 20;

/// Who uses the store through this process. `marker` is the fleet's variable.
pub(crate) fn speaker(marker: Option<&str>) -> Speaker {
    for _ in 0..ATTEMPTS {
        match walk(&Proc) {
            Some(Above::Nobody) if marker.is_some() => return Speaker::Only(Vec::new()),
            Some(Above::Nobody) => return Speaker::Anybody,
            Some(Above::Agents(owners)) => return Speaker::Only(owners),
            None => {}
        }
    }
    // Processes that end faster than they can be looked at are nothing that a person does.
    Speaker::Only(Vec::new())
}

/// Who stands above a process.
#[derive(Debug, PartialEq, Eq)]
enum Above {
    /// No process of the fleet.
    Nobody,
    /// These agents, the innermost first; one that cannot be told is left out.
    Agents(Vec<Owner>),
}

/// What has to be known about processes.
trait Processes {
    /// The process to begin with: our own.
    fn own(&self) -> i64;
    /// Parent and start time.
    fn stat(&self, pid: i64) -> Option<(i64, u64)>;
    /// The command line.
    fn arguments(&self, pid: i64) -> Vec<Vec<u8>>;
    /// This boot.
    fn boot(&self) -> String;
    /// The keeper's record in an agent's directory.
    fn record(&self, directory: &Path) -> Option<Value>;
}

/// Walks up; `None` when a process ended meanwhile and nothing can be said.
fn walk(processes: &impl Processes) -> Option<Above> {
    let (mut at, mut born) = processes.stat(processes.own())?;
    let (mut owners, mut is_fleet) = (Vec::new(), false);
    for _ in 0..DEPTH {
        // Nothing stands above the first process, nor above what another namespace hides.
        if at <= 0 {
            return Some(if is_fleet { Above::Agents(owners) } else { Above::Nobody });
        }
        let (parent, started) = processes.stat(at)?;
        // A parent is older than its child; a younger one has the number of one that is gone.
        if started > born {
            return None;
        }
        if let Some(directory) = directory(&processes.arguments(at)) {
            is_fleet = true;
            if is_kept(processes, &directory, at, started) {
                let owner = Owner::of_directory(&directory);
                if !owners.contains(&owner) {
                    owners.push(owner);
                }
            }
        }
        (at, born) = (parent, started);
    }
    Some(Above::Agents(Vec::new()))
}

/// The agent's directory in the command line of a shim or worker.
fn directory(arguments: &[Vec<u8>]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let [_, mode, directory, ..] = arguments else { return None };
    MODES.contains(&mode.as_slice()).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(directory)))
}

/// Whether the record in the directory is about this very process.
fn is_kept(processes: &impl Processes, directory: &Path, pid: i64, started: u64) -> bool {
    let Some(record) = processes.record(directory) else { return false };
    let is = |number: &str, start: &str| record[number] == pid && record[start] == started;
    record["boot_id"] == processes.boot().as_str()
        && (is("pid", "start_time") || is("worker_pid", "worker_start_time"))
}

/// As the system has them.
struct Proc;

impl Processes for Proc {
    fn own(&self) -> i64 {
        i64::from(std::process::id())
    }

    fn stat(&self, pid: i64) -> Option<(i64, u64)> {
        let stat = caliban_process::stat(i32::try_from(pid).ok()?)?;
        Some((i64::from(stat.parent), stat.start_time))
    }

    fn arguments(&self, pid: i64) -> Vec<Vec<u8>> {
        let line = read(Path::new(&format!("/proc/{pid}/cmdline"))).ok().flatten().unwrap_or_default();
        line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
    }

    fn boot(&self) -> String {
        caliban_process::boot_id().unwrap_or_default()
    }

    fn record(&self, directory: &Path) -> Option<Value> {
        serde_json::from_slice(&read(&directory.join(RECORD)).ok()??).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// Parent, start time and command line.
    type Row = (i64, u64, &'static [&'static str]);

    /// By number; and the records by directory.
    struct Fake(BTreeMap<i64, Row>, BTreeMap<&'static str, Value>);

    impl Processes for Fake {
        fn own(&self) -> i64 {
            100
        }

        fn stat(&self, pid: i64) -> Option<(i64, u64)> {
            self.0.get(&pid).map(|(parent, started, _)| (*parent, *started))
        }

        fn arguments(&self, pid: i64) -> Vec<Vec<u8>> {
            self.0
                .get(&pid)
                .map(|it| it.2.iter().map(|arg| arg.as_bytes().to_vec()).collect())
                .unwrap_or_default()
        }

        fn boot(&self) -> String {
            "boot".to_owned()
        }

        fn record(&self, directory: &Path) -> Option<Value> {
            self.1.get(directory.to_str()?).cloned()
        }
    }

    fn kept(pid: i64, started: u64) -> Value {
        json!({"pid": pid, "start_time": started, "boot_id": "boot", "worker_pid": 50, "worker_start_time": 5})
    }

    #[track_caller]
    fn check(rows: &[(i64, Row)], records: &[(&'static str, Value)], is: Option<Above>) {
        let fake = Fake(rows.iter().copied().collect(), records.iter().cloned().collect());
        assert_eq!(walk(&fake), is);
    }

    fn agents(directories: &[&str]) -> Option<Above> {
        Some(Above::Agents(directories.iter().map(|it| Owner::of_directory(Path::new(it))).collect()))
    }

    #[test]
    fn a11_a_process_is_known_by_the_shims_above_it_and_a_reused_number_is_nobody() {
        let own = (100, (40, 9, &["cafleet"][..]));
        let shell = (40, (1, 3, &["bash"][..]));
        let first = (1, (0, 0, &["init"][..]));
        check(&[own, shell, first], &[], Some(Above::Nobody));
        // Hidden by a namespace.
        check(&[(100, (0, 9, &["cafleet"][..]))], &[], Some(Above::Nobody));

        let shim = (40, (1, 3, &["caliband", "__shim", "/a"][..]));
        check(&[own, shim, first], &[("/a", kept(40, 3))], agents(&["/a"]));
        for other in
            [kept(41, 3), kept(40, 4), json!({"pid": 40, "start_time": 3, "boot_id": "before"}), json!(1)]
        {
            check(&[own, shim, first], &[("/a", other)], agents(&[]));
        }
        check(&[own, shim, first], &[], agents(&[]));

        // The worker alone, when its shim was killed; both are one.
        let worker = (50, (40, 5, &["caliban", "__worker", "/a", "--nonce"][..]));
        let below = (100, (50, 9, &["cafleet"][..]));
        check(&[below, worker, shell, first], &[("/a", kept(7, 7))], agents(&["/a"]));
        check(&[below, worker, shim, first], &[("/a", kept(40, 3))], agents(&["/a"]));

        // One inside the other, and a process that only says that it is a shim.
        let outer = (30, (1, 2, &["caliband", "__shim", "/outer"][..]));
        let inner = (40, (30, 3, &["caliband", "__shim", "/a"][..]));
        let records = [("/a", kept(40, 3)), ("/outer", kept(30, 2))];
        check(&[own, inner, outer, first], &records, agents(&["/a", "/outer"]));
        check(&[own, inner, outer, first], &records[1..], agents(&["/outer"]));
    }

    #[test]
    fn a11_a_walk_over_processes_that_end_says_nothing_and_one_without_end_is_no_person() {
        let own = (100, (40, 9, &["cafleet"][..]));
        check(&[own], &[], None);
        // Its number was given away: younger than its child.
        check(&[own, (40, (1, 10, &["bash"][..])), (1, (0, 0, &["init"][..]))], &[], None);
        check(&[own, (40, (40, 3, &["bash"][..]))], &[], agents(&[]));
    }

    #[test]
    fn the_real_processes_are_read() {
        let (parent, started) = Proc.stat(Proc.own()).expect("our own");
        assert!(parent > 0 && started > 0 && Proc.boot().len() == 36);
        assert!(!Proc.arguments(Proc.own())[0].is_empty());
    }
}
