//! Files beneath a directory that is held open: no step follows a link, so a directory that is swapped for
//! a link between a check and its use leads nowhere. Owns reading, writing, copying and deleting trees.
//!
//! Each step is one `openat`, so this works where `openat2` is missing, too.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Write as _},
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat},
    io::Errno,
};

use crate::{below::Below, root::is_gone};

/// Deepest directory that is walked or deleted in place.
const DEPTH_CAP: usize = 256;
/// A directory itself, for its names and for what is done in it.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The directory itself, as a name in it.
const HERE: &str = ".";
/// A file itself. NONBLOCK: a pipe in its place must not make us wait.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// A directory opened without following a link in its last component.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, DIRECTORY, Mode::empty())?)
}

/// The directory of this name, each step a real directory.
pub fn walk_to(root: impl AsFd, name: &Below) -> io::Result<OwnedFd> {
    step(way_to(root, name)?, HERE)
}

/// Like [`walk_to`], making what is missing.
pub fn make_to(root: impl AsFd, name: &Below) -> io::Result<OwnedFd> {
    let mut at = pass(root, HERE)?;
    for part in name.parts() {
        at = match pass(&at, part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => pass(&at, part)?,
                    Err(error) => return Err(error.into()),
                }
            }
            passed => passed?,
        };
    }
    step(at, HERE)
}

/// What has this name, opened so; a link is an error, unless it is opened as itself.
pub(crate) fn open(root: impl AsFd, name: &Below, flags: OFlags) -> io::Result<OwnedFd> {
    let Some((parent, last)) = name.split() else { return walk_to(root, name) };
    Ok(rustix::fs::openat(way_to(root, &parent)?, last, flags | OFlags::NOFOLLOW, Mode::empty())?)
}

fn way_to(root: impl AsFd, name: &Below) -> io::Result<OwnedFd> {
    name.parts().try_fold(pass(root, HERE)?, pass)
}

/// A directory to go on from: nobody has to be allowed to read it.
fn pass(parent: impl AsFd, part: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, part, flags, Mode::empty())?)
}

/// A directory for its names.
fn step(parent: impl AsFd, part: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(parent, part, DIRECTORY, Mode::empty())?)
}

