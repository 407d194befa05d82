//! How a turn of a conversation ends.

use serde::{Deserialize, Serialize};

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TurnOutcome {
    /// The model has said what it had to say.
    Done,
    /// Something went wrong that the agent cannot mend.
    Failed {
        /// What.
        error: String,
        /// What to do about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// The turn limit is reached.
    TurnLimit {
        /// The limit.
        limit: u32,
    },
    /// A budget is used up.
    Budget {
        /// Which one, in words.
        limit: String,
    },
    /// Somebody stopped it.
    Cancelled,
}

impl TurnOutcome {
    /// A failure without a hint.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Failed { error: error.into(), hint: None }
    }
}
