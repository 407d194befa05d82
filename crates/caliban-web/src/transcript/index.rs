//! Maps an item's position to the bytes of its records. Grows with the file; a file that was replaced is read from its
//! start.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use caliban_core::event::{BlockHead, EventKind, MessageHead, RecordHead};
use caliban_core::usage::Usage;
use serde_json::Value;

use super::{NewLines, ReadTo};

/// Maximum number of usage points; above it every second one is dropped.
const POINTS: usize = 2000;

/// The byte range of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineSpan {
    pub(crate) at: u64,
    pub(crate) bytes: u32,
}

/// An item: its record, and the record that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TranscriptEntry {
    pub(crate) seq: u64,
    pub(crate) record: LineSpan,
    /// The record of a call's end, of the answer to a question, or of the delivery of a queued message.
    pub(crate) end: Option<LineSpan>,
    /// Whether a call has no end because its worker is gone.
    pub(crate) is_interrupted: bool,
}

/// The usage of one model request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub(crate) at: String,
    pub(crate) usage: Usage,
    pub(crate) model: Option<String>,
}

/// The index of one transcript.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    read: ReadTo,
    /// The number of items before the first of `entries`, and those of them that have no end yet.
    base: usize,
    before: HashMap<usize, TranscriptEntry>,
    entries: Vec<TranscriptEntry>,
    /// Calls, questions and queued messages that have no end yet.
    open: HashMap<String, usize>,
    /// The last todo list.
    pub(crate) todo: Option<Value>,
    pub(crate) points: Vec<Point>,
    /// Positions of the items that are new or changed since the last `update`.
    changed: Vec<u64>,
}

impl Index {
    /// An index that starts at the end of this one and knows only the items that can still change: for a stream that
    /// follows the file.
    pub(crate) fn follower(&self) -> Self {
        let is_open = |n: &usize| Some((*n, self.entry(*n as u64)?));
        Self {
            read: self.read,
            base: self.base + self.entries.len(),
            before: self.open.values().filter_map(is_open).collect(),
            open: self.open.clone(),
            ..Self::default()
        }
    }

