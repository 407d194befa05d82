//! What the parent gets back from a sub-agent.

use std::path::{Path, PathBuf};

use caliban_core::redact::Redactor;
use caliban_tools::ToolOutput;

use super::{MAX_ANSWER_CHARS, worktree::Work};
use crate::{
    agent::TurnReport,
    event::{Event, Outcome},
    feed::FeedEntry,
};

/// Where an answer that is too long is kept: among the parent's outputs, which the parent may read.
pub(crate) struct ReportOutputs<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) session: &'a str,
    pub(crate) redactor: &'a Redactor,
}

/// The final text, cut, with what else the parent should know.
pub(super) fn answer(
    turn: &TurnReport,
    dropped: &[String],
    work: Option<&Work>,
    keep: &ReportOutputs<'_>,
) -> ToolOutput {
    let mut whole = None;
    let mut text: String = turn.text.chars().take(MAX_ANSWER_CHARS).collect();
    if text.len() < turn.text.len() {
        match keep.write(&turn.text) {
            Ok(path) => {
                text.push_str(&format!("\n[cut; the whole answer is in {}]", path.display()));
                whole = Some(path);
            }
            Err(error) => text.push_str(&format!("\n[cut; the rest could not be kept: {error}]")),
        }
    }
    let ending = ending(&turn.outcome);
    let mut parts = Vec::new();
    if let Some(ending) = &ending {
        parts.push(if text.is_empty() {
            format!("[{ending}]")
        } else {
            format!("[{ending}; its last words follow]")
        });
    }
    if !text.is_empty() {
        parts.push(text);
    } else if ending.is_none() {
        parts.push("[the sub-agent ended without an answer]".to_owned());
    }
    if !turn.refused.is_empty() {
        let tools: Vec<String> =
            turn.refused.iter().map(|refused| format!("{} {}", refused.tool, refused.what)).collect();
        parts.push(format!("[{} call(s) of the sub-agent were refused: {}]", tools.len(), tools.join("; ")));
    }
    parts.extend(turn.notes.iter().map(|note| format!("[{note}]")));
    if !dropped.is_empty() {
        parts.push(format!("[unknown tools dropped from tool_allowlist: {}]", dropped.join(", ")));
    }
    if let Some(work) = work {
        parts.push(work.to_string());
    }
    let summary = match &ending {
        Some(ending) => format!("{ending} after {} turns", turn.turns),
        None => format!("done in {} turns, {} tokens", turn.turns, turn.usage.total()),
    };
    ToolOutput { is_error: ending.is_some(), whole, ..ToolOutput::text(parts.join("\n\n"), summary) }
}

impl ReportOutputs<'_> {
    pub(crate) fn write(&self, text: &str) -> std::io::Result<PathBuf> {
        crate::transcript::make_private_directory(self.directory)?;
        let path = self.directory.join(format!("{}.md", self.session));
        std::fs::write(&path, self.redactor.redact(text).as_bytes())?;
        Ok(path)
    }
}

pub(super) fn handed_over(id: &str, warning: &str) -> ToolOutput {
    let text = format!(
        "Started background agent {id}. It goes on when this session ends; look back with `caliban attach {id}`.{warning}"
    );
    ToolOutput::text(text, format!("started {id}"))
}

/// One line for those who watch the parent.
pub(super) fn progress(entry: &FeedEntry) -> Option<String> {
    let FeedEntry::Record(record) = entry else { return None };
    match &record.event {
        Event::CallStarted { name, input, .. } => {
            Some(caliban_core::inert::line(&format!("{name} {}", crate::calls::quote(input))).into_owned())
        }
        Event::CallRefused { name, decision, .. } => Some(format!("{name} refused: {}", decision.why)),
        _ => None,
    }
}

fn ending(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Done => None,
        Outcome::TurnLimit { limit } => Some(format!("the sub-agent reached its limit of {limit} turns")),
        Outcome::Budget { limit } => Some(format!("the sub-agent stopped: {limit}")),
        Outcome::Failed { error, .. } => Some(format!("the sub-agent failed: {error}")),
        Outcome::Cancelled => Some("the sub-agent was cancelled".to_owned()),
    }
}
