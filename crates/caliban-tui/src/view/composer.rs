//! The composer: a rule, and as many rows as the text needs up to a third of the screen.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    text::{Line, Span},
};

use super::{put, rule};
use crate::{
    state::{Focus, ScreenState},
    theme::TextRole,
};

/// Before the text.
const MARK: &str = "> ";

/// How many columns a text has on a screen of this width.
pub(crate) fn columns(width: u16) -> usize {
    usize::from(width.saturating_sub(3)).max(1)
}

/// How many rows it takes.
pub(super) fn height(state: &ScreenState) -> u16 {
    let rows = state.composer.lay(columns(state.size.0)).rows.len();
    let most = (state.size.1 / 3).max(2);
    u16::try_from(rows + 1).unwrap_or(u16::MAX).min(most)
}

/// Draws it; where the cursor is.
pub(super) fn draw(state: &ScreenState, area: Rect, buffer: &mut Buffer) -> Position {
    if area.height == 0 {
        return Position::new(0, area.y.saturating_sub(1));
    }
    let theme = state.theme;
    let has_focus = state.focus == Focus::Composer;
    let style = theme.style(if has_focus { TextRole::Accent } else { TextRole::Dim });
    let words = match (&state.title, state.composer.has_stash()) {
        (Some(title), true) => format!("{title} · a draft is put aside (Ctrl+S)"),
        (Some(title), false) => title.clone(),
        (None, true) => "a draft is put aside (Ctrl+S)".to_owned(),
        (None, false) => String::new(),
    };
    rule(buffer, area, area.y, &words, style);
    let laid = state.composer.lay(columns(area.width));
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    let (column, row) = laid.cursor;
    let first = (row + 1).saturating_sub(room);
    let y = area.y + 1;
    for ((number, text), y) in laid.rows.iter().enumerate().skip(first).take(room).zip(y..area.bottom()) {
        let mark = if number == 0 { MARK } else { "  " };
        let mut spans = vec![Span::styled(mark, style), Span::raw(text.as_str())];
        if number == 0 && state.composer.text().is_empty() {
            let hint = if state.turn.is_running() {
                "Enter steers, Tab queues, Esc interrupts"
            } else {
                "what shall I do?"
            };
            spans.push(Span::styled(hint, theme.style(TextRole::Dim)));
        }
        put(buffer, area, y, &Line::from(spans));
    }
    let x = u16::try_from(column + MARK.len()).unwrap_or(u16::MAX);
    let below = u16::try_from(row - first).unwrap_or_default();
    Position::new(x.min(area.right().saturating_sub(1)), (y + below).min(area.bottom().saturating_sub(1)))
}
