//! A file that grows, read from where the last look ended: whole lines only. A file that was put aside and begun
//! anew is read from its start.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
};

/// As much as is read at one look.
const CHUNK: u64 = 4 * 1024 * 1024;
/// A line that is longer is given out in parts.
const LINE_CAP: usize = 64 * 1024 * 1024;

/// One such file.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    inode: u64,
    offset: u64,
    rest: Vec<u8>,
}

impl Tail {
    /// Nothing of it is read yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, inode: 0, offset: 0, rest: Vec::new() }
    }

    /// The whole lines that have come since the last time, without their ends. None when there is nothing new; a
    /// file that is not there yet has nothing.
    pub fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        if found.ino() != self.inode || found.len() < self.offset {
            (self.inode, self.offset) = (found.ino(), 0);
            self.rest.clear();
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let read = file.take(CHUNK).read_to_end(&mut self.rest)?;
        self.offset += read as u64;
        let end = match self.rest.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if self.rest.len() > LINE_CAP => self.rest.len(),
            None => return Ok(Vec::new()),
        };
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        let text = String::from_utf8_lossy(&whole);
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// All that is there now.
    pub fn all(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        self.each(|line| lines.push(line))?;
        Ok(lines)
    }

    /// The same line by line: no more than one chunk is in memory.
    pub fn each(&mut self, mut take: impl FnMut(String)) -> io::Result<()> {
        loop {
            let before = (self.inode, self.offset);
            self.lines()?.into_iter().for_each(&mut take);
            if (self.inode, self.offset) == before {
                return Ok(());
            }
        }
    }

    /// The beginning of a line that has no end yet.
    #[must_use]
    pub fn rest(&self) -> String {
        String::from_utf8_lossy(&self.rest).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_come_once_and_whole_also_when_the_file_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = Tail::new(path.clone());
        assert_eq!(tail.lines().unwrap(), Vec::<String>::new());
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!((tail.all().unwrap(), tail.rest()), (vec!["one".to_owned()], "tw".to_owned()));
        file.write_all(b"o\n\nthree\n").unwrap();
        assert_eq!(tail.lines().unwrap(), ["two", "", "three"]);
        assert_eq!(tail.lines().unwrap(), Vec::<String>::new());
        std::fs::rename(&path, dir.path().join("log.1")).unwrap();
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(tail.lines().unwrap(), ["new"]);
    }
}
