//! What is allowed when no rule says anything.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The permission mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Reading inside the project is allowed, everything else asks.
    #[default]
    Default,
    /// Also writing files inside the project.
    AcceptEdits,
    /// Nothing that changes anything.
    Plan,
    /// Everything that no rule denies.
    Unattended,
}

impl Mode {
    /// All of them, as they are written.
    pub const NAMES: [&str; 4] = ["default", "accept-edits", "plan", "unattended"];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "accept-edits",
            Self::Plan => "plan",
            Self::Unattended => "unattended",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No such mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no permission mode `{0}`; expected default, accept-edits, plan or unattended")]
pub struct ModeError(String);

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        match text {
            "default" => Ok(Self::Default),
            "accept-edits" => Ok(Self::AcceptEdits),
            "plan" => Ok(Self::Plan),
            "unattended" => Ok(Self::Unattended),
            other => Err(ModeError(other.to_owned())),
        }
    }
}
