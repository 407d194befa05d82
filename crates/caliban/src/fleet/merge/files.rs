//! What stands at a path in an agent's worktree, looked at without following a link: neither the last part of the path
//! nor any before it may lead somewhere else.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Component, Path},
};

use rustix::{
    fs::{FileType, Mode, OFlags, openat, readlinkat, statat},
    io::Errno,
};

/// What is there.
pub(super) enum Found {
    Nothing,
    Directory,
    /// A pipe, a socket, a device.
    Special,
    Link(Vec<u8>),
    File {
        file: File,
        size: u64,
        executable: bool,
    },
}

/// Opens a directory that is no link.
pub(super) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Looks at `path` beneath `root`. A directory on the way that is none (any more) means that nothing is there.
pub(super) fn look(root: BorrowedFd<'_>, path: &Path) -> io::Result<Found> {
    match walk(root, path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Found::Nothing),
        Err(error) => Err(error.into()),
        Ok(found) => Ok(found),
    }
}

fn walk(root: BorrowedFd<'_>, path: &Path) -> Result<Found, Errno> {
    let mut dir: Option<OwnedFd> = None;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return Err(Errno::NOENT) };
        let at = dir.as_ref().map_or(root, AsFd::as_fd);
        if parts.peek().is_some() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            dir = Some(openat(at, name, flags, Mode::empty())?);
            continue;
        }
        let found = statat(at, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        return match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Ok(Found::Directory),
            FileType::Symlink => Ok(Found::Link(readlinkat(at, name, Vec::new())?.into_bytes())),
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = File::from(openat(at, name, flags, Mode::empty())?);
                let found = rustix::fs::fstat(&file)?;
                let executable = found.st_mode & 0o100 != 0;
                Ok(Found::File { file, size: u64::try_from(found.st_size).unwrap_or(0), executable })
            }
            _ => Ok(Found::Special),
        };
    }
    Ok(Found::Directory)
}

/// A path as `git fast-import` reads it.
pub(super) fn quoted(path: &Path) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
    out
}
