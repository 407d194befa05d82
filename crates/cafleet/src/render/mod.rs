//! Text and JSON made from domain types. Text and JSON of a type are in one file.
//!
//! Owns truncation and inertness of text. JSON carries the exact text, escaped to ASCII; text goes to screens and
//! contains nothing that a terminal would interpret.

pub(crate) mod agent;
pub(crate) mod json;
pub(crate) mod member;
pub(crate) mod session;
pub(crate) mod task;

use std::borrow::Cow;

/// How much of a thing is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The lines that an agent needs, with bodies cut to so many codepoints.
    Compact(usize),
    /// Everything.
    Full,
}

impl Detail {
    pub(crate) fn choose(full: bool, max_text_len: usize) -> Self {
        if full { Self::Full } else { Self::Compact(max_text_len) }
    }
}

/// At most `limit` codepoints, with `…` in place of the rest.
pub(crate) fn cut(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}
