//! One agent: its state, its changes, and the verbs on it. Effects go to the daemon of its repo, which is started if
//! none runs; the daemon decides who may do what.

mod diff;
mod new;
mod verbs;

pub(crate) use diff::{diff, diff_file};
pub(crate) use new::{form, spawn};
pub(crate) use verbs::{approve, cancel, deny, kill, merge, respawn, resume, rm, send};

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use caliban_contract::records::{SPEC, TRANSCRIPT};
use caliban_core::spec::{Isolation, SpawnSpec};
use caliban_core::{inert, models};
use caliban_fleet::Client;
use caliban_fleet::caller::FleetCaller;
use caliban_fleet::git_programs::nobody_says;
use caliban_fleet::protocol::AgentRow;
use caliban_settings::Layer;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::Problem;
use crate::fleet::RepoView;
use crate::transcript;

/// `GET /api/v1/repos/{repo}/agents/{id}`.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Path((repo, id)): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
    let view = app.repo(&repo)?;
    let (row, mut shown) = app.agent(&repo, &id)?;
    let read = move || about(&app, &row);
    let more =
        tokio::task::spawn_blocking(read).await.map_err(|error| Problem::internal(error.to_string()))?;
    if let (Some(fields), Value::Object(more)) = (shown.as_object_mut(), more) {
        fields.extend(more);
        fields.insert("daemon".into(), view.repo.daemon.into());
    }
    Ok(Json(shown))
}

/// What the agent's files say.
fn about(app: &App, row: &AgentRow) -> Value {
    let path = row.dir.join(TRANSCRIPT);
    let index = app.shelf.with(&path, |index| {
        let last = index.points.last().cloned();
        Ok((index.total(), transcript::todo(index.todo.as_ref()), last))
    });
    let (items, todo, last) = index.unwrap_or_default();
    let context = last.map(|point| {
        let model = point.model.as_deref().or(row.model.as_deref()).unwrap_or_default();
        json!({"used": point.usage.prompt().saturating_add(point.usage.output), "window": models::family(model).window})
    });
    let spec = std::fs::read_to_string(row.dir.join(SPEC)).ok();
    let spec = spec.and_then(|text| SpawnSpec::from_json(&text).ok()).map(|spec| spec_json(&spec));
    json!({"items": items, "todo": todo, "context": context, "spec": spec})
}

fn spec_json(spec: &SpawnSpec) -> Value {
    let (isolation, base) = match &spec.isolation {
        Isolation::None => ("none", None),
        Isolation::Worktree(wanted) => ("worktree", Some(inert::line(&wanted.base_ref))),
    };
    json!({
        "prompt": inert::block(&spec.prompt),
        "agent_type": spec.setup.agent_type,
        "isolation": isolation,
        "base": base,
        "permission_mode": spec.setup.permission_mode,
        "max_turns": spec.setup.max_turns,
        "budget": spec.setup.budget,
        "after": spec.after,
    })
}

/// Who asks the fleet of a repo for a person at a page: they stand in the repo, whose settings and trust are loaded for each
/// request, with the environment that the server was given.
pub(crate) fn caller<'a>(app: &'a App, view: &'a RepoView) -> FleetCaller<'a> {
    FleetCaller {
        environment: &app.options.environment,
        cwd: &view.repo.path,
        places: &view.places,
        program: &app.options.programs.caliban,
        may_run: nobody_says,
    }
}

/// A client of the repo's daemon. Whenever none runs, it starts one with the settings of that repo.
pub(crate) fn daemon(app: &App, view: &RepoView) -> Client {
    let caller = caller(app, view);
    // A mistake in a file must not keep people from seeing and stopping what runs.
    let options = caller.settings(Layer::default()).map(|loaded| loaded.daemon_options()).unwrap_or_default();
    Client::with_start(&view.places, caller.start_options(options))
}
