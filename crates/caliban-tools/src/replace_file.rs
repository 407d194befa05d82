//! Replacing a file as a whole: the new content is written beside it and renamed into place, so a
//! reader sees the old or the new file, and a full disk leaves the old one.

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
};

use caliban_rooted::real_path;
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};

use crate::{
    blocking::Commit,
    error_text,
    known_files::{FileIdentity, Stamp, hash},
    limits::FILE_BYTES,
};

/// What must be true of the old file for the new one to take its place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Old {
    /// There is none.
    Absent,
    /// It is still this one.
    Is(FileIdentity),
}

/// Why a file was not replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveError {
    #[error("changed on disk since you read it: read it again")]
    Changed,
    #[error("interrupted before it was done")]
    Cancelled,
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is read-only (mode {0:04o}); if it shall change, make it writable first")]
    ReadOnly(u32),
    #[error("{}", error_text::reason(.0))]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for SaveError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// A file that was replaced.
#[derive(Debug)]
pub(crate) struct Saved {
    /// The new state.
    pub(crate) stamp: Stamp,
    /// How many names the old file had.
    links: u64,
}

impl Saved {
    /// What is to be said when other names (hard links) still lead to the old content.
    pub(crate) fn links_note(&self) -> Option<String> {
        let others = self.links.checked_sub(1).filter(|others| *others > 0)?;
        let names = error_text::counted(others, "other name", "other names");
        Some(format!("[the file had {names} (hard links): the old content stays there]"))
    }
}

/// Puts `content` at the real path. Mode and, where possible, owner of the old file are kept; a new file
/// gets the usual mode. Missing directories are made. A file that may not be written is not replaced either.
pub(crate) fn replace(real: &Path, content: &[u8], old: Old, commit: &Commit) -> Result<Saved, SaveError> {
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(SaveError::NotAFile);
    };
    let dir = real_path::make_dir(parent)?;
    let temporary = Temporary::new(&dir)?;
    let mut file = File::from(rustix::fs::openat(
        &dir,
        &temporary.name,
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o666),
    )?);
    let before = look(&dir, name)?;
    if let Some(before) = &before {
        may_be_written(&dir, name, before)?;
        take_over(&file, before)?;
    }
    file.write_all(content)?;
    file.flush()?;
    match (look(&dir, name)?, old) {
        (None, Old::Absent) => {}
        (Some(now), Old::Is(place)) if FileIdentity::of(&now) == place => {}
        (Some(_), Old::Absent | Old::Is(_)) | (None, Old::Is(_)) => return Err(SaveError::Changed),
    }
    if !commit.take() {
        return Err(SaveError::Cancelled);
    }
    rustix::fs::renameat(&dir, &temporary.name, &dir, name)?;
    temporary.done();
    let content = (content.len() as u64 <= FILE_BYTES).then(|| hash(content));
    let links = before.map_or(0, |before| before.nlink());
    Ok(Saved { stamp: Stamp::new(&file.metadata()?, content), links })
}

/// A rename asks for no right to the file that it replaces, so we do. Mode bits count for root, too: somebody meant them.
fn may_be_written(
    dir: &OwnedFd,
    name: &std::ffi::OsStr,
    before: &std::fs::Metadata,
) -> Result<(), SaveError> {
    const ANYBODY_WRITES: u32 = 0o222;
    let mode = before.mode() & 0o7777;
    if mode & ANYBODY_WRITES == 0 {
        return Err(SaveError::ReadOnly(mode));
    }
    match rustix::fs::accessat(dir, name, Access::WRITE_OK, AtFlags::EACCESS) {
        Err(rustix::io::Errno::ACCESS) => Err(SaveError::ReadOnly(mode)),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(()),
    }
}

/// The file of that name now, if any; anything but a regular file is refused.
fn look(dir: &OwnedFd, name: &std::ffi::OsStr) -> Result<Option<std::fs::Metadata>, SaveError> {
    /// A file that may not be read can still be replaced, so it is opened only to be looked at where that is possible.
    const LOOK: OFlags =
        if cfg!(target_os = "linux") { OFlags::PATH } else { OFlags::RDONLY.union(OFlags::NONBLOCK) };
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            let flags = LOOK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
            Ok(Some(file.metadata()?))
        }
        Ok(_) => Err(SaveError::NotAFile),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives the new file the old one's owner (best effort: only root may) and mode.
fn take_over(file: &File, before: &std::fs::Metadata) -> io::Result<()> {
    let meta = file.metadata()?;
    if (meta.uid(), meta.gid()) != (before.uid(), before.gid()) {
        let _best_effort = rustix::fs::fchown(
            file,
            Some(rustix::fs::Uid::from_raw(before.uid())),
            Some(rustix::fs::Gid::from_raw(before.gid())),
        );
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode((before.mode() & 0o7777) as rustix::fs::RawMode))?;
    Ok(())
}

/// A name beside the file; what is still there of it when the save fails is removed.
struct Temporary<'a> {
    dir: &'a OwnedFd,
    name: String,
    live: bool,
}

impl<'a> Temporary<'a> {
    fn new(dir: &'a OwnedFd) -> io::Result<Self> {
        let random = RandomState::new().hash_one(std::process::id());
        Ok(Self { dir, name: format!(".caliban-{random:016x}.tmp"), live: true })
    }

    fn done(mut self) {
        self.live = false;
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.live {
            let _best_effort = rustix::fs::unlinkat(self.dir, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

    fn dir() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap();
        (dir, real)
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_mode_is_kept_and_nothing_is_left_over() {
        let (_keep, root) = dir();
        let path = root.join("run.sh");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o754)).unwrap();
        let place = FileIdentity::of(&fs::metadata(&path).unwrap());
        let stamp = replace(&path, b"new", Old::Is(place), &Commit::default()).unwrap().stamp;
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o754);
        assert_eq!(stamp.place(), FileIdentity::of(&fs::metadata(&path).unwrap()));
        assert_eq!(names(&root), ["run.sh"]);
    }

    #[test]
    fn a_change_in_between_and_a_cancelled_call_leave_the_file_alone() {
        let (_keep, root) = dir();
        let path = root.join("f");
        fs::write(&path, "old").unwrap();
        let place = FileIdentity::of(&fs::metadata(&path).unwrap());
        let cancelled = Commit::default();
        assert!(cancelled.abandon());
        assert!(matches!(replace(&path, b"new", Old::Is(place), &cancelled), Err(SaveError::Cancelled)));
        assert!(matches!(replace(&path, b"new", Old::Absent, &Commit::default()), Err(SaveError::Changed)));
        fs::write(&path, "theirs!").unwrap();
        assert!(matches!(
            replace(&path, b"new", Old::Is(place), &Commit::default()),
            Err(SaveError::Changed)
        ));
        assert_eq!(fs::read(&path).unwrap(), b"theirs!");
        assert_eq!(names(&root), ["f"]);
    }

    #[test]
    fn a_file_below_a_file_is_refused_in_words() {
        let (_keep, root) = dir();
        fs::write(root.join("f"), "old").unwrap();
        let error = replace(&root.join("f/g"), b"new", Old::Absent, &Commit::default()).unwrap_err();
        assert_eq!(error.to_string(), "a part of the path is not a directory");
        assert_eq!(names(&root), ["f"]);
    }
}
