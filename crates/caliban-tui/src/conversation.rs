//! The cells in their order, and which part of them is on the screen.
//!
//! Only what is on the screen is ever laid out: the view walks up from the end, or down from the anchor. The anchor is a
//! logical line of a cell, so it stays where it is when cells below grow and when the width changes.

use crate::{
    cells::{Cell, Kind, Rows},
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

/// The size that the conversation is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    pub(crate) theme: Theme,
}

impl Conversation {
    pub(crate) fn push(&mut self, kind: Kind) {
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
    pub(crate) fn visible(&self, size: Size) -> Vec<Row> {
        let (mut cell, mut row) = self.top(size);
        let mut out = Vec::with_capacity(size.rows);
        while out.len() < size.rows && cell < self.cells.len() {
            let rows = self.rows(cell, size);
            out.extend(rows.iter().skip(row).take(size.rows - out.len()).cloned());
            (cell, row) = (cell + 1, 0);
        }
        self.sweep();
        out
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
            if cell == 0 {
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
        self.anchor_at(0, 0, size);
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
        for cell in (0..self.cells.len()).rev() {
            let rows = self.rows(cell, size).len();
            if rows >= left {
                return (cell, rows - left);
            }
            left -= rows;
        }
        (0, 0)
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
