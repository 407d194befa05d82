//! How many columns of a terminal a text takes, and text cut to fit. Pure.
//!
//! Knows what is wide in practice (CJK, Hangul, emoji) and what takes no room (combining marks); a character that it does
//! not know takes one column.

/// The columns that a text takes.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(of).sum()
}

/// At most so many columns of a line.
pub(super) fn cut(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut taken = 0;
    for c in text.chars() {
        taken += of(c);
        // One for the mark.
        if taken >= most {
            break;
        }
        kept.push(c);
    }
    if most > 0 {
        kept.push('…');
    }
    kept
}

/// The text with blanks to so many columns.
pub(super) fn padded(text: &str, to: usize, side: Side) -> String {
    let blanks = " ".repeat(to.saturating_sub(columns(text)));
    match side {
        Side::Left => format!("{text}{blanks}"),
        Side::Right => format!("{blanks}{text}"),
    }
}

/// Where a text stands in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

fn of(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036F | 0x200B..=0x200F | 0x20D0..=0x20FF | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0x303E
        | 0x3041..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1F64F
        | 0x1F680..=0x1FAFF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_the_columns_that_it_takes() {
        let cases = [
            ("plain", 5, "plain"),
            ("plain", 4, "pla…"),
            ("größe", 5, "größe"),
            ("e\u{301}tude", 5, "e\u{301}tude"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("🚀 go", 5, "🚀 go"),
            ("x", 1, "x"),
            ("xy", 1, "…"),
            ("xy", 0, ""),
        ];
        for (text, most, expected) in cases {
            assert_eq!(cut(text, most), expected, "{text} in {most}");
            assert!(columns(&cut(text, most)) <= most, "{text} in {most}");
        }
        assert_eq!(padded("日", 4, Side::Left), "日  ");
        assert_eq!(padded("日", 4, Side::Right), "  日");
    }
}
