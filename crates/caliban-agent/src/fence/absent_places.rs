//! Protected places that are not there must not be there after a command: no mount can cover what does not exist. What a
//! command made there is put aside.
//!
//! While a command runs, a file in the agent's directory names those places, and its lock says that somebody will look. Who
//! finds such a file without a lock does what the killed process could not do: it puts aside what the command's keeper found when
//! it ended the command (`caliban_fence::Witness`). What the user made there since is the user's. Only when the keeper was killed,
//! too, nobody can tell the two apart, and all of it is put aside.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use caliban_fence::{Around, ByteText, Fence, SeenPlaces, Witness};
use serde::{Deserialize, Serialize};

/// The largest file of places that is read.
const CAP: u64 = 4 << 20;
/// The end of the name of what a keeper found, beside the entry of the command.
const FOUND: &str = "found";

/// A protected place, and the link that it is, if it is one that leads nowhere.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Absent {
    place: PathBuf,
    link: Option<PathBuf>,
}

pub(super) struct Unmade {
    places: Vec<Absent>,
    journal: Option<PathBuf>,
    /// The entry of the command that runs, with its lock.
    entry: Mutex<Option<(PathBuf, File)>>,
    /// What was found of killed commands, for the model.
    left: Vec<String>,
}

impl Unmade {
    pub(super) fn new(absent: Vec<PathBuf>, journal: Option<PathBuf>, left: Vec<String>) -> Self {
        let places =
            absent.into_iter().map(|place| Absent { link: fs::read_link(&place).ok(), place }).collect();
        Self { places, journal, entry: Mutex::default(), left }
    }

    fn note(&self, journal: &Path) -> std::io::Result<(PathBuf, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(journal)?;
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = journal.join(name);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.lock()?;
        file.write_all(&serde_json::to_vec(&self.places)?)?;
        Ok((path, file))
    }
}

impl Around for Unmade {
    fn before(&self, fence: &mut Fence) -> Result<(), String> {
        let Some(journal) = self.journal.as_ref().filter(|_| !self.places.is_empty()) else { return Ok(()) };
        let entry = self.note(journal).map_err(|error| format!("{}: {error}", journal.display()))?;
        fence.witness = Some(Witness {
            places: self.places.iter().map(|absent| ByteText::from(absent.place.as_path())).collect(),
            record: entry.0.with_extension(FOUND).into(),
        });
        *self.entry.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
        Ok(())
    }

    fn after(&self, _: &Fence) -> Vec<String> {
        let mut notes = self.left.clone();
        notes.extend(self.places.iter().filter_map(Absent::put_aside));
        if let Some((path, _lock)) = self.entry.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Best effort: the next command finds it without a lock, and nothing to put aside.
            let _tried = fs::remove_file(path.with_extension(FOUND));
            let _tried = fs::remove_file(path);
        }
        notes
    }
}

/// Puts aside what killed commands made; a line for each.
pub(super) fn put_left_aside(journal: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    for entry in fs::read_dir(journal).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == FOUND) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if file.try_lock().is_err() {
            continue;
        }
        let mut text = Vec::new();
        let read = (&file).take(CAP).read_to_end(&mut text);
        // One that was not written whole is of a command that did not begin.
        if let (Ok(_), Ok(places)) = (read, serde_json::from_slice::<Vec<Absent>>(&text)) {
            let seen = SeenPlaces::read(&path.with_extension(FOUND));
            let made =
                places.iter().filter(|absent| seen.as_ref().is_none_or(|seen| seen.has(&absent.place)));
            notes.extend(made.filter_map(Absent::put_aside));
        }
        let _tried = fs::remove_file(path.with_extension(FOUND));
        let _tried = fs::remove_file(path);
    }
    notes
}

impl Absent {
    /// Says so, when there was something.
    fn put_aside(&self) -> Option<String> {
        let Self { place, link } = self;
        if place.symlink_metadata().is_err() || (link.is_some() && fs::read_link(place).ok() == *link) {
            return None;
        }
        let aside = free_name(place)?;
        let moved = fs::rename(place, &aside);
        if let Some(link) = link {
            let _best_effort = std::os::unix::fs::symlink(link, place);
        }
        let shown = place.display();
        Some(match moved {
            Ok(()) => format!(
                "[{shown} is protected: what the command made there is now {}; use Write for it, or ask with outside: true]",
                aside.display()
            ),
            Err(error) => format!("[{shown} is protected, and cannot be taken away: {error}]"),
        })
    }
}

/// A free name beside a place.
fn free_name(place: &Path) -> Option<PathBuf> {
    let name = place.file_name()?.to_str()?;
    let names =
        std::iter::once(format!("{name}.not-used")).chain((2..).map(|n| format!("{name}.not-used-{n}")));
    names.map(|name| place.with_file_name(name)).find(|path| path.symlink_metadata().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a17_what_a_killed_command_made_in_a_protected_place_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, place) = (dir.path().join("unmade"), dir.path().join(".envrc"));
        let mut fence = Fence::new(caliban_core::fence::Profile::Edit, dir.path());
        let unmade = Unmade::new(vec![place.clone()], Some(journal.clone()), Vec::new());
        unmade.before(&mut fence).unwrap();
        fs::write(&place, "made").unwrap();
        // Its process lives: it will look itself.
        assert_eq!(put_left_aside(&journal), Vec::<String>::new());
        assert!(place.exists());
        // As after kill -9: the lock is gone, the entry is there.
        drop(unmade);
        let notes = put_left_aside(&journal);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(!place.exists() && dir.path().join(".envrc.not-used").exists());
        assert_eq!(fs::read_dir(&journal).unwrap().count(), 0);
        // The keeper of a killed command found one of its files; the other one is the user's, made since.
        let other = dir.path().join(".vscode");
        let unmade = Unmade::new(vec![place.clone(), other.clone()], Some(journal.clone()), Vec::new());
        unmade.before(&mut fence).unwrap();
        fs::write(&place, "made").unwrap();
        fence.witness.take().unwrap().look().unwrap();
        drop(unmade);
        fs::write(&other, "the user's").unwrap();
        let notes = put_left_aside(&journal);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(!place.exists() && other.exists());
        assert_eq!(fs::read_dir(&journal).unwrap().count(), 0);
        // What the user makes between two commands stays.
        fs::write(&place, "the user's").unwrap();
        assert_eq!(put_left_aside(&journal), Vec::<String>::new());
        // A command that ends takes its entry away.
        let unmade =
            Unmade::new(vec![dir.path().join("x")], Some(journal.clone()), vec!["before".to_owned()]);
        unmade.before(&mut fence).unwrap();
        assert_eq!(unmade.after(&fence), ["before"]);
        assert_eq!(fs::read_dir(&journal).unwrap().count(), 0);
        assert!(place.exists());
    }
}
