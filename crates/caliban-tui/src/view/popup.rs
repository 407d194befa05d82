//! Lists above the composer.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use super::{put, rule};
use crate::{
    state::{PopupKind, ScreenState},
    text::cut,
    theme::TextRole,
};

pub(super) fn draw(state: &ScreenState, area: Rect, buffer: &mut Buffer) {
    let Some(popup) = state.popup.as_ref().filter(|_| area.height > 0) else { return };
    let theme = state.theme;
    let room = usize::from(area.height - 1).max(1);
    let is_text = popup.kind == PopupKind::Text;
    // A text scrolls by its first line, a list by what is chosen.
    let first = if is_text {
        popup.chosen.min(popup.items.len().saturating_sub(room))
    } else {
        (popup.chosen + 1).saturating_sub(room)
    };
    let more = popup.items.len().saturating_sub(first + room);
    let title = if more > 0 { format!("{} · {more} more", popup.title) } else { popup.title.clone() };
    rule(buffer, area, area.y, &title, theme.style(TextRole::Dim));
    let items = popup.items.iter().enumerate().skip(first).take(room);
    for ((number, (_, text)), y) in items.zip(area.y + 1..area.bottom()) {
        let is_chosen = !is_text && number == popup.chosen;
        let mark = if is_chosen { "› " } else { "  " };
        let style = theme.style(if is_chosen { TextRole::Chosen } else { TextRole::Text });
        put(buffer, area, y, &Line::styled(cut(&format!("{mark}{text}"), area.width.into()), style));
    }
}
