//! The control protocol: what goes over the daemon's socket, as HTTP with JSON bodies.
//!
//! Owns the shapes and their version. Every answer carries [`HEADER`]; a request may (curl need not). Fields are
//! added, never changed; a change that an old side would misunderstand raises [`VERSION`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use caliban_core::budget::NearLimit;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Ending, State, WaitingFor};
use caliban_core::price::MicroUsd;
use caliban_core::priority::Priority;
use caliban_core::review::Review;
use caliban_core::spec::{Occurrence, SpawnSpec, StartedBy};
use caliban_core::usage::Usage;
use caliban_core::wait::QueuedFor;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use caliban_contract::HandedOver;
use caliban_contract::limits::RaisedLimits;
use caliban_contract::records::AskRecord;

mod landing;
mod messages;
pub mod openapi;
pub mod routes;
mod schedule;

pub use landing::{
    Diff, DiffCommit, DiffFile, DiffPath, LogPart, MergeAnswer, MergeForecast, MergeHow, MergeRefused,
    MergeRequest, Merged,
};
pub use messages::{
    Answered, Approval, ApprovalList, ApproveRequest, DenyRequest, History, SendRequest, Sent, StateChange,
};
pub use schedule::{
    KeysRequest, PauseRequest, RequeueRequest, ScheduleList, ScheduleRequest, ScheduleRow, ScheduleRun,
};

/// The protocol spoken here.
pub const VERSION: u32 = 1;
/// The header that carries it, both ways.
pub const HEADER: &str = "caliban-protocol";
/// The header in which a client says where it keeps its data, percent-encoded like a path. A daemon with other data
/// refuses it; a client that says nothing (curl) is served.
pub const DATA_HEADER: &str = "caliban-data";
/// The caller's random name for a removal, respawn or resume. A second request with the same name is the same request: it gets
/// the same answer and changes nothing, also from the next daemon.
pub const REQUEST_HEADER: &str = "caliban-request";
/// A starting daemon's first line on its standard output, when it listens.
pub const READY: &str = "ready";
/// Its only line when another daemon already serves the repo.
pub const RUNNING_ALREADY: &str = "running already";
/// The largest request body.
pub const BODY_CAP: usize = 8 * 1024 * 1024;
/// The largest answer that a client takes.
pub const ANSWER_CAP: usize = 64 * 1024 * 1024;
/// The longest grace between TERM and KILL that may be asked for.
pub const GRACE_CAP_MS: u64 = 10 * 60 * 1000;

/// What an agent is handed and no disk may have, as variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HandedSecrets {
    /// The secret part of the caller's environment. Never in the registry, never below `<base>`.
    pub secrets: BTreeMap<String, String>,
    /// Those that are too long for a process to be started with. An earlier daemon leaves them out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub long_secrets: BTreeMap<String, String>,
}

impl HandedSecrets {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.long_secrets.is_empty()
    }
}

impl From<HandedOver> for HandedSecrets {
    fn from(handover: HandedOver) -> Self {
        let (secrets, long_secrets) = handover.into_maps();
        Self { secrets, long_secrets }
    }
}

impl From<HandedSecrets> for HandedOver {
    fn from(handed: HandedSecrets) -> Self {
        let HandedSecrets { mut secrets, long_secrets } = handed;
        secrets.extend(long_secrets);
        secrets.into()
    }
}

impl<const N: usize> From<[(String, String); N]> for HandedSecrets {
    fn from(secrets: [(String, String); N]) -> Self {
        Self { secrets: secrets.into(), ..Self::default() }
    }
}

/// `POST /v1/agents`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpawnRequest {
    /// What is asked for. `spec.env` holds the caller's environment without secrets.
    #[schemars(with = "Map<String, Value>")]
    pub spec: SpawnSpec,
    /// What it is handed.
    #[serde(flatten)]
    pub secrets: HandedSecrets,
    /// The `caliban` that is started as worker; found beside the daemon or on `PATH` when absent.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// A random text of the caller's. A second request with the same key is the same request: it gets the same
    /// id, so a caller that lost the answer may ask again.
    #[serde(default)]
    pub key: Option<String>,
}

