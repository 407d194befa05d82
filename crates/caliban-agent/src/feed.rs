//! The live view of a conversation: one append-only log that every watcher walks with a cursor.
//!
//! Nothing is queued per watcher, so a silent one costs nothing and blocks nobody. Text is coalesced.
//! What a failed attempt has shown is marked void, never taken back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use caliban_core::wait::Wait;
use tokio::sync::watch;

use crate::{
    event::{Ask, Event, Record},
    telemetry::Observer,
};

/// Text entries grow to this size before a new one begins.
const COALESCE_BYTES: usize = 4 * 1024;
/// Live output that is kept of one tool call; the whole is in the call's output file.
const TOOL_OUTPUT_BYTES: usize = 64 * 1024;

/// One entry of the log.
#[derive(Debug, Clone)]
pub enum FeedEntry {
    /// Something that is in the transcript.
    Record(Arc<Record>),
    /// Text of the answer that is coming in; the `Reply` record that follows holds it whole.
    Text(String),
    /// Reasoning that may be shown.
    Thinking(String),
    /// The model has begun to ask for a tool.
    ToolUse {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
    },
    /// Live output of a running call.
    ToolOutput {
        /// The call's id.
        id: String,
        /// The output.
        text: String,
    },
    /// The text since the last record is void: the attempt failed and is made again.
    Restart {
        /// Why.
        reason: String,
    },
    /// A sub-agent waits for a person.
    SubAsked(Box<Ask>),
    /// A sub-agent's ask is closed: answered, or gone.
    SubAnswered {
        /// The ask's id.
        id: String,
    },
    /// Nothing comes for a while.
    Waiting(Wait),
    /// The transcript takes no more records: what happens from now on is not recorded, not even the end of the turn.
    Broken {
        /// Why.
        reason: String,
    },
}

impl FeedEntry {
    /// What may still grow.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Thinking(text) | Self::ToolOutput { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The same kind of entry with other text.
    fn with_text(&self, text: &str) -> Self {
        match self {
            Self::Thinking(_) => Self::Thinking(text.to_owned()),
            Self::ToolOutput { id, .. } => Self::ToolOutput { id: id.clone(), text: text.to_owned() },
            _ => Self::Text(text.to_owned()),
        }
    }
}

/// Where a watcher stands. Cursors of one feed have an order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    index: usize,
    offset: usize,
}

/// A handle to the log.
#[derive(Clone)]
pub struct Feed {
    log: Arc<Mutex<FeedLog>>,
    changed: watch::Sender<()>,
    /// Sees each record once.
    observer: Option<Arc<Mutex<Observer>>>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("log", &self.log).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct FeedLog {
    entries: Vec<FeedEntry>,
    closed: bool,
    /// How much is kept of the output of each running call.
    tool_output: BTreeMap<String, usize>,
}

impl Default for Feed {
    fn default() -> Self {
        Self { log: Arc::default(), changed: watch::Sender::new(()), observer: None }
    }
}

impl Feed {
    /// A feed whose records this one sees.
    pub fn observed(observer: Option<Observer>) -> Self {
        Self { observer: observer.map(|observer| Arc::new(Mutex::new(observer))), ..Self::default() }
    }

    /// Adds a record of the transcript: one that was just written, or one that was there before.
    pub(crate) fn record(&self, record: Record, is_new: bool) {
        if let Some(observer) = &self.observer {
            observer.lock().unwrap_or_else(PoisonError::into_inner)(&record, is_new);
        }
        self.push(FeedEntry::Record(Arc::new(record)));
    }

    /// Adds an entry; text goes into the last one while that is small.
    pub fn push(&self, entry: FeedEntry) {
        let mut log = self.lock();
        if let FeedEntry::ToolOutput { id, text } = &entry {
            let kept = log.tool_output.entry(id.clone()).or_default();
            if *kept >= TOOL_OUTPUT_BYTES {
                return;
            }
            *kept += text.len();
        }
        if let FeedEntry::Record(record) = &entry
            && let Event::CallEnded { id, .. } = &record.event
        {
            log.tool_output.remove(id);
        }
        match (log.entries.last_mut(), &entry) {
            (Some(FeedEntry::Text(last)), FeedEntry::Text(more))
            | (Some(FeedEntry::Thinking(last)), FeedEntry::Thinking(more))
                if last.len() < COALESCE_BYTES =>
            {
                last.push_str(more);
            }
            (Some(FeedEntry::ToolOutput { id, text }), FeedEntry::ToolOutput { id: other, text: more })
                if id == other && text.len() < COALESCE_BYTES =>
            {
                text.push_str(more);
            }
            _ => log.entries.push(entry),
        }
        drop(log);
        self.changed.send_replace(());
    }

