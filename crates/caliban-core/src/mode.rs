//! What is allowed when no rule says anything: the permission mode, its words and their one parser.
//!
//! Settings, flags, specs, the editor protocol and the rules all use this type. What a mode means for a call is decided
//! in `caliban-permissions`.

use crate::{inert, text_form::known_by_name};

/// The permission mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Reading inside the project is allowed, everything else asks.
    #[default]
    Default,
    /// Also writing files inside the project.
    AcceptEdits,
    /// The same, and nobody is ever asked: what stays in the fence runs, the rest is refused.
    NeverAsk,
    /// Nothing that changes anything.
    Plan,
    /// Everything that no rule denies.
    Unattended,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Default, Self::AcceptEdits, Self::NeverAsk, Self::Plan, Self::Unattended];

    /// All of them, as they are written.
    pub const NAMES: [&str; 5] = [
        Self::ALL[0].name(),
        Self::ALL[1].name(),
        Self::ALL[2].name(),
        Self::ALL[3].name(),
        Self::ALL[4].name(),
    ];

    /// Whether files inside the project, and commands in the edit fence, need no question.
    #[must_use]
    pub const fn accepts_edits(self) -> bool {
        matches!(self, Self::AcceptEdits | Self::NeverAsk)
    }

    /// Of two, the one that allows less.
    #[must_use]
    pub fn narrower(self, other: Self) -> Self {
        let width = |mode: &Self| match mode {
            Self::Plan => 0,
            Self::Default => 1,
            Self::AcceptEdits => 2,
            Self::NeverAsk => 3,
            Self::Unattended => 4,
        };
        [self, other].into_iter().min_by_key(width).unwrap_or(Self::Plan)
    }

    /// What it means, as every place says it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Default => "reads inside the project, asks before anything else",
            Self::AcceptEdits => "also writes files inside the project and runs what stays in the fence",
            Self::NeverAsk => "never asks: does what stays in the fence, refuses the rest",
            Self::Plan => "changes nothing",
            Self::Unattended => "does everything that no rule denies, without a fence",
        }
    }

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "accept-edits",
            Self::NeverAsk => "never-ask",
            Self::Plan => "plan",
            Self::Unattended => "unattended",
        }
    }
}

/// No such mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no permission mode {}; expected {}", inert::quoted(.0), Mode::NAMES.join(", "))]
pub struct ModeError(String);

known_by_name!(Mode, ModeError);
