//! Whether memory ran out while a command ran. The kernel counts whom it ended for that, per control group and for
//! the whole machine, but does not say whom: a rise together with a KILL is a probable reason.
//!
//! Also: a command goes before its agent. Where there is no such thing as `/proc`, memory never runs out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// How much rather the kernel should end a command than its agent or anything else of the user's.
const SCORE: i32 = 500;
/// How likely we are ended ourselves.
const OWN_SCORE: &str = "/proc/self/oom_score_adj";

/// How it stood with memory while a command ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Memory {
    /// The kernel ended nobody.
    #[default]
    Enough,
    /// It ended somebody of the command's control group, which others may be in, too.
    OutHere,
    /// It ended somebody on this machine.
    OutSomewhere,
}

/// The count before the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Count {
    file: PathBuf,
    rise_means: Memory,
    before: u64,
}

impl Count {
    /// Of our own group if that can be seen, else of the machine.
    pub(super) fn now() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let here = candidates(&groups).into_iter().map(|file| (file, Memory::OutHere));
        let mut files = here.chain([(PathBuf::from("/proc/vmstat"), Memory::OutSomewhere)]);
        files.find_map(|(file, rise_means)| Some(Self { before: count(&file)?, file, rise_means }))
    }

    /// What has become of it.
    pub(super) fn since(&self) -> Memory {
        match count(&self.file) {
            Some(now) if now > self.before => self.rise_means,
            _ => Memory::Enough,
        }
    }
}

/// Lets the kernel end what `start` starts rather than others. Only ever makes that more likely. Children inherit it, so
/// we have it ourselves for a moment, and nothing that a command does first escapes it.
pub(super) fn goes_first<T>(start: impl FnOnce() -> T) -> T {
    let score = fs::read_to_string(OWN_SCORE).ok().and_then(|text| text.trim().parse::<i32>().ok());
    let Some(score) = score.filter(|score| *score < SCORE) else { return start() };
    let _as_likely_as_others = fs::write(OWN_SCORE, SCORE.to_string());
    let started = start();
    // Going back to what one had needs no privilege.
    let _more_likely_than_others = fs::write(OWN_SCORE, score.to_string());
    started
}

/// Where the count of our group may be, by what `/proc/self/cgroup` says. Looked for where everybody mounts it: what
/// is not there is not missed, the machine's count is.
fn candidates(groups: &str) -> Vec<PathBuf> {
    let group = |controller: &str| {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let path = path.strip_prefix('/').filter(|path| !path.contains(".."))?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        })
    };
    let mut found = Vec::new();
    if let Some(path) = group("memory") {
        found.push(Path::new("/sys/fs/cgroup/memory").join(path).join("memory.oom_control"));
    }
    if let Some(path) = group("") {
        // The nearest that has the controller is the one that counts.
        let groups = Path::new(path).ancestors().map(|group| Path::new("/sys/fs/cgroup").join(group));
        found.extend(groups.map(|group| group.join("memory.events")));
    }
    found
}

fn count(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_the_own_group_is_looked_for_first() {
        let check = |groups: &str, expected: &[&str]| {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(candidates(groups), expected);
        };
        check(
            "0::/user.slice/x.scope\n",
            &[
                "/sys/fs/cgroup/user.slice/x.scope/memory.events",
                "/sys/fs/cgroup/user.slice/memory.events",
                "/sys/fs/cgroup/memory.events",
            ],
        );
        check(
            "4:cpu,memory:/a\n1:name=systemd:/\n0::/\n",
            &["/sys/fs/cgroup/memory/a/memory.oom_control", "/sys/fs/cgroup/memory.events"],
        );
        check("0::/../x\n", &[]);
        check("", &[]);
    }

    #[test]
    fn a_rise_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.events");
        fs::write(&file, "oom 9\noom_kill 1\n").unwrap();
        let before = Count { before: count(&file).unwrap(), file: file.clone(), rise_means: Memory::OutHere };
        assert_eq!(before.since(), Memory::Enough);
        fs::write(&file, "oom 9\noom_kill 2\n").unwrap();
        assert_eq!(before.since(), Memory::OutHere);
        fs::remove_file(&file).unwrap();
        assert_eq!(before.since(), Memory::Enough);
    }
}
