//! Output that is larger than what the model gets: cut in the middle, the whole kept in a file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use caliban_core::{
    cap::{self, Cap},
    message::ResultPart,
};

use crate::{ToolOutput, limits::WHOLE_BYTES, words};

/// Takes secrets out of a text before it reaches the disk; gets whole lines.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Where whole outputs are kept. Cheap to clone; clones number their files together.
#[derive(Clone)]
pub(crate) struct WholeOutputs {
    dir: PathBuf,
    next: Arc<AtomicU64>,
    redact: Option<Redact>,
}

impl WholeOutputs {
    pub(crate) fn new(dir: PathBuf, redact: Option<Redact>) -> Self {
        Self { dir, next: Arc::new(AtomicU64::new(1)), redact }
    }

    /// The directory of the files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A new file for an output of this kind (`bash`, `grep`), readable by the owner only.
    pub(crate) fn create(&self, kind: &str) -> io::Result<WholeFile> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let path = self.dir.join(format!("{kind}-{number}.txt"));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    return Ok(WholeFile {
                        file,
                        path,
                        room: WHOLE_BYTES,
                        redact: self.redact.clone(),
                        line: Vec::new(),
                    });
                }
                // An earlier run of the same session left it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// An output of this text: as it is when it fits, else its two ends and the name of the file that
    /// has all of it. `notes` go after the text and are never cut.
    pub(crate) fn output(&self, kind: &str, text: &str, notes: &str, chars: usize) -> ToolOutput {
        let shown = cap::middle(text, Cap::Chars(chars));
        if shown.len() == text.len() {
            return ToolOutput::text(joined(text, notes), String::new());
        }
        let kept = self.create(kind).and_then(|mut whole| {
            whole.write(text.as_bytes())?;
            whole.finish()
        });
        let (place, whole) = match kept {
            Ok(path) => (place_note(&path), Some(path)),
            Err(error) => (lost_note(&error), None),
        };
        ToolOutput {
            content: vec![ResultPart::Text { text: joined(&joined(&shown, notes), &place) }],
            whole,
            ..ToolOutput::default()
        }
    }
}

/// The line that says where the whole output is.
pub(crate) fn place_note(path: &Path) -> String {
    format!("[whole output: {}]", path.display())
}

/// The line that says why the whole output is nowhere.
pub(crate) fn lost_note(error: &io::Error) -> String {
    format!("[the whole output could not be kept: {}]", words::reason(error))
}

/// Text, then notes on lines of their own.
pub(crate) fn joined(text: &str, notes: &str) -> String {
    match (text.is_empty(), notes.is_empty()) {
        (_, true) => text.to_owned(),
        (true, false) => notes.to_owned(),
        (false, false) => format!("{}\n{notes}", text.strip_suffix('\n').unwrap_or(text)),
    }
}

/// One file with a whole output, up to a limit.
pub(crate) struct WholeFile {
    file: File,
    path: PathBuf,
    room: u64,
    redact: Option<Redact>,
    /// The unfinished last line: redaction sees whole lines only.
    line: Vec<u8>,
}

/// A line longer than this is redacted in pieces.
const REDACT_LINE: usize = 64 << 10;

impl WholeFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the limit is reached and the rest was dropped.
    pub(crate) fn full(&self) -> bool {
        self.room == 0
    }

    /// Appends; what is over the limit is dropped.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.redact.is_none() {
            return self.put(bytes);
        }
        self.line.extend_from_slice(bytes);
        let whole = match memchr::memrchr(b'\n', &self.line) {
            Some(at) => at + 1,
            None if self.line.len() >= REDACT_LINE => self.line.len(),
            None => return Ok(()),
        };
        let rest = self.line.split_off(whole);
        let lines = std::mem::replace(&mut self.line, rest);
        self.put_redacted(&lines)
    }

    /// Writes what is still held back.
    pub(crate) fn finish(mut self) -> io::Result<PathBuf> {
        let line = std::mem::take(&mut self.line);
        self.put_redacted(&line)?;
        Ok(self.path)
    }

    fn put_redacted(&mut self, lines: &[u8]) -> io::Result<()> {
        match &self.redact {
            Some(redact) => {
                let clean = redact(&String::from_utf8_lossy(lines));
                self.put(clean.as_bytes())
            }
            None => self.put(lines),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fits = bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
        self.room -= fits as u64;
        self.file.write_all(&bytes[..fits])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_both_ends_and_names_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = WholeOutputs::new(dir.path().join("out"), None);
        let text: String = "äb".repeat(50);
        let output = outputs.output("bash", &text, "[exit 1]", 40);
        let path = dir.path().join("out/bash-1.txt");
        let shown = cap::middle(&text, Cap::Chars(40));
        assert_eq!(
            output,
            ToolOutput {
                content: vec![ResultPart::Text {
                    text: format!("{shown}\n[exit 1]\n[whole output: {}]", path.display())
                }],
                whole: Some(path.clone()),
                ..ToolOutput::default()
            }
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(outputs.output("bash", "short\n", "", 10), ToolOutput::text("short\n", ""));
        assert_eq!(outputs.output("bash", "short\n", "[n]", 10), ToolOutput::text("short\n[n]", ""));
    }

    #[test]
    fn a_directory_that_cannot_be_made_loses_the_whole_in_words() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let outputs = WholeOutputs::new(dir.path().join("file/out"), None);
        let output = outputs.output("bash", "0123456789", "", 4);
        assert_eq!(
            output,
            ToolOutput::text(
                "0123\n[the whole output could not be kept: a part of the path is not a directory]",
                ""
            )
        );
    }

    #[test]
    fn a12_secrets_do_not_reach_the_file_even_when_they_come_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let redact: Redact = Arc::new(|text| text.replace("hunter2", "[redacted]"));
        let outputs = WholeOutputs::new(dir.path().to_owned(), Some(redact));
        let mut file = outputs.create("bash").unwrap();
        for piece in ["one hun", "ter2\ntw", "o hunter2"] {
            file.write(piece.as_bytes()).unwrap();
        }
        let path = file.finish().unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "one [redacted]\ntwo [redacted]");
    }

    #[test]
    fn files_of_an_earlier_run_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("bash-1.txt"), "old").unwrap();
        let outputs = WholeOutputs::new(dir.path().to_owned(), None);
        assert_eq!(outputs.create("bash").unwrap().finish().unwrap(), dir.path().join("bash-2.txt"));
        assert_eq!(fs::read_to_string(dir.path().join("bash-1.txt")).unwrap(), "old");
    }
}
