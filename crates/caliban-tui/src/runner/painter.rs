//! Brings frames to the terminal: only what has changed, in one write, and nothing when nothing has.

use std::io::{self, Write};

use ratatui::{
    backend::{Backend as _, CrosstermBackend},
    buffer::Buffer,
    layout::{Position, Rect},
};

const BEGIN: &[u8] = b"\x1b[?2026h\x1b[?25l";
const END: &[u8] = b"\x1b[?25h\x1b[?2026l";
const CLEAR: &[u8] = b"\x1b[0m\x1b[2J";

/// Draws on a terminal.
pub(crate) struct Painter<W: Write> {
    out: W,
    shown: Buffer,
    cursor: Option<Position>,
    /// Whether what is on the terminal is unknown.
    is_stale: bool,
}

impl<W: Write> Painter<W> {
    pub(crate) fn new(out: W, size: (u16, u16)) -> Self {
        let area = Rect::new(0, 0, size.0, size.1);
        Self { out, shown: Buffer::empty(area), cursor: None, is_stale: true }
    }

    /// The next frame is drawn whole.
    pub(crate) fn repaint(&mut self) {
        self.is_stale = true;
    }

    /// Brings a frame to the terminal; how many bytes that took.
    pub(crate) fn paint(&mut self, frame: Buffer, cursor: Position) -> io::Result<usize> {
        let mut bytes = Vec::new();
        if self.is_stale || self.shown.area != frame.area {
            // Not inside the synchronized block: some terminals drop what follows a clear there.
            bytes.extend_from_slice(CLEAR);
            self.shown = Buffer::empty(frame.area);
            self.cursor = None;
            self.is_stale = false;
        }
        let changes = self.shown.diff(&frame);
        if changes.is_empty() && self.cursor == Some(cursor) && bytes.is_empty() {
            return Ok(0);
        }
        bytes.extend_from_slice(BEGIN);
        let mut backend = CrosstermBackend::new(&mut bytes);
        backend.draw(changes.into_iter())?;
        backend.set_cursor_position(cursor)?;
        bytes.extend_from_slice(END);
        self.out.write_all(&bytes)?;
        self.out.flush()?;
        self.shown = frame;
        self.cursor = Some(cursor);
        Ok(bytes.len())
    }

    #[cfg(test)]
    pub(crate) fn into_inner(self) -> W {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::*;

    fn frame(lines: &[&str]) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 40, 10));
        for (y, line) in (0_u16..).zip(lines) {
            buffer.set_string(0, y, line, Style::new());
        }
        buffer
    }

    #[test]
    fn t12_a_frame_without_a_change_writes_nothing() {
        let mut painter = Painter::new(Vec::new(), (40, 10));
        let cursor = Position::new(2, 9);
        assert!(painter.paint(frame(&["one", "two"]), cursor).unwrap() > 0);
        assert_eq!(painter.paint(frame(&["one", "two"]), cursor).unwrap(), 0);
        assert!(painter.paint(frame(&["one", "two"]), Position::new(3, 9)).unwrap() > 0);
    }

    #[test]
    fn t11_the_bytes_of_a_streamed_frame_are_bounded() {
        let mut painter = Painter::new(Vec::new(), (40, 10));
        let cursor = Position::new(2, 9);
        painter.paint(frame(&["an answer that"]), cursor).unwrap();
        let bytes = painter.paint(frame(&["an answer that goes on"]), cursor).unwrap();
        assert!(bytes < 100, "{bytes} bytes for eight letters");
    }

    #[test]
    fn what_is_painted_is_what_a_terminal_shows() {
        let mut painter = Painter::new(Vec::new(), (40, 10));
        let cursor = Position::new(5, 3);
        let frames: [&[&str]; 4] =
            [&["first", "second 漢字 line"], &["first, longer", "", "third"], &["x"], &["漢字漢字", "end"]];
        let mut last: &[&str] = &[];
        for (number, lines) in frames.into_iter().enumerate() {
            painter.paint(frame(lines), cursor).unwrap();
            if number == 2 {
                painter.repaint();
            }
            last = lines;
        }
        let mut terminal = vt100::Parser::new(10, 40, 0);
        terminal.process(&painter.into_inner());
        let shown = terminal.screen().contents();
        assert_eq!(shown.trim_end(), last.join("\n"));
        assert_eq!(terminal.screen().cursor_position(), (3, 5));
        assert!(!terminal.screen().hide_cursor());
    }
}
