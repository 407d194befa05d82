//! What became of a question: the record that stays in the conversation.

use ratatui::text::Span;

use super::Frame;
use crate::{
    sanitise,
    text::{Gutter, Row, Wrap},
    theme::TextRole,
};

/// An answered question.
#[derive(Debug)]
pub(crate) struct AskCell {
    text: String,
    is_allowed: bool,
}

impl AskCell {
    pub(crate) fn new(text: &str, is_allowed: bool) -> Self {
        Self { text: sanitise::line(text), is_allowed }
    }

    pub(super) fn rows(&self, frame: Frame) -> Vec<Row> {
        let role = if self.is_allowed { TextRole::Good } else { TextRole::Warn };
        let gutter =
            Gutter::mark(Span::styled(frame.theme.mark("? ", "question: "), frame.theme.style(role)));
        frame.line(self.text.clone(), frame.theme.style(TextRole::Dim), &gutter, Wrap::Words)
    }
}
