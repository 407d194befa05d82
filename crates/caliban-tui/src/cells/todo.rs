//! The todo list of the agent, as it was when it was written.

use ratatui::{style::Modifier, text::Span};

use super::Frame;
use crate::{
    foreign,
    text::{Gutter, Row, Wrap, wrap},
    theme::Role,
};

/// How far an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Pending,
    Doing,
    Done,
}

/// The list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Todo {
    entries: Vec<(Step, String)>,
}

impl Todo {
    pub(crate) fn new(entries: impl IntoIterator<Item = (Step, String)>) -> Self {
        Self { entries: entries.into_iter().map(|(step, text)| (step, foreign::line(&text))).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn rows(&self, frame: Frame) -> Vec<Row> {
        let theme = frame.theme;
        let done = self.entries.iter().filter(|(step, _)| *step == Step::Done).count();
        let head = format!("todo: {done} of {} done", self.entries.len());
        let mut rows = wrap(
            &[Span::styled(head, theme.style(Role::Strong))],
            frame.columns,
            &Gutter::default(),
            Wrap::Words,
            0,
        );
        for (number, (step, text)) in self.entries.iter().enumerate() {
            let (glyph, style) = match step {
                Step::Pending => ("  ☐ ", theme.style(Role::Text)),
                Step::Doing => ("  ▶ ", theme.style(Role::Accent)),
                Step::Done => ("  ☑ ", theme.style(Role::Dim).add_modifier(Modifier::CROSSED_OUT)),
            };
            let gutter = Gutter::mark(Span::styled(glyph, theme.style(Role::Dim)));
            let source = u32::try_from(number + 1).unwrap_or(u32::MAX);
            let spans = [Span::styled(text.clone(), style)];
            rows.extend(wrap(&spans, frame.columns, &gutter, Wrap::Words, source));
        }
        rows
    }
}
