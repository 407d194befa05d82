//! JSON for programs that a terminal may get to see: what would do something to it is escaped. The value is the same. Pure.

use std::{borrow::Cow, fmt::Write as _};

use caliban_core::inert;

/// The same JSON text. Characters beyond ASCII stand in strings only, so an escape is right wherever one is.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    let is_harmless = |c: char| (c.is_ascii() && c != '\x7f') || is_seen(c);
    // Most is ASCII.
    if text.bytes().all(|byte| byte < 0x7f) || text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if is_harmless(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

/// Whether the character is visible and stands for nothing but itself.
fn is_seen(c: char) -> bool {
    let mut bytes = [0; 4];
    matches!(inert::line(c.encode_utf8(&mut bytes)), Cow::Borrowed(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_escaped_and_means_the_same() {
        let value = "a\u{9b}2J\u{202e}\u{e0041}\u{7f}\n\u{1b}é漢👍";
        let text = serde_json::to_string(value).unwrap();
        let shown = json(&text);
        assert_eq!(shown, "\"a\\u009b2J\\u202e\\udb40\\udc41\\u007f\\n\\u001bé漢👍\"");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), value);
        assert!(matches!(json("{\"a\": \"é\"}"), Cow::Borrowed(_)));
    }
}
