//! The state as a screen. Pure: the same state gives the same cells.

pub(crate) mod composer;
pub(crate) mod dialog;
mod popup;
mod sidebar;
mod status;

use std::time::{Duration, Instant};

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    style::Style,
    text::{Line, Span},
};

pub(crate) use self::{composer::columns as composer_columns, dialog::call_height, status::spent};
use crate::{
    cells::Frame,
    state::{Focus, PopupKind, ScreenState},
    theme::{Depth, TextRole},
};

/// How often the spinner turns.
pub(crate) const SPINNER_EVERY: Duration = Duration::from_millis(125);
/// From this width on the sidebar stands beside the conversation.
const SIDEBAR_FROM: u16 = 120;
/// Its width.
const SIDEBAR: u16 = 35;
/// The most rows of the todo panel.
const TODO_ROWS: u16 = 10;
/// The most rows of background agents below the conversation.
const STACKED_ROWS: u16 = 4;

/// Where everything is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) conversation: Rect,
    pub(crate) sidebar: Option<Rect>,
    todo: Option<Rect>,
    stacked: Option<Rect>,
    pub(crate) dialog: Option<Rect>,
    banner: Option<Rect>,
    popup: Option<Rect>,
    activity: Rect,
    queue: Rect,
    composer: Rect,
    status: Rect,
}

/// Divides the screen. From the bottom: status, composer, queue, activity, lists and questions; the rest is the
/// conversation.
pub(crate) fn areas(state: &ScreenState) -> Areas {
    let (width, height) = state.size;
    let mut areas = Areas::default();
    let mut left = height;
    let mut take = |rows: u16| {
        let rows = rows.min(left);
        left -= rows;
        Rect::new(0, left, width, rows)
    };
    areas.status = take(1);
    areas.composer = take(composer::height(state));
    areas.queue = take(u16::try_from(state.queue.len().min(3)).unwrap_or(3));
    areas.activity = take(1);
    let third = (height / 3).max(1);
    if let Some(popup) = &state.popup {
        // A text to read may use the screen; a list leaves the conversation in sight.
        let most = if popup.kind == PopupKind::Text { height.saturating_sub(8).max(6) } else { third.max(6) };
        let rows = u16::try_from(popup.items.len() + 1).unwrap_or(u16::MAX).min(most);
        areas.popup = Some(take(rows));
    }
    if !state.asks.is_empty() {
        if state.focus == Focus::Ask {
            areas.dialog = Some(take(dialog::height(&state.asks, state.theme, width, height / 2 + 1)));
        } else {
            areas.banner = Some(take(1));
        }
    }
    if state.shows_todo && !state.todo.is_empty() {
        let rows = u16::try_from(todo_rows(state, width).len()).unwrap_or(u16::MAX);
        areas.todo = Some(take(rows.min(TODO_ROWS).min(third)));
    }
    let mut columns = width;
    if !state.background.is_empty() {
        if width >= SIDEBAR_FROM {
            columns = width - SIDEBAR - 1;
            areas.sidebar = Some(Rect::new(columns + 1, 0, SIDEBAR, left));
        } else {
            let rows = u16::try_from(state.background.len()).unwrap_or(u16::MAX).min(STACKED_ROWS);
            areas.stacked = Some(take(rows.min(third)));
        }
    }
    areas.conversation = Rect::new(0, 0, columns, left);
    areas
}

/// How many lines of a list above the composer are on the screen.
pub(crate) fn popup_rows(state: &ScreenState) -> usize {
    areas(state).popup.map_or(1, |area| usize::from(area.height.saturating_sub(1)).max(1))
}

