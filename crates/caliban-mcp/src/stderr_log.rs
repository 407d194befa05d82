//! The last of what a server said on standard error.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// How much of it is kept.
const LOG_BYTES: usize = 64 << 10;
/// How much of it an error message shows.
const TAIL_CHARS: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct ServerLog {
    bytes: Mutex<VecDeque<u8>>,
}

impl ServerLog {
    pub(crate) fn add(&self, new: &[u8]) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.extend(new);
        let over = bytes.len().saturating_sub(LOG_BYTES);
        bytes.drain(..over);
    }

    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> =
            self.bytes.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its end, for an error message; nothing when it said nothing.
    pub(crate) fn tail(&self) -> Option<String> {
        let text = self.text();
        let text = text.trim();
        let start = text.char_indices().rev().nth(TAIL_CHARS).map_or(0, |(at, _)| at);
        (!text.is_empty()).then(|| text[start..].to_owned())
    }
}
