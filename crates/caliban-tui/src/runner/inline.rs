//! The screen without the alternate screen: what is finished is printed once, into the terminal's own scrollback, and never
//! touched again. Below it is a live area: what is not finished, the composer and the status.
//!
//! No scroll regions. The cursor moves only inside the live area.

use std::io::{self, Write};

use ratatui::{
    buffer::Buffer,
    layout::Position,
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

/// Prints on a terminal.
pub(super) struct Inline<W: Write> {
    out: W,
    /// The live area as it is on the terminal, and where the cursor is in it.
    live: Option<(Vec<String>, Position)>,
}

impl<W: Write> Inline<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, live: None }
    }

    /// The live area is not on the terminal any more.
    pub(super) fn forget(&mut self) {
        self.live = None;
    }

    /// Prints finished lines and draws the live area below them; how many bytes that took.
    pub(super) fn paint(
        &mut self,
        finished: &[Line<'_>],
        frame: &Buffer,
        cursor: Position,
    ) -> io::Result<usize> {
        let live: Vec<String> = lines(frame).iter().map(ansi).collect();
        if finished.is_empty() && self.live.as_ref().is_some_and(|shown| *shown == (live.clone(), cursor)) {
            return Ok(0);
        }
        let mut bytes = self.erased();
        for line in finished {
            bytes.push_str(&ansi(line));
            bytes.push_str("\r\n");
        }
        bytes.push_str(&live.join("\r\n"));
        let below = live.len().saturating_sub(1).saturating_sub(cursor.y.into());
        if below > 0 {
            bytes.push_str(&format!("\x1b[{below}A"));
        }
        bytes.push_str(&format!("\r\x1b[{}G\x1b[?25h", cursor.x + 1));
        self.out.write_all(bytes.as_bytes())?;
        self.out.flush()?;
        self.live = Some((live, cursor));
        Ok(bytes.len())
    }

    /// Takes the live area off the terminal.
    pub(super) fn erase(&mut self) -> io::Result<()> {
        let bytes = self.erased();
        self.live = None;
        self.out.write_all(bytes.as_bytes())?;
        self.out.flush()
    }

    fn erased(&self) -> String {
        match &self.live {
            Some((_, cursor)) if cursor.y > 0 => format!("\x1b[?25l\x1b[{}A\r\x1b[J", cursor.y),
            Some(_) => "\x1b[?25l\r\x1b[J".to_owned(),
            None => "\r".to_owned(),
        }
    }
}

/// The rows of a buffer, trailing blanks cut.
fn lines(frame: &Buffer) -> Vec<Line<'static>> {
    let area = frame.area;
    (area.y..area.bottom())
        .map(|y| {
            let mut spans: Vec<Span<'static>> = Vec::new();
            let mut skip = 0;
            for x in area.x..area.right() {
                let Some(cell) = frame.cell((x, y)) else { continue };
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                skip = crate::text::columns(cell.symbol()).saturating_sub(1);
                match spans.last_mut() {
                    Some(last) if last.style == cell.style() => last.content.to_mut().push_str(cell.symbol()),
                    _ => spans.push(Span::styled(cell.symbol().to_owned(), cell.style())),
                }
            }
            while let Some(last) = spans.last_mut() {
                if last.style.add_modifier.contains(Modifier::REVERSED) {
                    break;
                }
                let kept = last.content.trim_end().len();
                last.content.to_mut().truncate(kept);
                if !last.content.is_empty() {
                    break;
                }
                spans.pop();
            }
            Line::from(spans)
        })
        .collect()
}

/// A line with its looks as escape sequences.
fn ansi(line: &Line<'_>) -> String {
    let mut out = String::new();
    for span in &line.spans {
        let codes = codes(line.style.patch(span.style));
        if codes.is_empty() {
            out.push_str(&span.content);
        } else {
            out.push_str(&format!("\x1b[{}m{}\x1b[0m", codes.join(";"), span.content));
        }
    }
    out
}

fn codes(style: Style) -> Vec<String> {
    let modifiers = [
        (Modifier::BOLD, "1"),
        (Modifier::DIM, "2"),
        (Modifier::ITALIC, "3"),
        (Modifier::UNDERLINED, "4"),
        (Modifier::REVERSED, "7"),
        (Modifier::CROSSED_OUT, "9"),
    ];
    let set = modifiers.iter().filter(|(modifier, _)| style.add_modifier.contains(*modifier));
    let mut codes: Vec<String> = set.map(|(_, code)| (*code).to_owned()).collect();
    let named = |code: u8| Some(code.to_string());
    codes.extend(style.fg.and_then(|colour| match colour {
        Color::Reset => None,
        Color::Black => named(30),
        Color::Red => named(31),
        Color::Green => named(32),
        Color::Yellow => named(33),
        Color::Blue => named(34),
        Color::Magenta => named(35),
        Color::Cyan => named(36),
        Color::Gray => named(37),
        Color::DarkGray => named(90),
        Color::LightRed => named(91),
        Color::LightGreen => named(92),
        Color::LightYellow => named(93),
        Color::LightBlue => named(94),
        Color::LightMagenta => named(95),
        Color::LightCyan => named(96),
        Color::White => named(97),
        Color::Indexed(index) => Some(format!("38;5;{index}")),
        Color::Rgb(red, green, blue) => Some(format!("38;2;{red};{green};{blue}")),
    }));
    codes
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;

    fn frame(rows: &[&str]) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 30, u16::try_from(rows.len()).unwrap()));
        for (y, row) in (0_u16..).zip(rows) {
            buffer.set_string(0, y, row, Style::new());
        }
        buffer
    }

    #[test]
    fn t08_what_is_finished_is_in_the_scrollback_once_and_the_live_area_is_below_it() {
        let mut inline = Inline::new(Vec::new());
        let mut expected = Vec::new();
        for number in 0..58 {
            let finished: Vec<Line<'_>> =
                if number % 2 == 0 { vec![Line::raw(format!("line {number}"))] } else { vec![] };
            expected.extend(finished.iter().map(ToString::to_string));
            let draft = format!("> draft {number}");
            let rows: &[&str] =
                if number % 3 == 0 { &["streams 漢字", &draft, "status"] } else { &[&draft, "status"] };
            let y = u16::try_from(rows.len() - 2).unwrap();
            inline.paint(&finished, &frame(rows), Position::new(3, y)).unwrap();
        }
        let unchanged = inline
            .paint(&[], &frame(&["streams 漢字", "> draft 57", "status"]), Position::new(3, 1))
            .unwrap();
        assert_eq!(unchanged, 0);
        let mut terminal = vt100::Parser::new(24, 30, 100);
        terminal.process(&inline.out);
        terminal.screen_mut().set_scrollback(100);
        let mut all: Vec<String> =
            terminal.screen().rows(0, 30).map(|row| row.trim_end().to_owned()).collect();
        terminal.screen_mut().set_scrollback(0);
        let mut screen: Vec<String> =
            terminal.screen().rows(0, 30).map(|row| row.trim_end().to_owned()).collect();
        // A live area that has shrunk leaves room below it.
        while screen.last().is_some_and(String::is_empty) {
            screen.pop();
        }
        assert_eq!(screen[screen.len() - 3..], ["streams 漢字", "> draft 57", "status"]);
        all.extend(screen);
        for line in expected {
            assert!(all.contains(&line), "{line}: {all:?}");
        }
        assert_eq!(all.iter().filter(|row| row.contains("status")).count(), 1, "{all:?}");
        assert_eq!(terminal.screen().cursor_position().1, 3);
        assert!(!String::from_utf8_lossy(&inline.out).contains("\x1b[?1049h"));
    }
}
