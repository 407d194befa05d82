//! The cells in their order, and which part of them is on the screen.
//!
//! Only what is on the screen is ever laid out: the view walks up from the end, or down from the anchor. The anchor is a
//! logical line of a cell, so it stays where it is when cells below grow and when the width changes.

use crate::{
    cells::{Cell, CellKind, Rows},
    state::Selection,
    text::Row,
    theme::Theme,
};

/// Cells with a layout beyond these are swept when they are off the screen.
const SWEEP_EVERY: usize = 256;

/// The conversation.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    cells: Vec<Cell>,
    /// The first row on the screen; none while the end is followed.
    anchor: Option<Anchor>,
    /// Cells before this one are in the terminal's own scrollback, and no more on the screen.
    printed: usize,
    drawn: std::cell::Cell<usize>,
}

/// A row, wherever it is after a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Anchor {
    cell: usize,
    source: u32,
    /// Rows of the same logical line before it.
    within: usize,
}

/// A row on the screen, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScreenRow {
    pub(crate) cell: usize,
    pub(crate) row: usize,
    pub(crate) content: Row,
}

/// The size that the conversation is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    pub(crate) theme: Theme,
}

impl Conversation {
    pub(crate) fn push(&mut self, kind: CellKind) {
        let cell = Cell::new(kind, self.cells.last());
        self.cells.push(cell);
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut Cell> {
        self.cells.last_mut()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The cells, newest first, to be changed.
    pub(crate) fn newest_first_mut(&mut self) -> impl Iterator<Item = &mut Cell> {
        self.cells.iter_mut().rev()
    }

    /// The cells, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().rev()
    }

    pub(crate) fn is_following(&self) -> bool {
        self.anchor.is_none()
    }

    pub(crate) fn follow(&mut self) {
        self.anchor = None;
    }

    /// What is on the screen, from the top.
    pub(crate) fn visible(&self, size: Size) -> Vec<ScreenRow> {
        let (mut cell, mut first) = self.top(size);
        let mut out = Vec::with_capacity(size.rows);
        while out.len() < size.rows && cell < self.cells.len() {
            let rows = self.rows(cell, size);
            let seen = rows.iter().enumerate().skip(first).take(size.rows - out.len());
            out.extend(seen.map(|(row, content)| ScreenRow { cell, row, content: content.clone() }));
            (cell, first) = (cell + 1, 0);
        }
        self.sweep();
        out
    }

    /// The cell and its row that are on this line of the screen; of a line below the end, the last.
    pub(crate) fn spot(&self, line: usize, size: Size) -> Option<(usize, usize)> {
        let seen = self.visible(size);
        seen.get(line).or(seen.last()).map(|seen| (seen.cell, seen.row))
    }

    /// What is selected, as logical text.
    pub(crate) fn selected(&self, selection: Selection, size: Size) -> String {
        let (first, last) = selection.ends();
        let mut out = String::new();
        let mut is_first = true;
        for cell in first.cell..=last.cell {
            for (number, row) in self.rows(cell, size).iter().enumerate() {
                let Some(columns) = selection.columns(cell, number) else { continue };
                if !std::mem::take(&mut is_first) {
                    out.push_str(row.joint.text());
                }
                out.push_str(&row.slice(columns));
            }
        }
        out
    }

    /// The cells that will not change any more and are not printed yet count as printed from now on; their rows.
    pub(crate) fn print_settled(&mut self, is_idle: bool, size: Size) -> Vec<Row> {
        let mut out = Vec::new();
        while let Some(cell) = self.cells.get(self.printed) {
            let goes_on = |later: &Cell| {
                !matches!(later.kind(), CellKind::User(_) | CellKind::Notice(_) | CellKind::Ask(_))
            };
            let has_successor = self.cells.iter().skip(self.printed + 1).any(goes_on);
            if !is_idle && !cell.kind().is_settled(has_successor) {
                break;
            }
            out.extend(self.rows(self.printed, size).iter().cloned());
            self.printed += 1;
        }
        if !out.is_empty() {
            self.anchor = None;
        }
        out
    }

    /// How many rows are not printed yet, up to a cap.
    pub(crate) fn unprinted_rows(&self, size: Size) -> usize {
        let mut count = 0;
        for cell in (self.printed..self.cells.len()).rev() {
            count += self.rows(cell, size).len();
            if count >= size.rows {
                break;
            }
        }
        count.min(size.rows)
    }

    /// Moves the screen so many rows towards the beginning.
    pub(crate) fn scroll_up(&mut self, count: usize, size: Size) {
        let (mut cell, mut row) = self.top(size);
        let mut left = count;
        while left > 0 {
            if row >= left {
                row -= left;
                break;
            }
            left -= row;
            if cell <= self.printed {
                row = 0;
                break;
            }
            cell -= 1;
            row = self.rows(cell, size).len();
        }
        self.anchor_at(cell, row, size);
    }

    /// Moves the screen so many rows towards the end; at the end it is followed again.
    pub(crate) fn scroll_down(&mut self, count: usize, size: Size) {
        if self.anchor.is_none() {
            return;
        }
        let (mut cell, mut row) = self.top(size);
        row += count;
        while cell < self.cells.len() {
            let rows = self.rows(cell, size).len();
            if row < rows {
                break;
            }
            row -= rows;
            cell += 1;
        }
        self.anchor_at(cell, row, size);
    }

    /// To the very beginning.
    pub(crate) fn scroll_to_start(&mut self, size: Size) {
        self.anchor_at(self.printed, 0, size);
    }

    fn anchor_at(&mut self, cell: usize, row: usize, size: Size) {
        // At the end there is nothing to hold on to.
        if self.reaches_end(cell, row, size) {
            self.anchor = None;
            return;
        }
        let rows = self.rows(cell, size);
        let Some(here) = rows.iter().nth(row) else { return };
        let first = rows.iter().position(|other| other.source == here.source).unwrap_or(row);
        self.anchor = Some(Anchor { cell, source: here.source, within: row - first });
    }

    /// Whether a screen that begins here shows the end.
    fn reaches_end(&self, cell: usize, row: usize, size: Size) -> bool {
        let mut left = size.rows + row;
        for cell in cell..self.cells.len() {
            let rows = self.rows(cell, size).len();
            if rows > left {
                return false;
            }
            left -= rows;
        }
        true
    }

    /// The cell and the row in it that are at the top of the screen.
    fn top(&self, size: Size) -> (usize, usize) {
        if let Some(anchor) = self.anchor {
            let rows = self.rows(anchor.cell, size);
            let first = rows.iter().position(|row| row.source >= anchor.source).unwrap_or(0);
            let same = rows.iter().skip(first).take_while(|row| row.source == anchor.source).count();
            let row = first + anchor.within.min(same.saturating_sub(1));
            return (anchor.cell, row);
        }
        let mut left = size.rows;
        for cell in (self.printed..self.cells.len()).rev() {
            let rows = self.rows(cell, size).len();
            if rows >= left {
                return (cell, rows - left);
            }
            left -= rows;
        }
        (self.printed, 0)
    }

    fn rows(&self, cell: usize, size: Size) -> Rows {
        self.cells.get(cell).map_or_else(Rows::default, |cell| cell.rows(size.columns, size.theme))
    }

    /// Forgets layouts that were not used for a while.
    fn sweep(&self) {
        let drawn = self.drawn.get() + 1;
        self.drawn.set(drawn);
        if drawn.is_multiple_of(SWEEP_EVERY) {
            for cell in &self.cells {
                cell.sweep();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cells::{NoticeCell, Weight},
        theme::{Depth, Ground},
    };

    const SIZE: Size =
        Size { columns: 80, rows: 24, theme: Theme { depth: Depth::True, ground: Ground::Dark } };

    fn long() -> Conversation {
        let mut conversation = Conversation::default();
        for number in 0..10_000 {
            conversation.push(CellKind::Notice(NoticeCell::new(Weight::Info, &format!("line {number}"), "")));
        }
        conversation
    }

    fn laid_out(conversation: &Conversation) -> usize {
        conversation.cells.iter().filter(|cell| cell.is_laid_out()).count()
    }

    #[test]
    fn t13_a_frame_of_ten_thousand_cells_lays_out_one_screen() {
        let conversation = long();
        conversation.visible(SIZE);
        assert!(laid_out(&conversation) <= SIZE.rows, "{}", laid_out(&conversation));
        // The next frame, after a key, lays out nothing more.
        conversation.visible(Size { rows: SIZE.rows - 1, ..SIZE });
        assert!(laid_out(&conversation) <= SIZE.rows, "{}", laid_out(&conversation));
    }

    #[test]
    fn t16_what_was_scrolled_through_is_forgotten_again() {
        let mut conversation = long();
        conversation.scroll_to_start(SIZE);
        for _ in 0..600 {
            conversation.scroll_down(23, SIZE);
            conversation.visible(SIZE);
        }
        conversation.follow();
        for _ in 0..2 * SWEEP_EVERY {
            conversation.visible(SIZE);
        }
        assert!(laid_out(&conversation) <= SIZE.rows, "{}", laid_out(&conversation));
    }
}
