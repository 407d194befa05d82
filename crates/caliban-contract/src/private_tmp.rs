//! The private `/tmp` of sessions and agents goes a day after they did something last. `caliban agents rm` removes it at once.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::records::{BACKGROUND, PRIVATE_TMP, SESSIONS, SUB_AGENTS};

/// How long it stays.
const STAYS: Duration = Duration::from_secs(24 * 60 * 60);

/// How long one waits for the next look through all sessions of a repo: each run would else pay for all that there ever were.
const LOOKS_EVERY: Duration = Duration::from_secs(60 * 60);
/// Its time says when the last look was over.
const LOOKED: &str = "tmp.swept";

/// The same as [`sweep`] for a process that may end at any time, once in an hour for all of them.
pub fn sweep_seldom(repo_dir: &Path) {
    let looked = repo_dir.join(LOOKED);
    let at = fs::metadata(&looked).and_then(|looked| looked.modified());
    // A time to come is that of a clock that was wrong.
    let is_recent =
        at.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age < LOOKS_EVERY));
    if !is_recent {
        sweep(repo_dir, |_| false);
        // Only now: a process that ended before is followed by one that begins again.
        let _tried_again = fs::write(looked, "");
    }
}

/// Removes those of a repo that nobody needs any more, but for those of sessions and agents that are known to be at work. What is left
/// when the program ends goes next time.
pub fn sweep(repo_dir: &Path, is_at_work: impl Fn(&OsStr) -> bool) {
    let shelves = [SESSIONS, "agents"].map(|shelf| repo_dir.join(shelf));
    for directory in shelves.iter().flat_map(|shelf| directories(shelf)) {
        let at_work = directory.file_name().is_some_and(&is_at_work);
        if !at_work && is_old(&directory, SystemTime::now()) {
            remove(&directory);
        }
    }
}

fn directories(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Whether nothing in it has changed for long: a transcript grows with every step.
fn is_old(directory: &Path, now: SystemTime) -> bool {
    let changed = |entry: fs::DirEntry| entry.metadata().ok()?.modified().ok();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let last = entries.filter_map(changed).max();
    last.is_some_and(|last| now.duration_since(last).is_ok_and(|age| age > STAYS))
}

/// Of the session and of its helpers.
fn remove(directory: &Path) {
    let helpers = [SUB_AGENTS, BACKGROUND].into_iter().flat_map(|kind| directories(&directory.join(kind)));
    for owner in std::iter::once(directory.to_owned()).chain(helpers) {
        // Best effort: what cannot be removed now is tried again.
        let _left = fs::remove_dir_all(owner.join(PRIVATE_TMP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a20_all_sessions_are_looked_through_once_in_an_hour() {
        let repo = tempfile::tempdir().unwrap();
        let tmp = repo.path().join("sessions/one/tmp");
        let make_old = || {
            fs::create_dir_all(&tmp).unwrap();
            let old = SystemTime::now() - STAYS - Duration::from_secs(60);
            fs::File::open(&tmp).unwrap().set_modified(old).unwrap();
        };
        make_old();
        sweep_seldom(repo.path());
        assert!(!tmp.exists());
        make_old();
        sweep_seldom(repo.path());
        assert!(tmp.exists());
        // An hour later, and when the clock was ahead.
        let looked = fs::File::options().write(true).open(repo.path().join(LOOKED)).unwrap();
        for time in [SystemTime::now() - LOOKS_EVERY, SystemTime::now() + STAYS] {
            make_old();
            looked.set_modified(time).unwrap();
            sweep_seldom(repo.path());
            assert!(!tmp.exists());
        }
    }

    #[test]
    fn a20_a_private_tmp_goes_a_day_after_the_last_step_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("one");
        for place in ["tmp/deep", "sub/helper/tmp", "bg/1/tmp", "checkpoints"] {
            fs::create_dir_all(session.join(place)).unwrap();
            fs::write(session.join(place).join("file"), "x").unwrap();
        }
        fs::write(session.join("transcript.jsonl"), "{}").unwrap();
        let now = SystemTime::now();
        assert!(!is_old(&session, now) && !is_old(&session, now + STAYS - Duration::from_secs(60)));
        assert!(is_old(&session, now + STAYS + Duration::from_secs(60)));
        remove(&session);
        for gone in ["tmp", "sub/helper/tmp", "bg/1/tmp"] {
            assert!(!session.join(gone).exists(), "{gone}");
        }
        assert!(session.join("checkpoints/file").exists() && session.join("transcript.jsonl").exists());
    }
}
