//! `GET /api/v1/spend`: tokens by kind and cost, by day, agent and model. Every conversation counts: agents of the fleet, those in
//! the archive, and sessions in a terminal.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use caliban_core::inert;
use jiff::{ToSpan as _, Zoned};
use serde::Deserialize;
use serde_json::{Value, json};

use super::book::{Taken, transcripts};
use crate::app::App;
use crate::error::Problem;
use crate::input::Asked;

/// How many days are told when nobody says otherwise, and at most.
const DAYS: u16 = 30;
const DAYS_CAP: u16 = 366;
/// How many agents are told.
const AGENTS: usize = 200;

/// How far back.
#[derive(Debug, Deserialize)]
pub(crate) struct Part {
    days: Option<u16>,
}

/// The route.
pub(crate) async fn spend(
    State(app): State<Arc<App>>,
    Asked(part): Asked<Part>,
) -> Result<Json<Value>, Problem> {
    let days = part.days.unwrap_or(DAYS).clamp(1, DAYS_CAP);
    let made = tokio::task::spawn_blocking(move || fold(&app, days)).await;
    Ok(Json(made.map_err(|error| Problem::internal(error.to_string()))?))
}

/// Blocks.
fn fold(app: &App, days: u16) -> Value {
    let today = Zoned::now().date();
    let back =
        |days: u16| today.checked_sub(i64::from(days).days()).map(|day| day.to_string()).unwrap_or_default();
    let (oldest, week) = (back(days - 1), back(6));
    let names: BTreeMap<String, (String, String)> = app
        .hub
        .agents()
        .into_iter()
        .map(|(repo, row)| {
            let name = row
                .label
                .as_deref()
                .map_or_else(|| row.id.to_string(), |label| inert::line(label).into_owned());
            (format!("{}/{}", repo.hash, row.id), (name, repo.name))
        })
        .collect();
    let (mut by_day, mut by_model, mut by_agent) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut now, mut seven, mut all) = (Taken::default(), Taken::default(), Taken::default());
    let repos = std::fs::read_dir(app.options.sources.data.join("repos")).into_iter().flatten().flatten();
    for base in repos.map(|entry| entry.path()) {
        let hash = base.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for kind in ["agents", "archive", "sessions"] {
            for entry in std::fs::read_dir(base.join(kind)).into_iter().flatten().flatten() {
                let id = entry.file_name().to_string_lossy().into_owned();
                let key = format!("{hash}/{id}");
                for path in transcripts(&entry.path()) {
                    for ((day, model), taken) in &app.book.fold(&path).taken {
                        if *day < oldest {
                            continue;
                        }
                        all.add(taken);
                        if *day >= week {
                            seven.add(taken);
                        }
                        if *day == today.to_string() {
                            now.add(taken);
                        }
                        by_day.entry(day.clone()).or_insert_with(Taken::default).add(taken);
                        by_model.entry(model.clone()).or_insert_with(Taken::default).add(taken);
                        by_agent.entry((key.clone(), kind)).or_insert_with(Taken::default).add(taken);
                    }
                }
            }
        }
    }
    let with = |taken: &Taken, more: Value| {
        let mut shown = figures(taken);
        if let (Some(shown), Value::Object(more)) = (shown.as_object_mut(), more) {
            shown.extend(more);
        }
        shown
    };
    let days: Vec<Value> = by_day.iter().map(|(day, taken)| with(taken, json!({"day": day}))).collect();
    let models: Vec<Value> =
        by_model.iter().map(|(model, taken)| with(taken, json!({"model": inert::line(model)}))).collect();
    let mut agents: Vec<(&(String, &str), &Taken)> = by_agent.iter().collect();
    agents.sort_by_key(|(_, taken)| std::cmp::Reverse((taken.micro_usd, taken.usage.total())));
    let agents: Vec<Value> = agents
        .into_iter()
        .take(AGENTS)
        .map(|((key, kind), taken)| {
            let id = key.rsplit('/').next().unwrap_or_default();
            let (name, repo_name) = names.get(key).cloned().unwrap_or_else(|| (id.to_owned(), String::new()));
            with(taken, json!({"key": key, "name": name, "repo_name": repo_name, "kind": kind}))
        })
        .collect();
    json!({
        "today": figures(&now),
        "week": figures(&seven),
        "total": figures(&all),
        "budget": null,
        "days": days,
        "by_agent": agents,
        "by_model": models,
    })
}

/// Tokens and cost. A cost of which a part has no price is unknown, never 0.
fn figures(taken: &Taken) -> Value {
    let micro_usd = (taken.unpriced == 0).then_some(taken.micro_usd);
    json!({
        "input": taken.usage.input,
        "output": taken.usage.output,
        "cache_read": taken.usage.cache_read,
        "cache_write": taken.usage.cache_write,
        "micro_usd": micro_usd,
        "known_micro_usd": taken.micro_usd,
        "requests": taken.requests,
    })
}
