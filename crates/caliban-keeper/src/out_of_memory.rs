//! Memory running out: which process the kernel should end first, and whether it ended one.
//!
//! The kernel counts the processes that it ended for want of memory, per control group and for the whole machine, but
//! does not say which ones. A count that rose together with a KILL is therefore only a probable reason.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use caliban_contract::records::ToldBy;

use crate::group::OwnGroup;

/// The `oom_score_adj` of a worker: it goes before the user's other programs.
pub const WORKER_SCORE: i32 = 300;
/// The `oom_score_adj` of a command: it goes before the agent that runs it.
pub const COMMAND_SCORE: i32 = 500;
pub(crate) const OWN_SCORE: &str = "/proc/self/oom_score_adj";

/// How many processes the kernel had ended when this value was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomCount {
    told_by: ToldBy,
    file: PathBuf,
    before: u64,
}

impl OomCount {
    /// The count of the control group that this process is in, else the machine's.
    pub fn here() -> Option<Self> {
        OwnGroup::own().and_then(|place| place.shared_count()).or_else(Self::machine)
    }

    pub(crate) fn of(told_by: ToldBy, file: PathBuf) -> Option<Self> {
        let before = count(&file)?;
        Some(Self { told_by, file, before })
    }

    pub(crate) fn machine() -> Option<Self> {
        Self::of(ToldBy::System, PathBuf::from("/proc/vmstat"))
    }

    /// Whose count rose since.
    pub fn rose(&self) -> Option<ToldBy> {
        count(&self.file).is_some_and(|now| now > self.before).then_some(self.told_by)
    }
}

fn count(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// The score of this process, open for writing: a process that hides its memory cannot open it any more.
#[derive(Debug)]
pub struct OwnScore(Option<File>);

impl OwnScore {
    /// Best effort: without it the kernel chooses by size alone.
    #[must_use]
    pub fn open() -> Self {
        Self(OpenOptions::new().write(true).open(OWN_SCORE).ok())
    }

    /// Gives what `start` starts at least this score. A child inherits the score, so this process has it too while `start`
    /// runs: the child cannot do anything before it has the score.
    pub fn goes_first<T>(&self, score: i32, start: impl FnOnce() -> T) -> T {
        let (Some(file), Some(before)) = (&self.0, own_score().filter(|own| *own < score)) else {
            return start();
        };
        let put = |score: i32| file.write_at(score.to_string().as_bytes(), 0);
        let _as_likely_as_others = put(score);
        let started = start();
        // Going back to an earlier score needs no privilege.
        let _more_likely_than_others = put(before);
        started
    }
}

pub(crate) fn own_score() -> Option<i32> {
    fs::read_to_string(OWN_SCORE).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_and_its_rise_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.events");
        fs::write(&file, "low 0\noom 3\noom_kill 2\noom_group_kill 0\n").unwrap();
        let before = OomCount::of(ToldBy::Group, file.clone()).unwrap();
        assert_eq!(before.rose(), None);
        fs::write(&file, "low 0\noom 3\noom_kill 3\n").unwrap();
        assert_eq!(before.rose(), Some(ToldBy::Group));
        fs::remove_file(&file).unwrap();
        assert_eq!(before.rose(), None);
        assert_eq!(OomCount::of(ToldBy::Group, file), None);
        assert!(OomCount::here().is_some());
    }
}
