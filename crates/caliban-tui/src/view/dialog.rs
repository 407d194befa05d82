//! The question of the agent: a banner while the composer has the keys, a dialog when it has them itself.

use std::time::Instant;

use caliban_core::kept_rules::KeepFor;
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;

use super::{put, rule};
use crate::{
    asks::{Asks, Keeping, Unready},
    sanitise,
    state::ScreenState,
    text::cut,
    theme::{TextRole, Theme},
};

/// Rows of the dialog that are not the call: its head, why, which rule, the keys.
const AROUND: u16 = 4;

/// How many rows of the call a dialog of this size shows.
pub(crate) fn call_height(area: Rect) -> usize {
    area.height.saturating_sub(AROUND).into()
}

/// How many rows the dialog takes.
pub(crate) fn height(asks: &Asks, theme: Theme, width: u16, most: u16) -> u16 {
    let rows = asks.first().map_or(0, |open| open.rows(width.into(), theme).len());
    u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(AROUND).min(most.max(AROUND + 1))
}

/// One line that says that something is asked.
pub(super) fn draw_banner(state: &ScreenState, area: Rect, buffer: &mut Buffer) {
    let Some(open) = state.asks.first() else { return };
    let count = state.asks.len();
    let word = if count == 1 { "question" } else { "questions" };
    let who =
        open.asked.agent.as_deref().map(|agent| format!("{}: ", sanitise::line(agent))).unwrap_or_default();
    let head = format!("? {count} {word} (Tab) ");
    let text =
        cut(&format!("{who}{}", open.asked.title()), usize::from(area.width).saturating_sub(head.width()));
    let spans = vec![
        Span::styled(head, state.theme.style(TextRole::Warn).patch(state.theme.style(TextRole::Chosen))),
        Span::raw(" "),
        Span::styled(text, state.theme.style(TextRole::Warn)),
    ];
    put(buffer, area, area.y, &Line::from(spans));
}

/// The dialog; where the cursor is when a reason is written. `typed` is when the person last typed something.
pub(crate) fn draw(
    asks: &Asks,
    (typed, now): (Option<Instant>, Instant),
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) -> Option<Position> {
    let open = asks.first()?;
    // A screen without room shows nothing, and nothing can be allowed on it.
    if area.height <= AROUND {
        return None;
    }
    let warn = theme.style(TextRole::Warn);
    let asked = &open.asked;
    let who = asked.agent.as_deref().map_or("the agent".to_owned(), sanitise::line);
    let others = match asks.len() {
        0 | 1 => String::new(),
        count => format!(", 1 of {count}, Tab shows the next"),
    };
    let rows = open.rows(area.width.into(), theme);
    let height = call_height(area);
    let first = open.first_row(rows.len(), height);
    let below = rows.len().saturating_sub(first + height);
    // With this frame the end is seen: what is left is to read it.
    let may_allow = match open.may_allow(typed, now) {
        Err(Unready::EndUnseen) if below == 0 => Err(Unready::Wait),
        other => other,
    };
    let hint = match may_allow {
        Ok(()) => "",
        Err(Unready::Wait) => " (wait a moment)",
        Err(Unready::EndUnseen) => " (scroll to its end to allow it)",
        Err(Unready::TooLong) => " (too long to be shown whole: it can only be refused here)",
    };
    rule(buffer, area, area.y, &format!("{who} asks{others}{hint}"), warn);
    for (row, y) in rows.iter().skip(first).take(height).zip(area.y + 1..) {
        put(buffer, area, y, &row.line);
    }
    let bottom = area.bottom();
    let more = if below > 0 { format!("  ↓ {below} more lines, PgDn") } else { String::new() };
    let why = format!("  {}{more}", sanitise::line(&asked.why));
    put(buffer, area, bottom - 3, &Line::styled(cut(&why, area.width.into()), theme.style(TextRole::Dim)));
    let rules = match (asked.rules.as_slice(), asked.outside.as_slice()) {
        ([], []) => "  there is no rule that could allow this always",
        // They stand below the call, and are seen.
        _ if below == 0 => "",
        _ => "  what `always` adds is listed at the end of the call",
    };
    put(buffer, area, bottom - 2, &Line::styled(cut(rules, area.width.into()), theme.style(TextRole::Dim)));
    if let Some(keeping) = &open.keeping {
        return Some(draw_keeping(keeping, theme, area, buffer));
    }
    if let Some(reason) = &open.reason {
        let head = "  refuse, and say: ";
        let room = usize::from(area.width).saturating_sub(head.width() + 1);
        let skip = reason.chars().count().saturating_sub(room);
        let text: String = sanitise::line(reason).chars().skip(skip).collect();
        let x = u16::try_from(head.width() + text.width()).unwrap_or(u16::MAX).min(area.right() - 1);
        let spans = vec![Span::styled(head, warn), Span::raw(text)];
        put(buffer, area, bottom - 1, &Line::from(spans));
        return Some(Position::new(x, bottom - 1));
    }
    let (may, is_read) = (may_allow == Ok(()), open.is_read(typed, now));
    let (always, outside) = (!asked.rules.is_empty(), !asked.outside.is_empty());
    let can = [may, may && always, may && outside, is_read, is_read, true];
    let fits = |line: &Line<'_>| line.width() <= usize::from(area.width);
    let [long, middle, short] = KEYS.map(|words| keys(words, can, theme));
    let widest = [&long, &middle].into_iter().find(|line| fits(line)).unwrap_or(&short);
    put(buffer, area, bottom - 1, widest);
    None
}