/// The answer to a spawn: it is registered, durably.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spawned {
    /// The new agent.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub id: AgentId,
    /// Its directory.
    pub dir: PathBuf,
}

/// `POST /v1/agents/{id}/kill`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KillRequest {
    /// How long it gets between TERM and KILL; the setting when absent.
    pub grace_ms: Option<u64>,
}

/// `POST /v1/agents/{id}/respawn`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RespawnRequest {
    /// Secrets of the caller; those of the old agent when empty.
    #[serde(flatten)]
    pub secrets: HandedSecrets,
    /// Like in [`SpawnRequest`]; the old agent's when absent.
    pub program: Option<PathBuf>,
}

/// The answer to a respawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Respawned {
    /// The new agent.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub id: AgentId,
    /// The id that is gone.
    #[schemars(with = "String")]
    pub old: AgentId,
    /// Where the old agent's transcript is now.
    pub archived: PathBuf,
    /// What became of its work, line by line.
    pub work: Vec<String>,
}

/// `POST /v1/agents/{id}/resume`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ResumeRequest {
    /// Secrets of the caller; those that are still there when empty.
    #[serde(flatten)]
    pub secrets: HandedSecrets,
    /// Like in [`SpawnRequest`]; the one of before when absent.
    pub program: Option<PathBuf>,
    /// The next message; without one the agent goes on where it was.
    pub prompt: Option<String>,
    /// Limits that are raised. The daemon writes them to the agent's `limits.json` when it accepts the resume.
    #[schemars(with = "Map<String, Value>")]
    pub limits: RaisedLimits,
}

/// `POST /v1/agents/{id}/wake`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WakeRequest {
    /// Secrets of the caller, for an agent whose own went with the runtime directory ([`ErrorCode::SecretsGone`]).
    #[serde(flatten)]
    pub secrets: HandedSecrets,
}

/// The answer to `POST /v1/shutdown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopping {
    /// Always true: the daemon leaves after the requests in flight.
    pub stopping: bool,
}

/// What `DELETE /v1/agents/{id}` may do (`?force=true&keep=true&purge=true`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RmRequest {
    /// Kill it first if it is not stopped.
    pub force: bool,
    /// Leave its worktree where it is.
    pub keep: bool,
    /// Delete its transcript and all its files instead of archiving them.
    pub purge: bool,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    /// Who is gone.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub id: AgentId,
    /// What became of its work, line by line.
    pub work: Vec<String>,
    /// Where its transcript is now. None when it was deleted, or when there was none.
    #[serde(default)]
    pub archived: Option<PathBuf>,
}

/// The answer to `POST /v1/agents/{id}/wake`: somebody listens there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Awake {
    /// Who.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub id: AgentId,
    /// Its socket (ACP).
    pub socket: PathBuf,
}

/// `GET /v1/agents`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentList {
    /// All of them, in the order in which they were spawned.
    pub agents: Vec<AgentRow>,
}

