//! The current screen of a member's pane. `cafleet member capture` reads it, as the member's Director.

use std::ffi::OsString;
use std::path::Path as FilePath;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use caliban_core::inert;
use caliban_store::StoreUrl;
use caliban_store::broker::AgentId;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use super::desk::refusal;
use super::pages::parsed;
use crate::app::App;
use crate::error::Problem;
use crate::input::QueryString;
use crate::render::Terminal;

/// Default and maximum number of lines.
const LINES: u32 = 40;
const LINES_CAP: u32 = 500;
/// Time limit of the program.
const LIMIT: Duration = Duration::from_secs(120);
/// Maximum size of its output.
const CAP: usize = 16 * 1024 * 1024;

/// How much of a pane.
#[derive(Debug, Deserialize)]
pub(crate) struct PaneRange {
    lines: Option<u32>,
}

/// `GET /api/v1/broker/sessions/{session}/members/{id}/pane`.
pub(crate) async fn pane(
    State(app): State<Arc<App>>,
    Path((given, id)): Path<(String, String)>,
    QueryString(part): QueryString<PaneRange>,
) -> Result<Json<Value>, Problem> {
    let session = parsed(&given)?;
    let id = AgentId::parse(&id).ok_or_else(|| Problem::not_found("there is no such agent"))?;
    let agent = {
        let mut reading = app.desk.read().await?;
        reading.broker()?.agent(session, &id.into()).await.map_err(refusal)?
    };
    let placed =
        agent.placement.as_ref().and_then(|placement| Some((placement, placement.tmux_pane.as_ref()?)));
    let (placement, pane) = placed.ok_or_else(|| Problem::not_found("this agent has no pane"))?;
    let Some((director, identity)) = placement.director.zip(placement.identity.as_ref()) else {
        let why = "this pane is the Director's own: it is the user's terminal";
        return Err(Problem::new(StatusCode::CONFLICT, "conflict", why));
    };
    let lines = part.lines.unwrap_or(LINES).clamp(1, LINES_CAP);
    let words = [
        "--session-id",
        &session.to_string(),
        "--json",
        "member",
        "capture",
        "--agent-id",
        &director.to_string(),
        "--member-id",
        &agent.id.to_string(),
        "--lines",
        &lines.to_string(),
        "--ansi",
    ];
    let args: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut variables =
        vec![("TMUX".into(), format!("{},{},0", identity.socket, identity.server_pid).into())];
    if let Some(StoreUrl::Sqlite(file)) = &app.options.broker {
        variables
            .push(("CAFLEET_DATABASE_URL".into(), format!("sqlite:///{}", file.path().display()).into()));
    }
    let seen = capture(&app.options.programs.cafleet, &args, &variables).await?;
    let content = seen["content"].as_str().unwrap_or_default();
    Ok(Json(json!({"agent_id": agent.id.to_string(), "pane_id": pane, "lines": Terminal::lines(content)})))
}

/// Runs `cafleet` and reads its JSON.
async fn capture(
    program: &FilePath,
    args: &[String],
    variables: &[(OsString, OsString)],
) -> Result<Value, Problem> {
    let failed = |why: String| Problem::internal(format!("cafleet cannot be run: {why}"));
    let running = Command::new(program)
        .args(args)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, running)
        .await
        .map_err(|_| Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "cafleet takes too long"))?
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() || output.stdout.len() > CAP {
        let said = inert::block(&String::from_utf8_lossy(&output.stderr)).trim().to_owned();
        return Err(Problem::new(StatusCode::CONFLICT, "conflict", said));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}
