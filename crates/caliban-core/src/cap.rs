//! Cutting text to a cap: in the middle, between characters, and saying how much is gone.
//!
//! Both ends are kept because a command's first lines say what it did and its last lines how it ended.

use std::borrow::Cow;

/// How long a text may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    /// In bytes of UTF-8.
    Bytes(usize),
    /// In characters (Unicode scalar values).
    Chars(usize),
}

/// `text` if it is within the cap, else its two ends around a line that says how much is left out.
/// The result, that line included, is within the cap. A cap that is too small for the line cuts the end off.
pub fn middle(text: &str, cap: Cap) -> Cow<'_, str> {
    let (length, limit, unit) = match cap {
        Cap::Bytes(limit) => (text.len(), limit, "bytes"),
        Cap::Chars(limit) => (text.chars().count(), limit, "characters"),
    };
    if length <= limit {
        return Cow::Borrowed(text);
    }
    // The number shown is at most the length, so this marker is at least as long as the final one.
    let room = marker(length, unit);
    let room = match cap {
        Cap::Bytes(_) => room.len(),
        Cap::Chars(_) => room.chars().count(),
    };
    let Some(keep) = limit.checked_sub(room) else {
        return Cow::Borrowed(&text[..head_end(text, cap, limit)]);
    };
    let head = &text[..head_end(text, cap, keep - keep / 2)];
    let tail = &text[tail_start(text, cap, keep / 2)..];
    let kept = match cap {
        Cap::Bytes(_) => head.len() + tail.len(),
        Cap::Chars(_) => keep,
    };
    Cow::Owned(format!("{head}{}{tail}", marker(length - kept, unit)))
}

/// How the line that says what is left out begins …
pub(crate) const GAP_BEGINS: &str = "\n[… ";
/// … and ends.
pub(crate) const GAP_ENDS: &str = " left out …]\n";

fn marker(missing: usize, unit: &str) -> String {
    format!("{GAP_BEGINS}{missing} {unit}{GAP_ENDS}")
}

/// Where the first `amount` end.
fn head_end(text: &str, cap: Cap, amount: usize) -> usize {
    match cap {
        Cap::Bytes(_) => {
            (0..=amount.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
        }
        Cap::Chars(_) => text.char_indices().nth(amount).map_or(text.len(), |(at, _)| at),
    }
}

/// Where the last `amount` begin.
fn tail_start(text: &str, cap: Cap, amount: usize) -> usize {
    match cap {
        Cap::Bytes(_) => (text.len().saturating_sub(amount)..text.len())
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(text.len()),
        Cap::Chars(_) if amount == 0 => text.len(),
        Cap::Chars(_) => text.char_indices().nth_back(amount - 1).map_or(0, |(at, _)| at),
    }
}
