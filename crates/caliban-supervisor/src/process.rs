//! Finding the processes of a run, and ending them.
//!
//! A process is known by its id, its start time and the boot (a reused id has another start time). One of a run
//! is also known by [`MARKER`] in its environment and by its control group. Refuses to signal anything that does not fit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use caliban_process::{Keepers, Stat, try_stat};
pub(crate) use caliban_process::{boot_id, machine, open, stat};

use crate::shim::cgroup::Group;

/// The variable that every process of a run has.
pub(crate) use caliban_contract::variables::AGENT_ID as MARKER;

/// How long ending a stray tree is tried: only what is stuck in the kernel outlives this.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// The pause between two rounds.
const KILL_PAUSE: Duration = Duration::from_millis(2);

/// How to find what is left of a run whose shim is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Traces {
    /// The value of [`MARKER`].
    pub(crate) marker: String,
    /// Worker and shim: id and start time.
    pub(crate) known: Vec<(i32, u64)>,
    /// The session of the shim. It counts only as long as one of `known` is in it, be it as a child whose end was not taken:
    /// once a session is empty its number may be used again, by anybody.
    pub(crate) session: Option<i32>,
    /// Its control group, which no process leaves by itself.
    pub(crate) group: Option<Group>,
}

/// Ends whatever is left of these runs, and says how many processes that were and whether all are gone.
///
/// An error says nothing about them (out of file descriptors).
pub(crate) fn end_strays(runs: &[Traces]) -> io::Result<Strays> {
    let give_up = std::time::Instant::now() + KILL_LIMIT;
    let mut seen = BTreeSet::new();
    let keepers = Keepers::beside_us();
    let is_keeper = |pid: i32| keepers.as_ref().is_some_and(|keepers| keepers.who(pid).is_some());
    loop {
        let groups = || runs.iter().filter_map(|run| run.group.as_ref());
        let grouped: Vec<i32> = groups().flat_map(Group::members).collect();
        let found = find(runs, &grouped, is_keeper)?;
        if found.is_empty() {
            groups().for_each(Group::remove);
            return Ok(Strays { ended: seen.len(), left: 0 });
        }
        for group in groups() {
            group.kill(is_keeper);
        }
        for (pid, start_time) in &found {
            seen.insert((*pid, *start_time));
            if let Some(fd) = open(*pid, *start_time)? {
                let _gone_already = rustix::process::pidfd_send_signal(&fd, Signal::KILL);
            }
        }
        if std::time::Instant::now() > give_up {
            return Ok(Strays { ended: seen.len() - found.len(), left: found.len() });
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

/// What [`end_strays`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strays {
    pub(crate) ended: usize,
    pub(crate) left: usize,
}

/// Living processes of these runs: of their groups, marked, known, of the session, or below one of those. Not a daemon of
/// another repo, nor the shim of another run, that they had to start, and what is below these.
fn find(
    runs: &[Traces],
    grouped: &[i32],
    is_keeper: impl Fn(i32) -> bool,
) -> io::Result<BTreeSet<(i32, u64)>> {
    let markers: BTreeSet<&str> = runs.iter().map(|run| run.marker.as_str()).collect();
    let known: BTreeSet<(i32, u64)> = runs.iter().flat_map(|run| run.known.iter().copied()).collect();
    let before = sessions_of(runs)?;
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let uid = rustix::process::getuid().as_raw();
    let mut all: BTreeMap<i32, Stat> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // In the group of a run others' are ours, too (`sudo`).
        let ours = || entry.metadata().is_ok_and(|found| found.uid() == uid) || grouped.contains(&pid);
        if pid == own || !ours() {
            continue;
        }
        if let Some(stat) = try_stat(pid)?.filter(|stat| !stat.is_over()) {
            all.insert(pid, stat);
        }
    }
    // Whoever is in a session from first to last keeps its number from others.
    let mut sessions = sessions_of(runs)?;
    sessions.retain(|session| before.contains(session));
    let mut found = BTreeSet::new();
    for (pid, stat) in &all {
        let recorded = known.contains(&(*pid, stat.start_time));
        let known = recorded || sessions.contains(&stat.session) || grouped.contains(pid);
        if (known || is_marked(*pid, &markers)?) && (recorded || !is_keeper(*pid)) {
            found.insert(*pid);
        }
    }
    loop {
        let below: Vec<i32> = all
            .iter()
            .filter(|(pid, stat)| !found.contains(pid) && found.contains(&stat.parent))
            .map(|(pid, _)| *pid)
            .filter(|pid| !is_keeper(*pid))
            .collect();
        if below.is_empty() {
            break;
        }
        found.extend(below);
    }
    Ok(found.into_iter().filter_map(|pid| Some((pid, all.get(&pid)?.start_time))).collect())
}

/// The sessions of these runs that are still theirs.
fn sessions_of(runs: &[Traces]) -> io::Result<BTreeSet<i32>> {
    let mut sessions = BTreeSet::new();
    for run in runs {
        let Some(session) = run.session else { continue };
        for (pid, start_time) in &run.known {
            if try_stat(*pid)?.is_some_and(|stat| (stat.start_time, stat.session) == (*start_time, session)) {
                sessions.insert(session);
            }
        }
    }
    Ok(sessions)
}

fn is_marked(pid: i32, markers: &BTreeSet<&str>) -> io::Result<bool> {
    Ok(marker(pid)?.is_some_and(|value| markers.contains(value.as_str())))
}

/// The value of [`MARKER`] in the environment of a process.
pub(crate) fn marker(pid: i32) -> io::Result<Option<String>> {
    let Some(environ) = caliban_process::read(Path::new(&format!("/proc/{pid}/environ")))? else {
        return Ok(None);
    };
    Ok(environ.split(|byte| *byte == 0).find_map(|variable| {
        let value = variable.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r04_a_process_with_another_start_time_is_a_stranger() {
        let own = i32::try_from(std::process::id()).unwrap();
        let start_time = stat(own).unwrap().start_time;
        assert!(open(own, start_time).unwrap().is_some());
        assert!(open(own, start_time + 1).unwrap().is_none());
        assert!(open(own, start_time - 1).unwrap().is_none());
    }

    #[test]
    fn r04_a_session_whose_number_was_used_again_is_a_strangers() {
        let mut stranger = std::process::Command::new("setsid").args(["sleep", "600"]).spawn().unwrap();
        let pid = i32::try_from(stranger.id()).unwrap();
        while stat(pid).unwrap().session != pid {
            std::thread::yield_now();
        }
        let start_time = stat(pid).unwrap().start_time;
        // Its number was the shim's, and that of a worker of another session.
        let run = |known: Vec<(i32, u64)>| Traces {
            marker: "0000aaab:1".into(),
            known,
            session: Some(pid),
            group: None,
        };
        let own = i32::try_from(std::process::id()).unwrap();
        let strangers = vec![(pid, start_time - 1), (own, stat(own).unwrap().start_time + 1)];
        assert_eq!(end_strays(&[run(strangers)]).unwrap(), Strays { ended: 0, left: 0 });
        assert_eq!(stranger.try_wait().unwrap(), None);
        stranger.kill().unwrap();
        // Its end was not taken: the number is still its own.
        while !stat(pid).unwrap().is_over() {
            std::thread::yield_now();
        }
        assert_eq!(sessions_of(&[run(vec![(pid, start_time)])]).unwrap(), BTreeSet::from([pid]));
        stranger.wait().unwrap();
        assert_eq!(sessions_of(&[run(vec![(pid, start_time)])]).unwrap(), BTreeSet::new());
    }

    #[test]
    fn strays_are_found_by_marker_and_strangers_left_alone() {
        let spawn =
            |value: &str| std::process::Command::new("sleep").arg("600").env(MARKER, value).spawn().unwrap();
        let (mut ours, mut other) = (spawn("0000aaaa:1"), spawn("0000aaaa:2"));
        let run = Traces { marker: "0000aaaa:1".into(), known: Vec::new(), session: None, group: None };
        let reaper = std::thread::spawn(move || ours.wait().unwrap());
        assert_eq!(end_strays(&[run]).unwrap(), Strays { ended: 1, left: 0 });
        assert!(!reaper.join().unwrap().success());
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
