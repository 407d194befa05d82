//! What goes over the socket about time: schedules, and an agent's place in the queue.

use std::path::PathBuf;

use caliban_core::ids::AgentId;
use caliban_core::names::Slug;
use caliban_core::priority::Priority;
use caliban_core::recurrence::Recurrence;
use caliban_core::spec::SpawnSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::HandedSecrets;

/// `POST /v1/schedules`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleRequest {
    /// Its name; the agents that it starts are called like it, with a number.
    #[schemars(with = "String")]
    pub name: Slug,
    /// When it runs: `6h`, `day 07:00`, `mon-fri 07:00,19:00`.
    #[schemars(with = "String")]
    pub every: Recurrence,
    /// Whether a run begins when the last one has not ended. Else it is left out.
    #[serde(default)]
    pub overlap: bool,
    /// What each agent is asked for. `spec.env` holds the caller's environment without secrets.
    #[schemars(with = "Map<String, Value>")]
    pub spec: SpawnSpec,
    /// The secret part of the caller's environment. Never in the registry, never below `<base>`.
    #[serde(flatten)]
    pub secrets: HandedSecrets,
    /// The `caliban` that is started as worker; found beside the daemon when absent.
    #[serde(default)]
    pub program: Option<PathBuf>,
}

/// `GET /v1/schedules`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleList {
    /// All of them, by name.
    pub schedules: Vec<ScheduleRow>,
}

/// One schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleRow {
    /// Its name.
    #[schemars(with = "String")]
    pub name: Slug,
    /// When it runs.
    #[schemars(with = "String")]
    pub every: Recurrence,
    /// Whether a run begins when the last one has not ended.
    pub overlap: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// When the next run is due.
    #[serde(with = "caliban_core::instant")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub next_at: u64,
    /// How many runs there were.
    pub runs: u64,
    /// The last of them.
    pub last: Option<ScheduleRun>,
    /// What there is to say about the last time that it was due.
    pub note: Option<String>,
    /// Whether it waits for keys, which do not outlive a reboot.
    pub needs_keys: bool,
    /// The first line of the prompt.
    pub prompt: String,
    /// The directory of whoever made it.
    pub cwd: PathBuf,
    /// The priority of its agents.
    #[schemars(with = "String")]
    pub priority: Priority,
    /// When it was made.
    #[serde(with = "caliban_core::instant")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: u64,
}

/// One run of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleRun {
    /// Its agent, which may be removed since.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub agent: AgentId,
    /// When it was due.
    #[serde(with = "caliban_core::instant")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub due_at: u64,
    /// How much later its agent was registered.
    pub late_ms: u64,
    /// Runs before it that were due and did not come about: no daemon was there.
    pub missed: u64,
}

/// `POST /v1/schedules/{id}/pause`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PauseRequest {
    /// Whether it is paused from now on; else it goes on with the next time that it is due.
    pub paused: bool,
}

/// `POST /v1/schedules/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KeysRequest {
    /// The secret part of the caller's environment, for all schedules whose own is gone.
    #[serde(flatten)]
    pub secrets: HandedSecrets,
}

/// `POST /v1/agents/{id}/requeue`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RequeueRequest {
    /// Its priority from now on.
    #[schemars(with = "Option<String>")]
    pub priority: Option<Priority>,
    /// When it starts; a moment that is over is as soon as there is a place.
    #[serde(rename = "start_at", with = "caliban_core::instant::option")]
    #[schemars(with = "Option<String>")]
    pub start_at_ms: Option<u64>,
    /// The same as a time from now, in milliseconds, if it was given so: no clock setting changes it.
    pub start_in_ms: Option<u64>,
}
