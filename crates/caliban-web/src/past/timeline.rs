//! `GET /api/v1/timeline`: when each agent worked, waited (and for which agent), asked and failed, as spans of time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use caliban_contract::records::{SPEC, TRANSCRIPT};
use caliban_core::ids::AgentId;
use caliban_core::spec::SpawnSpec;
use caliban_fleet::protocol::AgentRow;
use caliban_fleet::{Client, words};
use caliban_store::broker::{Of, Owner, TaskKind};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::activity::{Doing, Fold};
use crate::app::App;
use crate::error::Problem;
use crate::fleet::StatusLook;
use crate::input::QueryString;
use crate::time;
use caliban_core::status_word::{StatusGroup, StatusWord};

/// Maximum time for a daemon's answer; after it, its agents' spans are derived from their transcripts.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum number of messages read per session.
const MESSAGES: u32 = 1000;
/// The default length of the time range.
const BACK_MS: u64 = 12 * 60 * 60 * 1000;

/// The time range.
#[derive(Debug, Deserialize)]
pub(crate) struct TimeRange {
    from: Option<String>,
    to: Option<String>,
}

/// The route.
pub(crate) async fn timeline(
    State(app): State<Arc<App>>,
    QueryString(part): QueryString<TimeRange>,
) -> Result<Json<Value>, Problem> {
    let now = caliban_contract::wall_ms();
    let parsed = |text: &Option<String>, default: u64| match text {
        None => Ok(default),
        Some(text) => match text.parse::<Timestamp>() {
            Ok(at) => Ok(u64::try_from(at.as_millisecond()).unwrap_or(0)),
            Err(_) => Err(Problem::bad("`from` and `to` are times like 2026-11-17T20:00:00Z")),
        },
    };
    let to = parsed(&part.to, now)?;
    let from = parsed(&part.from, to.saturating_sub(BACK_MS))?;
    // A server that has just started answers with all that it will know.
    app.hub.settled().await;
    let history = history(&app, from, to).await;
    let messages = messages(&app, from, to).await;
    let made = tokio::task::spawn_blocking(move || {
        let rows = app.hub.agents().into_iter();
        let seen = rows.filter(|(_, row)| row.created_at <= to && row.updated_at >= from);
        let agents: Vec<Value> = seen
            .map(|(repo, row)| {
                let key = format!("{}/{}", repo.hash, row.id);
                // Without a history from a daemon, the transcript gives an incomplete one.
                let spans = match history.get(&key) {
                    Some(changes) => recorded(changes),
                    None => spans(&row, &app.book.fold(&row.dir.join(TRANSCRIPT)), now),
                };
                let sum = |status: [StatusWord; 2]| -> u64 {
                    let of = spans.iter().filter(|span| status.contains(&span.status));
                    of.map(|span| span.to.unwrap_or(now).saturating_sub(span.from)).sum()
                };
                let ended = words::has_ended(row.state).then(|| words::status(&row));
                json!({
                    "key": key,
                    "id": row.id,
                    "name": words::title(&row).unwrap_or_else(|| row.id.to_string()),
                    "repo_name": repo.name,
                    "waited_ms": sum([StatusWord::Asks, StatusWord::Waits]),
                    "worked_ms": sum([StatusWord::Running, StatusWord::Limited]),
                    "parent": row.parent,
                    "after": after(&row),
                    "ended": ended.map(StatusWord::word),
                    "end": ended.map(StatusLook::of),
                    "spans": spans
                        .iter()
                        .map(|span| ShownSpan {
                            from: time::text(span.from),
                            to: span.to.map(time::text),
                            look: StatusLook::of(span.status),
                        })
                        .collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({"from": time::text(from), "to": time::text(to), "agents": agents, "messages": messages})
    })
    .await;
    Ok(Json(made.map_err(|error| Problem::internal(error.to_string()))?))
}

/// The agents that it waited or waits for. The row names only those that have not ended.
fn after(row: &AgentRow) -> Vec<AgentId> {
    let spec = std::fs::read_to_string(row.dir.join(SPEC)).ok();
    let spec = spec.and_then(|text| SpawnSpec::from_json(&text).ok());
    spec.map_or_else(|| row.after.clone(), |spec| spec.after)
}

/// Messages between fleet agents through the broker: the time, and the keys of both agents. Empty without a broker.
async fn messages(app: &App, from: u64, to: u64) -> Vec<Value> {
    let owners: Vec<(Owner, String)> = app
        .hub
        .agents()
        .into_iter()
        .map(|(repo, row)| (Owner::of_directory(&row.dir), format!("{}/{}", repo.hash, row.id)))
        .collect();
    let mut found = Vec::new();
    let Ok(mut reading) = app.desk.read().await else { return found };
    let Ok(broker) = reading.broker() else { return found };
    for summary in broker.sessions().await.unwrap_or_default() {
        let session = summary.session.id;
        let everybody = broker.everybody(session).await.unwrap_or_default();
        let key_of = |owner: &Owner| owners.iter().find(|(known, _)| known == owner).map(|(_, key)| key);
        let keys: HashMap<_, _> =
            everybody.iter().filter_map(|agent| Some((agent.id, key_of(agent.owner.as_ref()?)?))).collect();
        // A message needs two fleet agents in the session.
        if keys.len() < 2 {
            continue;
        }
        for task in broker.timeline(session, Of::Session, MESSAGES).await.unwrap_or_default() {
            let Ok(at) = task.created_at.to_string().parse::<Timestamp>() else { continue };
            let at = u64::try_from(at.as_millisecond()).unwrap_or(0);
            let both = keys.get(&task.from).zip(task.to.and_then(|to| keys.get(&to)));
            if let Some((sender, reader)) =
                both.filter(|_| task.kind == TaskKind::Unicast && (from..=to).contains(&at))
            {
                found.push(json!({"at": time::text(at), "from": sender, "to": reader}));
            }
        }
    }
    found
}

/// Statuses and when each began.
type Changes = Vec<(u64, StatusWord)>;

/// The state changes by agent, from the daemons that run and record them.
async fn history(app: &App, from: u64, to: u64) -> BTreeMap<String, Changes> {
    let mut all: BTreeMap<String, Changes> = BTreeMap::new();
    for view in app.hub.repos() {
        let asked = async { Client::connect(&view.places).await?.history(from, to).await };
        let Ok(Ok(history)) = tokio::time::timeout(PATIENCE, asked).await else { continue };
        for change in history.changes {
            let Some(status) = StatusWord::parse(&change.status) else { continue };
            let key = format!("{}/{}", view.repo.hash, change.agent);
            all.entry(key).or_default().push((change.at, status));
        }
    }
    all
}

/// Recorded changes as spans. After an end there is no span until the agent goes on.
fn recorded(changes: &[(u64, StatusWord)]) -> Vec<TimeSpan> {
    let each = changes.iter().enumerate().filter_map(|(at, (from, status))| {
        let status = match *status {
            status if status.group() == StatusGroup::Finished => return None,
            status => in_timeline(status),
        };
        let to = changes.get(at + 1).map(|(next, _)| *next);
        to.is_none_or(|to| to > *from).then_some(TimeSpan { from: *from, to, status })
    });
    each.collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimeSpan {
    from: u64,
    /// `None` while it goes on.
    to: Option<u64>,
    status: StatusWord,
}

/// A span as the page gets it.
#[derive(Debug, Serialize)]
struct ShownSpan {
    from: String,
    to: Option<String>,
    #[serde(flatten)]
    look: StatusLook,
}

/// An idle agent waits for a message.
fn in_timeline(status: StatusWord) -> StatusWord {
    if status == StatusWord::Idle { StatusWord::Waits } else { status }
}

/// The life of an agent from its spawn on, derived from its transcript.
fn spans(row: &AgentRow, fold: &Fold, now: u64) -> Vec<TimeSpan> {
    let mut starts: Changes = vec![(row.created_at, StatusWord::Queued)];
    starts.extend(fold.changes.iter().map(|(at, doing)| {
        let status = match doing {
            Doing::Works => StatusWord::Running,
            Doing::Asks => StatusWord::Asks,
            Doing::Waits => StatusWord::Waits,
        };
        (*at, status)
    }));
    let status = in_timeline(words::status(row));
    let has_ended = words::has_ended(row.state);
    let end = has_ended.then(|| row.updated_at.max(fold.last));
    // For the present state the row is more reliable than the transcript.
    if !has_ended && starts.len() > 1 && starts.last().is_some_and(|(_, last)| *last != status) {
        starts.push((row.updated_at.max(fold.last).min(now), status));
    }
    let mut spans: Vec<TimeSpan> = Vec::new();
    for (at, (from, status)) in starts.iter().enumerate() {
        let to = starts.get(at + 1).map(|(next, _)| *next).or(end);
        // The pause between the end of the last turn and the end of the agent is not shown as waiting.
        if has_ended && *status == StatusWord::Waits && at + 1 == starts.len() {
            continue;
        }
        if to.is_none_or(|to| to > *from) {
            spans.push(TimeSpan { from: *from, to, status: *status });
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use caliban_core::lifecycle::State;

    use super::*;

    #[test]
    fn what_the_daemon_recorded_has_limits_ends_and_resumes() {
        let changes = [
            (100, StatusWord::Queued),
            (200, StatusWord::Running),
            (300, StatusWord::Limited),
            (400, StatusWord::Running),
            (500, StatusWord::Failed),
        ];
        let again = [(900, StatusWord::Running), (900, StatusWord::Asks)];
        let span = |from, to, status| TimeSpan { from, to, status };
        assert_eq!(
            recorded(&[&changes[..], &again].concat()),
            [
                span(100, Some(200), StatusWord::Queued),
                span(200, Some(300), StatusWord::Running),
                span(300, Some(400), StatusWord::Limited),
                span(400, Some(500), StatusWord::Running),
                span(900, None, StatusWord::Asks),
            ]
        );
    }

    #[test]
    fn a_life_is_spans_without_gaps() {
        let mut row = AgentRow::new("a3f8b2c1".parse().unwrap(), State::Done);
        (row.created_at, row.updated_at) = (100, 900);
        let changes = vec![(200, Doing::Works), (300, Doing::Asks), (500, Doing::Works), (900, Doing::Waits)];
        let fold = Fold { changes, last: 900, ..Fold::default() };
        let span = |from, to, status| TimeSpan { from, to: Some(to), status };
        assert_eq!(
            spans(&row, &fold, 2000),
            [
                span(100, 200, StatusWord::Queued),
                span(200, 300, StatusWord::Running),
                span(300, 500, StatusWord::Asks),
                span(500, 900, StatusWord::Running)
            ]
        );
        row.state = State::Running;
        let living =
            spans(&row, &Fold { changes: vec![(200, Doing::Works)], last: 900, ..Fold::default() }, 2000);
        assert_eq!(
            living,
            [
                span(100, 200, StatusWord::Queued),
                TimeSpan { from: 200, to: None, status: StatusWord::Running }
            ]
        );
    }
}
