//! Talking to an agent through the daemon: messages, and answers to its questions.

use caliban_contract::records::AskRecord;
use caliban_core::ids::AgentId;
use caliban_core::kept_rules::KeepFor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `POST /v1/agents/{id}/send`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SendRequest {
    /// The message.
    pub text: String,
    /// The message without the caller's secrets. Said instead when the agent cannot know them: it learns those of a
    /// person's process, and of no other.
    #[serde(default)]
    pub veiled: Option<String>,
    /// A random text of the caller's: two messages with the same one are one message.
    #[serde(default)]
    pub id: Option<String>,
}

/// The answer: the agent has the message on its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    /// Who has it.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub id: AgentId,
    /// Whether it was told [`SendRequest::veiled`].
    pub veiled: bool,
}

/// `GET /v1/history`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// In the order in which they happened.
    pub changes: Vec<StateChange>,
}

/// From a moment on an agent stands so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateChange {
    /// Whose state.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub agent: AgentId,
    /// When, in milliseconds since 1970.
    #[serde(with = "caliban_core::instant")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: u64,
    /// `queued`, `running`, `asks`, `waits`, `limited`, `idle`, `done`, `failed`, `killed` or `crashed`.
    pub status: String,
}

/// `GET /v1/approvals`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalList {
    /// What all agents ask, in the order in which they asked.
    pub approvals: Vec<Approval>,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// Who asks.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub agent: AgentId,
    /// Its label.
    pub label: Option<String>,
    /// The call.
    #[schemars(with = "Map<String, Value>")]
    pub ask: AskRecord,
}

/// `POST /v1/agents/{id}/approve`. An answer is to exactly one call: the one with this id and this digest (a16).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApproveRequest {
    /// The ask's id.
    pub ask: String,
    /// The ask's digest.
    pub digest: String,
    /// Whether calls like it are allowed from now on.
    #[serde(default)]
    pub always: bool,
    /// Whether they are, outside of the fence.
    #[serde(default)]
    pub outside: bool,
    /// With `always`: how long (`session`, `repo`, `everywhere`).
    #[serde(default)]
    #[schemars(with = "String")]
    pub keep: KeepFor,
    /// With `always`: other rules than the suggested ones, as the person wants them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

/// `POST /v1/agents/{id}/deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DenyRequest {
    /// The ask's id.
    pub ask: String,
    /// The ask's digest.
    pub digest: String,
    /// A reason for the model.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The answer to both: the agent has recorded the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    /// Who asked.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub id: AgentId,
    /// The ask's id.
    pub ask: String,
}
