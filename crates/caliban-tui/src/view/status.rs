//! The line at the bottom, and the line that says what is waited for.

use std::time::Instant;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;

use super::put;
use crate::{
    sanitise,
    state::{Focus, ScreenState, TurnPhase},
    text::cut,
    theme::{Depth, TextRole},
};

const SPINNER: [&str; 8] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧"];
/// Boxes of the meter.
const METER: u64 = 8;

/// What is waited for and since when; or something to say.
pub(super) fn draw_activity(state: &ScreenState, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.theme;
    let width = usize::from(area.width);
    let toast = state.toast.as_ref().map(|(text, _)| sanitise::line(text));
    let Some(since) = state.turn.since() else {
        if let Some(toast) = toast {
            put(buffer, area, area.y, &Line::styled(cut(&toast, width), theme.style(TextRole::Warn)));
        } else if let Some(command) = &state.shell.running {
            let text = sanitise::line(&format!("running !{command} · Esc ends it"));
            put(buffer, area, area.y, &Line::styled(cut(&text, width), theme.style(TextRole::Accent)));
        } else if state.is_opening() {
            put(buffer, area, area.y, &Line::styled("opening the session …", theme.style(TextRole::Dim)));
        }
        return;
    };
    let elapsed = now.saturating_duration_since(since);
    let turn = usize::try_from(elapsed.as_millis() / super::SPINNER_EVERY.as_millis()).unwrap_or_default();
    // A question is open: nothing moves before somebody answers.
    let (sign, what) = if state.asks.is_empty() {
        let what = match state.turn.phase() {
            TurnPhase::Model => "waiting for the model".to_owned(),
            TurnPhase::Thinking => "the model thinks".to_owned(),
            TurnPhase::Writing => "the model writes".to_owned(),
            TurnPhase::Tool(title) => format!("running {title}"),
            TurnPhase::Waiting(why) => why,
            TurnPhase::Stopping => "interrupting".to_owned(),
        };
        (if state.is_unfocused { "·" } else { SPINNER[turn % SPINNER.len()] }, what)
    } else {
        ("?", "waiting for your answer".to_owned())
    };
    let head = match theme.depth {
        Depth::Words => String::new(),
        _ => format!("{sign} {} ", duration(elapsed.as_secs())),
    };
    let tail = toast.unwrap_or_else(|| match (state.asks.is_empty(), state.focus) {
        (true, _) => "Esc interrupts".to_owned(),
        (false, Focus::Composer) => "Tab shows the question".to_owned(),
        (false, Focus::Ask) => "Esc goes back to the draft".to_owned(),
    });
    let room = width.saturating_sub(head.width() + tail.width() + 3);
    let line = Line::from(vec![
        Span::styled(head, theme.style(TextRole::Accent)),
        Span::raw(cut(&what, room.max(10))),
        Span::styled(format!(" · {tail}"), theme.style(TextRole::Dim)),
    ]);
    put(buffer, area, area.y, &line);
}

/// Model, mode, window, tokens, cost, branch. What does not fit is left out, the least needed first.
pub(super) fn draw(state: &ScreenState, area: Rect, buffer: &mut Buffer) {
    let theme = state.theme;
    let mut parts: Vec<(u8, Span<'static>)> = Vec::new();
    let dim = theme.style(TextRole::Dim);
    if state.is_gone {
        parts.push((0, Span::styled("agent gone", theme.style(TextRole::Bad))));
    }
    if let Some(attached) = &state.facts.attached {
        parts.push((
            2,
            Span::styled(format!("attached to {}", sanitise::line(attached)), theme.style(TextRole::Accent)),
        ));
    }
    if state.only_watches {
        parts.push((0, Span::styled("decides nothing", theme.style(TextRole::Warn))));
    }
    if let Some(mode) = &state.mode {
        let role = if mode == crate::state::UNATTENDED { TextRole::Warn } else { TextRole::Accent };
        parts.push((0, Span::styled(sanitise::line(mode), theme.style(role))));
    }
    if let Some(model) = &state.model {
        let effort = state.effort.as_ref().filter(|effort| *effort != "default");
        let effort = effort.map(|effort| format!(", effort {effort}")).unwrap_or_default();
        parts.push((1, Span::styled(sanitise::line(&format!("{model}{effort}")), dim)));
    }
    if let Some((used, size)) = state.window.filter(|(_, size)| *size > 0) {
        let percent = used.saturating_mul(100) / size;
        let full = (used.saturating_mul(METER) / size).min(METER);
        let boxes = "▰".repeat(usize::try_from(full).unwrap_or_default())
            + &"▱".repeat(usize::try_from(METER - full).unwrap_or_default());
        let role = if percent >= 80 { TextRole::Warn } else { TextRole::Dim };
        let text = match theme.depth {
            Depth::Words => format!("context {percent}%"),
            _ => format!("context {boxes} {percent}%"),
        };
        parts.push((3, Span::styled(text, theme.style(role))));
    }
    if state.tokens > 0 {
        parts.push((4, Span::styled(format!("{} tokens", count(state.tokens)), dim)));
    }
    if let Some(cost) = state.cost.filter(|cost| *cost > 0.0) {
        parts.push((2, Span::styled(format!("${cost:.2}"), dim)));
    }
    if let Some(branch) = &state.facts.branch {
        parts.push((5, Span::styled(sanitise::line(branch), dim)));
    }
    let width = |parts: &[(u8, Span<'_>)]| -> usize {
        parts.iter().map(|(_, span)| span.content.width()).sum::<usize>() + 3 * parts.len().saturating_sub(1)
    };
    while width(&parts) > usize::from(area.width) && parts.len() > 1 {
        let least = parts.iter().enumerate().max_by_key(|(_, (rank, _))| *rank).map(|(at, _)| at);
        parts.remove(least.unwrap_or_default());
    }
    let mut spans = Vec::new();
    for (number, (_, span)) in parts.into_iter().enumerate() {
        if number > 0 {
            spans.push(Span::styled(" · ", dim));
        }
        spans.push(span);
    }
    put(buffer, area, area.y, &Line::from(spans));
}

/// What the session has used, in lines.
pub(crate) fn spent(state: &ScreenState) -> Vec<String> {
    let mut lines = vec![format!("tokens, cache included: {}", grouped(state.tokens))];
    if let Some((used, size)) = state.window {
        lines.push(format!("in the model's window: {} of {}", grouped(used), grouped(size)));
    }
    lines.push(match state.cost {
        Some(cost) => format!("cost: ${cost:.4}"),
        None => "cost: not known for this model".to_owned(),
    });
    lines
}

/// Seconds for people.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// A count for people: 950, 12.3k, 4.5M.
pub(super) fn count(number: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", number / unit, number % unit / (unit / 10));
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{}k", tenths(1_000)),
        _ => format!("{}M", tenths(1_000_000)),
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
