//! Evidence that a coding agent has received a text: its own files.
//!
//! Claude Code and Codex keep a file of the conversation. A message in it has been received. Refuses: screens (see
//! `classify`), and more than a bounded tail of a file.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::backend::{Backend, Knows};
use crate::settings::Settings;

/// Maximum size of a coding agent's status file.
const STATUS_BYTES: u64 = 64 * 1024;
/// Number of bytes at the end of a conversation that are searched.
const TAIL_BYTES: u64 = 1024 * 1024;

/// What the agent's own files say about a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The conversation contains it.
    Taken,
    /// There is a conversation without it.
    NotThere,
    /// There is no such file.
    None,
}

/// Looks for `marker` in the conversation of these processes.
pub(crate) fn find(backend: &Backend, settings: &Settings, agents: &[i64], marker: &str) -> Proof {
    let files: Vec<PathBuf> = match backend.knows {
        Knows::ClaudeStatus => agents.iter().filter_map(|pid| claude_conversation(settings, *pid)).collect(),
        Knows::CodexTitle => agents.iter().flat_map(|pid| codex_conversations(*pid)).collect(),
        Knows::GeminiTitle | Knows::Screen | Knows::Itself | Knows::Nothing => Vec::new(),
    };
    match files.as_slice() {
        [] => Proof::None,
        files if files.iter().any(|file| tail_has(file, marker)) => Proof::Taken,
        _ => Proof::NotThere,
    }
}

/// The status that Claude Code writes about itself: `idle`, `busy` or `waiting`.
pub(crate) fn claude_status(settings: &Settings, agents: &[i64]) -> Option<String> {
    agents.iter().find_map(|pid| claude_session(settings, *pid)?.get("status")?.as_str().map(str::to_owned))
}

fn claude_session(settings: &Settings, pid: i64) -> Option<serde_json::Value> {
    let file = settings.claude_dir.as_ref()?.join("sessions").join(format!("{pid}.json"));
    let mut text = String::new();
    File::open(file).ok()?.take(STATUS_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// `projects/<directory>/<session>.jsonl`; how the directory is named is Claude Code's business, so all are searched.
fn claude_conversation(settings: &Settings, pid: i64) -> Option<PathBuf> {
    let session = claude_session(settings, pid)?;
    let id = session.get("sessionId")?.as_str()?;
    if id.is_empty() || !id.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric()) {
        return None;
    }
    let projects = fs::read_dir(settings.claude_dir.as_ref()?.join("projects")).ok()?;
    projects.flatten().map(|project| project.path().join(format!("{id}.jsonl"))).find(|file| file.is_file())
}

/// The conversation files that Codex has open.
fn codex_conversations(pid: i64) -> Vec<PathBuf> {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let is_conversation = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("rollout-") && name.ends_with(".jsonl")
    };
    open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).filter(is_conversation).collect()
}

fn tail_has(file: &Path, marker: &str) -> bool {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(file)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let Ok(bytes) = read() else { return false };
    bytes.windows(marker.len()).any(|window| window == marker.as_bytes())
}
