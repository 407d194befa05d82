//! `GET /api/v1/spend`: tokens by kind and cost, by day, agent and model, from the same ledger as `caliban budget`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use caliban_contract::{archive, local_time, records};
use caliban_core::budget::Spent;
use caliban_core::event::{self, Record};
use caliban_core::inert;
use caliban_fleet::words;
use caliban_store::ledger::{By, FILE, Filter, Ledger, SpendingSum};
use caliban_store::{StoreError, StoreUrl};
use jiff::ToSpan as _;
use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::Problem;
use crate::input::QueryString;

/// Default and maximum number of days.
const DAYS: u16 = 30;
const DAYS_CAP: u16 = 366;
/// Maximum number of agents in an answer.
const AGENTS: usize = 200;
/// Maximum number of bytes that are read of a transcript for the first prompt.
const TITLE_WITHIN: u64 = 256 * 1024;

/// The query.
#[derive(Debug, Deserialize)]
pub(crate) struct SpendQuery {
    days: Option<u16>,
}

/// A number of requests, and what they spent.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    requests: u64,
    spent: Spent,
}

/// An agent, including its helpers.
#[derive(Debug, Default)]
struct SpendingAgent {
    sum: Sum,
    label: Option<String>,
    repo_name: String,
}

/// The route.
pub(crate) async fn spend(
    State(app): State<Arc<App>>,
    QueryString(part): QueryString<SpendQuery>,
) -> Result<Json<Value>, Problem> {
    let days = part.days.unwrap_or(DAYS).clamp(1, DAYS_CAP);
    let file = app.options.sources.data.join(FILE);
    // Reading does not create a ledger.
    if !file.exists() {
        return Ok(Json(answer(&app, &LedgerRead::default())));
    }
    let unread = |error: StoreError| Problem::internal(format!("the ledger: {error}"));
    let mut ledger = Ledger::open(&StoreUrl::sqlite(file)).await.map_err(unread)?;
    let read = read(&mut ledger, days).await.map_err(unread)?;
    ledger.close().await;
    Ok(Json(answer(&app, &read)))
}

/// What was read from the ledger.
#[derive(Debug, Default)]
struct LedgerRead {
    today: Sum,
    week: Sum,
    total: Sum,
    days: Vec<SpendingSum>,
    models: Vec<SpendingSum>,
    agents: Vec<SpendingSum>,
}

async fn read(ledger: &mut Ledger, days: u16) -> Result<LedgerRead, StoreError> {
    let today = local_time::now().date();
    let since = |days: u16| {
        let day: Option<Date> = today.checked_sub(i64::from(days.saturating_sub(1)).days()).ok();
        Filter { since: day, ..Filter::default() }
    };
    let all = since(days);
    let mut sums = Vec::new();
    for filter in [&since(1), &since(7), &all] {
        let line = ledger.history(&[], filter).await?.into_iter().next();
        sums.push(line.map(|line| sum(&line)).unwrap_or_default());
    }
    Ok(LedgerRead {
        today: sums.first().copied().unwrap_or_default(),
        week: sums.get(1).copied().unwrap_or_default(),
        total: sums.get(2).copied().unwrap_or_default(),
        days: ledger.history(&[By::Day], &all).await?,
        models: ledger.history(&[By::Model], &all).await?,
        agents: ledger.history(&[By::Agent, By::Label, By::Repo], &all).await?,
    })
}

