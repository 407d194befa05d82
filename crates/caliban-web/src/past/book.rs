//! What all conversations of this user have taken, by day and model, and when each agent worked, waited and asked. One fold for each
//! transcript, brought up to date by what was appended since.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use caliban_contract::records::TRANSCRIPT;
use caliban_core::models;
use caliban_core::usage::Usage;
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

/// A longer line is no record.
const LINE_CAP: u64 = 64 * 1024 * 1024;
/// How many changes of state of one conversation are kept.
const CHANGES: usize = 5000;
/// How deep sub-agents are looked for.
const DEPTH: usize = 4;

/// Tokens and their cost; none when the price of some is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) usage: Usage,
    pub(crate) micro_usd: u64,
    pub(crate) unpriced: u64,
    pub(crate) requests: u64,
}

impl Taken {
    pub(crate) fn add(&mut self, other: &Self) {
        self.usage.input += other.usage.input;
        self.usage.output += other.usage.output;
        self.usage.cache_read += other.usage.cache_read;
        self.usage.cache_write += other.usage.cache_write;
        self.micro_usd += other.micro_usd;
        self.unpriced += other.unpriced;
        self.requests += other.requests;
    }
}

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
    /// By day (local) and model.
    pub(crate) taken: BTreeMap<(String, String), Taken>,
    /// From when on what, in milliseconds since 1970.
    pub(crate) changes: Vec<(u64, Doing)>,
    pub(crate) calls: u64,
    pub(crate) failed_calls: u64,
    /// The last moment that is recorded.
    pub(crate) last: u64,
    pub(super) open_asks: u64,
}

/// All folds.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<BTreeMap<PathBuf, Fold>>);

impl Book {
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

/// The transcripts of a conversation's directory: its own, and those of its sub-agents. Blocks.
pub(crate) fn transcripts(dir: &Path) -> Vec<PathBuf> {
    fn below(dir: &Path, depth: usize, all: &mut Vec<PathBuf>) {
        let own = dir.join(TRANSCRIPT);
        if own.is_file() {
            all.push(own);
        }
        if depth == 0 {
            return;
        }
        for kind in ["sub", "bg"] {
            for entry in fs::read_dir(dir.join(kind)).into_iter().flatten().flatten() {
                below(&entry.path(), depth - 1, all);
            }
        }
    }
    let mut all = Vec::new();
    below(dir, DEPTH, &mut all);
    all
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
            "reply" | "unanswered" | "summarised" => self.count(record, at),
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
            "call_ended" => {
                self.calls += 1;
                self.failed_calls += u64::from(record["is_error"] == true);
            }
            _ => {}
        }
    }

    fn count(&mut self, record: &Value, at: Timestamp) {
        let Ok(usage) = serde_json::from_value::<Usage>(record["usage"].clone()) else { return };
        let model = record["model"].as_str().unwrap_or("unknown").to_owned();
        let price = models::price(&model);
        let day = at.to_zoned(TimeZone::system()).date().to_string();
        let one = Taken {
            usage,
            micro_usd: price.as_ref().map_or(0, |price| price.cost(usage).0),
            unpriced: u64::from(price.is_none()),
            requests: 1,
        };
        self.taken.entry((day, model)).or_default().add(&one);
    }

    fn change(&mut self, ms: u64, doing: Doing) {
        if self.changes.last().is_some_and(|(_, last)| *last == doing) || self.changes.len() >= CHANGES {
            return;
        }
        self.changes.push((ms, doing));
    }
}
