//! A change as added and removed lines, in colour and with signs.

use std::time::Duration;

use ratatui::text::Span;
use similar::{ChangeTag, TextDiff};

use super::Frame;
use crate::{
    text::{Gutter, Row, Wrap},
    theme::TextRole,
};

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// A comparison that takes longer is less exact.
const LIMIT: Duration = Duration::from_millis(100);

/// The rows of a change. Without `old` the whole file is new.
pub(super) fn rows(old: Option<&str>, new: &str, frame: Frame) -> Vec<Row> {
    let diff = TextDiff::configure().timeout(LIMIT).diff_lines(old.unwrap_or_default(), new);
    let mut rows = Vec::new();
    let mut put = |sign: &'static str, text: &str, role: TextRole| {
        let style = frame.theme.style(role);
        let gutter = Gutter { first: vec![Span::raw("    ")], rest: vec![Span::raw("      ")] };
        let line = format!("{sign}{}", text.trim_end_matches('\n'));
        rows.extend(frame.line(line, style, &gutter, Wrap::Anywhere));
    };
    for (number, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if number > 0 {
            put("", "⋮", TextRole::Dim);
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let text = change.value();
            match change.tag() {
                ChangeTag::Insert => put("+ ", text, TextRole::Added),
                ChangeTag::Delete => put("- ", text, TextRole::Removed),
                ChangeTag::Equal => put("  ", text, TextRole::Text),
            }
        }
    }
    rows
}
