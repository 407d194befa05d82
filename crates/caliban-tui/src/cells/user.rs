//! What a person said; or a parent agent or a hook, which is named.

use ratatui::text::Span;

use super::Frame;
use crate::{
    sanitise,
    text::{Gutter, Row, Wrap, wrap},
    theme::TextRole,
};

/// A message to the agent.
#[derive(Debug)]
pub(crate) struct User {
    text: String,
    author: Option<String>,
}

impl User {
    pub(crate) fn new(text: &str, author: Option<&str>) -> Self {
        Self { text: sanitise::block(text.trim_end()), author: author.map(sanitise::line) }
    }

    pub(super) fn rows(&self, frame: Frame) -> Vec<Row> {
        let style = frame.theme.style(TextRole::User);
        let author = self.author.as_ref().map(|author| format!("[{author}] "));
        let mut rows = Vec::new();
        for (number, line) in self.text.split('\n').enumerate() {
            let gutter = if number == 0 {
                Gutter::mark(Span::styled(frame.theme.mark("> ", "you: "), style))
            } else {
                Gutter::blank(2)
            };
            let mut spans = Vec::new();
            if let Some(author) = author.as_ref().filter(|_| number == 0) {
                spans.push(Span::styled(author.clone(), frame.theme.style(TextRole::Dim)));
            }
            spans.push(Span::styled(line.to_owned(), style));
            rows.extend(wrap(&spans, frame.columns, &gutter, Wrap::Words, 0));
        }
        rows
    }
}
