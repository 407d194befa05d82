//! Our lines in `.git/info/exclude`: each is added once and whole, also when other processes add lines at the same time. A tracked
//! file is never edited, and what the user wrote there stays as it is.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use caliban_rooted::tree;
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::error::{Error, Result};

/// The largest exclude file that is read.
const SIZE_CAP: u64 = 4 * 1024 * 1024;

/// The rules in the exclude file of the repository.
pub(crate) fn rules(common: &Path) -> Result<Vec<String>> {
    let file = common.join("info/exclude");
    let bytes = match tree::read_small(&file, SIZE_CAP) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::at("reading", &file, error)),
    };
    let rule = |line: &[u8]| String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
    let lines = bytes.split(|b| *b == b'\n').map(rule);
    Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect())
}

/// Makes sure that `line` is in the exclude file of the repository.
pub(crate) fn ensure(common: &Path, line: &str) -> Result<()> {
    let info = common.join("info");
    let file = info.join("exclude");
    let add = || -> std::io::Result<()> {
        std::fs::create_dir_all(&info)?;
        let dir = tree::open_dir(&info)?;
        // Held for two reads and a write, so waiting is short.
        rustix::fs::flock(&dir, FlockOperation::LockExclusive)?;
        // An agent may have put a link or a pipe there.
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&dir, "exclude", flags, Mode::from_raw_mode(0o666))?;
        let mut exclude = File::from(opened);
        if !exclude.metadata()?.is_file() {
            return Err(std::io::Error::other("it is no file"));
        }
        let mut text = Vec::new();
        (&mut exclude).take(SIZE_CAP + 1).read_to_end(&mut text)?;
        if text.len() as u64 > SIZE_CAP {
            return Err(std::io::Error::new(
                std::io::ErrorKind::FileTooLarge,
                format!("more than {SIZE_CAP} bytes"),
            ));
        }
        if text.split(|b| *b == b'\n').any(|have| have.trim_ascii_end() == line.as_bytes()) {
            return Ok(());
        }
        let gap = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
        let written = exclude.write_all(format!("{gap}{line}\n").as_bytes());
        if written.is_err() {
            // A full disk may have taken half a line, which would mean something else.
            exclude.set_len(text.len() as u64)?;
        }
        written
    };
    add().map_err(|e| Error::at("adding to", &file, e))
}
