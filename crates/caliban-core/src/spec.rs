//! What somebody asks for when they start an agent: the immutable request, kept for respawn.
//!
//! Owns the stored form of it and its limits. Fields that an older file lacks take their defaults; fields that
//! this version does not know are kept as they are; a file of a newer format is refused, not guessed at.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::AgentId;
use crate::inert;
use crate::names::Slug;
use crate::setup::AgentSetup;

/// The format written today. It grows only when an old reader would misunderstand the file.
pub const SPEC_VERSION: u32 = 1;

/// The longest prompt, in bytes.
pub const MAX_PROMPT_BYTES: usize = 1024 * 1024;

/// The longest chain of agents that start agents.
pub const MAX_DEPTH: u32 = 8;

/// A request for an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpawnSpec {
    /// The format, [`SPEC_VERSION`] when it was written by this version.
    pub version: u32,
    /// The task.
    pub prompt: String,
    /// The files that a person named in it, as typed behind `@`: they go along with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<String>,
    /// A name for people, shown in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Slug>,
    /// How it is set up.
    #[serde(flatten)]
    pub setup: AgentSetup,
    /// Where it works.
    pub isolation: Isolation,
    /// What it does when its turn is over.
    pub after_turn: AfterTurn,
    /// Those who must have ended `done` before it starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<AgentId>,
    /// It does not start before this moment, in milliseconds since 1970.
    #[serde(rename = "start_at", with = "crate::instant::option", skip_serializing_if = "Option::is_none")]
    pub start_at_ms: Option<u64>,
    /// The start was given as a time from now (`+2h`), in milliseconds: a clock that is set meanwhile does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_in_ms: Option<u64>,
    /// It ends this long after its start, whatever it does; in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The schedule that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Occurrence>,
    /// The conversation that it goes on with; a new one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Handover>,
    /// Who started it, when an agent did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentId>,
    /// For whom it counts among the agents that a model may start, when that is no agent of the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_by: Option<StartedBy>,
    /// How many agents are above it.
    pub depth: u32,
    /// The broker session in which it gets an identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_session: Option<String>,
    /// The caller's directory, absolute.
    pub cwd: PathBuf,
    /// The caller's environment, already filtered.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Fields of a later version, kept for it.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Whose model has started an agent, besides an agent of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartedBy {
    /// That of this session in the foreground, in whichever process it goes on.
    Session(AgentId),
    /// That of a team's member, whichever: a process does not show which one it is.
    Member,
}

/// A conversation of a session that goes on as an agent of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The session's directory, absolute.
    pub session: PathBuf,
    /// So many of its records belong to the conversation: the session may go on by itself.
    pub records: u64,
    /// What the agent hears first; it rests when there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub go_on: Option<String>,
}

/// One run of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occurrence {
    /// The schedule's name.
    pub name: Slug,
    /// The number of the run.
    pub number: u64,
    /// When it was due.
    #[serde(with = "crate::instant")]
    pub due_at: u64,
}

/// Where an agent works.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Isolation {
    /// In the caller's directory.
    #[default]
    None,
    /// In a git worktree of its own.
    Worktree(WorktreeSpec),
}

/// A worktree as it is asked for. What is in it is judged by the worktree crate, which knows the repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorktreeSpec {
    /// `head`, `fresh`, or anything that git can resolve to a commit.
    pub base_ref: String,
    /// The commit that `base_ref` stood for when the agent was asked for: it may start much later, and again. Requests
    /// before it had none; then it is looked up at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// Cone patterns; empty for all files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sparse_paths: Vec<String>,
    /// Directories of the repository that are linked rather than checked out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub symlink_directories: Vec<String>,
}

impl Default for WorktreeSpec {
    fn default() -> Self {
        Self {
            base_ref: "head".to_owned(),
            base_commit: None,
            sparse_paths: Vec::new(),
            symlink_directories: Vec::new(),
        }
    }
}

/// What an agent does when its turn is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterTurn {
    /// Ends.
    #[default]
    End,
    /// Stays for further messages (`--interactive`).
    Stay,
}

/// Why a request cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not JSON, or not of this shape.
    #[error("the spec cannot be read: {0}")]
    Unreadable(String),
    /// Written by a later version.
    #[error("the spec has format {0}, this program knows up to {SPEC_VERSION}; use the newer caliban")]
    Newer(u64),
    /// Nothing to do.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Over [`MAX_PROMPT_BYTES`].
    #[error("the prompt has {0} bytes, at most {MAX_PROMPT_BYTES} are taken; put the rest in a file")]
    LongPrompt(usize),
    /// A relative directory would mean another place in another process.
    #[error("the working directory and the session must be absolute")]
    RelativeCwd,
    /// Over [`MAX_DEPTH`].
    #[error("agents may start agents {MAX_DEPTH} deep, this one would be at {0}")]
    TooDeep(u32),
    /// Not a variable.
    #[error("{} is not the name of an environment variable", inert::quoted(.0))]
    BadVariable(String),
}

impl SpawnSpec {
    /// A request with a prompt and a directory; all else as the settings have it.
    pub fn new(prompt: impl Into<String>, cwd: impl Into<PathBuf>) -> Self {
        Self { version: SPEC_VERSION, prompt: prompt.into(), cwd: cwd.into(), ..Self::default() }
    }

    /// Reads a stored request.
    pub fn from_json(text: &str) -> Result<Self, SpecError> {
        let value: Value = serde_json::from_str(text).map_err(|e| SpecError::Unreadable(e.to_string()))?;
        // The version first: a newer file may not even have this shape.
        match value.get("version").and_then(Value::as_u64) {
            Some(found) if found > u64::from(SPEC_VERSION) => return Err(SpecError::Newer(found)),
            Some(_) => {}
            None => return Err(SpecError::Unreadable("it has no version".to_owned())),
        }
        serde_json::from_value(value).map_err(|e| SpecError::Unreadable(e.to_string()))
    }

    /// Whether the request can be carried out as far as that can be said without looking at the machine.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.prompt.trim().is_empty() {
            return Err(SpecError::EmptyPrompt);
        }
        if self.prompt.len() > MAX_PROMPT_BYTES {
            return Err(SpecError::LongPrompt(self.prompt.len()));
        }
        let is_elsewhere = |handover: &Handover| !handover.session.is_absolute();
        if !self.cwd.is_absolute() || self.conversation.as_ref().is_some_and(is_elsewhere) {
            return Err(SpecError::RelativeCwd);
        }
        if self.depth > MAX_DEPTH {
            return Err(SpecError::TooDeep(self.depth));
        }
        let bad = |(name, value): &(&String, &String)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        };
        match self.env.iter().find(bad) {
            Some((name, _)) => Err(SpecError::BadVariable(name.clone())),
            None => Ok(()),
        }
    }
}
