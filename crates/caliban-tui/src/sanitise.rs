//! The one sanitiser for text from elsewhere: model output, tool output, file names, replayed history.
//!
//! Control and invisible characters become visible (`caliban_core::inert`). Three things are dropped, because they only
//! change the look: colour sequences (`ESC [ … m`), U+FE0F, which terminals disagree about, and tabs become spaces.

use std::borrow::Cow;

use caliban_core::inert;

/// Columns between tab stops.
const TAB: usize = 4;

/// `text` on as many lines as it has.
pub(crate) fn block(text: &str) -> String {
    let plain = without_colours(text);
    let clean = inert::block(&plain);
    if !clean.contains(['\t', '\u{FE0F}']) {
        return clean.into_owned();
    }
    let mut out = String::with_capacity(clean.len());
    let mut column = 0;
    for c in clean.chars() {
        match c {
            '\t' => {
                let spaces = TAB - column % TAB;
                out.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
            }
            '\u{FE0F}' => {}
            '\n' => {
                out.push(c);
                column = 0;
            }
            _ => {
                out.push(c);
                column += 1;
            }
        }
    }
    out
}

/// `text` on one line.
pub(crate) fn line(text: &str) -> String {
    let plain = without_colours(text);
    inert::line(&plain).replace('\u{FE0F}', "")
}

/// Without `ESC [ digits and semicolons m`. Every other sequence stays, and is made visible by `inert`.
fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains("\u{1b}[") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        out.push_str(&rest[..at]);
        let after = &rest[at + 2..];
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').len();
        if after[digits..].starts_with('m') {
            rest = &after[digits + 1..];
        } else {
            out.push_str("\u{1b}[");
            rest = after;
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t27_hostile_bytes_are_inert() {
        assert_eq!(block("a\u{1b}[31mred\u{1b}[0m\u{1b}[2Jb"), "ared␛[2Jb");
        assert_eq!(block("\u{1b}]52;c;aGk=\u{7}"), "␛]52;c;aGk=␇");
        assert_eq!(line("evil\u{202e}txt\nmore"), "evil<U+202E>txt␊more");
        assert_eq!(block("a\tb\n\tc\r\nd"), "a   b\n    c\nd");
        assert_eq!(block("\u{1b}[\u{1b}[0m31mx"), "␛[31mx");
    }
}
