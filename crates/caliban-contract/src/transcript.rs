//! Reading `transcript.jsonl`, the truth of a conversation. Its writer is the agent's.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use caliban_core::event::{Event, Record, TRANSCRIPT_VERSION};
use serde_json::Value;

use crate::records::TRANSCRIPT;

/// A longer line is refused: nothing that we write comes near it.
pub const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;

/// Why a transcript cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Somebody else has it open for writing.
    #[error("{0} is in use by another caliban process")]
    Busy(PathBuf),
    /// A line that is not the last one cannot be read.
    #[error("{path}:{line}: not a transcript record: {reason}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer caliban wrote it.
    #[error("{path} has format {found}; this caliban reads up to {TRANSCRIPT_VERSION}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A record that could not be read again.
    #[error("a record of {0} bytes is too large for the transcript, which takes {MAX_LINE_BYTES}")]
    TooLarge(u64),
    /// An earlier write could not be made durable; nothing after it is trusted.
    #[error("the transcript is closed after an error")]
    Closed,
}

/// What is whole of a transcript.
#[derive(Debug)]
pub struct WholeRecords {
    /// The records.
    pub records: Vec<Record>,
    /// How many bytes they take.
    pub length: u64,
    /// Why a whole last line is none of them.
    pub torn: Option<serde_json::Error>,
}

/// Reads a transcript without locking it; a torn tail is left out.
pub fn read(directory: &Path) -> Result<Vec<Record>, TranscriptError> {
    let path = directory.join(TRANSCRIPT);
    let mut file = File::open(&path).map_err(|source| io_error(&path, source))?;
    Ok(read_records(&mut file, &path)?.records)
}

/// Hands out the records one after the other, as long as `see` wants more: a long transcript is never in memory whole.
pub fn each(directory: &Path, see: impl FnMut(Record) -> ControlFlow<()>) -> Result<(), TranscriptError> {
    let path = directory.join(TRANSCRIPT);
    let mut file = File::open(&path).map_err(|source| io_error(&path, source))?;
    scan(&mut file, &path, see).map(drop)
}

/// The whole records and how many bytes they take. What follows the last whole record is torn.
pub fn read_records(file: &mut File, path: &Path) -> Result<WholeRecords, TranscriptError> {
    let mut records = Vec::new();
    let (length, torn) = scan(file, path, |record| {
        records.push(record);
        ControlFlow::Continue(())
    })?;
    Ok(WholeRecords { records, length, torn })
}

/// Hands out whole records; returns how many bytes they take, and why a whole last line is none.
fn scan(
    file: &mut File,
    path: &Path,
    mut see: impl FnMut(Record) -> ControlFlow<()>,
) -> Result<(u64, Option<serde_json::Error>), TranscriptError> {
    let mut reader = BufReader::new(file);
    let (mut expected, mut length, mut line, mut torn) = (0_u64, 0_u64, Vec::new(), None);
    for number in 1.. {
        line.clear();
        let read = reader
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|source| io_error(path, source))?;
        if read == 0 {
            break;
        }
        let corrupt =
            |reason: String| TranscriptError::Corrupt { path: path.to_owned(), line: number, reason };
        if line.last() != Some(&b'\n') {
            if line.len() as u64 >= MAX_LINE_BYTES {
                return Err(corrupt(format!("a line of over {MAX_LINE_BYTES} bytes")));
            }
            break;
        }
        let record = match serde_json::from_slice::<Record>(&line) {
            Ok(record) => record,
            // First of all: what a newer caliban wrote is never cut off as torn.
            Err(error) => match newer(&line, path) {
                Some(newer) => return Err(newer),
                None if at_end(&mut reader, path)? => {
                    torn = Some(error);
                    break;
                }
                None => return Err(corrupt(error.to_string())),
            },
        };
        if let Event::Started(header) = &record.event
            && header.version > TRANSCRIPT_VERSION
        {
            return Err(TranscriptError::Newer { path: path.to_owned(), found: header.version });
        }
        if record.seq != expected {
            return Err(corrupt(format!("record {} where {expected} was expected", record.seq)));
        }
        (expected, length) = (expected + 1, length + read as u64);
        if see(record).is_break() {
            break;
        }
    }
    Ok((length, torn))
}

fn at_end(reader: &mut BufReader<&mut File>, path: &Path) -> Result<bool, TranscriptError> {
    Ok(reader.fill_buf().map_err(|source| io_error(path, source))?.is_empty())
}

/// A header of a newer format that this build cannot even parse.
fn newer(line: &[u8], path: &Path) -> Option<TranscriptError> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let found = u32::try_from(value.get("version")?.as_u64()?).ok()?;
    (found > TRANSCRIPT_VERSION).then(|| TranscriptError::Newer { path: path.to_owned(), found })
}

/// What the file system said of it.
pub fn io_error(path: &Path, source: io::Error) -> TranscriptError {
    TranscriptError::Io { path: path.to_owned(), source }
}