    /// Says that nothing more will come.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.send_replace(());
    }

    /// What comes next for this cursor, if it is there already. Of a text entry, the part that the
    /// cursor has not seen.
    pub fn next(&self, cursor: &mut Cursor) -> Option<FeedEntry> {
        let log = self.lock();
        loop {
            let entry = log.entries.get(cursor.index)?;
            let Some(text) = entry.text() else {
                *cursor = Cursor { index: cursor.index + 1, offset: 0 };
                return Some(entry.clone());
            };
            if let Some(rest) = text.get(cursor.offset..).filter(|rest| !rest.is_empty()) {
                cursor.offset += rest.len();
                return Some(entry.with_text(rest));
            }
            if cursor.index + 1 >= log.entries.len() {
                return None;
            }
            *cursor = Cursor { index: cursor.index + 1, offset: 0 };
        }
    }

    /// Waits for what comes next; `None` when the log is closed and the cursor is at its end.
    pub async fn wait(&self, cursor: &mut Cursor) -> Option<FeedEntry> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if let Some(entry) = self.next(cursor) {
                return Some(entry);
            }
            if self.lock().closed {
                return None;
            }
            changed.changed().await.ok()?;
        }
    }

    /// A cursor at the end: only what comes from now on.
    pub fn end(&self) -> Cursor {
        let log = self.lock();
        match log.entries.last().and_then(FeedEntry::text) {
            Some(text) => Cursor { index: log.entries.len() - 1, offset: text.len() },
            None => Cursor { index: log.entries.len(), offset: 0 },
        }
    }

    fn lock(&self) -> MutexGuard<'_, FeedLog> {
        // A panic while holding the lock leaves the log as it was: every step is one push.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(feed: &Feed, cursor: &mut Cursor) -> String {
        let mut seen = String::new();
        while let Some(entry) = feed.next(cursor) {
            match entry {
                FeedEntry::Text(text) | FeedEntry::ToolOutput { text, .. } => seen.push_str(&text),
                other => seen.push_str(&format!("<{other:?}>")),
            }
        }
        seen
    }

    #[test]
    fn text_is_coalesced_and_each_watcher_sees_it_once() {
        let feed = Feed::default();
        let mut early = Cursor::default();
        feed.push(FeedEntry::Text("a".into()));
        assert_eq!(drain(&feed, &mut early), "a");
        feed.push(FeedEntry::Text("b".into()));
        feed.push(FeedEntry::Waiting(Wait::Summary));
        feed.push(FeedEntry::Text("c".into()));
        let mut late = Cursor::default();
        let waiting = "<Waiting(Summary)>";
        assert_eq!(drain(&feed, &mut early), format!("b{waiting}c"));
        assert_eq!(drain(&feed, &mut late), format!("ab{waiting}c"));
        assert_eq!(early, late);
        assert_eq!(feed.end(), late);
    }

    #[test]
    fn live_tool_output_is_bounded() {
        let feed = Feed::default();
        for _ in 0..100 {
            feed.push(FeedEntry::ToolOutput { id: "1".into(), text: "x".repeat(1024) });
        }
        assert_eq!(drain(&feed, &mut Cursor::default()).len(), TOOL_OUTPUT_BYTES);
    }

    #[test]
    fn live_output_of_calls_side_by_side_is_bounded() {
        let feed = Feed::default();
        for number in 0..200 {
            feed.push(FeedEntry::ToolOutput { id: (number % 2).to_string(), text: "x".repeat(1024) });
        }
        assert_eq!(drain(&feed, &mut Cursor::default()).len(), 2 * TOOL_OUTPUT_BYTES);
    }

    #[tokio::test]
    async fn a_watcher_wakes_and_ends_with_the_feed() {
        let feed = Feed::default();
        let watcher = tokio::spawn({
            let feed = feed.clone();
            async move {
                let mut cursor = Cursor::default();
                let mut seen = String::new();
                while let Some(FeedEntry::Text(text)) = feed.wait(&mut cursor).await {
                    seen.push_str(&text);
                }
                seen
            }
        });
        feed.push(FeedEntry::Text("one ".into()));
        tokio::task::yield_now().await;
        feed.push(FeedEntry::Text("two".into()));
        feed.close();
        assert_eq!(watcher.await.unwrap(), "one two");
    }
}
