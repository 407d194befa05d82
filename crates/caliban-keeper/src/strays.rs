//! What is left of a tree whose keeper was killed: found by its traces, and ended.
//!
//! A process is known by its pid, its start time and the boot (a reused pid has another start time). A process of a tree
//! is also known by a variable in its environment, by its session and by its control group. Refuses to signal a process
//! that none of these fits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use caliban_contract::{modes, variables::AGENT_ID};
use caliban_process::{ElapsedTime, Keeper, Keepers, Stat, is_ours, open, try_stat};
use rustix::process::Signal;

use crate::group::Group;
use crate::reaper::KILL_LIMIT;
use crate::tree::own_pid;

const KILL_PAUSE: Duration = Duration::from_millis(2);

/// How to find what is left of a tree whose keeper is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traces {
    /// The variable that its processes have in their environment.
    pub variable: &'static str,
    /// The value of that variable.
    pub marker: String,
    /// Keeper and main process: pid and start time.
    pub known: Vec<(i32, u64)>,
    /// The session of the keeper. It counts only while one of `known` is in it, even as a zombie: the number of an empty
    /// session may be reused by anybody.
    pub session: Option<i32>,
    /// The control group, which no process leaves by itself.
    pub group: Option<Group>,
}

/// Ends what is left of these trees, except `spared` daemons and shims. Blocks for up to [`KILL_LIMIT`].
///
/// An error says nothing about the processes (out of file descriptors).
pub fn end_strays(trees: &[Traces], spared: Option<&Keepers>) -> io::Result<Strays> {
    let mut spent = ElapsedTime::new();
    let mut seen = BTreeSet::new();
    // A shim carries the marker of its own run only: with ours it belongs to the tree.
    let is_spared = |pid: i32, is_marked: bool| match spared.and_then(|spared| spared.who(pid)) {
        None => false,
        Some(Keeper::Daemon | Keeper::Job(_)) => true,
        Some(Keeper::Shim(_)) => !is_marked,
    };
    loop {
        let groups = || trees.iter().filter_map(|tree| tree.group.as_ref());
        let grouped: Vec<i32> = groups().flat_map(Group::members).collect();
        let found = find(trees, &grouped, is_spared)?;
        if found.is_empty() {
            groups().for_each(Group::remove);
            return Ok(Strays { ended: seen.len(), left: 0 });
        }
        for group in groups() {
            group.kill(|pid| is_spared(pid, false));
        }
        for (pid, start_time) in &found {
            seen.insert((*pid, *start_time));
            if let Some(fd) = open(*pid, *start_time)? {
                let _gone_already = rustix::process::pidfd_send_signal(&fd, Signal::KILL);
            }
        }
        if spent.so_far() > KILL_LIMIT {
            return Ok(Strays { ended: seen.len() - found.len(), left: found.len() });
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

/// What [`end_strays`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strays {
    /// Processes that it ended.
    pub ended: usize,
    /// Processes that it could not end.
    pub left: usize,
}

/// Living processes of these trees: in their groups, marked, known, in their sessions, or below one of those. Spared ones
/// and what is below them do not count, unless they are recorded as known.
fn find(
    trees: &[Traces],
    grouped: &[i32],
    is_spared: impl Fn(i32, bool) -> bool,
) -> io::Result<BTreeSet<(i32, u64)>> {
    let markers: Vec<Vec<u8>> =
        trees.iter().map(|tree| format!("{}={}", tree.variable, tree.marker).into_bytes()).collect();
    let known: BTreeSet<(i32, u64)> = trees.iter().flat_map(|tree| tree.known.iter().copied()).collect();
    let before = sessions_of(trees)?;
    let mut all: BTreeMap<i32, Stat> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // In a tree's group the processes of other users count, too (`sudo`).
        let ours = || is_ours(pid) || grouped.contains(&pid);
        if pid == own_pid() || !ours() {
            continue;
        }
        if let Some(stat) = try_stat(pid)?.filter(|stat| !stat.is_over()) {
            all.insert(pid, stat);
        }
    }
    // A known process that was in the session before and after the scan has kept its number from being reused.
    let mut sessions = sessions_of(trees)?;
    sessions.retain(|session| before.contains(session));
    let mut found = BTreeSet::new();
    for (pid, stat) in &all {
        let recorded = known.contains(&(*pid, stat.start_time));
        let known = recorded || sessions.contains(&stat.session) || grouped.contains(pid);
        let is_marked = is_marked(*pid, &markers)?;
        if (known || is_marked) && (recorded || !is_spared(*pid, is_marked)) {
            found.insert(*pid);
        }
    }
    loop {
        let below: Vec<i32> = all
            .iter()
            .filter(|(pid, stat)| !found.contains(pid) && found.contains(&stat.parent))
            .map(|(pid, _)| *pid)
            .filter(|pid| !is_spared(*pid, false))
            .collect();
        if below.is_empty() {
            break;
        }
        found.extend(below);
    }
    Ok(found.into_iter().filter_map(|pid| Some((pid, all.get(&pid)?.start_time))).collect())
}

/// The sessions of these trees that are still theirs.
fn sessions_of(trees: &[Traces]) -> io::Result<BTreeSet<i32>> {
    let mut sessions = BTreeSet::new();
    for tree in trees {
        let Some(session) = tree.session else { continue };
        for (pid, start_time) in &tree.known {
            if try_stat(*pid)?.is_some_and(|stat| (stat.start_time, stat.session) == (*start_time, session)) {
                sessions.insert(session);
            }
        }
    }
    Ok(sessions)
}

/// Whether one of these `NAME=value` entries is in the environment of a process. A shim and a worker hide theirs, and say the
/// same in their command line.
fn is_marked(pid: i32, markers: &[Vec<u8>]) -> io::Result<bool> {
    let shown = |file: &str| caliban_process::read(Path::new(&format!("/proc/{pid}/{file}")));
    let environ = shown("environ")?.unwrap_or_default();
    if environ.split(|byte| *byte == 0).any(|entry| markers.iter().any(|marker| marker == entry)) {
        return Ok(true);
    }
    let line = shown("cmdline")?.unwrap_or_default();
    Ok(run_of(&line).is_some_and(|run| markers.contains(&format!("{AGENT_ID}={run}").into_bytes())))
}

/// The run of a shim or a worker by its command line, as in the variable: `<agent id>:<nonce>`.
fn run_of(line: &[u8]) -> Option<String> {
    let words: Vec<&str> =
        line.split(|byte| *byte == 0).filter_map(|word| str::from_utf8(word).ok()).collect();
    let is_run = words.get(1).is_some_and(|mode| [modes::SHIM, modes::WORKER].contains(mode));
    let agent = Path::new(words.get(2).filter(|_| is_run)?).file_name()?.to_str()?;
    let at = words.iter().position(|word| *word == "--nonce")?;
    Some(format!("{agent}:{}", words.get(at + 1)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caliban_process::stat;

    const MARKER: &str = caliban_contract::variables::AGENT_ID;

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
            variable: MARKER,
            marker: "0000aaab:1".into(),
            known,
            session: Some(pid),
            group: None,
        };
        let own = i32::try_from(std::process::id()).unwrap();
        let strangers = vec![(pid, start_time - 1), (own, stat(own).unwrap().start_time + 1)];
        assert_eq!(end_strays(&[run(strangers)], None).unwrap(), Strays { ended: 0, left: 0 });
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
    fn r04_a_shim_and_a_worker_are_known_by_their_command_line() {
        let run = |words: &[&str]| run_of(words.join("\0").as_bytes());
        let told = Some("0000aaaa:00ff".to_owned());
        assert_eq!(
            run(&["/b/caliban", "__worker", "/d/agents/0000aaaa", "--nonce", "00ff", "--socket", "/s"]),
            told
        );
        assert_eq!(
            run(&["caliband", "__shim", "/d/agents/0000aaaa", "--cwd", "/w", "--nonce", "00ff"]),
            told
        );
        assert_eq!(run(&["sh", "-c", "/d/agents/0000aaaa", "--nonce", "00ff"]), None);
        assert_eq!(run(&["caliban", "__shim", "/d/agents/0000aaaa", "--nonce"]), None);
        assert_eq!(run(&["caliban"]), None);
    }

    #[test]
    fn strays_are_found_by_marker_and_strangers_left_alone() {
        let spawn =
            |value: &str| std::process::Command::new("sleep").arg("600").env(MARKER, value).spawn().unwrap();
        // Of this very run: what another one has left is not found.
        let [marker, another] = [1, 2].map(|run| format!("0000aaaa{}:{run}", std::process::id()));
        let (mut ours, mut other) = (spawn(&marker), spawn(&another));
        // A program has its environment a moment after it was started.
        let entry = format!("{MARKER}={marker}").into_bytes();
        while !is_marked(ours.id().cast_signed(), std::slice::from_ref(&entry)).unwrap() {
            std::thread::yield_now();
        }
        let run = Traces { variable: MARKER, marker, known: Vec::new(), session: None, group: None };
        let reaper = std::thread::spawn(move || ours.wait().unwrap());
        assert_eq!(end_strays(&[run], None).unwrap(), Strays { ended: 1, left: 0 });
        assert!(!reaper.join().unwrap().success());
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