fn answer(app: &App, read: &LedgerRead) -> Value {
    let days: Vec<Value> =
        read.days.iter().filter_map(|line| Some(with(&sum(line), json!({"day": line.day?})))).collect();
    let model = |line: &SpendingSum| inert::line(line.model.as_deref().unwrap_or("unknown")).into_owned();
    let models: Vec<Value> =
        read.models.iter().map(|line| with(&sum(line), json!({"model": model(line)}))).collect();
    // Helpers count for the agent that they belong to.
    let mut agents: BTreeMap<String, SpendingAgent> = BTreeMap::new();
    for line in &read.agents {
        let Some(account) = &line.agent else { continue };
        let mut parts = account.as_str().splitn(3, '/');
        let (repo, id) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let is_top = parts.next().is_none();
        let repo_name = line.repo.as_deref().and_then(|repo| repo.file_name());
        let repo_name = repo_name.map(|name| inert::line(&name.to_string_lossy()).into_owned());
        let entry = agents.entry(format!("{repo}/{id}")).or_default();
        add(&mut entry.sum, &sum(line));
        if is_top {
            entry.label = line.label.as_deref().map(|label| inert::line(label).into_owned());
        }
        entry.repo_name = repo_name.unwrap_or_default();
    }
    let known: BTreeMap<String, Option<String>> = app
        .hub
        .agents()
        .into_iter()
        .map(|(repo, row)| (format!("{}/{}", repo.hash, row.id), words::title(&row)))
        .collect();
    let mut agents: Vec<(String, SpendingAgent)> = agents.into_iter().collect();
    agents
        .sort_by_key(|(_, agent)| std::cmp::Reverse((agent.sum.spent.usd.0, agent.sum.spent.usage.total())));
    let agents: Vec<Value> = agents
        .into_iter()
        .take(AGENTS)
        .map(|(key, agent)| {
            let title = agent.label.or_else(|| known.get(&key).cloned().flatten());
            let title = title.or_else(|| session_title(&app.options.sources.data, &key));
            let name = title.unwrap_or_else(|| key.rsplit('/').next().unwrap_or_default().to_owned());
            let kind = if known.contains_key(&key) { "agents" } else { "sessions" };
            with(&agent.sum, json!({"key": key, "name": name, "repo_name": agent.repo_name, "kind": kind}))
        })
        .collect();
    json!({
        "today": figures(&read.today),
        "week": figures(&read.week),
        "total": figures(&read.total),
        "budget": app.hub.today()["budget_micro_usd"].as_u64().map(|limit| json!({"limit_micro_usd": limit})),
        "days": days,
        "last_day": local_time::now().date(),
        "by_agent": agents,
        "by_model": models,
    })
}

/// What a session of the foreground, or an agent that was removed, was asked first.
fn session_title(data: &Path, key: &str) -> Option<String> {
    let (repo, id) = key.split_once('/')?;
    let repo = data.join("repos").join(repo);
    let opened = [records::SESSIONS, archive::DIRECTORY]
        .into_iter()
        .find_map(|shelf| File::open(repo.join(shelf).join(id).join(records::TRANSCRIPT)).ok())?;
    let lines = BufReader::new(opened.take(TITLE_WITHIN)).lines();
    let read = lines.map_while(Result::ok).filter_map(|line| serde_json::from_str::<Record>(&line).ok());
    let title = read.into_iter().find_map(|record| record.event.typed()).map(|typed| event::title(&typed));
    title.filter(|title| !title.is_empty())
}

fn sum(line: &SpendingSum) -> Sum {
    Sum { requests: line.requests, spent: line.spent }
}

fn add(to: &mut Sum, other: &Sum) {
    to.requests += other.requests;
    to.spent.usage.input += other.spent.usage.input;
    to.spent.usage.output += other.spent.usage.output;
    to.spent.usage.cache_read += other.spent.usage.cache_read;
    to.spent.usage.cache_write += other.spent.usage.cache_write;
    to.spent.usd.0 += other.spent.usd.0;
    to.spent.unpriced += other.spent.unpriced;
}

fn with(sum: &Sum, more: Value) -> Value {
    let mut shown = figures(sum);
    if let (Some(shown), Value::Object(more)) = (shown.as_object_mut(), more) {
        shown.extend(more);
    }
    shown
}

/// Tokens and cost. If the price of any part is unknown the whole cost is unknown, never 0.
fn figures(sum: &Sum) -> Value {
    let spent = &sum.spent;
    json!({
        "input": spent.usage.input,
        "output": spent.usage.output,
        "cache_read": spent.usage.cache_read,
        "cache_write": spent.usage.cache_write,
        "micro_usd": (spent.unpriced == 0).then_some(spent.usd.0),
        "known_micro_usd": spent.usd.0,
        "requests": sum.requests,
    })
}
