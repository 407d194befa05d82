//! Files beneath a directory that is held open: no step follows a link, so a directory that is swapped for
//! a link between a check and its use leads nowhere. Owns reading, writing, copying and deleting trees.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::fast_import::nonce_name;

/// Deepest directory that is walked or deleted in place.
const DEPTH_CAP: usize = 256;

/// A directory opened without following a link in its last component.
pub(crate) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, dir_flags(), Mode::empty())?)
}

/// The directory `name` in `parent`, if it is a real one.
pub(crate) fn open_dir_at(parent: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(parent, name, dir_flags(), Mode::empty())?)
}

fn dir_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// The directory `relative` beneath `root`, each step a real directory.
pub(crate) fn walk_to(root: BorrowedFd<'_>, relative: &Path) -> io::Result<OwnedFd> {
    let mut at = open_dir_at(root, ".")?;
    for component in relative.components() {
        at = open_dir_at(&at, plain(component)?)?;
    }
    Ok(at)
}

/// Like [`walk_to`], making what is missing.
pub(crate) fn make_to(root: BorrowedFd<'_>, relative: &Path) -> io::Result<OwnedFd> {
    let mut at = open_dir_at(root, ".")?;
    for component in relative.components() {
        let name = plain(component)?;
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        at = open_dir_at(&at, name)?;
    }
    Ok(at)
}

fn plain(component: Component<'_>) -> io::Result<&OsStr> {
    match component {
        Component::Normal(name) => Ok(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain relative path")),
    }
}

fn split(relative: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = relative.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok((relative.parent().unwrap_or(Path::new("")), name))
}

/// One thing found at a path.
#[derive(Debug)]
pub(crate) enum FoundFile {
    /// A regular file, open for reading.
    File {
        file: File,
        /// Its length when it was opened.
        size: u64,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A symbolic link and where it points.
    Link(OsString),
    Directory,
    /// A pipe, socket or device: it has no bytes of its own.
    Special,
    /// Nothing, or nothing beneath the root.
    Nothing,
}

/// Looks at `relative` beneath `root` and opens it if it is a file.
pub(crate) fn look(root: BorrowedFd<'_>, relative: &Path) -> io::Result<FoundFile> {
    let (parent, name) = split(relative)?;
    let parent = match walk_to(root, parent) {
        Ok(parent) => parent,
        // A parent that is gone, or that is a file or a link now: the path itself is gone.
        Err(e) if gone(&e) => return Ok(FoundFile::Nothing),
        Err(e) => return Err(e),
    };
    look_at(parent.as_fd(), name)
}

fn gone(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

fn look_at(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<FoundFile> {
    let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(FoundFile::Nothing),
        Err(e) => return Err(e.into()),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(FoundFile::Directory),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
            Ok(FoundFile::Link(OsString::from_vec(target.into_bytes())))
        }
        FileType::RegularFile => {
            // NONBLOCK: a pipe put there since the look must not make us wait.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let file = File::from(rustix::fs::openat(parent, name, flags, Mode::empty())?);
            let stat = rustix::fs::fstat(&file)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Ok(FoundFile::Special);
            }
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            Ok(FoundFile::File { file, size, executable: stat.st_mode & 0o100 != 0 })
        }
        _ => Ok(FoundFile::Special),
    }
}

/// The whole of a small file, refusing links and anything over `cap`.
pub(crate) fn read_small(path: &Path, cap: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(cap + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > cap {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {cap} bytes")));
    }
    Ok(bytes)
}

/// Whether a write survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Visible,
    OnDisk,
}

/// Replaces the file `name` in `dir`, whole or not at all. The new file has a name of this call: an agent may have put a link in
/// the place of a known one.
pub(crate) fn write_whole(dir: &Path, name: &str, value: &impl Serialize, how: Durability) -> io::Result<()> {
    let new = dir.join(nonce_name(name));
    let mut file = File::create_new(&new)?;
    let sync = |file: &File| if how == Durability::OnDisk { file.sync_all() } else { Ok(()) };
    let written = serde_json::to_vec(value)
        .map_err(io::Error::other)
        .and_then(|bytes| file.write_all(&bytes))
        .and_then(|()| sync(&file))
        .and_then(|()| std::fs::rename(&new, dir.join(name)));
    if written.is_err() {
        // Best effort by name: the error is told.
        let _gone = std::fs::remove_file(&new);
    }
    written?;
    if how == Durability::OnDisk { File::open(dir)?.sync_all() } else { Ok(()) }
}

/// Makes `relative` beneath `root` a new file; nothing that exists is replaced.
pub(crate) fn create_file(root: BorrowedFd<'_>, relative: &Path, executable: bool) -> io::Result<File> {
    let (parent, name) = split(relative)?;
    let parent = make_to(root, parent)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(if executable { 0o777 } else { 0o666 });
    Ok(File::from(rustix::fs::openat(parent, name, flags, mode)?))
}

/// Makes `relative` beneath `root` a new link to `target`.
pub(crate) fn create_link(root: BorrowedFd<'_>, relative: &Path, target: &OsStr) -> io::Result<()> {
    let (parent, name) = split(relative)?;
    Ok(rustix::fs::symlinkat(target, make_to(root, parent)?, name)?)
}

/// Copies an open file; shares the blocks where the file system can.
pub(crate) fn copy_file(from: &mut File, to: &mut File) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if rustix::fs::ioctl_ficlone(&*to, &*from).is_ok() {
        return Ok(());
    }
    io::copy(from, to).map(drop)
}