/// The rules that "always" adds, to be looked at and changed, in the last three rows; where the cursor is.
fn draw_keeping(keeping: &Keeping, theme: Theme, area: Rect, buffer: &mut Buffer) -> Position {
    let (bottom, width) = (area.bottom(), usize::from(area.width));
    let blank = Line::raw(" ".repeat(width));
    (1..=3).for_each(|up| put(buffer, area, bottom - up, &blank));
    let help = "  Enter allows it and adds the rule   Tab changes for how long   Esc back";
    put(buffer, area, bottom - 3, &Line::styled(cut(help, width), theme.style(TextRole::Dim)));
    let mut spans = vec![Span::raw("  for:  ")];
    for keep in KeepFor::ALL {
        let is_chosen = keep == keeping.keep;
        let (mark, role) = if is_chosen { ("●", TextRole::Strong) } else { ("○", TextRole::Dim) };
        spans.push(Span::styled(format!("{mark} {}   ", keep.words()), theme.style(role)));
    }
    put(buffer, area, bottom - 2, &Line::from(spans));
    let head = "  rule: ";
    let [before, behind] = keeping.parts().map(|part| sanitise::line(&part));
    let room = width.saturating_sub(head.width() + 1);
    // The end of what is before the cursor is always seen.
    let skip = before.chars().count().saturating_sub(room);
    let before: String = before.chars().skip(skip).collect();
    let x = u16::try_from(head.width() + before.width()).unwrap_or(u16::MAX).min(area.right() - 1);
    let text = cut(&format!("{before}{behind}"), room + 1);
    let spans = vec![Span::styled(head, theme.style(TextRole::Warn)), Span::raw(text)];
    put(buffer, area, bottom - 1, &Line::from(spans));
    Position::new(x, bottom - 1)
}

/// The keys of the dialog, and the same for a narrow screen. The places of `y` and `n` differ from width to width, never
/// from question to question.
const KEYS: [[&str; 6]; 3] = [
    [
        "y allow once   ",
        "a always   ",
        "o always, outside the fence   ",
        "n refuse   ",
        "or type what to do instead   ",
        "Esc back",
    ],
    ["y allow once  ", "a always  ", "o outside  ", "n refuse  ", "or type what to do instead  ", "Esc"],
    ["y allow  ", "a always  ", "o outside  ", "n refuse  ", "or type why  ", "Esc"],
];

fn keys(words: [&'static str; 6], can: [bool; 6], theme: Theme) -> Line<'static> {
    let word = |(word, can): (&'static str, bool)| {
        Span::styled(word, theme.style(if can { TextRole::Strong } else { TextRole::Dim }))
    };
    [Span::raw("  ")].into_iter().chain(words.into_iter().zip(can).map(word)).collect()
}
