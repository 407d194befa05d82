//! A tool call: one line that expands, with the last lines of what it gives out and the change that it makes.

use ratatui::text::Span;

use super::{Frame, diff};
use crate::{
    sanitise,
    text::{Gutter, Row, Wrap, cut, wrap},
    theme::TextRole,
};

/// Lines of output that are shown of a call that is not expanded.
const TAIL: usize = 5;
/// Rows of a change that are shown of a call that is not expanded.
const CHANGE: usize = 16;
/// Of longer output the first and the last lines are kept.
const KEPT_BYTES: usize = 1024 * 1024;
/// So many of each.
const KEPT_LINES: usize = 50;

/// How far a call is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ToolStatus {
    #[default]
    Announced,
    Running,
    Done,
    Failed,
}

/// A call.
#[derive(Debug, Default)]
pub(crate) struct Tool {
    id: String,
    title: String,
    pub(crate) status: ToolStatus,
    /// Whether its output is worth a look without being asked for.
    pub(crate) shows_output: bool,
    output: String,
    change: Option<EditedText>,
    /// How it ended, in a few words.
    summary: String,
}

#[derive(Debug)]
struct EditedText {
    old: Option<String>,
    new: String,
}

impl Tool {
    pub(crate) fn new(id: &str, title: &str) -> Self {
        Self { id: id.to_owned(), title: sanitise::line(title), ..Self::default() }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn set_title(&mut self, title: &str) {
        self.title = sanitise::line(title);
    }

    pub(crate) fn set_summary(&mut self, summary: &str) {
        self.summary = sanitise::line(summary);
    }

    pub(crate) fn set_output(&mut self, output: &str) {
        self.output = sanitise::block(&bounded(output));
    }

    /// The change that it makes; without `old` the file is new.
    pub(crate) fn set_change(&mut self, old: Option<&str>, new: &str) {
        self.change = Some(EditedText { old: old.map(sanitise::block), new: sanitise::block(new) });
    }

    pub(super) fn rows(&self, frame: Frame) -> Vec<Row> {
        let theme = frame.theme;
        let (glyph, role) = match self.status {
            ToolStatus::Announced => (theme.mark("· ", "call: "), TextRole::Dim),
            ToolStatus::Running => (theme.mark("▶ ", "running: "), TextRole::Accent),
            ToolStatus::Done => (theme.mark("✓ ", "done: "), TextRole::Good),
            ToolStatus::Failed => (theme.mark("✗ ", "failed: "), TextRole::Bad),
        };
        let gutter = Gutter::mark(Span::styled(glyph, theme.style(role)));
        let mut summary = match (self.status, self.summary.as_str()) {
            (ToolStatus::Failed, "") => "failed".to_owned(),
            (_, summary) => summary.to_owned(),
        };
        if !summary.is_empty() {
            summary = format!("  {summary}");
        }
        let room = frame.columns.saturating_sub(2);
        let title = if frame.is_expanded {
            self.title.clone()
        } else {
            let summary = cut(&summary, room / 2).chars().count();
            cut(&self.title, room.saturating_sub(summary).max(room / 2))
        };
        let style =
            theme.style(if self.status == ToolStatus::Failed { TextRole::Bad } else { TextRole::Dim });
        if !frame.is_expanded {
            summary = cut(&summary, room.saturating_sub(title.chars().count()));
        }
        let spans = [Span::styled(title, theme.style(TextRole::Strong)), Span::styled(summary, style)];
        let mut rows = wrap(&spans, frame.columns, &gutter, Wrap::Anywhere, 0);
        if let Some(change) = self.change.as_ref().filter(|_| self.status != ToolStatus::Failed) {
            let all = diff::rows(change.old.as_deref(), &change.new, frame);
            let shown = if frame.is_expanded || all.len() <= CHANGE { all.len() } else { CHANGE };
            let hidden = all.len() - shown;
            rows.extend(all.into_iter().take(shown));
            if hidden > 0 {
                rows.push(more(&format!("… {hidden} more lines (Ctrl+O)"), frame));
            }
        }
        rows.extend(self.output_rows(frame));
        rows
    }

    fn output_rows(&self, frame: Frame) -> Vec<Row> {
        let lines: Vec<&str> = self.output.trim_end().lines().collect();
        let is_open = frame.is_expanded || self.status == ToolStatus::Failed || self.shows_output;
        if lines.is_empty() || !is_open {
            return Vec::new();
        }
        let shown = if frame.is_expanded { lines.len() } else { TAIL.min(lines.len()) };
        let hidden = lines.len() - shown;
        let mut rows = Vec::new();
        if hidden > 0 {
            rows.push(more(&format!("… {hidden} lines before (Ctrl+O)"), frame));
        }
        let style = frame.theme.style(TextRole::Dim);
        let room = frame.columns.saturating_sub(4);
        for line in lines.into_iter().skip(hidden) {
            let line = if frame.is_expanded { line.to_owned() } else { cut(line, room) };
            rows.extend(frame.line(line, style, &Gutter::blank(4), Wrap::Anywhere));
        }
        rows
    }
}

fn more(text: &str, frame: Frame) -> Row {
    let spans = [Span::styled(text.to_owned(), frame.theme.style(TextRole::Dim))];
    let rows = wrap(&spans, frame.columns.max(5), &Gutter::blank(4), Wrap::Anywhere, 0);
    rows.into_iter().next().unwrap_or_else(|| Row::blank(0))
}

/// Output of bounded size: of a long one, the first and the last lines.
fn bounded(output: &str) -> std::borrow::Cow<'_, str> {
    if output.len() <= KEPT_BYTES {
        return output.into();
    }
    let lines: Vec<&str> = output.lines().collect();
    let hidden = lines.len().saturating_sub(2 * KEPT_LINES);
    let first = lines.iter().take(KEPT_LINES).copied();
    let last = lines.iter().skip(lines.len().saturating_sub(KEPT_LINES).max(KEPT_LINES)).copied();
    let gap = format!("… {hidden} lines not kept …");
    first.chain([gap.as_str()]).chain(last).collect::<Vec<_>>().join("\n").into()
}