/// Sorted names and types in a directory.
pub(crate) fn entries(dir: BorrowedFd<'_>) -> io::Result<Vec<(CString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            kind = FileType::from_raw_mode(rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        }
        found.push((name.to_owned(), kind));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Every file and link beneath `relative`, as paths from `root`; directories are descended, links are not.
pub(crate) fn files_beneath(root: BorrowedFd<'_>, relative: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![(relative.to_path_buf(), 0)];
    while let Some((path, depth)) = open.pop() {
        if depth > DEPTH_CAP {
            return Err(io::Error::other(format!(
                "{} is deeper than {DEPTH_CAP} directories",
                path.display()
            )));
        }
        let dir = match walk_to(root, &path) {
            Ok(dir) => dir,
            Err(e) if gone(&e) => continue,
            Err(e) => return Err(e),
        };
        for (name, kind) in entries(dir.as_fd())? {
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            match kind {
                FileType::Directory => open.push((path, depth + 1)),
                FileType::RegularFile | FileType::Symlink => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Deletes `name` in `parent`, whatever it is. Links are unlinked, never followed; read-only directories
/// are made writable first. The use of stack and descriptors is bounded, however deep the tree is.
pub(crate) fn delete(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?);
    }
    let top = open_writable(parent, name)?;
    let mut lifted = 0;
    // Directories that were too deep have been moved to the top, so clear the top until it is empty.
    loop {
        let before = lifted;
        clear(top.as_fd(), top.as_fd(), 0, &mut lifted)?;
        if lifted == before {
            break;
        }
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

fn clear(dir: BorrowedFd<'_>, top: BorrowedFd<'_>, depth: usize, lifted: &mut usize) -> io::Result<()> {
    for (name, kind) in entries(dir)? {
        if kind != FileType::Directory {
            unlink_or_gone(dir, &name, AtFlags::empty())?;
        } else if depth >= DEPTH_CAP {
            *lifted += 1;
            let to = format!("lifted-{lifted}");
            rustix::fs::renameat_with(dir, &name, top, to, RenameFlags::NOREPLACE)?;
        } else {
            let inner = open_writable(dir, OsStr::from_bytes(name.to_bytes()))?;
            clear(inner.as_fd(), top, depth + 1, lifted)?;
            unlink_or_gone(dir, &name, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}

fn unlink_or_gone(dir: BorrowedFd<'_>, name: &CString, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Opens a directory that is to be emptied. One without write or search rights for its owner (a module
/// cache) gets them; `chmodat` follows links, so the rights are set on what was opened.
fn open_writable(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let dir = match open_dir_at(parent, name) {
        Ok(dir) => dir,
        #[cfg(target_os = "linux")]
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
            rustix::fs::chmod(through.as_str(), Mode::RWXU)?;
            open_dir_at(parent, name)?
        }
        Err(e) => return Err(e),
    };
    let mode = rustix::fs::fstat(&dir)?.st_mode;
    if mode & 0o700 != 0o700 {
        // Not ours to change: then the unlinking says why it failed.
        let _refused = rustix::fs::fchmod(&dir, Mode::RWXU);
    }
    Ok(dir)
}
