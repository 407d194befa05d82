//! What the model says: markdown that streams in.

use caliban_core::inert;
use ratatui::text::Line;

use super::{Frame, Parts};
use crate::{markdown::Stream, sanitise, text::Row, theme::Depth};

/// An answer.
#[derive(Debug, Default)]
pub(crate) struct Assistant {
    id: Option<String>,
    /// Whether a command of the session says it, and no model.
    is_of_command: bool,
    stream: Stream,
    /// A joiner at the end of a piece is judged with the next piece.
    pieces: inert::Pieces,
}

impl Assistant {
    pub(crate) fn new(id: Option<&str>) -> Self {
        Self { id: id.map(str::to_owned), ..Self::default() }
    }

    /// What a command of the session says.
    pub(crate) fn of_command() -> Self {
        Self { is_of_command: true, ..Self::default() }
    }

    /// Whether a command of the session says it, and no model.
    pub(crate) fn is_of_command(&self) -> bool {
        self.is_of_command
    }

    /// Whether a chunk with this message id belongs here.
    pub(crate) fn is(&self, id: Option<&str>) -> bool {
        self.id.as_deref() == id
    }

    pub(crate) fn push(&mut self, text: &str) {
        let safe = self.pieces.block(text);
        self.stream.push(&sanitise::block(&safe));
    }

    /// The answer as the model wrote it, made safe.
    pub(crate) fn source(&self) -> &str {
        self.stream.source()
    }

    pub(super) fn parts(&self, frame: Frame) -> Parts {
        let mut parts = self.stream.rows(frame.columns, frame.theme);
        if frame.theme.depth == Depth::Words {
            let label = Row { line: Line::raw("agent:"), ..Row::blank(0) };
            parts.insert(0, vec![label].into());
        }
        parts
    }
}
