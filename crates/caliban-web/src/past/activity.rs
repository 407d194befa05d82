//! When each agent worked, waited and asked. One fold for each transcript, brought up to date by what was appended since.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;

/// A longer line is no record.
const LINE_CAP: u64 = 64 * 1024 * 1024;
/// How many changes of state of one conversation are kept.
const CHANGES: usize = 5000;

/// What an agent is doing from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Works,
    Asks,
    Waits,
}

/// The fold of one transcript.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fold {
    pub(super) inode: u64,
    pub(super) read: u64,
    /// From when on what, in milliseconds since 1970.
    pub(crate) changes: Vec<(u64, Doing)>,
    /// The last moment that is recorded.
    pub(crate) last: u64,
    pub(super) open_asks: u64,
}

/// All folds.
#[derive(Debug, Default)]
pub(crate) struct ActivityFolds(Mutex<BTreeMap<PathBuf, Fold>>);

impl ActivityFolds {
    /// The fold of a transcript, up to date. Blocks.
    pub(crate) fn fold(&self, path: &Path) -> Fold {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        let mut fold = before.unwrap_or_default();
        // One that cannot be read just now counts as it was.
        let _as_it_was = fold.update(path);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), fold.clone());
        fold
    }
}

impl Fold {
    fn update(&mut self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        let about = file.metadata()?;
        if about.ino() != self.inode || about.len() < self.read {
            *self = Self { inode: about.ino(), ..Self::default() };
        }
        if about.len() == self.read {
            return Ok(());
        }
        let mut file = BufReader::with_capacity(256 * 1024, file);
        file.seek(SeekFrom::Start(self.read))?;
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = io::Read::take(&mut file, LINE_CAP).read_until(b'\n', &mut line)?;
            if read == 0 || line.last() != Some(&b'\n') {
                return Ok(());
            }
            self.read += read as u64;
            if let Ok(record) = serde_json::from_slice::<Value>(&line) {
                self.take(&record);
            }
        }
    }

    fn take(&mut self, record: &Value) {
        let Some(at) = record["at"].as_str().and_then(|at| at.parse::<Timestamp>().ok()) else { return };
        let ms = u64::try_from(at.as_millisecond()).unwrap_or(0);
        self.last = self.last.max(ms);
        match record["event"].as_str().unwrap_or_default() {
            "started" | "resumed" | "prompt" => self.change(ms, Doing::Works),
            "ask_opened" => {
                self.open_asks += 1;
                self.change(ms, Doing::Asks);
            }
            "ask_answered" => {
                self.open_asks = self.open_asks.saturating_sub(1);
                if self.open_asks == 0 {
                    self.change(ms, Doing::Works);
                }
            }
            "turn_ended" => {
                self.open_asks = 0;
                self.change(ms, Doing::Waits);
            }
            _ => {}
        }
    }

    fn change(&mut self, ms: u64, doing: Doing) {
        if self.changes.last().is_some_and(|(_, last)| *last == doing) || self.changes.len() >= CHANGES {
            return;
        }
        self.changes.push((ms, doing));
    }
}
