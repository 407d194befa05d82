//! The conversation as data: what is said to a model and what it says back.
//!
//! Owns the provider-neutral message types. Refuses to know any wire format: a provider maps these
//! to its own JSON, and keeps what it must send back verbatim in the `raw` / `extra` fields.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who speaks. Tool results are spoken by the user, as every provider has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person, or the tools answering on their behalf.
    User,
    /// The model.
    Assistant,
}

/// One message: a role and its blocks in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub blocks: Vec<Block>,
}

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// The model's reasoning. Providers insist on getting it back unchanged across tool use.
    Thinking {
        /// What can be shown to a person; may be empty (redacted or encrypted reasoning).
        text: String,
        /// The provider that made it; others must not be sent it.
        provider: String,
        /// The provider's own block, byte for byte as JSON, to be sent back verbatim.
        raw: Value,
    },
    /// The model asks for a tool.
    ToolUse {
        /// The call's id, unique within the conversation.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments. A JSON object, or a string holding what the model sent when that was not JSON.
        input: Value,
        /// What the provider wants back with the call (Gemini's thought signature, Responses' item id).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extra: Option<Value>,
    },
    /// A tool's answer.
    ToolResult {
        /// The id of the call that this answers.
        id: String,
        /// The answer.
        content: Vec<ResultPart>,
        /// Whether the call failed.
        #[serde(default)]
        is_error: bool,
    },
    /// A picture from the user.
    Image {
        /// `image/png`, `image/jpeg`, …
        media_type: String,
        /// Base64 of the bytes.
        data: String,
    },
}

/// One piece of a tool's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResultPart {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// `image/png`, `image/jpeg`, …
        media_type: String,
        /// Base64 of the bytes.
        data: String,
    },
}

impl Message {
    /// A user message of one text block.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, blocks: vec![Block::Text { text: text.into() }] }
    }

    /// All text blocks joined by a blank line; thinking and tool calls left out.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text { text } => Some(text.as_str()),
                Block::Thinking { .. }
                | Block::ToolUse { .. }
                | Block::ToolResult { .. }
                | Block::Image { .. } => None,
            })
            .collect();
        texts.join("\n\n")
    }

    /// The tool calls in order: id, name, input.
    pub fn tool_uses(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolUse { id, name, input, .. } => Some((id.as_str(), name.as_str(), input)),
            Block::Text { .. } | Block::Thinking { .. } | Block::ToolResult { .. } | Block::Image { .. } => {
                None
            }
        })
    }
}

/// A tool as the model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name the model calls it by.
    pub name: String,
    /// What it does and when to use it; short, it is paid for in every request.
    pub description: String,
    /// JSON Schema of the arguments (an object schema).
    pub input_schema: Value,
}

/// How hard the model shall think before it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// A sensible one for the model.
    #[default]
    Default,
    /// No reasoning, where it can be switched off.
    None,
    /// A little.
    Low,
    /// A fair amount.
    Medium,
    /// A lot.
    High,
    /// More than that, where the model offers it.
    Xhigh,
    /// As much as the model offers.
    Max,
}

impl Effort {
    /// Every effort, the least first.
    pub const ALL: [Self; 7] =
        [Self::Default, Self::None, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// The word for it, in settings and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It has said what it wanted to say.
    EndTurn,
    /// It waits for tool results.
    ToolUse,
    /// The output limit cut it off.
    MaxTokens,
    /// It declined, with the provider's word for it.
    Refusal(String),
    /// Anything else, in the provider's word.
    Other(String),
}
