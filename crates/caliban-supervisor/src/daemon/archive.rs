//! What is kept of agents that are gone: the daemon moves their directories to the archive, and prunes it by age and size.
//!
//! An agent's answer is in its transcript, so nothing of a removed agent is deleted at once unless somebody asks for that
//! (`rm --purge`).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use caliban_contract::archive::{ArchiveReason, Archived, RECORD, VERSION, place};
use caliban_contract::private_tmp;
use caliban_core::ids::AgentId;

use super::{Owner, spawn};
use crate::places::Places;
use crate::records;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ArchiveLimits {
    age_ms: u64,
    bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ArchivedAgent {
    dir: PathBuf,
    at: u64,
    bytes: u64,
}

impl Owner {
    /// Prunes the archive when something has come into it since the last time.
    pub(super) fn prune_archive(&mut self) {
        if !std::mem::take(&mut self.archive_has_grown) {
            return;
        }
        let dir = self.places.archive_dir();
        let limits = ArchiveLimits {
            age_ms: u64::from(self.options.archive_days) * DAY_MS,
            bytes: self.options.archive_bytes,
        };
        self.tasks.spawn_blocking(move || prune(&dir, limits));
    }

    /// Removes the private `/tmp`s of sessions and agents that did nothing for a day (a20).
    pub(super) fn sweep_private_tmp(&mut self) {
        let base = self.places.base().to_owned();
        let living: BTreeSet<String> =
            self.ids_of(|agent| !agent.state().is_ending()).iter().map(ToString::to_string).collect();
        let is_at_work = move |name: &OsStr| name.to_str().is_some_and(|name| living.contains(name));
        self.tasks.spawn_blocking(move || private_tmp::sweep(&base, is_at_work));
    }
}

/// Moves an agent's directory to the archive; durable when this returns.
pub(super) fn put(places: &Places, id: AgentId, why: ArchiveReason) -> io::Result<PathBuf> {
    let (from, to) = (places.agent_dir(id), place(places.base(), id));
    // Without it the age of the transcript counts, so a full disk does not keep an agent from being removed.
    let record = Archived { version: VERSION, at: crate::wall_ms(), why };
    if let Err(error) = records::write(&from, RECORD, &record) {
        tracing::warn!(%id, "when it was archived cannot be written: {error}");
    }
    drop_checkpoints(&from);
    spawn::make_dir(&places.archive_dir())?;
    fs::rename(&from, &to)?;
    // Nothing needs it any more, and it may be large.
    let tmp = to.join(records::PRIVATE_TMP);
    let (theirs, delete) = (tmp.clone(), |tmp| drop(fs::remove_dir_all(tmp)));
    if std::thread::Builder::new().spawn(move || delete(theirs)).is_err() {
        delete(tmp);
    }
    for dir in [places.archive_dir(), places.agents_dir()] {
        File::open(dir)?.sync_all()?;
    }
    Ok(to)
}

/// Deletes what is kept for an undo, which nobody can ask for any more: it has whole files, with their secrets. That of the session's
/// own background agents, too.
fn drop_checkpoints(session: &Path) {
    let kept = session.join(records::CHECKPOINTS);
    if let Err(error) = fs::remove_dir_all(&kept)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!("{} cannot be removed: {error}", kept.display());
    }
    for below in [records::BACKGROUND, records::SUB_AGENTS] {
        let sessions = fs::read_dir(session.join(below)).into_iter().flatten().flatten();
        sessions.for_each(|entry| drop_checkpoints(&entry.path()));
    }
}

/// The same, where an agent goes on if that fails; returns where its directory is then.
pub(super) fn put_if_possible(places: &Places, id: AgentId, why: ArchiveReason) -> PathBuf {
    put(places, id, why).unwrap_or_else(|error| {
        tracing::warn!(%id, "its directory stays where it is: {error}");
        places.agent_dir(id)
    })
}

fn prune(archive: &Path, limits: ArchiveLimits) {
    let entries = fs::read_dir(archive).into_iter().flatten().flatten().map(|entry| entry.path());
    let entries: Vec<ArchivedAgent> = entries.filter_map(|dir| entry(&dir)).collect();
    for dir in surplus(entries, limits, crate::wall_ms()) {
        match fs::remove_dir_all(&dir) {
            Ok(()) => tracing::info!("{} is not kept any longer", dir.display()),
            Err(error) => tracing::warn!("{} cannot be removed: {error}", dir.display()),
        }
    }
}

