//! Protected places that are not there must not be there after a command: no mount can cover what does not exist. What a
//! command made there is put aside.
//!
//! While a command runs, a file in the agent's directory names those places, and its lock says that somebody will look. Who
//! finds such a file without a lock does what the killed process could not do: it puts aside what the command's keeper found when
//! it ended the command (`caliban_fence::Witness`). What the user made there since is the user's. Only when the keeper was killed,
//! too, nobody can tell the two apart, and all of it is put aside.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use caliban_fence::{Around, ByteText, EmptyPlace, Fence, SeenPlaces, Witness};
use caliban_permissions::AbsentPlace;
use caliban_rooted::{Below, FoundEntry, Root};
use serde::{Deserialize, Serialize};

/// The largest file of places that is read.
const CAP: u64 = 4 << 20;
/// The end of the name of what a keeper found, beside the entry of the command.
const FOUND: &str = "found";

/// A protected place, and the link on the way to it, if there was one.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Absent {
    place: EmptyPlace,
    link: Option<(Below, ByteText)>,
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
    pub(super) fn new(absent: Vec<AbsentPlace>, journal: Option<PathBuf>, left: Vec<String>) -> Self {
        let places = absent.into_iter().map(|AbsentPlace { root, name, link }| Absent {
            place: EmptyPlace { root: root.path().into(), identity: root.identity(), name },
            link: link.map(|(at, to)| (at, ByteText(to))),
        });
        Self { places: places.collect(), journal, entry: Mutex::default(), left }
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
            places: self.places.iter().map(|absent| absent.place.clone()).collect(),
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
#[expect(clippy::disallowed_methods, reason = "in Caliban's own records")]
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
        let root = self.place.root()?;
        let shown = self.place.name.under(root.path());
        match self.moved_aside(&root) {
            Ok(None) => None,
            Ok(Some(aside)) => Some(format!(
                "[{} is protected: what the command made there is now {}; use Write for it, or ask with outside: true]",
                shown.display(),
                aside.display()
            )),
            Err(error) => {
                Some(format!("[{} is protected, and cannot be taken away: {error}]", shown.display()))
            }
        }
    }

    /// Where it is now, when there was something. A link that the command put on the way is what is moved, not what it leads to.
    fn moved_aside(&self, root: &Root) -> io::Result<Option<PathBuf>> {
        let was = self.link.as_ref();
        let found = match root.look(&self.place.name) {
            // A directory on the way was closed.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                root.open_up(&self.place.name)?;
                root.look(&self.place.name)?
            }
            found => found?,
        };
        let moved = match found {
            FoundEntry::Nothing => return Ok(None),
            FoundEntry::Link { at, to } if was.is_some_and(|(was, said)| *was == at && said.0 == to) => {
                return Ok(None);
            }
            FoundEntry::Link { at, .. } => at,
            FoundEntry::Directory(_) | FoundEntry::File { .. } | FoundEntry::Special(_) => {
                self.place.name.clone()
            }
        };
        let aside = root.put_aside(&moved)?;
        if let Some((at, to)) = was.filter(|(at, _)| *at == moved)
            && let Some((directory, name)) = at.split()
        {
            let _best_effort = root.link_in(&directory, name, &to.0);
        }
        Ok(Some(aside.under(root.path())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::symlink, sync::Arc};

    #[test]
    fn a17_what_a_killed_command_made_in_a_protected_place_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, place) = (dir.path().join("unmade"), dir.path().join(".envrc"));
        let root = Arc::new(Root::pin(dir.path()).unwrap());
        let absent =
            |name: &str| AbsentPlace { root: root.clone(), name: Below::new(name).unwrap(), link: None };
        let mut fence = Fence::new(caliban_core::fence::Profile::Edit, dir.path());
        let unmade = Unmade::new(vec![absent(".envrc")], Some(journal.clone()), Vec::new());
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
        let unmade =
            Unmade::new(vec![absent(".envrc"), absent(".vscode")], Some(journal.clone()), Vec::new());
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
        let unmade = Unmade::new(vec![absent("x")], Some(journal.clone()), vec!["before".to_owned()]);
        unmade.before(&mut fence).unwrap();
        assert_eq!(unmade.after(&fence), ["before"]);
        assert_eq!(fs::read_dir(&journal).unwrap().count(), 0);
        assert!(place.exists());
    }
    /// What a link leads to is the user's: only the link itself is moved, and one that was there stays.
    #[test]
    fn a18_a_link_on_the_way_to_a_protected_place_is_put_aside_itself() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let (project, home) = (top.join("project"), top.join("home"));
        fs::create_dir_all(home.join(".config/git")).unwrap();
        fs::create_dir_all(project.join("conf/git")).unwrap();
        let root = Arc::new(Root::pin(&project).unwrap());
        let name = Below::new(".config/git").unwrap();
        let unmade = |link| {
            Unmade::new(vec![AbsentPlace { root: root.clone(), name: name.clone(), link }], None, Vec::new())
        };
        let fence = Fence::new(caliban_core::fence::Profile::Edit, &home);
        let new = unmade(None);
        symlink(home.join(".config"), project.join(".config")).unwrap();
        let notes = new.after(&fence);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(project.join(".config.not-used").is_symlink() && !project.join(".config").is_symlink());
        assert!(home.join(".config/git").is_dir());
        // One that was there is the user's; another one in its place is not.
        let at = Below::new(".config").unwrap();
        symlink("conf", project.join(".config")).unwrap();
        let was = unmade(Some((at, "conf".into())));
        assert_eq!(was.after(&fence), Vec::<String>::new());
        fs::remove_file(project.join(".config")).unwrap();
        symlink(home.join(".config"), project.join(".config")).unwrap();
        assert_eq!(was.after(&fence).len(), 1);
        assert_eq!(fs::read_link(project.join(".config")).unwrap(), Path::new("conf"));
        // The root itself was replaced: nothing is moved anywhere.
        fs::rename(&project, top.join("moved")).unwrap();
        symlink(&home, &project).unwrap();
        assert_eq!(new.after(&fence), Vec::<String>::new());
        assert!(home.join(".config/git").is_dir());
    }
}
