//! What the program has to say beside the conversation.

use ratatui::text::Span;

use super::Frame;
use crate::{
    sanitise,
    text::{Gutter, Row, Wrap, cut, wrap},
    theme::TextRole,
};

/// Lines of the details that are shown before it is expanded.
const DETAILS: usize = 6;

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Info,
    Warning,
}

/// A notice.
#[derive(Debug)]
pub(crate) struct NoticeCell {
    weight: Weight,
    title: String,
    details: String,
}

impl NoticeCell {
    pub(crate) fn new(weight: Weight, title: &str, details: &str) -> Self {
        Self { weight, title: sanitise::line(title), details: sanitise::block(details.trim_end()) }
    }

    pub(super) fn rows(&self, frame: Frame) -> Vec<Row> {
        let theme = frame.theme;
        let (mark, role) = match self.weight {
            Weight::Info => (theme.mark("· ", "note: "), TextRole::Dim),
            Weight::Warning => (theme.mark("! ", "warning: "), TextRole::Warn),
        };
        let gutter = Gutter::mark(Span::styled(mark, theme.style(role)));
        let mut rows = wrap(
            &[Span::styled(self.title.clone(), theme.style(role))],
            frame.columns,
            &gutter,
            Wrap::Words,
            0,
        );
        let lines: Vec<&str> = self.details.lines().collect();
        let shown = if frame.is_expanded { lines.len() } else { lines.len().min(DETAILS) };
        for (number, line) in lines.iter().take(shown).enumerate() {
            let source = u32::try_from(number + 1).unwrap_or(u32::MAX);
            let spans = [Span::styled((*line).to_owned(), theme.style(TextRole::Dim))];
            rows.extend(wrap(&spans, frame.columns, &Gutter::blank(2), Wrap::Words, source));
        }
        if shown < lines.len() {
            let text = cut(&format!("… {} more lines (Ctrl+O)", lines.len() - shown), frame.columns);
            let spans = [Span::styled(text, theme.style(TextRole::Dim))];
            rows.extend(wrap(&spans, frame.columns, &Gutter::blank(2), Wrap::Anywhere, 0));
        }
        rows
    }
}
