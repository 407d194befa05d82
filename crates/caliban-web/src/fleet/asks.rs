//! The agents' open questions, each with its whole call.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use caliban_contract::recorded_ask::RecordedAsk;
use caliban_contract::records;
use caliban_control::protocol::AgentRow;
use caliban_control::words;
use caliban_core::{
    call_text::{self, Excerpt},
    inert,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::hub::Repo;
use crate::app::App;
use crate::time;

/// Maximum size of a call that is shown. A larger one would be harmless (the text is inert), but a long page.
const CALL_CAP: usize = 256 * 1024;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FleetQuestion {
    pub(crate) id: String,
    pub(crate) opened_at: u64,
    digest: String,
    repo: Repo,
    agent: String,
    name: String,
    cwd: String,
    tool: String,
    what: String,
    call: Excerpt,
    why: Option<String>,
    always: Vec<String>,
    outside: Vec<String>,
    by: Option<String>,
    above: Vec<String>,
    expires_at: Option<u64>,
    last_text: Option<String>,
    task: String,
    dir: std::path::PathBuf,
}

impl FleetQuestion {
    /// The questions of an agent; `above` are its ancestors.
    pub(crate) fn of(repo: &Repo, row: &AgentRow, above: &[String]) -> Vec<Self> {
        let line = |text: &str| inert::line(text).into_owned();
        let one = |ask: &records::AskRecord| Self {
            id: ask.id.clone(),
            opened_at: ask.opened_at,
            digest: ask.digest.clone(),
            repo: repo.clone(),
            agent: row.id.to_string(),
            name: words::title(row).unwrap_or_else(|| row.id.to_string()),
            cwd: line(&row.worktree.as_ref().unwrap_or(&row.cwd).to_string_lossy()),
            tool: line(&ask.name),
            what: line(&ask.what),
            call: ask.excerpt(),
            why: ask.why.as_deref().map(line),
            always: ask.suggestions.iter().map(|rule| line(rule)).collect(),
            outside: ask.outside.iter().map(|rule| line(rule)).collect(),
            by: ask.by.as_deref().map(line),
            above: above.to_vec(),
            expires_at: ask.expires_at,
            last_text: row.last_text.as_deref().map(line),
            task: line(&row.prompt),
            dir: row.dir.clone(),
        };
        row.asks.iter().map(one).collect()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.digest == other.digest && self.opened_at == other.opened_at
    }

    pub(crate) fn json(&self) -> Value {
        let call = inert::block(&self.call.text);
        json!({
            "key": format!("{}/{}", self.repo.hash, self.agent),
            "repo": self.repo.hash,
            "repo_name": self.repo.name,
            "agent": self.agent,
            "name": self.name,
            "cwd": self.cwd,
            "id": self.id,
            "digest": self.digest,
            "tool": self.tool,
            "what": self.what,
            "why": self.why,
            "always": self.always,
            "outside": self.outside,
            "by": self.by,
            "above": self.above,
            "expires_at": self.expires_at.map(time::text),
            "opened_at": time::text(self.opened_at),
            "call": lines_of(&call),
            "call_text": call,
            "is_cut": self.call.hidden > 0,
            "last_text": self.last_text,
            "task": self.task,
        })
    }

    /// With the whole call from the transcript: a row holds only the beginning of a long one.
    fn whole(mut self) -> Self {
        if self.call.hidden > 0
            && let Ok(Some(call)) = RecordedAsk::find::<RecordedCall>(&self.dir, &self.id)
        {
            self.call = Excerpt::beginning(
                call_text::asked_call(&call.name, &call.input, call.preview.as_deref()),
                CALL_CAP,
            );
        }
        self
    }
}

/// What a question is about, in the transcript.
#[derive(Deserialize)]
struct RecordedCall {
    name: String,
    input: Value,
    preview: Option<String>,
}

/// Plain text as lines of runs.
pub(crate) fn lines_of(text: &str) -> Vec<Value> {
    text.lines().map(|line| json!([["", line]])).collect()
}

/// `GET /api/v1/asks`.
pub(crate) async fn asks(State(app): State<Arc<App>>) -> Json<Value> {
    app.hub.settled().await;
    let asks = app.hub.asks();
    let read = move || asks.into_iter().map(|ask| ask.whole().json()).collect::<Vec<_>>();
    let asks = tokio::task::spawn_blocking(read).await.unwrap_or_default();
    Json(json!({ "asks": asks }))
}