/// One agent, as lists show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRow {
    /// Its id.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{8}$"))]
    pub id: AgentId,
    /// Its label.
    pub label: Option<String>,
    /// Its state.
    #[schemars(schema_with = "states")]
    pub state: State,
    /// What it cannot go on without.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub waiting_for: Option<WaitingFor>,
    /// What it is doing.
    pub activity: Option<String>,
    /// Calls that wait for a person.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub asks: Vec<AskRecord>,
    /// Turns so far.
    pub turns: u64,
    /// Tokens so far.
    #[schemars(with = "Map<String, Value>")]
    pub usage: Usage,
    /// Cost so far, when known.
    #[schemars(with = "Option<u64>")]
    pub micro_usd: Option<MicroUsd>,
    /// The limit of which it has used most, when that is 80 % or more.
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub near_limit: Option<NearLimit>,
    /// When it was spawned, in milliseconds since 1970.
    #[serde(with = "caliban_core::instant")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: u64,
    /// How long ago that is.
    pub age_ms: u64,
    /// When something about it last changed, in milliseconds since 1970.
    #[serde(with = "caliban_core::instant")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub updated_at: u64,
    /// The branch of its worktree.
    pub branch: Option<String>,
    /// Its worktree.
    pub worktree: Option<PathBuf>,
    /// The commit that its work is measured against.
    pub base_commit: Option<String>,
    /// Its caller's directory.
    pub cwd: PathBuf,
    /// The first line of its prompt.
    pub prompt: String,
    /// The worker's process id, while there is one.
    pub pid: Option<i32>,
    /// The shim's.
    pub shim_pid: Option<i32>,
    /// Its socket.
    pub socket: PathBuf,
    /// Its directory: transcript, session, logs.
    pub dir: PathBuf,
    /// How it ended.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub ending: Option<Ending>,
    /// What else there is to say about its end (`the kernel ended it for want of memory`).
    pub note: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The end of what it said last.
    pub last_text: Option<String>,
    /// Who started it, when an agent did.
    #[schemars(with = "Option<String>")]
    pub parent: Option<AgentId>,
    /// Whose model has started it besides; the daemon's own.
    #[serde(skip)]
    pub started_by: Option<StartedBy>,
    /// Those who must end `done` before it starts.
    #[schemars(with = "Vec<String>")]
    pub after: Vec<AgentId>,
    /// How many are before it in the queue, when it waits for a place.
    pub queued_behind: Option<u64>,
    /// What it waits for before its start, beside `after`.
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub queued_for: Option<QueuedFor>,
    /// Who comes first, in the queue and at a rate limit.
    #[serde(default)]
    #[schemars(with = "String")]
    pub priority: Priority,
    /// The run of a schedule that it is.
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub schedule: Option<Occurrence>,
    /// How much later than planned it began, when that was a minute or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
    /// How long it may run by the clock, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How much of that is left, while it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_ms: Option<u64>,
    /// How its work stands, once it has stopped in a worktree of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub review: Option<Review>,
    /// Whether it has left memory.
    pub hibernated: bool,
    /// How often a worker was started for it.
    pub runs: u32,
}

impl AgentRow {
    /// An agent of which only the id and the state are known.
    #[must_use]
    pub fn new(id: AgentId, state: State) -> Self {
        Self {
            id,
            label: None,
            state,
            waiting_for: None,
            activity: None,
            asks: Vec::new(),
            turns: 0,
            usage: Usage::default(),
            micro_usd: None,
            near_limit: None,
            created_at: 0,
            age_ms: 0,
            updated_at: 0,
            branch: None,
            worktree: None,
            base_commit: None,
            cwd: PathBuf::new(),
            prompt: String::new(),
            pid: None,
            shim_pid: None,
            socket: PathBuf::new(),
            dir: PathBuf::new(),
            ending: None,
            note: None,
            model: None,
            last_text: None,
            parent: None,
            started_by: None,
            after: Vec::new(),
            queued_behind: None,
            queued_for: None,
            priority: Priority::default(),
            schedule: None,
            late_ms: None,
            timeout_ms: None,
            time_left_ms: None,
            review: None,
            hibernated: false,
            runs: 1,
        }
    }
}

/// The states' words, for the schema.
fn states(_: &mut SchemaGenerator) -> Schema {
    let words: Vec<&str> = State::ALL.iter().map(|state| state.word()).collect();
    json_schema!({ "type": "string", "enum": words })
}

/// `GET /v1/status` (f16).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonStatus {
    /// In a word: `ok`, or what is wrong.
    pub health: String,
    /// The daemon's process.
    pub pid: u32,
    /// Its program's version.
    pub version: String,
    /// The protocol that it speaks.
    pub protocol: u32,
    /// How long it runs.
    pub uptime_ms: u64,
    /// How many agents are registered.
    pub agents: u64,
    /// How many of them in each state that occurs.
    pub states: BTreeMap<String, u64>,
    /// How many wait for a place or for others.
    pub queued: u64,
    /// How many run at once at most.
    pub max_running: u32,
    /// How many of the user run at once at most, over all repos.
    #[serde(default)]
    pub max_running_user: Option<u32>,
    /// How many schedules there are.
    #[serde(default)]
    pub schedules: u64,
    /// Its socket.
    pub socket: PathBuf,
    /// The repo.
    pub repo: PathBuf,
    /// The data directory.
    pub base: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// What it found and did when it started.
    pub found: FoundAtStart,
}

