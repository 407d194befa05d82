//! A new agent: the data for the form, and the spawn itself.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use caliban_core::budget::Limits;
use caliban_core::mode::Mode;
use caliban_core::setup::AgentSetup;
use caliban_fleet::Client;
use caliban_fleet::spawn::{self, SpawnOrder, SpawnPlace};
use caliban_settings::{Environment, Layer, agent_types, known_models::ModelsReport, show, values::Usd};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller;
use crate::app::App;
use crate::error::Problem;
use crate::input::JsonBody;
use crate::once::Named;

/// `POST /api/v1/repos/{repo}/agents`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Spawn {
    prompt: String,
    label: Option<String>,
    agent_type: Option<String>,
    model: Option<String>,
    max_turns: Option<NonZeroU32>,
    max_usd: Option<Usd>,
    permission_mode: Option<String>,
    isolation: Option<String>,
    base: Option<String>,
    after: Vec<String>,
    interactive: bool,
}

impl Spawn {
    /// The same order as that of a command line with these values.
    fn order(&self) -> Result<SpawnOrder, Problem> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let permission_mode = given(&self.permission_mode)
            .map(|mode| mode.parse::<Mode>().map_err(|error| Problem::bad(error.to_string())))
            .transpose()?;
        let place = match given(&self.isolation).as_deref() {
            None => None,
            Some("worktree") => Some(SpawnPlace::Worktree),
            Some("none") if self.base.as_ref().is_none_or(|base| base.trim().is_empty()) => {
                Some(SpawnPlace::Own)
            }
            Some("none") => {
                return Err(Problem::bad("base is about a worktree, and isolation none makes none"));
            }
            Some(_) => return Err(Problem::bad("isolation is worktree or none")),
        };
        Ok(SpawnOrder {
            prompt: self.prompt.clone(),
            typed: Some(self.prompt.clone()),
            setup: AgentSetup {
                agent_type: given(&self.agent_type),
                model: given(&self.model),
                max_turns: self.max_turns.map(|turns| turns.get().into()),
                budget: Limits { usd: self.max_usd.map(Usd::micro), ..Limits::NONE },
                permission_mode,
                ..AgentSetup::default()
            },
            label: given(&self.label),
            place,
            base: given(&self.base),
            after: self.after.clone(),
            interactive: self.interactive,
            ..SpawnOrder::default()
        })
    }
}

pub(crate) async fn spawn(
    State(app): State<Arc<App>>,
    Path(repo): Path<String>,
    named: Named,
    JsonBody(request): JsonBody<Spawn>,
) -> Result<Response, Problem> {
    let view = app.repo(&repo)?;
    let caller = caller(&app, &view);
    let order = request.order()?;
    let loaded = caller.settings((&order.setup).into())?;
    let mut spec = spawn::checked(&caller, &loaded, &order).await?;
    let start = caller.start_options(loaded.daemon_options());
    let mut client = Client::with_start(&view.places, start).with_name(named.0);
    spawn::follow(&mut client, &order.after, &mut spec).await?;
    let mut made = json!(spawn::spawn(&caller, &loaded, &mut client, spec).await?);
    if let Some(fields) = made.as_object_mut() {
        let id = fields.get("id").and_then(Value::as_str).unwrap_or_default();
        let key = format!("{repo}/{id}");
        fields.insert("key".into(), key.into());
    }
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// What the settings of a repo say to somebody who starts an agent there.
fn choices(environment: &Environment, repo: &std::path::Path) -> [Value; 3] {
    let Ok(loaded) = caliban_settings::load(environment, repo, Layer::default()) else {
        return [Value::Null, Value::Null, Value::Null];
    };
    let choice = loaded.choose().ok();
    [
        json!(agent_types::known(&loaded).0),
        json!(ModelsReport::of(&loaded, "")),
        json!(show::set_rows(&loaded, choice.as_ref())),
    ]
}

/// `GET /api/v1/repos/{repo}/new`.
pub(crate) async fn form(
    State(app): State<Arc<App>>,
    Path(repo): Path<String>,
) -> Result<Json<Value>, Problem> {
    let view = app.repo(&repo)?;
    let (environment, path) = (app.options.environment.clone(), view.repo.path.clone());
    let read = tokio::task::spawn_blocking(move || choices(&environment, &path)).await;
    let [types, models, settings] = read.map_err(|error| Problem::internal(error.to_string()))?;
    let agents: Vec<Value> = app
        .hub
        .agents()
        .into_iter()
        .filter(|(of, row)| of.hash == repo && !caliban_fleet::words::has_ended(row.state))
        .map(|(_, row)| json!({"id": row.id, "name": row.label.clone().unwrap_or_else(|| row.id.to_string()), "state": row.state}))
        .collect();
    let queue = match Client::connect(&view.places).await {
        Ok(mut client) => client.status().await.ok().map(|status| {
            json!({"running": status.states.get("running").copied().unwrap_or_default(), "max_running": status.max_running, "queued": status.queued})
        }),
        Err(_) => None,
    };
    Ok(Json(json!({
        "types": types,
        "models": models,
        "settings": settings,
        "modes": Mode::ALL.map(|mode| json!({"name": mode.name(), "words": mode.words()})),
        "agents": agents,
        "queue": queue,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_value_of_a_form_is_none_and_a_wrong_one_is_said() {
        let spawn = Spawn {
            prompt: "--permission-mode=bypass".into(),
            label: Some("--json".into()),
            model: Some("  ".into()),
            after: vec!["-x".into()],
            ..Spawn::default()
        };
        let order = spawn.order().unwrap();
        let expected = SpawnOrder {
            prompt: "--permission-mode=bypass".into(),
            typed: Some("--permission-mode=bypass".into()),
            label: Some("--json".into()),
            after: vec!["-x".into()],
            ..SpawnOrder::default()
        };
        assert_eq!(order, expected);
        let wrong = [
            Spawn { permission_mode: Some("odd".into()), ..Spawn::default() },
            Spawn { isolation: Some("odd".into()), ..Spawn::default() },
            Spawn { isolation: Some("none".into()), base: Some("main".into()), ..Spawn::default() },
        ];
        for spawn in wrong {
            assert_eq!(spawn.order().unwrap_err().status, StatusCode::BAD_REQUEST, "{spawn:?}");
        }
    }
}