    /// Indexes what was appended since the last time; returns the new and changed items in order.
    pub(crate) fn update(&mut self, path: &Path) -> io::Result<Vec<u64>> {
        let mut lines = match NewLines::open(path, self.read) {
            Ok(lines) => lines,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if lines.is_anew {
            *self = Self { read: lines.position, ..Self::default() };
        }
        while let Some(line) = lines.next_line()? {
            let bytes = u32::try_from(line.len()).unwrap_or(u32::MAX);
            // A line that is no record makes no item.
            if let Some(head) = RecordHead::read(line) {
                self.take(&head, LineSpan { at: self.read.offset, bytes }, line);
            }
            self.read = lines.position;
        }
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        Ok(changed)
    }

    fn take(&mut self, head: &RecordHead<'_>, span: LineSpan, line: &[u8]) {
        let id = head.id();
        match head.kind {
            EventKind::Started => self.push(head.seq, span, None),
            EventKind::Resumed => {
                // What the previous worker left open will never get an end.
                let open: Vec<usize> =
                    self.open.drain().filter(|(key, _)| !key.starts_with("q:")).map(|(_, n)| n).collect();
                for n in open {
                    self.change(n, |entry| entry.is_interrupted = true);
                }
                self.push(head.seq, span, None);
            }
            EventKind::Prompt => {
                if let Some(number) = head.queued {
                    self.end(&format!("q:{number}"), span);
                }
                if !head.is_context_alone() {
                    self.push(head.seq, span, None);
                }
            }
            EventKind::Queued => self.push(head.seq, span, head.number.map(|number| format!("q:{number}"))),
            EventKind::Reply => {
                if let Some(usage) = head.usage {
                    self.point(head, usage);
                }
                if head.message.as_ref().is_some_and(says_something) {
                    self.push(head.seq, span, None);
                }
            }
            EventKind::CallStarted => {
                if head.name.as_deref() == Some("TodoWrite") {
                    let record: Option<Value> = serde_json::from_slice(line).ok();
                    self.todo = record.and_then(|mut record| Some(record["input"].get_mut("todos")?.take()));
                }
                self.push(head.seq, span, id.map(|id| format!("c:{id}")));
            }
            EventKind::CallEnded => self.end(&format!("c:{}", id.unwrap_or_default()), span),
            EventKind::AskOpened => self.push(head.seq, span, id.map(|id| format!("a:{id}"))),
            EventKind::AskAnswered => self.end(&format!("a:{}", id.unwrap_or_default()), span),
            EventKind::CallRefused
            | EventKind::Summarised
            | EventKind::Note
            | EventKind::Background
            | EventKind::TurnEnded => {
                self.push(head.seq, span, None);
            }
            EventKind::Asked
            | EventKind::Counted
            | EventKind::Unanswered
            | EventKind::ResultsCleared
            | EventKind::Other => {}
        }
    }

    fn push(&mut self, seq: u64, record: LineSpan, key: Option<String>) {
        let n = self.base + self.entries.len();
        self.entries.push(TranscriptEntry { seq, record, end: None, is_interrupted: false });
        self.changed.push(n as u64);
        if let Some(key) = key {
            self.open.insert(key, n);
        }
    }

    fn end(&mut self, key: &str, span: LineSpan) {
        if let Some(n) = self.open.remove(key) {
            self.change(n, |entry| entry.end = Some(span));
        }
    }

    fn change(&mut self, n: usize, how: impl FnOnce(&mut TranscriptEntry)) {
        let known = match n.checked_sub(self.base) {
            Some(n) => self.entries.get_mut(n),
            None => self.before.get_mut(&n),
        };
        if let Some(entry) = known {
            how(entry);
            self.changed.push(n as u64);
        }
    }

    fn point(&mut self, head: &RecordHead<'_>, usage: Usage) {
        if self.points.len() >= POINTS {
            let mut is_kept = false;
            self.points.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        let model = head.model.as_deref().map(str::to_owned);
        self.points.push(Point { at: head.at.to_string(), usage, model });
    }

    pub(crate) fn total(&self) -> u64 {
        (self.base + self.entries.len()) as u64
    }

    pub(crate) fn entry(&self, n: u64) -> Option<TranscriptEntry> {
        let n = usize::try_from(n).ok()?;
        match n.checked_sub(self.base) {
            Some(n) => self.entries.get(n).copied(),
            None => self.before.get(&n).copied(),
        }
    }

    /// The number of items that begin at or before this record.
    pub(crate) fn read_to(&self, seq: u64) -> u64 {
        self.entries.partition_point(|entry| entry.seq <= seq) as u64
    }

    /// The first record of the last item.
    pub(crate) fn last_seq(&self) -> Option<u64> {
        self.entries.last().map(|entry| entry.seq)
    }

    /// The item that a record belongs to.
    pub(crate) fn item_of(&self, seq: u64) -> u64 {
        self.read_to(seq).saturating_sub(1)
    }
}

fn says_something(message: &MessageHead<'_>) -> bool {
    let MessageHead::Whole { blocks } = message else { return true };
    let says = |block: &BlockHead<'_>| {
        let has_text = block.text.as_ref().is_some_and(|text| !text.trim().is_empty());
        (block.kind == "text" || block.kind == "thinking") && has_text
    };
    blocks.iter().any(says)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn one_that_follows_the_end_keeps_what_can_change_and_says_what_a_whole_index_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("transcript.jsonl");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut write = |seq: u64, more: &str| {
            writeln!(file, r#"{{"seq": {seq}, "at": "2026-11-18T00:00:00Z", {more}}}"#).unwrap();
        };
        let call = |id: &str, event: &str| format!(r#""event": "{event}", "id": "{id}", "name": "Bash""#);
        write(1, r#""event": "started""#);
        write(2, &call("a", "call_started"));
        write(3, &call("b", "call_started"));
        write(4, &call("a", "call_ended"));
        let mut whole = Index::default();
        whole.update(&path).unwrap();
        let mut follower = whole.follower();
        assert_eq!((follower.total(), follower.before.len(), follower.entries.len()), (3, 1, 0));
        assert_eq!(follower.update(&path).unwrap(), Vec::<u64>::new());
        write(5, &call("b", "call_ended"));
        write(6, &call("c", "call_started"));
        write(7, &call("c", "call_ended"));
        assert_eq!((follower.update(&path).unwrap(), whole.update(&path).unwrap()), (vec![2, 3], vec![2, 3]));
        assert_eq!((follower.entry(2), follower.entry(3)), (whole.entry(2), whole.entry(3)));
        assert!(follower.entry(2).unwrap().end.is_some());
        // A file that was replaced is read from its start.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "{\"seq\": 1, \"at\": \"2026-11-18T00:00:00Z\", \"event\": \"started\"}\n")
            .unwrap();
        follower.update(&path).unwrap();
        assert_eq!(follower.total(), 1);
    }
}
