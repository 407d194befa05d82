//! Transcripts as pages of items: an index from positions to bytes, and items that are built on request. The truth is
//! `transcript.jsonl`; nothing else is stored.

mod index;
mod index_cache;
mod item;
mod new_lines;
mod routes;

pub(crate) use index::Index;
pub(crate) use index_cache::Shelf;
pub(crate) use item::todo;
pub(crate) use new_lines::{NewLines, ReadTo};
pub(crate) use routes::{output, seen, transcript, usage};

use std::path::Path;

use serde_json::{Value, json};

/// Default and maximum number of items in a page.
const PAGE: u64 = 100;
const PAGE_CAP: u64 = 500;

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// At this item.
    Item(u64),
    /// At the item that contains this record.
    Record(u64),
    /// Such that the page ends with the last item.
    End,
}

/// A page of a transcript. Reads the file.
pub(crate) fn page(path: &Path, index: &Index, from: From, limit: Option<u64>) -> std::io::Result<Value> {
    let total = index.total();
    let limit = limit.unwrap_or(PAGE).clamp(1, PAGE_CAP);
    let first = match from {
        From::Item(item) => item.min(total),
        From::Record(record) => index.item_of(record),
        From::End => total.saturating_sub(limit),
    };
    let records = items(path, index, first..first.saturating_add(limit).min(total))?;
    Ok(json!({"total": total, "first": first, "records": records}))
}

/// Some items. Reads the file.
pub(crate) fn items(path: &Path, index: &Index, range: std::ops::Range<u64>) -> std::io::Result<Vec<Value>> {
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    range
        .filter_map(|n| Some((n, index.entry(n)?)))
        .map(|(n, entry)| item::item(&mut file, n, entry))
        .collect()
}
