//! `/ui/api`: the routes of the original's server, with the same JSON. Errors are `{"detail": …}`.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use caliban_store::broker::{
    AgentId, IdPrefix, NewBroadcast, NewMessage, Of, SessionId, Task, TaskId, TaskKind,
};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::desk::refusal;
use super::pages::{agent_json, check_text, names};
use crate::app::App;
use crate::error::Problem;
use crate::input::JsonBody;
use crate::once::Named;

/// Maximum number of messages in a list.
const MESSAGES: u32 = 200;

/// An error with the original's texts.
pub(crate) struct Detail(StatusCode, String);

impl IntoResponse for Detail {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"detail": self.1}))).into_response()
    }
}

impl From<Problem> for Detail {
    fn from(problem: Problem) -> Self {
        Self(problem.status, problem.message)
    }
}

type UiResult = Result<Json<Value>, Detail>;

/// `GET /ui/api/sessions`.
pub(crate) async fn sessions(State(app): State<Arc<App>>) -> UiResult {
    let Ok(mut reading) = app.desk.read().await else { return Ok(Json(json!([]))) };
    let all = reading.broker()?.sessions().await.map_err(refusal)?;
    let shown: Vec<Value> = all
        .iter()
        .map(|summary| {
            json!({
                "session_id": summary.session.id.to_string(),
                "label": summary.session.label,
                "created_at": summary.session.created_at.to_string(),
                "agent_count": summary.agent_count,
            })
        })
        .collect();
    Ok(Json(json!(shown)))
}

/// The session that the header names.
async fn session_of(app: &App, headers: &HeaderMap) -> Result<SessionId, Detail> {
    let missing = || Detail(StatusCode::BAD_REQUEST, "X-Session-Id header is required".to_owned());
    let unknown = || Detail(StatusCode::NOT_FOUND, "Session not found".to_owned());
    let given = headers.get("x-session-id").ok_or_else(missing)?.to_str().map_err(|_| unknown())?;
    let id = SessionId::parse(given).ok_or_else(unknown)?;
    let Ok(mut reading) = app.desk.read().await else { return Err(unknown()) };
    let session = reading.broker()?.session(&id.into()).await.map_err(|_| unknown())?;
    if session.deleted_at.is_some() { Err(unknown()) } else { Ok(session.id) }
}

/// `GET /ui/api/agents`.
pub(crate) async fn agents(State(app): State<Arc<App>>, headers: HeaderMap) -> UiResult {
    let session = session_of(&app, &headers).await?;
    let mut reading = app.desk.read().await?;
    let agents = reading.broker()?.everybody(session).await.map_err(refusal)?;
    Ok(Json(json!({"agents": agents.iter().map(agent_json).collect::<Vec<_>>()})))
}

/// `GET /ui/api/timeline`.
pub(crate) async fn timeline(State(app): State<Arc<App>>, headers: HeaderMap) -> UiResult {
    let session = session_of(&app, &headers).await?;
    messages(&app, session, Of::Session).await
}

/// `GET /ui/api/agents/{id}/inbox`.
pub(crate) async fn inbox(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> UiResult {
    let session = session_of(&app, &headers).await?;
    messages(&app, session, Of::Inbox(agent_of(&id)?)).await
}

/// `GET /ui/api/agents/{id}/sent`.
pub(crate) async fn sent(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> UiResult {
    let session = session_of(&app, &headers).await?;
    messages(&app, session, Of::Sent(agent_of(&id)?)).await
}

fn agent_of(id: &str) -> Result<AgentId, Detail> {
    AgentId::parse(id).ok_or_else(|| Detail(StatusCode::NOT_FOUND, "Agent not found".to_owned()))
}

async fn messages(app: &App, session: SessionId, of: Of) -> UiResult {
    let mut reading = app.desk.read().await?;
    let broker = reading.broker()?;
    let tasks = broker.timeline(session, of, MESSAGES).await.map_err(refusal)?;
    let names = names(&broker.everybody(session).await.map_err(refusal)?);
    // Unicasts only: the summary of a broadcast has no recipient.
    let shown = tasks.iter().filter(|task| task.kind == TaskKind::Unicast).map(|task| message(task, &names));
    Ok(Json(json!({"messages": shown.collect::<Vec<_>>()})))
}

fn message(task: &Task, names: &HashMap<AgentId, String>) -> Value {
    let name = |id: AgentId| names.get(&id).cloned().unwrap_or_default();
    json!({
        "task_id": task.id.to_string(),
        "from_agent_id": task.from.to_string(),
        "from_agent_name": name(task.from),
        "to_agent_id": task.to.map(|id| id.to_string()),
        "to_agent_name": task.to.map(name),
        "type": task.kind.as_str(),
        "status": task.state.as_str(),
        "created_at": task.created_at.to_string(),
        "status_timestamp": task.status_at.to_string(),
        "origin_task_id": task.origin.map(|id| id.to_string()),
        "body": task.text,
    })
}

/// `POST /ui/api/messages/send`.
#[derive(Debug, Deserialize)]
pub(crate) struct SendBody {
    from_agent_id: String,
    to_agent_id: String,
    text: String,
}

/// Sends as any agent of the session, to one agent or to all.
pub(crate) async fn send(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    named: Named,
    JsonBody(body): JsonBody<SendBody>,
) -> UiResult {
    // A whole id is not looked up here: the transaction checks it.
    let given = headers.get("x-session-id").and_then(|id| id.to_str().ok()).and_then(SessionId::parse);
    let session = match given {
        Some(session) => session,
        None => session_of(&app, &headers).await?,
    };
    check_text(&body.text)?;
    let id = named.uuid().and_then(|id| TaskId::parse(&id));
    let bad = |what: &str, status| Detail(status, format!("{what} agent not found"));
    let from = IdPrefix::parse(&body.from_agent_id).map_err(|_| bad("Sender", StatusCode::BAD_REQUEST))?;
    let task = if body.to_agent_id == "*" {
        let done = app.desk.broadcast(&NewBroadcast { session, from, text: body.text, id }).await?;
        app.desk.deliver(session).await;
        done.summary
    } else {
        let to = IdPrefix::parse(&body.to_agent_id).map_err(|_| bad("Destination", StatusCode::NOT_FOUND))?;
        let sent = app.desk.send(NewMessage { session, from, to, text: body.text, id }).await?;
        if sent.recipient.placement.is_some() {
            app.desk.deliver(session).await;
        }
        sent.task
    };
    Ok(Json(json!({"task_id": task.id.to_string(), "status": task.state.as_str()})))
}
