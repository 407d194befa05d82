//! What the model thinks: folded to one line, whole when expanded.

use ratatui::{style::Modifier, text::Span};

use super::Frame;
use crate::{
    sanitise,
    text::{Gutter, Row, Wrap, cut},
    theme::TextRole,
};

/// Thoughts.
#[derive(Debug, Default)]
pub(crate) struct Thinking {
    text: String,
}

impl Thinking {
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(&sanitise::block(text));
    }

    pub(super) fn rows(&self, frame: Frame) -> Vec<Row> {
        let style = frame.theme.style(TextRole::Dim).add_modifier(Modifier::ITALIC);
        let gutter = Gutter::mark(Span::styled(frame.theme.mark("∴ ", ""), style));
        let text = self.text.trim();
        if !frame.is_expanded {
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            let words = text.split_whitespace().count();
            let line = format!("thinking ({words} words): {}", last.trim());
            let line = cut(&line, frame.columns.saturating_sub(2));
            return frame.line(line, style, &gutter, Wrap::Anywhere);
        }
        let gutters = std::iter::once(gutter).chain(std::iter::repeat_with(|| Gutter::blank(2)));
        let lines = text.lines().zip(gutters);
        lines.flat_map(|(line, gutter)| frame.line(line, style, &gutter, Wrap::Words)).collect()
    }
}
