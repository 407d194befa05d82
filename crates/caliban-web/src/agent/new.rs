//! A new agent: the data for the form, and the spawn itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use caliban_fleet::Client;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::verbs;
use crate::app::App;
use crate::error::Problem;
use crate::input::JsonBody;
use crate::once::Named;
use crate::program;

/// `POST /api/v1/repos/{repo}/agents`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Spawn {
    prompt: String,
    label: Option<String>,
    agent_type: Option<String>,
    model: Option<String>,
    max_turns: Option<u64>,
    max_usd: Option<f64>,
    permission_mode: Option<String>,
    isolation: Option<String>,
    base: Option<String>,
    after: Vec<String>,
    interactive: bool,
}

impl Spawn {
    /// The arguments of `caliban agents spawn`. Each value follows an equals sign, so it cannot be mistaken for a flag.
    fn args(&self) -> Vec<String> {
        let mut args = vec!["spawn".to_owned(), "--json".to_owned(), format!("--prompt={}", self.prompt)];
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let texts = [
            ("--label", &self.label),
            ("--agent", &self.agent_type),
            ("--model", &self.model),
            ("--permission-mode", &self.permission_mode),
            ("--isolation", &self.isolation),
            ("--base", &self.base),
        ];
        args.extend(texts.iter().filter_map(|(flag, text)| Some(format!("{flag}={}", given(text)?))));
        args.extend(self.max_turns.map(|turns| format!("--max-turns={turns}")));
        args.extend(self.max_usd.map(|usd| format!("--budget-usd={usd}")));
        args.extend(self.after.iter().map(|id| format!("--after={id}")));
        args.extend(self.interactive.then(|| "--interactive".to_owned()));
        args
    }
}

pub(crate) async fn spawn(
    State(app): State<Arc<App>>,
    Path(repo): Path<String>,
    named: Named,
    JsonBody(request): JsonBody<Spawn>,
) -> Result<Response, Problem> {
    let mut args = request.args();
    args.extend(verbs::request_key(named));
    let mut made = verbs::agents(&app, &repo, args).await?;
    if let Some(fields) = made.as_object_mut() {
        let id = fields.get("id").and_then(Value::as_str).unwrap_or_default();
        let key = format!("{repo}/{id}");
        fields.insert("key".into(), key.into());
    }
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// `GET /api/v1/repos/{repo}/new`.
pub(crate) async fn form(
    State(app): State<Arc<App>>,
    Path(repo): Path<String>,
) -> Result<Json<Value>, Problem> {
    let view = app.repo(&repo)?;
    let path = view.repo.path.to_string_lossy().into_owned();
    let programs = &app.options.programs;
    let run = |words: &[&str]| {
        let args: Vec<String> = ["-C", &path].iter().chain(words).map(|word| (*word).to_owned()).collect();
        async move { program::caliban(programs, &args).await }
    };
    let (types, models, settings) = tokio::join!(
        run(&["agents", "types", "--json"]),
        run(&["models", "--json"]),
        run(&["config", "show", "--json"])
    );
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
        "types": types.unwrap_or_default(),
        "models": models.unwrap_or_default(),
        "settings": settings.unwrap_or_default(),
        "agents": agents,
        "queue": queue,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_of_a_form_is_taken_for_a_flag() {
        let spawn = Spawn {
            prompt: "--permission-mode=bypass".into(),
            label: Some("--json".into()),
            model: Some("  ".into()),
            after: vec!["-x".into()],
            ..Spawn::default()
        };
        let args = ["spawn", "--json", "--prompt=--permission-mode=bypass", "--label=--json", "--after=-x"];
        assert_eq!(spawn.args(), args);
    }
}