fn split(name: &Below) -> io::Result<(Below, &OsStr)> {
    name.split().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// What has this name, be it a link, with the directory that it is in and its last part. None when there is nothing, or a link
/// or a file on the way.
fn look(root: impl AsFd, name: &Below) -> io::Result<Option<(OwnedFd, &OsStr, Stat)>> {
    let (parent, last) = split(name)?;
    let found = way_to(root, &parent).and_then(|parent| {
        let stat = rustix::fs::statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((parent, last, stat))
    });
    match found {
        Err(error) if is_gone(&error) => Ok(None),
        found => found.map(Some),
    }
}

/// What the file system says of it; none when there is nothing.
pub fn stat(root: impl AsFd, name: &Below) -> io::Result<Option<Stat>> {
    Ok(look(root, name)?.map(|(_, _, stat)| stat))
}

/// One thing found at a path.
#[derive(Debug)]
pub enum FoundFile {
    /// A regular file, open for reading.
    File {
        /// The file.
        file: File,
        /// Its length when it was opened.
        size: u64,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A symbolic link and where it points.
    Link(OsString),
    /// A directory.
    Directory,
    /// A pipe, socket or device: it has no bytes of its own.
    Special,
    /// Nothing, or nothing beneath the root.
    Nothing,
}

/// Looks at what has this name and opens it if it is a file.
pub fn find(root: impl AsFd, name: &Below) -> io::Result<FoundFile> {
    let Some((parent, name, stat)) = look(root, name)? else { return Ok(FoundFile::Nothing) };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(FoundFile::Directory),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&parent, name, Vec::new())?;
            Ok(FoundFile::Link(OsString::from_vec(target.into_bytes())))
        }
        FileType::RegularFile => {
            let file = File::from(rustix::fs::openat(&parent, name, FILE, Mode::empty())?);
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
pub fn read_small(path: &Path, cap: u64) -> io::Result<Vec<u8>> {
    let file = File::from(rustix::fs::open(path, FILE, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(cap + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > cap {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {cap} bytes")));
    }
    Ok(bytes)
}

/// Whether a write survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteUntil {
    /// It need not.
    Visible,
    /// It does.
    OnDisk,
}

/// Replaces the file `name` in `dir`, whole or not at all.
pub fn write_whole(dir: &Path, name: &Below, bytes: &[u8], how: WriteUntil) -> io::Result<()> {
    let dir = open_dir(dir)?;
    replace(&dir, name, 0o666, |file| {
        file.write_all(bytes)?;
        if how == WriteUntil::OnDisk { file.sync_all() } else { Ok(()) }
    })?;
    if how == WriteUntil::OnDisk { Ok(rustix::fs::fsync(&dir)?) } else { Ok(()) }
}

/// Makes a new file with what `fill` writes and gives it this name, in the place of what has it. Missing directories are made.
/// Until then the file has a name of this call: an agent may have put a link in the place of a known one.
pub fn replace(
    root: impl AsFd,
    name: &Below,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (parent, name) = split(name)?;
    let parent = make_to(root, &parent)?;
    let new = nonce_name(".caliban-new");
    let mut file = create(&parent, OsStr::new(&new), mode)?;
    let written =
        fill(&mut file).and_then(|()| Ok(rustix::fs::renameat(&parent, new.as_str(), &parent, name)?));
    if written.is_err() {
        // Best effort by name: the error is told.
        let _gone = rustix::fs::unlinkat(&parent, new.as_str(), AtFlags::empty());
    }
    written
}

/// A name that no other call uses.
pub fn nonce_name(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    format!("{prefix}-{}-{}-{nanos}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Makes a new file of this name; nothing that exists is replaced.
pub fn create_file(root: impl AsFd, name: &Below, executable: bool) -> io::Result<File> {
    let (parent, name) = split(name)?;
    create(&make_to(root, &parent)?, name, if executable { 0o777 } else { 0o666 })
}

fn create(parent: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode))?))
}

/// Makes a new link of this name to `target`.
pub fn create_link(root: impl AsFd, name: &Below, target: &OsStr) -> io::Result<()> {
    let (parent, name) = split(name)?;
    Ok(rustix::fs::symlinkat(target, make_to(root, &parent)?, name)?)
}

/// Copies an open file; shares the blocks where the file system can.
pub fn copy_file(from: &mut File, to: &mut File) -> io::Result<()> {
    if rustix::fs::ioctl_ficlone(&*to, &*from).is_ok() {
        return Ok(());
    }
    io::copy(from, to).map(drop)
}

/// Sorted names in a directory, and what each is as far as the directory says.
pub fn entries(dir: impl AsFd) -> io::Result<Vec<(OsString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        found.push((OsString::from_vec(name.to_bytes().to_vec()), kind));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Every file and link beneath the directory `name`, as names from `root`; directories are descended, links are not.
pub fn files_beneath(root: impl AsFd, name: &Below) -> io::Result<Vec<Below>> {
    let mut files = Vec::new();
    let mut open = vec![(name.clone(), 0)];
    while let Some((name, depth)) = open.pop() {
        if depth > DEPTH_CAP {
            return Err(io::Error::other(format!("{name} is deeper than {DEPTH_CAP} directories")));
        }
        let dir = match walk_to(&root, &name) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(error),
        };
        for (entry, kind) in entries(&dir)? {
            let name = name.join(entry)?;
            match kind {
                FileType::Directory => open.push((name, depth + 1)),
                FileType::RegularFile | FileType::Symlink => files.push(name),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Deletes the file or link of this name; a directory is an error.
pub fn remove_file(root: impl AsFd, name: &Below) -> io::Result<()> {
    let (parent, last) = split(name)?;
    Ok(rustix::fs::unlinkat(way_to(root, &parent)?, last, AtFlags::empty())?)
}

/// Deletes what has this name, whatever it is. Links are unlinked, never followed; read-only directories
/// are made writable first. The use of stack and descriptors is bounded, however deep the tree is.
pub fn delete(root: impl AsFd, name: &Below) -> io::Result<()> {
    let Some((parent, name, stat)) = look(root, name)? else { return Ok(()) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?);
    }
    let top = open_writable(parent.as_fd(), name)?;
    let mut lifted = 0;
    // Directories that were too deep have been moved to the top, so clear the top until it is empty.
    loop {
        let before = lifted;
        clear(top.as_fd(), top.as_fd(), 0, &mut lifted)?;
        if lifted == before {
            break;
        }
    }
    Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
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
            let inner = open_writable(dir, &name)?;
            clear(inner.as_fd(), top, depth + 1, lifted)?;
            unlink_or_gone(dir, &name, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}

fn unlink_or_gone(dir: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory that is to be emptied. One without write or search rights for its owner (a module
/// cache) gets them; `chmodat` follows links, so the rights are set on what was opened.
fn open_writable(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let dir = match step(parent, name) {
        Ok(dir) => dir,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            let through = format!("/proc/self/fd/{}", held.as_raw_fd());
            rustix::fs::chmod(through.as_str(), Mode::RWXU)?;
            step(parent, name)?
        }
        Err(error) => return Err(error),
    };
    let mode = rustix::fs::fstat(&dir)?.st_mode;
    if mode & 0o700 != 0o700 {
        // Not ours to change: then the unlinking says why it failed.
        let _refused = rustix::fs::fchmod(&dir, Mode::RWXU);
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn a07_nothing_in_a_tree_is_found_or_made_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        fs::create_dir_all(top.join("a")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(top.join("a/f"), "f").unwrap();
        fs::write(outside.join("f"), "the user's").unwrap();
        symlink("../outside", top.join("out")).unwrap();
        symlink("../outside/f", top.join("link")).unwrap();
        let root = open_dir(&top).unwrap();
        let name = |text: &str| Below::new(text).unwrap();
        let put = |at: &str| replace(&root, &name(at), 0o600, |file| file.write_all(b"new"));

        assert!(matches!(find(&root, &name("a/f")).unwrap(), FoundFile::File { size: 1, .. }));
        assert!(matches!(find(&root, &name("link")).unwrap(), FoundFile::Link(_)));
        assert!(matches!(find(&root, &name("out/f")).unwrap(), FoundFile::Nothing));
        assert!(
            stat(&root, &name("out/f")).unwrap().is_none() && stat(&root, &name("out")).unwrap().is_some()
        );
        assert_eq!(files_beneath(&root, &Below::here()).unwrap(), ["a/f", "link", "out"].map(name));
        assert_eq!(files_beneath(&root, &name("out")).unwrap(), []);
        assert!(walk_to(&root, &name("out")).is_err() && make_to(&root, &name("out/new")).is_err());
        assert!(create_file(&root, &name("out/new"), false).is_err());
        assert!(create_link(&root, &name("out/new"), OsStr::new("x")).is_err());
        assert!(put("out/f").is_err());
        delete(&root, &name("out/f")).unwrap();
        // What a link is replaced by takes its own place.
        put("link").unwrap();
        assert_eq!(fs::read(top.join("link")).unwrap(), b"new");
        delete(&root, &name("out")).unwrap();
        put("b/c/f").unwrap();
        assert_eq!(files_beneath(&root, &Below::here()).unwrap(), ["a/f", "b/c/f", "link"].map(name));
        assert_eq!(fs::read(outside.join("f")).unwrap(), b"the user's");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_filled_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "old").unwrap();
        let root = open_dir(dir.path()).unwrap();
        let full = |file: &mut File| file.write_all(b"n").and(Err(io::ErrorKind::StorageFull.into()));
        assert!(replace(&root, &Below::fixed("f"), 0o600, full).is_err());
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"old");
        assert_eq!(entries(&root).unwrap().len(), 1);
    }
}
