//! Lines of styled text, wrapped to a width. Pure.
//!
//! A [`Row`] knows which part of it is a gutter and how it is joined to the row above, so that what is copied is the
//! logical text and not what happens to be on the screen.

use ratatui::buffer::CellWidth as _;
use ratatui::{
    style::Style,
    text::{Line, Span},
};
use unicode_segmentation::UnicodeSegmentation as _;

/// How a row follows the one above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joint {
    /// A line of its own.
    Hard,
    /// The same line goes on without anything in between.
    Tight,
    /// The same line goes on; the white space at the break is not drawn.
    Space,
}

impl Joint {
    /// What stands between the two rows in the logical text.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Hard => "\n",
            Self::Tight => "",
            Self::Space => " ",
        }
    }
}

/// One row of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) line: Line<'static>,
    /// How many spans at the beginning are decoration and no text.
    pub(crate) gutter: usize,
    pub(crate) joint: Joint,
    /// The logical line of its cell that it belongs to. It finds the place again after a resize.
    pub(crate) source: u32,
}

/// Where a line may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrap {
    /// Between words, and inside of one that is too long.
    Words,
    /// Anywhere: code and output.
    Anywhere,
}

/// What stands before the rows of one line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gutter {
    pub(crate) first: Vec<Span<'static>>,
    pub(crate) rest: Vec<Span<'static>>,
}

impl Gutter {
    /// So many blank columns.
    pub(crate) fn blank(columns: usize) -> Self {
        let blank = vec![Span::raw(" ".repeat(columns))];
        Self { first: blank.clone(), rest: blank }
    }

    /// A mark before the first row, and as much room before the others.
    pub(crate) fn mark(mark: Span<'static>) -> Self {
        let room = " ".repeat(columns(&mark.content));
        Self { first: vec![mark], rest: vec![Span::raw(room)] }
    }
}

impl Row {
    /// An empty row.
    pub(crate) fn blank(source: u32) -> Self {
        Self { line: Line::default(), gutter: 0, joint: Joint::Hard, source }
    }

    /// The text in these columns, without the gutter.
    pub(crate) fn slice(&self, wanted: std::ops::Range<usize>) -> String {
        let (gutter, mut at, mut out) =
            (width(self.line.spans.get(..self.gutter).unwrap_or_default()), 0, String::new());
        for grapheme in self.line.spans.iter().flat_map(|span| span.content.graphemes(true)) {
            if at >= gutter && wanted.contains(&at) {
                out.push_str(grapheme);
            }
            at += columns(grapheme);
        }
        out
    }

    /// Its text; without the gutter where it goes on with the line above.
    fn text(&self) -> String {
        let skipped = if self.joint == Joint::Hard { 0 } else { self.gutter };
        self.line.spans.iter().skip(skipped).map(|span| span.content.as_ref()).collect()
    }
}

/// How many columns a text takes as the screen is drawn: the same measure as the buffer's, or the buffer would cut what
/// fits here.
pub(crate) fn columns(text: &str) -> usize {
    let width = |grapheme: &str| if grapheme.len() == 1 { 1 } else { usize::from(grapheme.cell_width()) };
    text.graphemes(true).map(width).sum()
}

/// The width of spans.
pub(crate) fn width(spans: &[Span<'_>]) -> usize {
    spans.iter().map(|span| columns(&span.content)).sum()
}

/// The logical text of rows: soft breaks joined, and of the gutters only the mark that says what a line is.
pub(crate) fn logical<'r>(rows: impl IntoIterator<Item = &'r Row>) -> String {
    let mut out = String::new();
    for (number, row) in rows.into_iter().enumerate() {
        if number > 0 {
            out.push_str(row.joint.text());
        }
        out.push_str(&row.text());
    }
    out
}

struct StyledText<'s> {
    text: &'s str,
    width: usize,
    style: Style,
}