/// What a daemon found when it started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FoundAtStart {
    /// Living agents that were adopted.
    pub adopted: u64,
    /// Agents that had ended meanwhile by themselves or on request.
    pub ended: u64,
    /// Agents whose worker was gone without a word.
    pub crashed: u64,
    /// Agents that waited for their start.
    pub queued: u64,
    /// Processes without a shim that were ended.
    pub strays: u64,
    /// Worktrees of nobody that were removed.
    pub swept: u64,
    /// What should have begun while no daemon was there, line by line.
    pub missed: Vec<String>,
    /// More to say, line by line: where rescued work is, what could not be done.
    pub notes: Vec<String>,
}

impl FoundAtStart {
    /// In one line (`found 3 living agents, 1 crashed, swept 2 worktrees`).
    pub fn line(&self) -> String {
        let mut parts = Vec::new();
        let mut say = |count: u64, one: &str, many: &str| match count {
            0 => {}
            1 => parts.push(format!("1 {one}")),
            more => parts.push(format!("{more} {many}")),
        };
        say(self.adopted, "living agent", "living agents");
        say(self.crashed, "crashed", "crashed");
        say(self.ended, "ended", "ended");
        say(self.queued, "queued", "queued");
        let mut line = if parts.is_empty() {
            "found nothing to do".to_owned()
        } else {
            format!("found {}", parts.join(", "))
        };
        for (count, verb, one, many) in [
            (self.strays, "ended", "stray process", "stray processes"),
            (self.swept, "swept", "worktree", "worktrees"),
        ] {
            if count > 0 {
                line += &format!(", {verb} {count} {}", if count == 1 { one } else { many });
            }
        }
        line
    }
}

/// One thing that `GET /v1/events` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum FleetEvent {
    /// An agent is there or has changed. Right after connecting, one for each agent.
    Agent(Box<AgentRow>),
    /// An agent is gone from the registry.
    Removed {
        /// Which.
        #[schemars(with = "String")]
        id: AgentId,
    },
    /// All agents have been said; what follows is news.
    Ready {},
    /// The reader was too slow and has missed this many; all agents follow anew, then `ready`.
    Gap {
        /// How many.
        missed: u64,
    },
    /// The daemon leaves; agents go on.
    Bye {},
}

/// An error as it is sent: `{"error": {…}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ApiError,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The kinds of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request makes no sense.
    BadRequest,
    /// No agent fits.
    NotFound,
    /// Several fit.
    Ambiguous,
    /// There is no such path, or not with this method.
    NoRoute,
    /// The agent's state does not allow it.
    Conflict,
    /// The agent waits for a place.
    Queued,
    /// The agent has ended.
    Ended,
    /// The agent does not ask this, or not any more.
    NotAsked,
    /// Only a person may do this, and the caller is a process of an agent, or cannot be seen.
    Forbidden,
    /// The agent's secrets are gone with the runtime directory (a reboot, a logout); those of the caller will do.
    SecretsGone,
    /// The body is too large.
    TooLarge,
    /// It took too long.
    Timeout,
    /// Another version of the protocol.
    Protocol,
    /// No room on the disk.
    DiskFull,
    /// The store failed; nothing was acknowledged.
    Store,
    /// The daemon keeps its data elsewhere than the client.
    OtherData,
    /// The daemon leaves.
    Stopping,
    /// Too many connections, or out of file descriptors.
    Busy,
    /// Something else, in words.
    Internal,
    /// A kind that this version does not know.
    #[serde(other)]
    Unknown,
}

impl ErrorCode {
    /// The HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest | Self::Protocol => 400,
            Self::NotFound | Self::NoRoute => 404,
            Self::Ambiguous
            | Self::Conflict
            | Self::Queued
            | Self::Ended
            | Self::NotAsked
            | Self::SecretsGone
            | Self::OtherData => 409,
            Self::Forbidden => 403,
            Self::Timeout => 504,
            Self::TooLarge => 413,
            Self::DiskFull => 507,
            Self::Stopping | Self::Busy => 503,
            Self::Store | Self::Internal | Self::Unknown => 500,
        }
    }
}

impl ApiError {
    /// An error without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
