//! A file that is entirely ours, and whether it was changed.
//!
//! Its last line has a hash of the rest. This tells an untouched file from one that a person has changed, whatever
//! version wrote it.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use caliban_core::hex;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{SetupClient, SetupDone, SetupItem};

/// Maximum size of a file that is read.
const CAP: u64 = 1024 * 1024;
/// Maximum number of copies of one file, before a person has to look.
const COPIES: usize = 100;
/// The text in our last line, within a comment of any syntax.
const MARK: &str = "written by cafleet setup; sha256 ";

/// How a file compares to what this program would write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "why")]
pub(crate) enum FileState {
    Current,
    Missing,
    /// Ours, from another version.
    Old,
    /// This version, changed by a person.
    Changed,
    /// Another version changed by a person, or a foreign file.
    ChangedOld,
    Unreadable(String),
}

/// One file of ours.
#[derive(Debug, Clone)]
pub(crate) struct Ours {
    client: SetupClient,
    what: &'static str,
    pub(crate) path: PathBuf,
    text: String,
    comment: (&'static str, &'static str),
}

impl Ours {
    pub(crate) fn skill(client: SetupClient, what: &'static str, path: PathBuf, text: &str) -> Self {
        Self { client, what, path, text: text.to_owned(), comment: ("<!-- ", " -->") }
    }

    pub(crate) fn script(client: SetupClient, what: &'static str, path: PathBuf, text: String) -> Self {
        Self { client, what, path, text, comment: ("# ", "") }
    }

    /// The present state of the file.
    pub(crate) fn look(&self) -> SetupItem {
        SetupItem {
            client: self.client,
            what: self.what,
            file: self.path.clone(),
            state: self.state(),
            done: None,
        }
    }

    /// Writes the file, unless that would destroy somebody's changes.
    pub(crate) fn install(&self) -> SetupDone {
        let whole = format!("{}{}{MARK}{}{}\n", self.text, self.comment.0, hash(&self.text), self.comment.1);
        let written = |done: SetupDone| match replace(&self.path, whole.as_bytes()) {
            Ok(()) => done,
            Err(error) => SetupDone::Failed(error.to_string()),
        };
        match self.state() {
            FileState::Current => SetupDone::Nothing,
            FileState::Changed => SetupDone::Left,
            FileState::Missing => written(SetupDone::Installed),
            FileState::Old => written(SetupDone::Updated),
            FileState::ChangedOld => match keep_copy(&self.path) {
                Ok(copy) => written(SetupDone::Replaced(copy)),
                Err(error) => SetupDone::Failed(error.to_string()),
            },
            FileState::Unreadable(why) => SetupDone::Failed(why),
        }
    }

    fn state(&self) -> FileState {
        let found = match read(&self.path) {
            Ok(Some(found)) => found,
            Ok(None) => return FileState::Missing,
            Err(error) => return FileState::Unreadable(error.to_string()),
        };
        let Some((text, mark)) = marked(&found, self.comment.1) else { return FileState::ChangedOld };
        match (hash(text) == mark, hash(&self.text) == mark) {
            (true, true) => FileState::Current,
            (true, false) => FileState::Old,
            (false, true) => FileState::Changed,
            (false, false) => FileState::ChangedOld,
        }
    }
}

/// The text before our last line, and the hash in that line. If anything follows that line, the whole file counts as
/// the text, so that the hash does not match.
fn marked<'a>(found: &'a str, close: &str) -> Option<(&'a str, &'a str)> {
    let at = found.rfind(MARK)?;
    let (before, after) = found.split_at(at);
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let (mark, rest) = after.strip_prefix(MARK)?.split_at_checked(64)?;
    let is_last = rest.strip_prefix(close).is_some_and(|rest| rest.trim_end().is_empty());
    Some((if is_last { &before[..line] } else { found }, mark))
}

fn hash(text: &str) -> String {
    hex::encode(&Sha256::digest(text))
}

/// Reads a text file up to a cap; `None` if it does not exist.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    let size = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if size > CAP {
        return Err(io::Error::other(format!("it has {size} bytes; at most {CAP} are read")));
    }
    fs::read_to_string(path).map(Some)
}

/// Replaces a file atomically. A symlink stays a symlink; the file keeps its mode.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir)?;
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".new-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
        file.write_all(bytes)?;
        if let Ok(former) = fs::metadata(&path) {
            file.set_permissions(former.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    if written.is_err() {
        // Best effort: the original error is what matters.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Copies a file to an unused name beside it.
pub(super) fn keep_copy(path: &Path) -> io::Result<PathBuf> {
    let bytes = fs::read(path)?;
    for number in 1..=COPIES {
        let mut name = path.to_owned().into_os_string();
        name.push(format!(".kept-{number}"));
        let copy = PathBuf::from(name);
        match fs::OpenOptions::new().write(true).create_new(true).open(&copy) {
            Ok(mut file) => {
                file.write_all(&bytes)?;
                file.set_permissions(fs::metadata(path)?.permissions())?;
                return Ok(copy);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {COPIES} copies of it already")))
}
