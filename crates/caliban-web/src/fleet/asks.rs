//! The agents' open questions, each with its whole call.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use caliban_contract::recorded_ask::RecordedAsk;
use caliban_contract::records::AskRecord;
use caliban_core::{
    call_text::{self, Excerpt},
    inert,
};
use caliban_fleet::protocol::AgentRow;
use caliban_fleet::words;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::hub::Repo;
use crate::app::App;
use crate::error::Problem;
use crate::time;

/// Maximum size of a call that is shown. A larger one would be harmless (the text is inert), but a long page.
const CALL_CAP: usize = 256 * 1024;

/// A question, and what a page shows of the agent that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FleetQuestion {
    pub(crate) ask: AskRecord,
    call: Excerpt,
    repo: Repo,
    agent: String,
    name: String,
    cwd: String,
    above: Vec<String>,
    last_text: Option<String>,
    task: String,
    dir: PathBuf,
}

impl FleetQuestion {
    /// The questions of an agent; `above` are its ancestors.
    pub(crate) fn of(repo: &Repo, row: &AgentRow, above: &[String]) -> Vec<Self> {
        let one = |ask: &AskRecord| Self {
            ask: ask.clone(),
            call: ask.excerpt(),
            repo: repo.clone(),
            agent: row.id.to_string(),
            name: words::title(row).unwrap_or_else(|| row.id.to_string()),
            cwd: line(&row.worktree.as_ref().unwrap_or(&row.cwd).to_string_lossy()),
            above: above.to_vec(),
            last_text: row.last_text.as_deref().map(line),
            task: line(&row.prompt),
            dir: row.dir.clone(),
        };
        row.asks.iter().map(one).collect()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let which = |question: &Self| {
            let AskRecord { id, digest, opened_at, .. } = &question.ask;
            (id.clone(), digest.clone(), *opened_at)
        };
        which(self) == which(other)
    }

    pub(crate) fn json(&self) -> Value {
        let (ask, call) = (&self.ask, inert::block(&self.call.text));
        let lines = |rules: &[String]| rules.iter().map(|rule| line(rule)).collect::<Vec<_>>();
        json!({
            "key": format!("{}/{}", self.repo.hash, self.agent),
            "repo": self.repo.hash,
            "repo_name": self.repo.name,
            "agent": self.agent,
            "name": self.name,
            "cwd": self.cwd,
            "id": ask.id,
            "digest": ask.digest,
            "tool": line(&ask.name),
            "what": line(&ask.what),
            "why": ask.why.as_deref().map(line),
            "always": lines(&ask.suggestions),
            "outside": lines(&ask.outside),
            "by": ask.by.as_deref().map(line),
            "above": self.above,
            "expires_at": ask.expires_at.map(time::text),
            "opened_at": time::text(ask.opened_at),
            "call": lines_of(&call),
            "call_text": call,
            "is_cut": self.call.hidden > 0,
            "last_text": self.last_text,
            "task": self.task,
        })
    }

    /// With the whole call from the transcript: a row holds only the beginning of a long one.
    fn whole(mut self) -> Self {
        self.call = shown_call(&self.ask, &self.dir);
        self
    }
}

fn line(text: &str) -> String {
    inert::line(text).into_owned()
}

/// The call as a page shows it. Reads the transcript of the agent in `dir` when the record has only a part.
fn shown_call(ask: &AskRecord, dir: &Path) -> Excerpt {
    let listed = ask.excerpt();
    if listed.hidden == 0 {
        return listed;
    }
    match RecordedAsk::find::<RecordedCall>(dir, &ask.id) {
        Ok(Some(call)) => Excerpt::beginning(
            call_text::asked_call(&call.name, &call.input, call.preview.as_deref()),
            CALL_CAP,
        ),
        Ok(None) | Err(_) => listed,
    }
}

/// Refuses a yes to a call that no page shows whole (a16). A question that is not open is the daemon's to refuse.
pub(crate) async fn check_shown_whole(row: AgentRow, ask: &str, digest: &str) -> Result<(), Problem> {
    let Some(asked) = row.asks.into_iter().find(|asked| asked.id == ask && asked.digest == digest) else {
        return Ok(());
    };
    let shown = tokio::task::spawn_blocking(move || shown_call(&asked, &row.dir)).await;
    let hidden = shown.map_err(|error| Problem::internal(error.to_string()))?.hidden;
    if hidden == 0 {
        return Ok(());
    }
    let text = format!("{hidden} characters of this call are not shown on a page: it cannot be allowed here");
    let hint = format!("read all of it in a terminal: caliban approvals {}", row.id);
    Err(Problem::new(StatusCode::CONFLICT, "not_shown", text).hint(hint))
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
