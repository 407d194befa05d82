//! A session as a page shows it: its agents and its messages. A broadcast is one entry with its recipients.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use caliban_core::inert;
use caliban_store::broker::{
    Agent, AgentId, AgentKind, IdPrefix, NewBroadcast, NewMessage, Of, SessionId, Task, TaskId, TaskKind,
    TaskState,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::desk::refusal;
use crate::app::App;
use crate::error::Problem;
use crate::input::JsonBody;
use crate::once::Named;
use crate::render;

/// Maximum number of tasks read for a page.
const TASKS: u32 = 400;
/// Maximum number of entries in a page.
const ENTRIES: usize = 200;
/// Maximum length of a message.
pub(super) const TEXT_CAP: usize = 256 * 1024;

/// `GET /api/v1/broker/sessions`. Without a store the list is empty.
pub(crate) async fn sessions(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    let Ok(mut reading) = app.desk.read().await else { return Ok(Json(json!({"sessions": []}))) };
    let broker = reading.broker()?;
    let mut shown = Vec::new();
    for summary in broker.sessions().await.map_err(refusal)? {
        let agents = broker.agents(summary.session.id).await.map_err(refusal)?;
        let administrator = agents.iter().find(|agent| agent.kind == AgentKind::Administrator);
        shown.push(json!({
            "session_id": summary.session.id.to_string(),
            "label": summary.session.label.as_deref().map(inert::line),
            "created_at": summary.session.created_at.to_string(),
            "agent_count": summary.agent_count,
            "director_agent_id": summary.session.director.map(|id| id.to_string()),
            "administrator_agent_id": administrator.map(|agent| agent.id.to_string()),
        }));
    }
    Ok(Json(json!({ "sessions": shown })))
}

/// `GET /api/v1/broker/sessions/{session}`.
pub(crate) async fn session(
    State(app): State<Arc<App>>,
    Path(given): Path<String>,
) -> Result<Json<Value>, Problem> {
    let mut reading = app.desk.read().await?;
    let broker = reading.broker()?;
    let id = parsed(&given)?;
    let session = broker.session(&id.into()).await.map_err(refusal)?;
    let agents = broker.everybody(session.id).await.map_err(refusal)?;
    let tasks = broker.timeline(session.id, Of::Session, TASKS).await.map_err(refusal)?;
    drop(reading);
    let names = names(&agents);
    Ok(Json(json!({
        "session": {
            "session_id": session.id.to_string(),
            "label": session.label.as_deref().map(inert::line),
            "created_at": session.created_at.to_string(),
            "deleted_at": session.deleted_at.map(|at| at.to_string()),
            "director_agent_id": session.director.map(|id| id.to_string()),
        },
        "agents": agents.iter().map(agent_json).collect::<Vec<_>>(),
        "entries": entries(&tasks, &names),
    })))
}

/// `POST /api/v1/broker/sessions/{session}/send`.
#[derive(Debug, Deserialize)]
pub(crate) struct Compose {
    to: String,
    text: String,
}

/// Sends as the session's Administrator, to one agent or to all.
pub(crate) async fn broadcast_or_send(
    State(app): State<Arc<App>>,
    Path(given): Path<String>,
    named: Named,
    JsonBody(compose): JsonBody<Compose>,
) -> Result<Json<Value>, Problem> {
    check_text(&compose.text)?;
    let session = parsed(&given)?;
    let id = named.uuid().and_then(|id| TaskId::parse(&id));
    let administrator = {
        let mut reading = app.desk.read().await?;
        let agents = reading.broker()?.agents(session).await.map_err(refusal)?;
        let found = agents.iter().find(|agent| agent.kind == AgentKind::Administrator).map(|agent| agent.id);
        found.ok_or_else(|| Problem::not_found("there is no such session, or it has no Administrator"))?
    };
    let from: IdPrefix = administrator.into();
    let (task, recipients) = if compose.to == "*" {
        let done = app.desk.broadcast(&NewBroadcast { session, from, text: compose.text, id }).await?;
        (done.summary, done.recipients.len())
    } else {
        let to =
            IdPrefix::parse(&compose.to).map_err(|_| Problem::bad("`to` has to be an agent's id, or *"))?;
        let sent = app.desk.send(NewMessage { session, from, to, text: compose.text, id }).await?;
        (sent.task, 1)
    };
    app.desk.deliver(session).await;
    app.hub.say("message", &json!({"session": session.to_string()}));
    Ok(Json(json!({"task_id": task.id.to_string(), "status": task.state.as_str(), "recipients": recipients})))
}

pub(super) fn parsed(given: &str) -> Result<SessionId, Problem> {
    SessionId::parse(given).ok_or_else(|| Problem::not_found("there is no such session"))
}

pub(super) fn check_text(text: &str) -> Result<(), Problem> {
    match text.trim().is_empty() {
        true => Err(Problem::bad("there is nothing to say")),
        false if text.len() > TEXT_CAP => {
            Err(Problem::bad(format!("a message has at most {TEXT_CAP} bytes")))
        }
        false => Ok(()),
    }
}

pub(super) fn names(agents: &[Agent]) -> HashMap<AgentId, String> {
    agents.iter().map(|agent| (agent.id, inert::line(&agent.name).into_owned())).collect()
}

/// An agent as both APIs show it.
pub(super) fn agent_json(agent: &Agent) -> Value {
    let placement = agent.placement.as_ref().map(|placement| {
        json!({
            "director_agent_id": placement.director.map(|id| id.to_string()),
            "tmux_session": inert::line(&placement.tmux_session),
            "tmux_window_id": placement.tmux_window,
            "tmux_pane_id": placement.tmux_pane,
            "coding_agent": placement.coding_agent,
            "created_at": placement.created_at.to_string(),
        })
    });
    json!({
        "agent_id": agent.id.to_string(),
        "name": inert::line(&agent.name),
        "description": inert::line(&agent.description),
        "status": agent.status.as_str(),
        "registered_at": agent.registered_at.to_string(),
        "kind": agent.kind.as_str(),
        "placement": placement,
    })
}

/// The entries of a timeline, the oldest first.
fn entries(tasks: &[Task], names: &HashMap<AgentId, String>) -> Vec<Value> {
    let name = |id: AgentId| names.get(&id).cloned().unwrap_or_else(|| id.to_string());
    let mut copies: BTreeMap<TaskId, Vec<&Task>> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.kind == TaskKind::Unicast) {
        if let Some(origin) = task.origin {
            copies.entry(origin).or_default().push(task);
        }
    }
    let state = |task: &Task| {
        json!({
            "status": task.state.as_str(),
            "delivery": task.delivery.state.as_str(),
            "delivery_note": task.delivery.note.as_deref().map(inert::line),
            "acked_at": (task.state == TaskState::Completed && task.kind == TaskKind::Unicast)
                .then(|| task.status_at.to_string()),
        })
    };
    let mut entries = Vec::new();
    for task in tasks.iter().filter(|task| task.kind == TaskKind::BroadcastSummary || task.origin.is_none()) {
        let mine = copies.remove(&task.id).unwrap_or_default();
        let is_broadcast = task.kind == TaskKind::BroadcastSummary;
        let text = if is_broadcast {
            mine.first().map_or(task.text.as_str(), |copy| &copy.text)
        } else {
            &task.text
        };
        let recipients: Vec<Value> = mine
            .iter()
            .rev()
            .map(|copy| {
                let mut shown = state(copy);
                shown["agent_id"] = copy.context.to_string().into();
                shown["name"] = name(copy.context).into();
                shown["task_id"] = copy.id.to_string().into();
                shown
            })
            .collect();
        let mut entry = state(task);
        let more = json!({
            "task_id": task.id.to_string(),
            "from": task.from.to_string(),
            "from_name": name(task.from),
            "to": task.to.filter(|_| !is_broadcast).map(|id| id.to_string()),
            "to_name": task.to.filter(|_| !is_broadcast).map(name),
            "kind": if is_broadcast { "broadcast" } else { "message" },
            "at": task.created_at.to_string(),
            "text": inert::block(text),
            "blocks": render::blocks(text),
            "recipients": recipients,
        });
        if let (Some(entry), Value::Object(more)) = (entry.as_object_mut(), more) {
            entry.extend(more);
        }
        entries.push(entry);
    }
    entries.truncate(ENTRIES);
    entries.reverse();
    entries
}
