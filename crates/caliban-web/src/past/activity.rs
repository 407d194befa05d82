//! When each agent worked, waited and asked: one fold per transcript, updated with the lines appended since.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use caliban_core::event::{EventKind, RecordHead};
use jiff::Timestamp;

use crate::transcript::{NewLines, ReadTo};

/// Maximum number of state changes kept per conversation.
const CHANGES: usize = 5000;

/// What an agent does from a point in time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Works,
    Asks,
    Waits,
}

/// The fold of one transcript.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fold {
    pub(super) read: ReadTo,
    /// State changes with their times in milliseconds since 1970.
    pub(crate) changes: Vec<(u64, Doing)>,
    /// The time of the last record.
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
        // If the file cannot be read now, the old fold is used.
        let _as_it_was = fold.update(path);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), fold.clone());
        fold
    }
}

impl Fold {
    fn update(&mut self, path: &Path) -> io::Result<()> {
        let mut lines = NewLines::open(path, self.read)?;
        if lines.is_anew {
            *self = Self { read: lines.position, ..Self::default() };
        }
        while let Some(line) = lines.next_line()? {
            if let Some(record) = RecordHead::read(line) {
                self.take(&record);
            }
            self.read = lines.position;
        }
        Ok(())
    }

    fn take(&mut self, record: &RecordHead<'_>) {
        let Ok(at) = record.at.parse::<Timestamp>() else { return };
        let ms = u64::try_from(at.as_millisecond()).unwrap_or(0);
        self.last = self.last.max(ms);
        match record.kind {
            EventKind::Started | EventKind::Resumed | EventKind::Prompt => self.change(ms, Doing::Works),
            EventKind::AskOpened => {
                self.open_asks += 1;
                self.change(ms, Doing::Asks);
            }
            EventKind::AskAnswered => {
                self.open_asks = self.open_asks.saturating_sub(1);
                if self.open_asks == 0 {
                    self.change(ms, Doing::Works);
                }
            }
            EventKind::TurnEnded => {
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
