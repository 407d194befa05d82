//! Something failed, and what to do about it.

use ratatui::text::Span;

use super::Frame;
use crate::{
    sanitise,
    text::{Gutter, Row, Wrap},
    theme::TextRole,
};

/// A failure.
#[derive(Debug)]
pub(crate) struct Failed {
    message: String,
    hint: Option<String>,
}

impl Failed {
    pub(crate) fn new(message: &str, hint: Option<&str>) -> Self {
        Self { message: sanitise::block(message), hint: hint.map(sanitise::block) }
    }

    pub(super) fn rows(&self, frame: Frame) -> Vec<Row> {
        let theme = frame.theme;
        let mut rows = Vec::new();
        for (number, line) in self.message.lines().enumerate() {
            let mark =
                Gutter::mark(Span::styled(theme.mark("✗ error: ", "error: "), theme.style(TextRole::Bad)));
            let gutter = if number == 0 { mark } else { Gutter::blank(2) };
            rows.extend(frame.line(line, theme.style(TextRole::Bad), &gutter, Wrap::Words));
        }
        if let Some(hint) = &self.hint {
            let gutter = Gutter::mark(Span::styled("  hint: ", theme.style(TextRole::Dim)));
            let hint = hint.replace('\n', " ");
            rows.extend(frame.line(hint, theme.style(TextRole::Text), &gutter, Wrap::Words));
        }
        rows
    }
}
