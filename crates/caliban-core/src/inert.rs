//! Text from elsewhere, made safe to show in a terminal or on a page.
//!
//! Owns what counts as dangerous: control characters (and with them every escape sequence), direction
//! overrides, tag characters and everything that is there but cannot be seen. Each becomes something that
//! can be seen and does nothing. Refuses to drop anything in silence: a reader sees that something was there.
//! Joiners stay where they do what they are for (`joiners.rs`): in emoji, Persian and the scripts of India.
//! Markup is not its business; a page escapes `<` and `&` on top.

mod joiners;

use std::borrow::Cow;
use std::fmt::Write as _;

use joiners::{is_joiner, joins, needs_more};

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

/// Text that comes in pieces: what a piece ends with may need the next one to be judged.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The end of what was shown.
    shown: String,
    /// What waits for what follows it.
    held: String,
}

/// How many characters on each side of a joiner matter for it: a letter, its marks and signs.
const CONTEXT_CHARS: usize = 8;

impl Pieces {
    /// The next piece, like [`block`]; a joiner or `\r` at its end comes with the one after it.
    pub fn block(&mut self, piece: &str) -> String {
        let text = format!("{}{}{piece}", self.shown, self.held);
        let new = self.shown.len();
        // What a joiner is judged by may be one character further on than the next.
        let last = text[new..].char_indices().rev().take(CONTEXT_CHARS).find(|(_, c)| !needs_more(*c));
        let end = match last {
            Some((at, c)) if is_joiner(c) => new + at,
            _ if text[new..].ends_with('\r') => text.len() - 1,
            _ => text.len(),
        };
        self.take(&text, end)
    }

    /// What was held back. What comes after it is another text.
    pub fn finish(&mut self) -> String {
        let text = format!("{}{}", self.shown, self.held);
        let rest = self.take(&text, text.len());
        self.shown.clear();
        rest
    }

    fn take(&mut self, text: &str, end: usize) -> String {
        let clean = clean_part(text, self.shown.len(), end, Layout::Block);
        self.held = text[end..].to_owned();
        let context = text[..end].char_indices().rev().take(CONTEXT_CHARS).last();
        self.shown = text[context.map_or(end, |(at, _)| at)..end].to_owned();
        clean
    }
}

fn clean(text: &str, layout: Layout) -> Cow<'_, str> {
    let first = text.char_indices().find(|(at, c)| !stays(text, *at, *c, layout)).map(|(at, _)| at);
    match first {
        Some(start) => {
            let rest = clean_part(text, start, text.len(), layout);
            Cow::Owned(format!("{}{rest}", &text[..start]))
        }
        None => Cow::Borrowed(text),
    }
}

/// The part of a text, judged by what stands around it.
fn clean_part(text: &str, start: usize, end: usize, layout: Layout) -> String {
    let mut out = String::with_capacity(end - start + 16);
    for (offset, c) in text[start..end].char_indices() {
        let at = start + offset;
        match c {
            _ if stays(text, at, c, layout) => out.push(c),
            '\t' => out.push(' '),
            '\r' if layout == Layout::Block && text[at + 1..].starts_with('\n') => {}
            // The Unicode control pictures: ␀ … ␟ and ␡.
            '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + u32::from(c))),
            '\x7f' => out.push('␡'),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "<U+{:04X}>", u32::from(c));
            }
        }
    }
    out
}

fn stays(text: &str, at: usize, c: char, layout: Layout) -> bool {
    match c {
        '\n' | '\t' => layout == Layout::Block,
        _ if is_joiner(c) => joins(&text[..at], c, &text[at + c.len_utf8()..]),
        _ => !c.is_control() && !is_unseen(c),
    }
}

/// Characters that are not controls to Unicode but take no ink, turn the line around or smuggle text.
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
