//! The text as rows of the screen, and where the cursor is on them.

use unicode_segmentation::UnicodeSegmentation as _;

use super::Composer;
use crate::sanitise;

/// The rows of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Laid {
    pub(crate) rows: Vec<String>,
    /// The column and the row of the cursor.
    pub(crate) cursor: (usize, usize),
    /// The byte at which each row begins.
    starts: Vec<usize>,
}

impl Composer {
    /// Lays the text out.
    pub(crate) fn lay(&self, columns: usize) -> Laid {
        let columns = columns.max(2);
        let mut laid = Laid { rows: vec![String::new()], cursor: (0, 0), starts: vec![0] };
        let (mut column, mut row) = (0, 0);
        let mut next_row = |laid: &mut Laid, start: usize| {
            laid.rows.push(String::new());
            laid.starts.push(start);
            row += 1;
            row
        };
        let mut current = 0;
        for (at, grapheme) in self.draft.text.grapheme_indices(true) {
            let shown = shown(self, grapheme);
            let width = crate::text::columns(&shown);
            if grapheme != "\n" && column + width > columns && column > 0 {
                current = next_row(&mut laid, at);
                column = 0;
            }
            if at == self.cursor {
                laid.cursor = (column, current);
            }
            if grapheme == "\n" {
                current = next_row(&mut laid, at + 1);
                column = 0;
                continue;
            }
            laid.rows[current].push_str(&shown);
            column += width;
        }
        if self.cursor == self.draft.text.len() {
            // A full row: the cursor stands on the next one.
            if column >= columns {
                current = next_row(&mut laid, self.cursor);
                column = 0;
            }
            laid.cursor = (column, current);
        }
        laid
    }

    /// Moves the cursor to the row above; false when there is none.
    pub(crate) fn up(&mut self, columns: usize) -> bool {
        let laid = self.lay(columns);
        laid.cursor.1.checked_sub(1).map(|row| self.move_to_row(&laid, row)).is_some()
    }

    /// Moves the cursor to the row below; false when there is none.
    pub(crate) fn down(&mut self, columns: usize) -> bool {
        let laid = self.lay(columns);
        let row = laid.cursor.1 + 1;
        if row >= laid.rows.len() {
            return false;
        }
        self.move_to_row(&laid, row);
        true
    }

    fn move_to_row(&mut self, laid: &Laid, row: usize) {
        let wanted = self.column.unwrap_or(laid.cursor.0);
        let start = laid.starts.get(row).copied().unwrap_or_default();
        let end = laid.starts.get(row + 1).copied().unwrap_or(self.draft.text.len());
        let mut column = 0;
        let mut at = start;
        for (offset, grapheme) in self.draft.text[start..end].grapheme_indices(true) {
            at = start + offset;
            if grapheme == "\n" || column >= wanted {
                break;
            }
            column += crate::text::columns(&shown(self, grapheme));
            at = start + offset + grapheme.len();
        }
        // The end of a row that goes on is the beginning of the next one.
        if at == end && row + 1 < laid.starts.len() && at > start {
            at = self.draft.text[start..end]
                .grapheme_indices(true)
                .next_back()
                .map_or(at, |(last, _)| start + last);
        }
        self.cursor = at;
        self.column = Some(wanted);
    }
}

/// A grapheme as it is drawn.
fn shown(composer: &Composer, grapheme: &str) -> String {
    let label = grapheme.chars().next().and_then(|c| composer.draft.label(c));
    label.unwrap_or_else(|| match grapheme {
        "\t" => "    ".to_owned(),
        other => sanitise::line(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_where_the_next_letter_goes() {
        let mut composer = Composer::default();
        for (typed, cursor) in
            [("ab", (2, 0)), ("漢", (4, 0)), ("cd", (1, 1)), ("\n", (0, 2)), ("xyz", (3, 2)), ("zz", (0, 3))]
        {
            composer.insert(typed);
            assert_eq!(composer.lay(5).cursor, cursor, "{typed}: {:?}", composer.lay(5));
        }
        assert_eq!(composer.lay(5).rows, ["ab漢c", "d", "xyzzz", ""]);
    }

    #[test]
    fn up_and_down_keep_the_column() {
        let mut composer = Composer::default();
        composer.insert("first line\nx\nthird line");
        assert!(composer.up(40) && composer.up(40));
        assert_eq!(composer.lay(40).cursor, (10, 0));
        assert!(!composer.up(40));
        assert!(composer.down(40) && composer.down(40));
        assert_eq!(composer.lay(40).cursor, (10, 2));
        assert!(!composer.down(40));
    }
}
