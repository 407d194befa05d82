//! How frames come to the terminal: on its alternate screen, or below what is printed into its own scrollback.

use std::{io, time::Instant};

use ratatui::{buffer::Buffer, layout::Rect};

use super::{inline::Inline, painter::Painter};
use crate::{state::ScreenState, view};

/// Rows of the conversation that stay on the terminal after leaving the alternate screen.
const LEFT_ROWS: usize = 200;

pub(super) enum Presenter {
    Alternate(Painter<io::Stdout>),
    /// With the height of the terminal.
    Inline(Inline<io::Stdout>, u16),
}

impl Presenter {
    pub(super) fn new(is_alternate: bool, size: (u16, u16)) -> Self {
        if is_alternate {
            Self::Alternate(Painter::new(io::stdout(), size))
        } else {
            Self::Inline(Inline::new(io::stdout()), size.1)
        }
    }

    pub(super) fn resized(&mut self, rows: u16) {
        if let Self::Inline(_, height) = self {
            *height = rows;
        }
    }

    /// What is on the terminal is unknown: the next frame is drawn whole.
    pub(super) fn repaint(&mut self) {
        match self {
            Self::Alternate(painter) => painter.repaint(),
            Self::Inline(inline, _) => inline.forget(),
        }
    }

    /// Somebody else gets the terminal. Best effort: it may be gone.
    pub(super) fn give_way(&mut self) {
        if let Self::Inline(inline, _) = self {
            let _gone = inline.erase();
        }
    }

    /// Draws the state.
    pub(super) fn draw(&mut self, state: &mut ScreenState, now: Instant) -> io::Result<()> {
        match self {
            Self::Alternate(painter) => {
                let mut frame = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
                let cursor = view::draw(state, now, &mut frame);
                painter.paint(frame, cursor)?;
            }
            Self::Inline(inline, height) => {
                let finished: Vec<_> = state.print_settled().into_iter().map(|row| row.line).collect();
                state.size.1 = state.live_height(*height);
                let mut frame = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
                let cursor = view::draw(state, now, &mut frame);
                inline.paint(&finished, &frame, cursor)?;
            }
        }
        Ok(())
    }

    /// What goes into the terminal's scrollback when the screen is left.
    pub(super) fn rest(&mut self, state: &mut ScreenState) -> Vec<String> {
        match self {
            Self::Alternate(_) => state.last_lines(LEFT_ROWS),
            Self::Inline(..) => state.print_rest().iter().map(|row| row.line.to_string()).collect(),
        }
    }
}
