//! A file that grows, read from where the last look ended: whole lines only. One that was put aside and begun anew, or
//! moved away, is read to its end first (r21): it stays open meanwhile.

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
    /// The file that is read now, with its inode. It may have another name by now, or none.
    open: Option<(File, u64)>,
    offset: u64,
    rest: Vec<u8>,
}

impl Tail {
    /// Nothing of it is read yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, open: None, offset: 0, rest: Vec::new() }
    }

    /// Begins at a byte of it, which [`position`](Self::position) has said.
    #[must_use]
    pub fn at(path: PathBuf, offset: u64) -> Self {
        Self { offset, ..Self::new(path) }
    }

    /// The byte behind the last whole line that was read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.offset.saturating_sub(self.rest.len() as u64)
    }

    /// The whole lines that have come since the last time, without their ends. None when there is nothing new; a
    /// file that is not there yet has nothing.
    pub fn lines(&mut self) -> io::Result<Vec<String>> {
        // First what is left of the file that we know, wherever it is now.
        let end = match self.read_on()? {
            Some(end) => Some(end),
            None => self.turn()?,
        };
        let whole: Vec<u8> = self.rest.drain(..end.unwrap_or(0)).collect();
        let text = String::from_utf8_lossy(&whole);
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Reads on in the open file until a line has ended: it may be longer than one chunk. Returns where the last whole line
    /// ends, none when the file ends before.
    fn read_on(&mut self) -> io::Result<Option<usize>> {
        loop {
            let read = self.read()?;
            // What was there before has no end of a line.
            let before = self.rest.len().saturating_sub(read);
            let new = self.rest.get(before..).unwrap_or_default();
            match new.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => return Ok(Some(before + end + 1)),
                None if self.rest.len() > LINE_CAP => return Ok(Some(self.rest.len())),
                None if read == 0 => return Ok(None),
                None => {}
            }
        }
    }

    /// Reads on in the open file; how many bytes there were.
    fn read(&mut self) -> io::Result<usize> {
        let Some((file, _)) = &mut self.open else { return Ok(0) };
        if file.metadata()?.len() < self.offset {
            // It was begun anew in its place.
            self.offset = 0;
            self.rest.clear();
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let read = file.take(CHUNK).read_to_end(&mut self.rest)?;
        self.offset += read as u64;
        Ok(read)
    }

    /// Goes on with the file that has the name now, when that is another one. Like [`read_on`](Self::read_on).
    fn turn(&mut self) -> io::Result<Option<usize>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let inode = file.metadata()?.ino();
        match &self.open {
            Some((_, known)) if *known == inode => return Ok(None),
            Some(_) => {
                // It has grown between our last look at it and the moment when it was put aside.
                if let Some(end) = self.read_on()? {
                    return Ok(Some(end));
                }
                self.offset = 0;
                self.rest.clear();
            }
            None => {}
        }
        self.open = Some((file, inode));
        self.read_on()
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
            let position = |tail: &Self| (tail.open.as_ref().map(|(_, inode)| *inode), tail.offset);
            let before = position(self);
            self.lines()?.into_iter().for_each(&mut take);
            if position(self) == before {
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

    #[test]
    fn a_reader_goes_on_where_another_one_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "one\ntwo\nthr").unwrap();
        let mut first = Tail::new(path.clone());
        assert_eq!((first.lines().unwrap().len(), first.position()), (2, 8));
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let mut next = Tail::at(path.clone(), first.position());
        assert_eq!((next.lines().unwrap(), next.position()), (vec!["three".to_owned()], 14));
        // A file that is shorter was begun anew.
        assert_eq!(Tail::at(path, 100).lines().unwrap(), ["one", "two", "three"]);
    }

    #[test]
    fn a_line_that_is_longer_than_a_chunk_is_read_at_one_look() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let long = "x".repeat(usize::try_from(2 * CHUNK + 1).unwrap());
        std::fs::write(&path, format!("one\n{long}\ntwo\n{long}")).unwrap();
        let mut tail = Tail::at(path.clone(), 4);
        assert_eq!(tail.lines().unwrap(), [long.as_str(), "two"]);
        // One that has no end yet is read when it has.
        let position = tail.position();
        assert_eq!((tail.lines().unwrap(), tail.position()), (Vec::<String>::new(), position));
        File::options().append(true).open(&path).unwrap().write_all(b"\n").unwrap();
        assert_eq!(Tail::at(path, position).lines().unwrap(), [long.as_str()]);
        assert_eq!(tail.lines().unwrap(), [long]);
    }

    #[test]
    fn r21_what_was_written_before_a_rotation_or_a_move_is_read_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("log"), dir.path().join("log.1"));
        let mut tail = Tail::new(path.clone());
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(tail.all().unwrap(), ["one"]);
        let mut old = File::options().append(true).open(&path).unwrap();
        old.write_all(b"two\n").unwrap();
        std::fs::rename(&path, &aside).unwrap();
        std::fs::write(&path, "three\n").unwrap();
        assert_eq!(tail.all().unwrap(), ["two", "three"]);
        // Also what is written between the last look at the old file and the look for a new one.
        assert_eq!(tail.read_on().unwrap(), None);
        let mut old = File::options().append(true).open(&path).unwrap();
        old.write_all(b"between\n").unwrap();
        std::fs::rename(&path, &aside).unwrap();
        std::fs::write(&path, "behind\n").unwrap();
        assert_eq!(tail.turn().unwrap(), Some("between\n".len()));
        tail.rest.clear();
        assert_eq!(tail.all().unwrap(), ["behind"]);
        // Moved away for good: the end of it is not missed.
        let mut last = File::options().append(true).open(&path).unwrap();
        std::fs::rename(&path, dir.path().join("archived")).unwrap();
        last.write_all(b"four\n").unwrap();
        assert_eq!(tail.all().unwrap(), ["four"]);
        assert_eq!(tail.all().unwrap(), Vec::<String>::new());
    }
}
