//! The verbs that change an agent. Each goes to the daemon of the agent's repo; the response follows when the effect is
//! done.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use caliban_acp::Link;
use caliban_contract::limits::RaisedLimits;
use caliban_core::redact::Redactor;
use caliban_fleet::protocol::{
    ApproveRequest, DenyRequest, KillRequest, MergeRequest, RmRequest, SendRequest,
};
use caliban_fleet::respawn;
use caliban_fleet::resume::{self, ResumeTask};
use caliban_settings::{Layer, tool_environment::secrets, values::Usd};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{caller, daemon};
use crate::app::App;
use crate::error::Problem;
use crate::fleet::check_shown_whole;
use crate::input::{JsonBody, QueryString};
use crate::once::Named;

type AgentPath = Path<(String, String)>;
type JsonResult = Result<Json<Value>, Problem>;

/// Allows exactly one call, which a page shows whole.
pub(crate) async fn approve(
    State(app): State<Arc<App>>,
    Path((repo, id)): AgentPath,
    JsonBody(request): JsonBody<ApproveRequest>,
) -> JsonResult {
    let mut client = daemon(&app, &app.repo(&repo)?);
    check_shown_whole(client.show(&id).await?, &request.ask, &request.digest).await?;
    Ok(Json(json!(client.approve(&id, &request).await?)))
}

/// Refuses exactly one call.
pub(crate) async fn deny(
    State(app): State<Arc<App>>,
    Path((repo, id)): AgentPath,
    JsonBody(request): JsonBody<DenyRequest>,
) -> JsonResult {
    let mut client = daemon(&app, &app.repo(&repo)?);
    Ok(Json(json!(client.deny(&id, &request).await?)))
}

/// `POST …/send`.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    text: String,
}

/// Sends a message to an agent.
pub(crate) async fn send(
    State(app): State<Arc<App>>,
    Path((repo, id)): AgentPath,
    named: Named,
    JsonBody(message): JsonBody<Message>,
) -> JsonResult {
    let view = app.repo(&repo)?;
    let mut client = daemon(&app, &view).with_name(named.0);
    // The agent cannot look for the secrets of the caller.
    let text = match caller(&app, &view).settings(Layer::default()) {
        Ok(loaded) => Redactor::new(secrets(&app.options.environment, &loaded.settings))
            .redact(&message.text)
            .into_owned(),
        Err(_) => app.redactor.redact(&message.text).into_owned(),
    };
    let request = SendRequest { text, veiled: None, id: None };
    Ok(Json(json!(client.send(&id, request).await?)))
}

/// Ends an agent.
pub(crate) async fn kill(
    State(app): State<Arc<App>>,
    Path((repo, id)): AgentPath,
    JsonBody(request): JsonBody<KillRequest>,
) -> JsonResult {
    let mut client = daemon(&app, &app.repo(&repo)?);
    let row = client.kill(&id, &request).await?;
    app.hub.put(&repo, row);
    Ok(Json(app.agent(&repo, &id)?.1))
}

/// Ends the current turn of an agent; the agent lives on.
pub(crate) async fn cancel(State(app): State<Arc<App>>, Path((repo, id)): AgentPath) -> JsonResult {
    let (row, _) = app.agent(&repo, &id)?;
    if row.pid.is_none() {
        return Err(Problem::new(StatusCode::CONFLICT, "conflict", "the agent is not at work"));
    }
    let unreached = |error: caliban_acp::Unreached| Problem {
        hint: error.hint.clone(),
        ..Problem::new(StatusCode::CONFLICT, "conflict", error.message)
    };
    let mut link =
        Link::open(&row.socket, env!("CARGO_PKG_VERSION"), None, |_| {}).await.map_err(unreached)?;
    if let Some(why) = link.client.no_say() {
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", why));
    }
    link.cancel().await.map_err(unreached)?;
    Ok(Json(json!({ "id": row.id })))
}

/// `POST …/resume`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resume {
    prompt: Option<String>,
    max_turns: Option<NonZeroU32>,
    max_usd: Option<Usd>,
}

/// Resumes an ended agent: secrets that the agent no longer has are those of the caller, as from a terminal.
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    Path((repo, id)): AgentPath,
    named: Named,
    JsonBody(request): JsonBody<Resume>,
) -> JsonResult {
    let view = app.repo(&repo)?;
    let mut client = daemon(&app, &view).with_name(named.0);
    let limits = RaisedLimits {
        max_turns: request.max_turns.map(|turns| turns.get().into()),
        budget_micro_usd: request.max_usd.map(Usd::micro),
        ..RaisedLimits::default()
    };
    let prompt = request.prompt.filter(|prompt| !prompt.trim().is_empty());
    let order = ResumeTask { prompt, limits, from_scratch: false };
    let report = resume::resume(&caller(&app, &view), &mut client, &id, order).await?;
    app.hub.put(&repo, report.row);
    Ok(Json(app.agent(&repo, &id)?.1))
}

/// Starts an agent anew from its original request.
pub(crate) async fn respawn(
    State(app): State<Arc<App>>,
    Path((repo, id)): AgentPath,
    named: Named,
) -> JsonResult {
    let view = app.repo(&repo)?;
    let is_named = named.0.is_some();
    let mut client = daemon(&app, &view).with_name(named.0);
    let report = respawn::respawn(&caller(&app, &view), &mut client, &id, is_named).await?;
    Ok(Json(json!(report.made)))
}

/// Options of a removal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Rm {
    force: bool,
    keep: bool,
    purge: bool,
}

/// Removes an agent.
pub(crate) async fn rm(
    State(app): State<Arc<App>>,
    Path((repo, id)): AgentPath,
    named: Named,
    QueryString(Rm { force, keep, purge }): QueryString<Rm>,
) -> JsonResult {
    let mut client = daemon(&app, &app.repo(&repo)?).with_name(named.0);
    Ok(Json(json!(client.rm(&id, RmRequest { force, keep, purge }).await?)))
}

/// Merges an agent's work, or previews the merge.
pub(crate) async fn merge(
    State(app): State<Arc<App>>,
    Path((repo, id)): AgentPath,
    JsonBody(request): JsonBody<MergeRequest>,
) -> JsonResult {
    let mut client = daemon(&app, &app.repo(&repo)?);
    Ok(Json(json!(client.merge(&id, &request).await?)))
}
