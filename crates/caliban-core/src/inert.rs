//! Text from elsewhere, made safe to show in a terminal or on a page.
//!
//! Owns what counts as dangerous: control characters (and with them every escape sequence), direction
//! overrides, tag characters and everything that is there but cannot be seen. Each becomes something that
//! can be seen and does nothing. Refuses to drop anything in silence: a reader sees that something was there.
//! Markup is not its business; a page escapes `<` and `&` on top.

use std::borrow::Cow;
use std::fmt::Write as _;

/// How much of a hostile text is shown inside an error message.
const QUOTED_CHARS: usize = 80;

/// `text` on one line: line ends become `␊`, tabs a space.
pub fn line(text: &str) -> Cow<'_, str> {
    clean(text, Layout::Line)
}

/// `text` on as many lines as it has: `\n` and `\t` stay, `\r\n` becomes `\n`.
pub fn block(text: &str) -> Cow<'_, str> {
    clean(text, Layout::Block)
}

/// `text` in quotes for an error message: one line, cut when it is long.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS) {
        Some((end, _)) => format!("'{}…'", line(&text[..end])),
        None => format!("'{}'", line(text)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Line,
    Block,
}

fn clean(text: &str, layout: Layout) -> Cow<'_, str> {
    let Some(start) = text.char_indices().find(|(_, c)| !stays(*c, layout)).map(|(at, _)| at) else {
        return Cow::Borrowed(text);
    };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..start]);
    let mut rest = text[start..].chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            _ if stays(c, layout) => out.push(c),
            '\t' => out.push(' '),
            '\r' if layout == Layout::Block && rest.peek() == Some(&'\n') => {}
            // The Unicode control pictures: ␀ … ␟ and ␡.
            '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + u32::from(c))),
            '\x7f' => out.push('␡'),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "<U+{:04X}>", u32::from(c));
            }
        }
    }
    Cow::Owned(out)
}

fn stays(c: char, layout: Layout) -> bool {
    match c {
        '\n' | '\t' => layout == Layout::Block,
        _ => !c.is_control() && !is_unseen(c),
    }
}

/// Characters that are not controls to Unicode but take no ink, turn the line around or smuggle text.
/// The joiners are among them: an emoji family falls apart, a spoofed name does not pass.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{00AD}'                  // soft hyphen
        | '\u{034F}'                // combining grapheme joiner
        | '\u{061C}'                // Arabic letter mark
        | '\u{115F}' | '\u{1160}'   // Hangul fillers
        | '\u{17B4}' | '\u{17B5}'   // Khmer inherent vowels
        | '\u{180B}'..='\u{180F}'   // Mongolian variation selectors
        | '\u{200B}'..='\u{200F}'   // zero-width space, joiners, direction marks
        | '\u{2028}'..='\u{202E}'   // line and paragraph separator, direction overrides
        | '\u{2060}'..='\u{206F}'   // word joiner, isolates, deprecated formatting
        | '\u{3164}' | '\u{FFA0}'   // Hangul fillers
        | '\u{FE00}'..='\u{FE0E}'   // variation selectors; U+FE0F alone only colours an emoji
        | '\u{FEFF}'                // byte order mark
        | '\u{FFF0}'..='\u{FFFB}'   // interlinear annotation and unassigned specials
        | '\u{1BCA0}'..='\u{1BCA3}' // shorthand format controls
        | '\u{1D173}'..='\u{1D17A}' // musical format controls
        | '\u{E0000}'..='\u{E0FFF}' // tags and variation selectors
    )
}
