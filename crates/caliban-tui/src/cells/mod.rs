//! The pieces of a conversation, one file for each kind. A cell knows its content and how that becomes rows; the clock,
//! the scroll position and its neighbours are not its business.

mod ask;
mod assistant;
mod diff;
mod error;
mod notice;
mod thinking;
mod todo;
mod tool;
mod user;

use std::{
    cell::{Cell as Shared, RefCell},
    rc::Rc,
};

use ratatui::{style::Style, text::Span};

pub(crate) use self::{
    ask::AskCell,
    assistant::Assistant,
    error::Failed,
    notice::{NoticeCell, Weight},
    thinking::Thinking,
    todo::{Todo, TodoStep},
    tool::{Tool, ToolStatus},
    user::User,
};
use crate::{
    text::{Gutter, Joint, Row, Wrap, wrap},
    theme::Theme,
};

/// What a cell is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) columns: usize,
    pub(crate) theme: Theme,
    pub(crate) is_expanded: bool,
}

impl Frame {
    /// One logical line in one style. Its number comes later, when the cell is whole.
    fn line(self, text: impl Into<String>, style: Style, gutter: &Gutter, how: Wrap) -> Vec<Row> {
        wrap(&[Span::styled(text.into(), style)], self.columns, gutter, how, 0)
    }
}

/// Rows in parts, so that those which did not change are shared.
pub(crate) type Parts = Vec<Rc<[Row]>>;

/// What a cell is.
#[derive(Debug)]
pub(crate) enum CellKind {
    User(User),
    Assistant(Assistant),
    Thinking(Thinking),
    Tool(Box<Tool>),
    Todo(Todo),
    Ask(AskCell),
    Notice(NoticeCell),
    Failed(Failed),
}

impl CellKind {
    fn parts(&self, frame: Frame) -> Parts {
        let mut rows = match self {
            Self::User(cell) => cell.rows(frame),
            Self::Assistant(cell) => return cell.parts(frame),
            Self::Thinking(cell) => cell.rows(frame),
            Self::Tool(cell) => cell.rows(frame),
            Self::Todo(cell) => cell.rows(frame),
            Self::Ask(cell) => cell.rows(frame),
            Self::Notice(cell) => cell.rows(frame),
            Self::Failed(cell) => cell.rows(frame),
        };
        // Each logical line has a number of its own, in order: an anchor finds it again.
        let mut number = 0;
        for row in &mut rows {
            number += u32::from(row.joint == Joint::Hard);
            row.source = number;
        }
        vec![rows.into()]
    }

    /// Whether it stands right below a cell of the same sort.
    fn is_tight(&self) -> bool {
        matches!(self, Self::Tool(_) | Self::Thinking(_) | Self::Ask(_))
    }

    /// Whether it will not change any more. `has_successor` says that the agent has gone on to something else.
    pub(crate) fn is_settled(&self, has_successor: bool) -> bool {
        match self {
            Self::User(_) | Self::Todo(_) | Self::Ask(_) | Self::Notice(_) | Self::Failed(_) => true,
            Self::Assistant(_) | Self::Thinking(_) => has_successor,
            Self::Tool(tool) => matches!(tool.status, ToolStatus::Done | ToolStatus::Failed),
        }
    }

    /// Whether it says more when it is expanded.
    fn can_expand(&self) -> bool {
        matches!(self, Self::Tool(_) | Self::Thinking(_) | Self::Notice(_))
    }
}

/// One piece of the conversation.
#[derive(Debug)]
pub(crate) struct Cell {
    kind: CellKind,
    revision: u64,
    is_expanded: bool,
    /// Whether a blank row stands before it.
    has_gap: bool,
    layout: RefCell<Option<Layout>>,
    /// Set when it was laid out since the last sweep.
    is_used: Shared<bool>,
}

#[derive(Debug, Clone)]
struct Layout {
    revision: u64,
    frame: Frame,
    parts: Rc<Parts>,
    rows: usize,
}

impl Cell {
    /// A cell below `above`.
    pub(crate) fn new(kind: CellKind, above: Option<&Cell>) -> Self {
        let has_gap = above.is_some_and(|above| !(above.kind.is_tight() && kind.is_tight()));
        Self {
            kind,
            revision: 0,
            is_expanded: false,
            has_gap,
            layout: RefCell::default(),
            is_used: Shared::default(),
        }
    }

    pub(crate) fn kind(&self) -> &CellKind {
        &self.kind
    }

    /// Its content, to be changed: it is laid out anew.
    pub(crate) fn kind_mut(&mut self) -> &mut CellKind {
        self.revision += 1;
        &mut self.kind
    }

    pub(crate) fn can_expand(&self) -> bool {
        self.kind.can_expand()
    }

    pub(crate) fn is_expanded(&self) -> bool {
        self.is_expanded
    }

    pub(crate) fn expand(&mut self, is_expanded: bool) {
        self.is_expanded = is_expanded;
    }

    /// Its rows for this width and theme, the gap before it included.
    pub(crate) fn rows(&self, columns: usize, theme: Theme) -> Rows {
        let frame = Frame { columns, theme, is_expanded: self.is_expanded };
        self.is_used.set(true);
        let mut layout = self.layout.borrow_mut();
        match &*layout {
            Some(known) if known.revision == self.revision && known.frame == frame => {}
            _ => {
                let mut parts = self.kind.parts(frame);
                if self.has_gap {
                    parts.insert(0, vec![Row::blank(0)].into());
                }
                let rows = parts.iter().map(|part| part.len()).sum();
                *layout = Some(Layout { revision: self.revision, frame, parts: Rc::new(parts), rows });
            }
        }
        layout
            .as_ref()
            .map_or_else(Rows::default, |layout| Rows { parts: layout.parts.clone(), count: layout.rows })
    }

    #[cfg(test)]
    pub(crate) fn is_laid_out(&self) -> bool {
        self.layout.borrow().is_some()
    }

    /// Forgets its layout when it was not used since the last sweep.
    pub(crate) fn sweep(&self) {
        if !self.is_used.replace(false) {
            *self.layout.borrow_mut() = None;
        }
    }
}

/// The rows of one cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    parts: Rc<Parts>,
    count: usize,
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.parts.iter().flat_map(|part| part.iter())
    }
}
