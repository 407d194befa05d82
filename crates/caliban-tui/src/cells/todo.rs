//! The todo list of the agent, as it was when it was written.

use ratatui::{style::Modifier, text::Span};

use super::Frame;
use crate::{
    sanitise,
    text::{Gutter, Row, Wrap},
    theme::TextRole,
};

/// How far an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TodoStep {
    Pending,
    Doing,
    Done,
}

/// The list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Todo {
    entries: Vec<(TodoStep, String)>,
}

impl Todo {
    pub(crate) fn new(entries: impl IntoIterator<Item = (TodoStep, String)>) -> Self {
        Self { entries: entries.into_iter().map(|(step, text)| (step, sanitise::line(&text))).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn rows(&self, frame: Frame) -> Vec<Row> {
        let theme = frame.theme;
        let done = self.entries.iter().filter(|(step, _)| *step == TodoStep::Done).count();
        let head = format!("todo: {done} of {} done", self.entries.len());
        let mut rows = frame.line(head, theme.style(TextRole::Strong), &Gutter::default(), Wrap::Words);
        for (step, text) in &self.entries {
            let (glyph, style) = match step {
                TodoStep::Pending => ("  ☐ ", theme.style(TextRole::Text)),
                TodoStep::Doing => ("  ▶ ", theme.style(TextRole::Accent)),
                TodoStep::Done => ("  ☑ ", theme.style(TextRole::Dim).add_modifier(Modifier::CROSSED_OUT)),
            };
            let gutter = Gutter::mark(Span::styled(glyph, theme.style(TextRole::Dim)));
            rows.extend(frame.line(text.clone(), style, &gutter, Wrap::Words));
        }
        rows
    }
}
