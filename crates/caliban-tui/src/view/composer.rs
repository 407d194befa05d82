//! The composer: a rule, and as many rows as the text needs up to a third of the screen.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    text::{Line, Span},
};

use super::{put, rule};
use crate::{
    composer::Composer,
    state::{Focus, ScreenState},
    theme::{TextRole, Theme},
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
    let role = if has_focus { TextRole::Accent } else { TextRole::Dim };
    let words = match (&state.title, state.composer.has_stash()) {
        (Some(title), true) => format!("{title} · a draft is put aside (Ctrl+S)"),
        (Some(title), false) => title.clone(),
        (None, true) => "a draft is put aside (Ctrl+S)".to_owned(),
        (None, false) => String::new(),
    };
    rule(buffer, area, area.y, &words, theme.style(role));
    let hint =
        if state.turn.is_running() { "Enter steers, Tab queues, Esc interrupts" } else { "Describe a task" };
    let text = Rect { y: area.y + 1, height: area.height - 1, ..area };
    draw_text(&state.composer, (MARK, role), hint, theme, text, buffer)
}

/// Draws a text that is typed, or a hint where nothing is; where the cursor is.
pub(crate) fn draw_text(
    text: &Composer,
    (mark, role): (&'static str, TextRole),
    hint: &str,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) -> Position {
    let laid = text.lay(columns(area.width));
    let room = usize::from(area.height).max(1);
    let (column, row) = laid.cursor;
    let first = (row + 1).saturating_sub(room);
    for ((number, line), y) in laid.rows.iter().enumerate().skip(first).zip(area.y..area.bottom()) {
        let mark = if number == 0 { mark } else { "  " };
        let mut spans = vec![Span::styled(mark, theme.style(role)), Span::raw(line.as_str())];
        if text.text().is_empty() {
            spans.push(Span::styled(hint, theme.style(TextRole::Dim)));
        }
        put(buffer, area, y, &Line::from(spans));
    }
    let x = u16::try_from(column + mark.len()).unwrap_or(u16::MAX);
    let below = u16::try_from(row - first).unwrap_or_default();
    let last = area.bottom().saturating_sub(1);
    Position::new(x.min(area.right().saturating_sub(1)), (area.y + below).min(last))
}
