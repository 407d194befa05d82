//! `session.json`: the regular session file, rendered from the transcript at the end of each turn and after a compaction.
//!
//! Derived, never read back to go on: the transcript is the truth. Written beside and renamed into place.

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use caliban_core::{message::Message, usage::Usage};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    conversation::Conversation,
    event::{Event, Outcome, Record},
    past_spending::SessionSpending,
    transcript::{self, TranscriptError},
};

/// How a session's last turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LastTurn {
    /// When.
    pub updated: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// What the session has cost by then, where the prices are known.
    pub micro_usd: Option<u64>,
}

/// The file's name in a session's directory.
pub const FILE_NAME: &str = "session.json";

/// What the session file says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionFile {
    /// The format's version.
    pub version: u32,
    /// The session's id.
    pub id: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The session that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The working directory.
    pub cwd: std::path::PathBuf,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// When it began.
    pub created: Timestamp,
    /// When the last turn ended.
    pub updated: Timestamp,
    /// How the last turn ended.
    pub outcome: Outcome,
    /// How many times the model answered.
    pub replies: u32,
    /// What it has cost, its sub-agents and background agents included.
    pub usage: Usage,
    /// The same in micro-dollars, where the prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
    /// The todo list.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub todos: Value,
    /// The conversation as the model would be sent it now.
    pub messages: Vec<Message>,
}

impl SessionFile {
    /// The file of a conversation that has begun.
    #[must_use]
    pub fn of(conversation: &Conversation, created: Timestamp, last: LastTurn) -> Option<Self> {
        let header = conversation.header()?.clone();
        Some(Self {
            version: header.version,
            id: header.session,
            label: header.label,
            parent: header.parent,
            cwd: header.cwd,
            provider: header.provider,
            model: header.model,
            created,
            updated: last.updated,
            outcome: last.outcome,
            replies: conversation.replies(),
            usage: conversation.usage(),
            micro_usd: last.micro_usd,
            todos: conversation.todos().clone(),
            messages: conversation.messages().to_vec(),
        })
    }
}

/// Renders the file anew, when a turn has ended. All of it comes from the transcript on disk, so it is redacted like that.
#[expect(clippy::disallowed_methods, reason = "in Caliban's own records")]
pub(crate) fn write(directory: &Path) -> Result<(), TranscriptError> {
    let records = transcript::read(directory)?;
    let Some(file) = render(directory, &records) else { return Ok(()) };
    let path = directory.join(FILE_NAME);
    let io = |source| TranscriptError::Io { path: path.clone(), source };
    let text = serde_json::to_vec(&file).map_err(|error| io(error.into()))?;
    let beside = directory.join(".session.json.new");
    let mut options = fs::OpenOptions::new();
    let mut new = options.write(true).create(true).truncate(true).mode(0o600).open(&beside).map_err(io)?;
    new.write_all(&text).map_err(io)?;
    fs::rename(&beside, &path).map_err(io)
}

fn render(directory: &Path, records: &[Record]) -> Option<SessionFile> {
    let created = records.first()?.at;
    let conversation = Conversation::replay(records.iter().map(|record| &record.event));
    let (updated, outcome, micro_usd) = records.iter().rev().find_map(|record| match &record.event {
        Event::TurnEnded { outcome, micro_usd, .. } => Some((record.at, outcome.clone(), *micro_usd)),
        _ => None,
    })?;
    let file = SessionFile::of(&conversation, created, LastTurn { updated, outcome, micro_usd })?;
    Some(SessionFile { usage: SessionSpending::of(directory, &conversation).usage(), ..file })
}