/// Breaks one logical line into rows of at most `columns`.
pub(crate) fn wrap(
    spans: &[Span<'static>],
    columns: usize,
    gutter: &Gutter,
    wrap: Wrap,
    source: u32,
) -> Vec<Row> {
    let pieces: Vec<StyledText<'_>> = spans
        .iter()
        .flat_map(|span| {
            span.content.graphemes(true).map(|text| StyledText {
                text,
                width: self::columns(text),
                style: span.style,
            })
        })
        .collect();
    let mut rows: Vec<Row> = Vec::new();
    let mut start = 0;
    let mut joint = Joint::Hard;
    loop {
        let before = if rows.is_empty() { &gutter.first } else { &gutter.rest };
        let room = columns.saturating_sub(width(before)).max(1);
        let (end, next, next_joint) = row_end(&pieces, start, room, wrap);
        rows.push(row(before, &pieces[start..end], joint, source));
        if next >= pieces.len() {
            return rows;
        }
        (start, joint) = (next, next_joint);
    }
}

/// Where the row that begins at `start` ends, where the next one begins, and how they are joined.
fn row_end(pieces: &[StyledText<'_>], start: usize, room: usize, wrap: Wrap) -> (usize, usize, Joint) {
    let is_space = |at: usize| pieces[at].text.chars().all(char::is_whitespace);
    let mut column = 0;
    // The end of the row and the beginning of the next, at the last place where it may be broken.
    let mut word: Option<(usize, usize, Joint)> = None;
    let mut at = start;
    while at < pieces.len() {
        let piece = &pieces[at];
        if column + piece.width > room && at > start {
            if wrap == Wrap::Words {
                if is_space(at) {
                    let next = (at..pieces.len()).find(|next| !is_space(*next)).unwrap_or(pieces.len());
                    return (at, next, Joint::Space);
                }
                if let Some(word) = word {
                    return word;
                }
            }
            return (at, at, Joint::Tight);
        }
        column += piece.width;
        if wrap == Wrap::Words {
            if is_space(at) && at > start && !is_space(at - 1) {
                let next = (at..pieces.len()).find(|next| !is_space(*next)).unwrap_or(pieces.len());
                word = Some((at, next, Joint::Space));
            } else if piece.width > 1 {
                word = Some((at + 1, at + 1, Joint::Tight));
            }
        }
        at += 1;
    }
    (pieces.len(), pieces.len(), Joint::Hard)
}

fn row(gutter: &[Span<'static>], pieces: &[StyledText<'_>], joint: Joint, source: u32) -> Row {
    let mut text: Vec<Span<'static>> = Vec::new();
    for piece in pieces {
        match text.last_mut() {
            Some(last) if last.style == piece.style => last.content.to_mut().push_str(piece.text),
            _ => text.push(Span::styled(piece.text.to_owned(), piece.style)),
        }
    }
    let mut spans = gutter.to_vec();
    spans.append(&mut text);
    Row { line: Line::from(spans), gutter: gutter.len(), joint, source }
}

/// One line that is cut with an ellipsis where it does not fit.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if self::columns(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        used += self::columns(grapheme);
        if used >= columns {
            break;
        }
        out.push_str(grapheme);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, columns: usize, how: Wrap) -> Vec<Row> {
        wrap(&[Span::raw(text.to_owned())], columns, &Gutter::blank(2), how, 0)
    }

    #[test]
    fn t04_a_copied_paragraph_has_no_added_newline() {
        let text = "the quick brown fox jumps over the lazy dog and a-very-long-word-that-does-not-fit 漢字漢字漢字漢字漢字漢字";
        for columns in [12, 20, 33, 80] {
            let rows = wrapped(text, columns, Wrap::Words);
            assert!(rows.iter().all(|row| row.line.width() <= columns), "{columns}: {rows:?}");
            assert_eq!(logical(&rows).trim_start(), text, "{columns}");
        }
    }

    #[test]
    fn the_room_before_a_row_that_goes_on_is_no_text() {
        let gutter = Gutter::mark(Span::raw("> "));
        let rows = wrap(&[Span::raw("one two three")], 7, &gutter, Wrap::Words, 0);
        assert_eq!(
            rows.iter().map(|row| row.line.to_string()).collect::<Vec<_>>(),
            ["> one", "  two", "  three"]
        );
        assert_eq!(logical(&rows), "> one two three");
    }

    #[test]
    fn code_keeps_every_blank() {
        let text = "    let x  =  1;      ";
        assert_eq!(logical(&wrapped(text, 9, Wrap::Anywhere)), format!("  {text}"));
    }

    #[test]
    fn a_cut_line_fits() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("漢字漢字", 5), "漢字…");
    }
}
