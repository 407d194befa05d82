//! What the program has to say beside the conversation.

use ratatui::text::Span;

use super::Frame;
use crate::{
    sanitise,
    text::{Gutter, Row, Wrap, cut},
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
        let mut rows = frame.line(self.title.clone(), theme.style(role), &gutter, Wrap::Words);
        let lines: Vec<&str> = self.details.lines().collect();
        let shown = if frame.is_expanded { lines.len() } else { lines.len().min(DETAILS) };
        let (dim, blank) = (theme.style(TextRole::Dim), Gutter::blank(2));
        for line in lines.iter().take(shown) {
            rows.extend(frame.line(*line, dim, &blank, Wrap::Words));
        }
        if shown < lines.len() {
            let text = cut(&format!("… {} more lines (Ctrl+O)", lines.len() - shown), frame.columns);
            rows.extend(frame.line(text, dim, &blank, Wrap::Anywhere));
        }
        rows
    }
}