/// Draws the state; where the cursor is.
pub fn draw(state: &ScreenState, now: Instant, buffer: &mut Buffer) -> Position {
    let areas = areas(state);
    conversation(state, areas.conversation, buffer);
    if let Some(area) = areas.sidebar {
        sidebar::draw(state, area, buffer);
    }
    if let Some(area) = areas.stacked {
        sidebar::draw_rows(state, area, buffer);
    }
    if let Some(area) = areas.todo {
        for (row, y) in todo_rows(state, area.width).iter().zip(area.y..area.bottom()) {
            put(buffer, area, y, &row.line);
        }
    }
    if let Some(area) = areas.banner {
        dialog::draw_banner(state, area, buffer);
    }
    let in_dialog = areas
        .dialog
        .and_then(|area| dialog::draw(&state.asks, (state.typed(), now), state.theme, area, buffer));
    if let Some(area) = areas.popup {
        popup::draw(state, area, buffer);
    }
    status::draw_activity(state, now, areas.activity, buffer);
    queue(state, areas.queue, buffer);
    let caret = composer::draw(state, areas.composer, buffer);
    status::draw(state, areas.status, buffer);
    if state.theme.depth == Depth::Words {
        // Somebody listens: a line of dashes says nothing.
        for cell in buffer.content.iter_mut().filter(|cell| cell.symbol() == "─") {
            cell.set_symbol(" ");
        }
    }
    in_dialog.unwrap_or(caret)
}

fn conversation(state: &ScreenState, area: Rect, buffer: &mut Buffer) {
    if state.conversation.is_empty() {
        return welcome(state, area, buffer);
    }
    let size = state.conversation_size();
    for (seen, y) in state.conversation.visible(size).iter().zip(area.y..area.bottom()) {
        put(buffer, area, y, &seen.content.line);
        if let Some(columns) = state.selection.and_then(|selection| selection.columns(seen.cell, seen.row)) {
            let text = crate::text::width(&seen.content.line.spans);
            let end = columns.end.min(text).min(area.width.into());
            let gutter =
                crate::text::width(seen.content.line.spans.get(..seen.content.gutter).unwrap_or_default());
            for x in columns.start.max(gutter)..end {
                let x = area.x + u16::try_from(x).unwrap_or(u16::MAX);
                buffer[(x, y)].set_style(state.theme.style(TextRole::Chosen));
            }
        }
    }
    if !state.conversation.is_following() && area.height > 1 {
        let text = " ↓ more below, Ctrl+End ";
        let width = u16::try_from(text.chars().count()).unwrap_or_default().min(area.width);
        let style = state.theme.style(TextRole::Chosen);
        buffer.set_stringn(area.right() - width, area.bottom() - 1, text, width.into(), style);
    }
}

fn welcome(state: &ScreenState, area: Rect, buffer: &mut Buffer) {
    let theme = state.theme;
    let facts = &state.facts;
    let lines = [
        Line::styled(format!("caliban {}", facts.version), theme.style(TextRole::Heading)),
        Line::styled(facts.place.clone(), theme.style(TextRole::Dim)),
        Line::default(),
        Line::raw("Say what to do. /help lists keys and commands, @ names a file, Ctrl+D leaves."),
    ];
    for (line, y) in lines.iter().zip(area.y + 1..area.bottom()) {
        put(buffer, area, y, line);
    }
}

fn queue(state: &ScreenState, area: Rect, buffer: &mut Buffer) {
    let style = state.theme.style(TextRole::Dim);
    let hidden = state.queue.len().saturating_sub(usize::from(area.height));
    for ((number, draft), y) in state.queue.iter().enumerate().skip(hidden).zip(area.y..area.bottom()) {
        let more =
            if number == hidden && hidden > 0 { format!(" (and {hidden} before)") } else { String::new() };
        let text = format!("queued{more}: {}  Alt+↑ takes it back", crate::sanitise::line(&draft.shown()));
        put(buffer, area, y, &Line::styled(crate::text::cut(&text, area.width.into()), style));
    }
}

fn todo_rows(state: &ScreenState, width: u16) -> Vec<crate::text::Row> {
    let frame = Frame { columns: width.into(), theme: state.theme, is_expanded: true };
    state.todo.rows(frame)
}

/// One line at the left of an area.
pub(crate) fn put(buffer: &mut Buffer, area: Rect, y: u16, line: &Line<'_>) {
    buffer.set_line(area.x, y, line, area.width);
}

/// A rule across an area, with words in it.
pub(crate) fn rule(buffer: &mut Buffer, area: Rect, y: u16, words: &str, style: Style) {
    let width = usize::from(area.width);
    let words = crate::text::cut(words, width.saturating_sub(4));
    let text = if words.is_empty() { String::new() } else { format!("── {words} ") };
    let used = ratatui::text::Span::raw(text.as_str()).width();
    let line = format!("{text}{}", "─".repeat(width.saturating_sub(used)));
    put(buffer, area, y, &Line::from(Span::styled(line, style)));
}
