//! Files by an absolute path in which every link is resolved already: a link that comes into it later is not followed.
//!
//! For the file tools, which work without a fence, too: where a container's filter forbids `openat2`, the path is walked part by
//! part.

use std::{fs::File, io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{CWD, Mode, OFlags, Stat},
    io::Errno,
};

use crate::{
    below::Below,
    root::PLAIN,
    tree::{self, DIRECTORY},
};

/// Opens a file for reading, without waiting for the other end of a pipe.
pub fn open_file(real: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(File::from(open(real, flags)?))
}

/// Opens a directory, making it and its missing parents.
pub fn make_dir(real: &Path) -> io::Result<OwnedFd> {
    match open(real, DIRECTORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (top, name) = from_top(real)?;
            tree::make_to(top, &name)
        }
        opened => opened,
    }
}

/// The directory that is the root of all paths, and the path as a name beneath it.
pub fn from_top(real: &Path) -> io::Result<(OwnedFd, Below)> {
    let name = real.strip_prefix("/").map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok((tree::open_dir(Path::new("/"))?, Below::new(name)?))
}

/// What the file system says of it, be it a link; none when there is nothing.
pub fn stat(real: &Path) -> io::Result<Option<Stat>> {
    let (top, name) = from_top(real)?;
    tree::stat(top, &name)
}

fn open(real: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    match rustix::fs::openat2(CWD, real, flags, Mode::empty(), PLAIN) {
        Err(Errno::NOSYS | Errno::PERM) => open_by_parts(real, flags),
        Err(Errno::LOOP) => Err(io::Error::other("a part of the path was replaced by a link just now")),
        opened => Ok(opened?),
    }
}

fn open_by_parts(real: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let (top, name) = from_top(real)?;
    tree::open(top, &name, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink, path::PathBuf};

    fn dir() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap();
        (dir, real)
    }

    #[test]
    fn a07_a_link_in_a_real_path_is_not_followed() {
        let (_keep, root) = dir();
        fs::create_dir(root.join("outside")).unwrap();
        fs::write(root.join("outside/f"), "secret").unwrap();
        symlink("outside", root.join("src")).unwrap();
        assert!(open_file(&root.join("src/f")).is_err());
        assert!(make_dir(&root.join("src")).is_err());
        assert!(make_dir(&root.join("src/new")).is_err());
        assert!(open_file(&root.join("outside/f")).is_ok());
        assert!(!root.join("outside/new").exists());
        // Nor where the kernel cannot refuse links by itself.
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        assert!(open_by_parts(&root.join("src/f"), read).is_err());
        assert!(open_by_parts(&root.join("src"), read).is_err());
        assert!(open_by_parts(&root.join("outside/f"), read).is_ok());
        assert!(open_by_parts(Path::new("/"), read).is_ok());
    }

    #[test]
    fn missing_directories_are_made() {
        let (_keep, root) = dir();
        make_dir(&root.join("a/b/c")).unwrap();
        assert!(root.join("a/b/c").is_dir());
        fs::write(root.join("file"), "").unwrap();
        assert_eq!(make_dir(&root.join("file/b")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }
}
