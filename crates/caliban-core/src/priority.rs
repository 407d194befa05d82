//! Who comes first: the priority of an agent, and how its requests stand at a rate limit.
//!
//! The one home of the order. The daemon's queue goes by [`Priority`], the governor of a key by [`Standing::rank`].

use crate::{inert, text_form::known_by_name};

/// The priority of an agent in the background; the later one comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// When nobody else wants the place.
    Low,
    /// As most are.
    #[default]
    Normal,
    /// Before the others; quiet hours do not hold for it.
    High,
}

impl Priority {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// All of them, as they are written.
    pub const NAMES: [&str; 3] = [Self::ALL[0].name(), Self::ALL[1].name(), Self::ALL[2].name()];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// What an agent gets that asks for this priority, or for none, below another one: never a higher one.
    #[must_use]
    pub fn below(asked: Option<Self>, parent: Self) -> Self {
        asked.map_or(parent, |asked| asked.min(parent))
    }
}

/// How the requests of an agent stand where several wait for the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Nobody looks on.
    Background(Priority),
    /// A person waits for it.
    Attended,
}

impl Standing {
    /// The number by which the governor orders those who wait; the higher one comes first.
    #[must_use]
    pub const fn rank(self) -> i64 {
        match self {
            Self::Background(Priority::Low) => -10,
            Self::Background(Priority::Normal) => 0,
            Self::Background(Priority::High) => 10,
            Self::Attended => 20,
        }
    }

    /// The standing of a process below an agent of this priority: never a higher one.
    #[must_use]
    pub fn below(self, parent: Priority) -> Self {
        self.min(Self::Background(parent))
    }
}

/// No such priority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no priority {}; expected {}", inert::quoted(.0), Priority::NAMES.join(", "))]
pub struct PriorityError(String);

known_by_name!(Priority, PriorityError);
