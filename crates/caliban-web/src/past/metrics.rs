//! `GET /metrics`: figures for Prometheus, in its text format. For scripts only.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use caliban_fleet::words;
use http::{StatusCode, header};

use crate::app::App;
use crate::error::Problem;
use crate::guard::Caller;

/// The route; refuses browsers.
pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    if !matches!(caller, Caller::Script) {
        let why = "figures are for programs: Authorization: Bearer …";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", why));
    }
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, text(&app)).into_response())
}

fn text(app: &App) -> String {
    let mut out = String::new();
    let mut states: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut tokens: BTreeMap<(String, String, &str), u64> = BTreeMap::new();
    let mut costs: BTreeMap<(String, String), u64> = BTreeMap::new();
    let (mut asks, mut turns) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
    for (repo, row) in app.hub.agents() {
        *states.entry((repo.name.clone(), words::status(&row).word())).or_default() += 1;
        let model = row.model.clone().unwrap_or_else(|| "unknown".to_owned());
        let kinds = [
            ("input", row.usage.input),
            ("output", row.usage.output),
            ("cache_read", row.usage.cache_read),
            ("cache_write", row.usage.cache_write),
        ];
        for (kind, count) in kinds {
            *tokens.entry((repo.name.clone(), model.clone(), kind)).or_default() += count;
        }
        if let Some(cost) = row.micro_usd {
            *costs.entry((repo.name.clone(), model)).or_default() += cost.0;
        }
        *asks.entry(repo.name.clone()).or_default() += row.asks.len() as u64;
        *turns.entry(repo.name.clone()).or_default() += row.turns;
    }
    let mut family = |name: &str, help: &str, lines: Vec<(Vec<(&str, String)>, f64)>| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in lines {
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            let _ = writeln!(out, "{name}{{{}}} {value}", labels.join(","));
        }
    };
    let lines = states
        .into_iter()
        .map(|((repo, status), count)| (vec![("repo", repo), ("status", status.to_owned())], count as f64));
    family("caliban_agents", "Agents by how they stand.", lines.collect());
    let lines = asks.into_iter().map(|(repo, count)| (vec![("repo", repo)], count as f64));
    family("caliban_open_asks", "Calls that wait for a person.", lines.collect());
    let lines = turns.into_iter().map(|(repo, count)| (vec![("repo", repo)], count as f64));
    family("caliban_turns", "Model requests of the agents that are registered.", lines.collect());
    let lines = tokens.into_iter().map(|((repo, model, kind), count)| {
        (vec![("repo", repo), ("model", model), ("kind", kind.to_owned())], count as f64)
    });
    family("caliban_tokens", "Tokens of the agents that are registered.", lines.collect());
    let lines = costs
        .into_iter()
        .map(|((repo, model), micro)| (vec![("repo", repo), ("model", model)], micro as f64 / 1e6));
    family(
        "caliban_cost_usd",
        "What the agents that are registered have cost, where that is known.",
        lines.collect(),
    );
    let up = caliban_contract::wall_ms().saturating_sub(app.started_at) as f64 / 1e3;
    family("caliban_server_uptime_seconds", "How long the dashboard runs.", vec![(Vec::new(), up)]);
    out
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
