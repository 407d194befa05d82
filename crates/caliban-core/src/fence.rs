//! Which fence a call runs in: its name and its words. `caliban-fence` puts one up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The fence of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// None: it runs as the user.
    #[default]
    None,
    /// Everything is there but what rules keep away; for agents that are never asked.
    Open,
    /// It can change what belongs to the work, and read the system.
    Edit,
    /// It can change nothing.
    Read,
}

impl Profile {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Open => "open",
            Self::Edit => "edit",
            Self::Read => "read",
        }
    }

    /// Of two, the one that allows less.
    #[must_use]
    pub fn narrower(self, other: Self) -> Self {
        self.max(other)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether commands are fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// They are; where that cannot be done, nothing runs.
    Required,
    /// They are where that can be done; elsewhere only a few plain commands run without a question.
    Auto,
    /// They are not.
    Off,
}

impl Sandbox {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}
