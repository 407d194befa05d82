//! What a command says, in bounded memory: both ends of it, and all of it in a file once it is large.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
};

use crate::{
    error_text,
    full_output::{FullOutputFile, FullOutputs},
    limits::{MEMORY_BYTES, WHOLE_BYTES},
};

/// When the output goes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureToFile {
    /// When it is larger than what is held in memory.
    WhenLarge,
    /// From the first byte on.
    Always,
}

pub(super) struct Capture {
    outputs: FullOutputs,
    /// What came since the last `take`: all of it up to `MEMORY_BYTES`, else its start …
    head: Vec<u8>,
    /// … and its end.
    tail: VecDeque<u8>,
    new: u64,
    file: Option<FullOutputFile>,
    path: Option<PathBuf>,
    lost: Option<io::Error>,
    full: bool,
}

/// What was new at one moment.
#[derive(Debug, Default)]
pub(super) struct NewOutput {
    pub(super) text: String,
    /// Bytes between the two ends that `text` is made of, when it is not everything.
    pub(super) left_out: Option<u64>,
}

impl NewOutput {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl Capture {
    pub(super) fn new(outputs: FullOutputs, keep: CaptureToFile) -> Self {
        let (head, tail) = (Vec::new(), VecDeque::new());
        let mut capture =
            Self { outputs, head, tail, new: 0, file: None, path: None, lost: None, full: false };
        if keep == CaptureToFile::Always {
            capture.open();
        }
        capture
    }

    /// Where all of it is, when it is in a file.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What is to be said about the file: that it could not be written, or has not everything.
    pub(super) fn note(&self) -> Option<String> {
        if let Some(error) = &self.lost {
            return Some(crate::full_output::lost_note(error));
        }
        let full = self.full || self.file.as_ref().is_some_and(FullOutputFile::full);
        full.then(|| format!("[only the first {} are kept]", error_text::bytes(WHOLE_BYTES)))
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.new += bytes.len() as u64;
        let room = MEMORY_BYTES - self.head.len();
        let (head, tail) = bytes.split_at(room.min(bytes.len()));
        if !tail.is_empty() && self.file.is_none() && self.lost.is_none() {
            // All that came before is still in memory: a capture is not taken from before it ends.
            self.open();
            self.head.extend_from_slice(head);
            let start = std::mem::take(&mut self.head);
            self.write(&start);
            self.head = start;
            self.write(tail);
        } else {
            self.head.extend_from_slice(head);
            self.write(bytes);
        }
        if tail.len() >= MEMORY_BYTES {
            self.tail.clear();
            self.tail.extend(&tail[tail.len() - MEMORY_BYTES..]);
        } else {
            self.tail.extend(tail);
            let over = self.tail.len().saturating_sub(MEMORY_BYTES);
            self.tail.drain(..over);
        }
    }

    /// What came since the last time, at most two `MEMORY_BYTES`.
    pub(super) fn take(&mut self) -> NewOutput {
        let head = std::mem::take(&mut self.head);
        let tail: Vec<u8> = std::mem::take(&mut self.tail).into();
        let new = std::mem::take(&mut self.new);
        let left_out = new - (head.len() + tail.len()) as u64;
        if left_out == 0 {
            let all = [head, tail].concat();
            return NewOutput { text: String::from_utf8_lossy(&all).into_owned(), left_out: None };
        }
        // A character that the gap cut in two is not shown as two broken ones.
        let start = tail.iter().take(4).position(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
        let text = format!(
            "{}\n[… {left_out} bytes left out …]\n{}",
            String::from_utf8_lossy(&head).trim_end_matches(char::REPLACEMENT_CHARACTER),
            String::from_utf8_lossy(&tail[start..])
        );
        NewOutput { text, left_out: Some(left_out) }
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) {
        if let Some(file) = self.file.take() {
            self.full = file.full();
            if let Err(error) = file.finish() {
                self.lost = Some(error);
            }
        }
    }

    fn open(&mut self) {
        match self.outputs.create("bash") {
            Ok(file) => {
                self.path = Some(file.path().to_owned());
                self.file = Some(file);
            }
            Err(error) => self.lost = Some(error),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write(bytes) {
            self.lost = Some(error);
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn capture(dir: &Path, keep: CaptureToFile) -> Capture {
        Capture::new(FullOutputs::new(dir.to_owned(), None), keep)
    }

    #[test]
    fn a_small_output_makes_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = capture(dir.path(), CaptureToFile::WhenLarge);
        capture.push(b"caf\xc3");
        capture.push(b"\xa9 \xff");
        let taken = capture.take();
        assert_eq!((taken.text.as_str(), taken.left_out, capture.path()), ("café \u{fffd}", None, None));
    }

    #[test]
    fn a_large_output_keeps_both_ends_in_memory_and_all_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = capture(dir.path(), CaptureToFile::WhenLarge);
        let all: Vec<u8> = (0..100_000).flat_map(|n| format!("{n:05}\n").into_bytes()).collect();
        for piece in all.chunks(7_000) {
            capture.push(piece);
        }
        assert!(capture.head.len() + capture.tail.len() <= 2 * MEMORY_BYTES);
        let taken = capture.take();
        assert_eq!(taken.left_out, Some((all.len() - 2 * MEMORY_BYTES) as u64));
        assert!(taken.text.starts_with("00000\n00001\n"));
        assert!(taken.text.ends_with("\n99999\n"));
        capture.finish();
        assert_eq!(fs::read(capture.path().unwrap()).unwrap(), all);
    }

    #[test]
    fn one_huge_piece_is_like_many_small_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = capture(dir.path(), CaptureToFile::WhenLarge);
        let all = "ä".repeat(MEMORY_BYTES * 2);
        capture.push(all.as_bytes());
        let taken = capture.take();
        assert_eq!(taken.left_out, Some((all.len() - 2 * MEMORY_BYTES) as u64));
        assert!(!taken.text.contains(char::REPLACEMENT_CHARACTER));
    }

    #[test]
    fn what_was_taken_does_not_come_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = capture(dir.path(), CaptureToFile::Always);
        capture.push(b"one");
        assert_eq!(capture.take().text, "one");
        assert_eq!(capture.take().text, "");
        capture.push(b"two");
        assert_eq!(capture.take().text, "two");
        capture.finish();
        assert_eq!(fs::read(capture.path().unwrap()).unwrap(), b"onetwo");
    }
}
