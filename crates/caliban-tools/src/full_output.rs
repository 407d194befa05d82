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

use crate::{ToolOutput, error_text, limits::WHOLE_BYTES};

/// Takes secrets out of a text before it reaches the disk; gets whole lines.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Where whole outputs are kept. Cheap to clone; clones number their files together.
#[derive(Clone)]
pub(crate) struct FullOutputs {
    dir: PathBuf,
    next: Arc<AtomicU64>,
    redact: Option<Redact>,
}

impl FullOutputs {
    pub(crate) fn new(dir: PathBuf, redact: Option<Redact>) -> Self {
        Self { dir, next: Arc::new(AtomicU64::new(1)), redact }
    }

    /// The directory of the files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A new file for an output of this kind (`bash`, `grep`), readable by the owner only.
    pub(crate) fn create(&self, kind: &str) -> io::Result<FullOutputFile> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let path = self.dir.join(format!("{kind}-{number}.txt"));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    let (redact, held) = (self.redact.clone(), Vec::new());
                    return Ok(FullOutputFile { file, path, room: WHOLE_BYTES, redact, held });
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

/// The line that says why the whole output could not be kept.
pub(crate) fn lost_note(error: &io::Error) -> String {
    format!("[the whole output could not be kept: {}]", error_text::reason(error))
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
pub(crate) struct FullOutputFile {
    file: File,
    path: PathBuf,
    room: u64,
    redact: Option<Redact>,
    /// What redaction has not seen: an unfinished last line, or lines whose end is needed to judge them.
    held: Vec<u8>,
}

/// A line longer than this is redacted in pieces.
const REDACT_LINE: usize = 64 << 10;
/// How much of such a line stays behind for the next piece: longer than any key.
const REDACT_OVERLAP: usize = 8 << 10;
/// How far apart the places are at which it may be cut, and how many are tried.
const REDACT_STEP: usize = 512;
const REDACT_STEPS: usize = 32;
/// Lines are not held back longer than this.
const REDACT_HELD: usize = 256 << 10;

impl FullOutputFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the limit is reached and the rest was dropped.
    pub(crate) fn full(&self) -> bool {
        self.room == 0
    }

    /// Appends; what is over the limit is dropped.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(redact) = &self.redact else { return self.put(bytes) };
        self.held.extend_from_slice(bytes);
        let ready = match memchr::memrchr(b'\n', &self.held) {
            Some(at) if is_settled(redact, &self.held[..=at]) => at + 1,
            Some(at) if at >= REDACT_HELD => at + 1,
            Some(_) => return Ok(()),
            None if self.held.len() >= REDACT_LINE => safe_cut(redact, &self.held),
            None => return Ok(()),
        };
        let rest = self.held.split_off(ready);
        let lines = std::mem::replace(&mut self.held, rest);
        self.put_redacted(&lines)
    }

    /// Writes what is still held back.
    pub(crate) fn finish(mut self) -> io::Result<PathBuf> {
        let held = std::mem::take(&mut self.held);
        self.put_redacted(&held)?;
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

/// Whether the lines can be redacted without knowing what follows. They cannot while a secret of several lines (a key) is
/// open: its redaction would swallow the probe.
fn is_settled(redact: &Redact, lines: &[u8]) -> bool {
    const PROBE: &str = "\n.";
    redact(&format!("{}{PROBE}", String::from_utf8_lossy(lines))).ends_with(PROBE)
}

/// Where a long line can be cut without going through a secret; its end when there is no such place.
fn safe_cut(redact: &Redact, line: &[u8]) -> usize {
    let whole = redact(&String::from_utf8_lossy(line));
    let is_safe = |cut: usize| {
        let (one, other) = line.split_at(cut);
        let parts = [one, other].map(|part| redact(&String::from_utf8_lossy(part)));
        parts.concat() == whole
    };
    let first = line.len().saturating_sub(REDACT_OVERLAP);
    let cuts = (0..REDACT_STEPS).map(|step| first.saturating_sub(step * REDACT_STEP));
    cuts.filter(|cut| *cut > 0).find(|cut| is_safe(*cut)).unwrap_or(line.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a12_secrets_on_one_long_line_and_keys_of_many_lines_do_not_reach_the_file() {
        let redactor = caliban_core::redact::Redactor::new([("KEY", "canary-4f1d9c7e2b")]);
        let redact: Redact = Arc::new(move |text| redactor.redact(text).into_owned());
        let body: String = (0..40).map(|n| format!("MIIEpAIBAAKCAQEA{n:048}\n")).collect();
        let key = format!("-----BEGIN RSA PRIVATE KEY-----\n{body}-----END RSA PRIVATE KEY-----\n");
        let line: String = (0..30_000).map(|n| format!("{}canary-4f1d9c7e2b;é", "x".repeat(n % 7))).collect();
        for (secret, leak) in [(key, "MIIE"), (line, "canary")] {
            for size in [1_000, 4_096, 8_192, 65_536, 65_537] {
                let dir = tempfile::tempdir().unwrap();
                let outputs = FullOutputs::new(dir.path().to_owned(), Some(redact.clone()));
                let mut file = outputs.create("bash").unwrap();
                for piece in format!("before\n{secret}after\n").as_bytes().chunks(size) {
                    file.write(piece).unwrap();
                }
                let kept = fs::read_to_string(file.finish().unwrap()).unwrap();
                assert!(!kept.contains(leak), "in pieces of {size}: {leak}");
                assert!(kept.starts_with("before\n") && kept.ends_with("after\n"), "{size}");
            }
        }
    }

    #[test]
    fn what_is_whole_is_in_the_file_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let redact: Redact = Arc::new(|text| text.to_owned());
        let outputs = FullOutputs::new(dir.path().to_owned(), Some(redact));
        let mut file = outputs.create("bash").unwrap();
        file.write(b"one\ntwo\nthr").unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn a_long_text_keeps_both_ends_and_names_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = FullOutputs::new(dir.path().join("out"), None);
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
        let outputs = FullOutputs::new(dir.path().join("file/out"), None);
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
        let outputs = FullOutputs::new(dir.path().to_owned(), Some(redact));
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
        let outputs = FullOutputs::new(dir.path().to_owned(), None);
        assert_eq!(outputs.create("bash").unwrap().finish().unwrap(), dir.path().join("bash-2.txt"));
        assert_eq!(fs::read_to_string(dir.path().join("bash-1.txt")).unwrap(), "old");
    }
}
