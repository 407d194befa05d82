//! What is selected with the mouse: logical text, without gutters, with soft wraps joined. Pure.

use std::ops::Range;

use super::ScreenState;
use crate::{
    events::{MouseAction, ScreenEffect},
    view::areas,
};

/// A place in the conversation, as it is laid out for the present width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) cell: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// From where the button was pressed to where the pointer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selection {
    from: Spot,
    to: Spot,
}

impl Selection {
    fn is_empty(self) -> bool {
        self.from == self.to
    }

    /// The first and the last place, both included.
    pub(crate) fn ends(self) -> (Spot, Spot) {
        (self.from.min(self.to), self.from.max(self.to))
    }

    /// The columns of this row that are selected.
    pub(crate) fn columns(self, cell: usize, row: usize) -> Option<Range<usize>> {
        let (first, last) = self.ends();
        let here = (cell, row);
        if here < (first.cell, first.row) || here > (last.cell, last.row) || self.is_empty() {
            return None;
        }
        let start = if here == (first.cell, first.row) { first.column } else { 0 };
        let end = if here == (last.cell, last.row) { last.column + 1 } else { usize::MAX };
        Some(start..end)
    }
}

impl ScreenState {
    /// A button of the mouse was pressed, moved or released at this place of the screen.
    pub(super) fn mouse(&mut self, action: MouseAction, x: u16, y: u16) -> Vec<ScreenEffect> {
        let area = areas(self).conversation;
        if area.height == 0 || area.width == 0 {
            return Vec::new();
        }
        let size = self.conversation_size();
        let column = usize::from(x.min(area.right() - 1) - area.x);
        let line = usize::from(y.min(area.bottom() - 1).saturating_sub(area.y));
        let spot = self.conversation.spot(line, size).map(|(cell, row)| Spot { cell, row, column });
        match (action, spot) {
            (MouseAction::Down, spot) => {
                let is_inside = y < area.bottom() && x < area.right();
                self.selection = spot.filter(|_| is_inside).map(|spot| Selection { from: spot, to: spot });
            }
            (MouseAction::Drag, Some(spot)) => {
                if let Some(selection) = &mut self.selection {
                    selection.to = spot;
                }
            }
            (MouseAction::Up, _) => {
                self.selection = self.selection.filter(|selection| !selection.is_empty());
                if self.look.copy_on_select {
                    return self.copy_selection(false);
                }
            }
            (MouseAction::Drag, None) => {}
        }
        Vec::new()
    }

    /// Copies what is selected, if anything is.
    pub(super) fn copy_selection(&mut self, clears: bool) -> Vec<ScreenEffect> {
        let Some(selection) = self.selection.filter(|selection| !selection.is_empty()) else {
            return Vec::new();
        };
        let text = self.conversation.selected(selection, self.conversation_size());
        if clears {
            self.selection = None;
        }
        if text.is_empty() { Vec::new() } else { vec![ScreenEffect::Copy(text)] }
    }

    pub(super) fn has_selection(&self) -> bool {
        self.selection.is_some_and(|selection| !selection.is_empty())
    }
}
