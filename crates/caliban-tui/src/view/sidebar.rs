//! Background agents of the session: beside the conversation where there is room, else below it.

use caliban_core::status_word::{StatusTone, StatusWord};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use super::{
    put,
    status::{count, duration},
};
use crate::{
    events::{BackgroundRow, BackgroundStatus},
    sanitise,
    state::ScreenState,
    text::cut,
    theme::TextRole,
};

/// Beside the conversation: three rows for each.
pub(super) fn draw(state: &ScreenState, area: Rect, buffer: &mut Buffer) {
    let theme = state.theme;
    for y in area.y..area.bottom() {
        buffer.set_stringn(area.x - 1, y, "│", 1, theme.style(TextRole::Dim));
    }
    let width = usize::from(area.width);
    let mut lines: Vec<Line<'static>> =
        vec![Line::styled("background agents", theme.style(TextRole::Strong))];
    for row in &state.background {
        let (sign, word, role) = looks(row, state);
        lines.push(Line::default());
        let head = format!("{sign} {} ", row.id);
        let summary = cut(&sanitise::line(&row.summary), width.saturating_sub(head.chars().count()));
        lines.push(Line::from(vec![Span::styled(head, theme.style(role)), Span::raw(summary)]));
        let spent = format!("  {word} {} · {}", elapsed(row, state.wall_ms), spent(row));
        lines.push(Line::styled(cut(&spent, width), theme.style(TextRole::Dim)));
        if let Some(activity) = &row.activity {
            let text = cut(&format!("  {}", sanitise::line(activity)), width);
            lines.push(Line::styled(text, theme.style(TextRole::Dim)));
        }
    }
    let room = usize::from(area.height);
    if lines.len() > room && room > 0 {
        lines.truncate(room - 1);
        lines.push(Line::styled("…", theme.style(TextRole::Dim)));
    }
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        put(buffer, area, y, line);
    }
}

/// Below the conversation: one row for each.
pub(super) fn draw_rows(state: &ScreenState, area: Rect, buffer: &mut Buffer) {
    let hidden = state.background.len().saturating_sub(usize::from(area.height));
    // Those that run first: they are what one waits for.
    let (mut rows, ended): (Vec<&BackgroundRow>, Vec<&BackgroundRow>) =
        state.background.iter().partition(|row| row.status == BackgroundStatus::Running);
    rows.extend(ended);
    for (number, (row, y)) in rows.into_iter().zip(area.y..area.bottom()).enumerate() {
        let (sign, word, role) = looks(row, state);
        let more = if hidden > 0 && number + 1 == usize::from(area.height) {
            format!(" (and {hidden} more)")
        } else {
            String::new()
        };
        let text = format!(
            "{sign} {} {}  {word} {} · {}{more}",
            row.id,
            sanitise::line(&row.summary),
            elapsed(row, state.wall_ms),
            spent(row)
        );
        let style = state.theme.style(role);
        put(buffer, area, y, &Line::styled(cut(&text, area.width.into()), style));
    }
}

fn looks(row: &BackgroundRow, state: &ScreenState) -> (&'static str, String, TextRole) {
    let is_asking = row.status == BackgroundStatus::Running && state.asks.is_asked_by(&row.name());
    let (status, words) = if is_asking {
        (StatusWord::Asks, "waits for your answer".to_owned())
    } else {
        (row.status.status(), row.status.to_string())
    };
    let role = match status.tone() {
        StatusTone::Attention | StatusTone::Waiting => TextRole::Warn,
        StatusTone::Active => TextRole::Accent,
        StatusTone::Good => TextRole::Good,
        StatusTone::Bad => TextRole::Bad,
        StatusTone::Quiet => TextRole::Dim,
    };
    (status.icon(), words, role)
}

/// "12k tokens · 80k cached".
fn spent(row: &BackgroundRow) -> String {
    match row.cached {
        0 => format!("{} tokens", count(row.tokens)),
        cached => format!("{} tokens · {} cached", count(row.tokens), count(cached)),
    }
}

fn elapsed(row: &BackgroundRow, now: u64) -> String {
    duration(row.ended_ms.unwrap_or(now).saturating_sub(row.started_ms) / 1_000)
}
