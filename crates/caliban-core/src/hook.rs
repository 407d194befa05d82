//! Hooks as data: when one is asked, and the command that answers. Running them is the agent's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A command hook may take this long when its settings say nothing.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// When a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HookEvent {
    /// A conversation begins or is taken up again. What the hook prints goes to the model.
    SessionStart,
    /// A person has said something. What the hook prints goes to the model.
    UserPromptSubmit,
    /// A tool is about to be called.
    PreToolUse,
    /// A tool has been called.
    PostToolUse,
    /// The agent wants to stop.
    Stop,
    /// A sub-agent wants to stop.
    SubagentStop,
    /// A person should look.
    Notification,
}

impl HookEvent {
    /// The name as it stands in settings and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionStart => "SessionStart",
            Self::UserPromptSubmit => "UserPromptSubmit",
            Self::PreToolUse => "PreToolUse",
            Self::PostToolUse => "PostToolUse",
            Self::Stop => "Stop",
            Self::SubagentStop => "SubagentStop",
            Self::Notification => "Notification",
        }
    }

    /// Whether what the hook prints on success is told to the model.
    #[must_use]
    pub fn output_is_context(self) -> bool {
        matches!(self, Self::SessionStart | Self::UserPromptSubmit)
    }
}

/// A command hook as the settings have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandHook {
    /// When it is asked.
    pub event: HookEvent,
    /// For which tools: a name, names with `*`, alternatives with `|`, or a regular expression; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matcher: Option<String>,
    /// The command line, for `sh -c`.
    pub command: String,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether a model may leave it out when it starts a sub-agent, even if it could refuse a call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}
