//! The complete lines appended to a file since the last read. A file that was replaced is read from its start.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A longer line is not a record.
const LINE_CAP: u64 = 64 * 1024 * 1024;
/// Size of the read buffer.
const BUFFER: usize = 256 * 1024;

/// The position up to which a file has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReadTo {
    pub(crate) inode: u64,
    pub(crate) offset: u64,
}

/// The lines after that position.
#[derive(Debug)]
pub(crate) struct NewLines {
    file: BufReader<File>,
    line: Vec<u8>,
    /// The end of the last line that was read.
    pub(crate) position: ReadTo,
    /// Whether the file was replaced or truncated.
    pub(crate) is_anew: bool,
}

impl NewLines {
    pub(crate) fn open(path: &Path, known: ReadTo) -> io::Result<Self> {
        let file = File::open(path)?;
        let about = file.metadata()?;
        let is_anew = about.ino() != known.inode || about.len() < known.offset;
        let position = if is_anew { ReadTo { inode: about.ino(), offset: 0 } } else { known };
        let mut file = BufReader::with_capacity(BUFFER, file);
        file.seek(SeekFrom::Start(position.offset))?;
        Ok(Self { file, line: Vec::new(), position, is_anew })
    }

    /// The next line with its line end; `None` if the rest of the file is an incomplete line.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let read = io::Read::take(&mut self.file, LINE_CAP).read_until(b'\n', &mut self.line)?;
        if self.line.last() != Some(&b'\n') {
            return Ok(None);
        }
        self.position.offset += read as u64;
        Ok(Some(&self.line))
    }
}