/// What is archived in a directory; none for what is not an agent's.
fn entry(dir: &Path) -> Option<ArchivedAgent> {
    dir.file_name()?.to_str()?.parse::<AgentId>().ok()?;
    let at = match records::read::<Archived>(dir, RECORD) {
        Some(archived) => archived.at,
        // An older daemon has archived it.
        None => {
            let transcript = dir.join(records::TRANSCRIPT);
            let changed = [transcript.as_path(), dir].into_iter().find_map(|path| fs::metadata(path).ok())?;
            let since = changed.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()?
        }
    };
    Some(ArchivedAgent { dir: dir.to_owned(), at, bytes: bytes_below(dir) })
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

/// The directories that go: those that are too old, then the oldest until the rest is small enough. The newest is never too
/// large: it was archived only now.
fn surplus(mut entries: Vec<ArchivedAgent>, limits: ArchiveLimits, now_ms: u64) -> Vec<PathBuf> {
    entries.sort_by(|one, other| (other.at, &other.dir).cmp(&(one.at, &one.dir)));
    let mut kept_bytes = 0_u64;
    let mut is_full = false;
    let mut gone = Vec::new();
    for (number, entry) in entries.into_iter().enumerate() {
        kept_bytes = kept_bytes.saturating_add(entry.bytes);
        is_full |= number > 0 && kept_bytes > limits.bytes;
        if is_full || now_ms.saturating_sub(entry.at) > limits.age_ms {
            gone.push(entry.dir);
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r21_the_archive_is_bounded_by_age_and_size_and_the_newest_stays() {
        let entry = |name: &str, at, bytes| ArchivedAgent { dir: name.into(), at, bytes };
        let gone = |entries: &[ArchivedAgent], age_ms, bytes, now| {
            let gone = surplus(entries.to_vec(), ArchiveLimits { age_ms, bytes }, now);
            gone.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>()
        };
        let all = [entry("b", 20, 5), entry("a", 10, 5), entry("c", 30, 5)];
        assert_eq!(gone(&all, 100, 15, 100), Vec::<String>::new());
        assert_eq!(gone(&all, 75, 15, 100), ["b", "a"]);
        assert_eq!(gone(&all, 100, 14, 100), ["a"]);
        assert_eq!(gone(&all, 100, 4, 100), ["b", "a"]);
        // A clock that went back makes nothing old.
        assert_eq!(gone(&all, 1, 15, 0), Vec::<String>::new());
        // What is behind one that does not fit is older, and goes as well.
        let small = [entry("new", 3, 1), entry("large", 2, 100), entry("old", 1, 1)];
        assert_eq!(gone(&small, 100, 50, 10), ["large", "old"]);
    }

    #[test]
    fn a12_what_is_kept_for_an_undo_goes_also_that_of_its_own_agents() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("a3f8b2c1");
        let sessions =
            [session.clone(), session.join("bg/0"), session.join("sub/x"), session.join("bg/0/sub/y")];
        for session in &sessions {
            fs::create_dir_all(session.join(records::CHECKPOINTS)).unwrap();
            fs::write(session.join(records::CHECKPOINTS).join("1"), "a secret").unwrap();
            fs::write(session.join(records::TRANSCRIPT), "{}").unwrap();
        }
        drop_checkpoints(&session);
        for session in &sessions {
            assert!(!session.join(records::CHECKPOINTS).exists(), "{}", session.display());
            assert!(session.join(records::TRANSCRIPT).exists(), "{}", session.display());
        }
    }

    #[test]
    fn r21_what_is_archived_is_found_with_its_age_and_size() {
        let dir = tempfile::tempdir().unwrap();
        let agent = dir.path().join("a3f8b2c1");
        fs::create_dir_all(agent.join("sub/x")).unwrap();
        fs::write(agent.join(records::TRANSCRIPT), "12345").unwrap();
        fs::write(agent.join("sub/x/more"), "123").unwrap();
        let found = entry(&agent).unwrap();
        assert!(found.bytes == 8 && found.at > 0, "{found:?}");
        records::write(&agent, RECORD, &Archived { version: VERSION, at: 7, why: ArchiveReason::Removed })
            .unwrap();
        assert_eq!(entry(&agent).unwrap().at, 7);
        assert_eq!(entry(dir.path()), None);
        prune(dir.path(), ArchiveLimits { age_ms: 1, bytes: u64::MAX });
        assert!(!agent.exists());
    }
}
