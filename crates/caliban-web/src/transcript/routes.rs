//! `…/transcript`, `…/seen`, `…/output/{call}`, `…/usage`.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use caliban_contract::records::TRANSCRIPT;
use caliban_core::event::EventKind;
use caliban_core::models;
use http::header;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{From, index, item, page};
use crate::app::App;
use crate::error::Problem;
use crate::input::{JsonBody, QueryString};
use crate::render::Terminal;

/// Maximum size of an output that is read.
const OUTPUT_CAP: u64 = 64 * 1024 * 1024;
/// Maximum number of lines of output in a page.
const OUTPUT_PAGE: usize = 1000;

/// A range of a transcript.
#[derive(Debug, Deserialize)]
pub(crate) struct TranscriptRange {
    from: Option<u64>,
    seq: Option<u64>,
    limit: Option<u64>,
}

/// `GET …/transcript`.
pub(crate) async fn transcript(
    State(app): State<Arc<App>>,
    Path((repo, id)): Path<(String, String)>,
    QueryString(part): QueryString<TranscriptRange>,
) -> Result<Json<Value>, Problem> {
    let (row, _) = app.agent(&repo, &id)?;
    let from = match (part.from, part.seq) {
        (Some(item), _) => From::Item(item),
        (None, Some(record)) => From::Record(record),
        (None, None) => From::End,
    };
    let path = row.dir.join(TRANSCRIPT);
    let read = move |app: &App| {
        let mark = app.seen().of(&format!("{repo}/{}", row.id));
        app.shelf.with(&path, |index| {
            let mut page = page(&path, index, from, part.limit)?;
            page["seen"] = json!(mark.map(|seq| index.read_to(seq)));
            Ok(page)
        })
    };
    blocking(app, read).await.map(Json)
}

/// `POST …/seen`: the record of the last item that was on a screen.
#[derive(Debug, Deserialize)]
pub(crate) struct SeenRequest {
    seq: u64,
}

/// Moves the read mark forward; the response has the mark that holds for all devices.
pub(crate) async fn seen(
    State(app): State<Arc<App>>,
    Path((repo, id)): Path<(String, String)>,
    JsonBody(SeenRequest { seq }): JsonBody<SeenRequest>,
) -> Result<Json<Value>, Problem> {
    let (row, _) = app.agent(&repo, &id)?;
    let path = row.dir.join(TRANSCRIPT);
    let kept = blocking(app, move |app| {
        // A mark cannot lie beyond the last record.
        let Some(last) = app.shelf.with(&path, |index| Ok(index.last_seq()))? else { return Ok(None) };
        let agent = format!("{repo}/{}", row.id);
        app.seen().mark(&agent, seq.min(last), caliban_contract::wall_ms()).map(Some)
    });
    Ok(Json(json!({ "seq": kept.await? })))
}

/// A range of an output.
#[derive(Debug, Deserialize)]
pub(crate) struct OutputPart {
    from: Option<usize>,
    limit: Option<usize>,
    #[serde(default)]
    raw: bool,
}

/// `GET …/output/{call}`: the whole output of a call.
pub(crate) async fn output(
    State(app): State<Arc<App>>,
    Path((repo, id, call)): Path<(String, String, String)>,
    QueryString(part): QueryString<OutputPart>,
) -> Result<Response, Problem> {
    let (row, _) = app.agent(&repo, &id)?;
    let dir = row.dir.clone();
    let text = blocking(app, move |app| {
        let path = dir.join(TRANSCRIPT);
        app.shelf.with(&path, |index| {
            let Some(end) = find_end(&path, index, &call)? else { return Ok(None) };
            Ok(Some(whole(&dir, &end)?))
        })
    })
    .await?;
    let text = text.ok_or_else(|| Problem::not_found("there is no such call, or it has not ended"))?;
    if part.raw {
        let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        return Ok((kind, caliban_core::inert::block(&text).into_owned()).into_response());
    }
    let (from, limit) = (part.from.unwrap_or(0), part.limit.unwrap_or(OUTPUT_PAGE).min(OUTPUT_PAGE));
    let total = text.lines().count();
    let shown: Vec<&str> = text.lines().skip(from).take(limit).collect();
    let lines = Terminal::lines(&shown.join("\n"));
    Ok(Json(json!({"total_lines": total, "first": from, "lines": lines})).into_response())
}

/// The record that ends a call.
fn find_end(path: &std::path::Path, index: &index::Index, call: &str) -> std::io::Result<Option<Value>> {
    let file = std::fs::File::open(path)?;
    for n in (0..index.total()).rev() {
        let Some(entry) = index.entry(n) else { continue };
        let Some(end) = entry.end else { continue };
        let end = item::read(&file, end)?;
        if EventKind::of(&end) == EventKind::CallEnded && end["id"] == call {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// The whole output: from a file of its own below the agent's directory, else from the record.
fn whole(dir: &std::path::Path, end: &Value) -> std::io::Result<String> {
    if let Some(file) = end["whole"].as_str().map(PathBuf::from).filter(|file| file.starts_with(dir)) {
        let mut bytes = Vec::new();
        if let Ok(file) = std::fs::File::open(file) {
            file.take(OUTPUT_CAP).read_to_end(&mut bytes)?;
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    let parts = end["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"))
}

/// `GET …/usage`: tokens, context and cost over time.
pub(crate) async fn usage(
    State(app): State<Arc<App>>,
    Path((repo, id)): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
    let (row, _) = app.agent(&repo, &id)?;
    let path = row.dir.join(TRANSCRIPT);
    let points = blocking(app, move |app| app.shelf.with(&path, |index| Ok(index.points.clone()))).await?;
    let window = row.model.as_deref().map(|model| models::family(model).window);
    let mut cost = Some(0_u64);
    let shown: Vec<Value> = points
        .iter()
        .enumerate()
        .map(|(turn, point)| {
            let price = point.model.as_deref().and_then(models::price);
            cost = cost.zip(price).map(|(cost, price)| cost.saturating_add(price.cost(point.usage).0));
            json!({
                "at": point.at,
                "turn": turn + 1,
                "input": point.usage.input,
                "output": point.usage.output,
                "cache_read": point.usage.cache_read,
                "cache_write": point.usage.cache_write,
                "context": point.usage.prompt().saturating_add(point.usage.output),
                "micro_usd": cost,
            })
        })
        .collect();
    Ok(Json(json!({"points": shown, "window": window})))
}

/// Runs code that reads files on a blocking thread.
async fn blocking<T: Send + 'static>(
    app: Arc<App>,
    what: impl FnOnce(&App) -> std::io::Result<T> + Send + 'static,
) -> Result<T, Problem> {
    let read = tokio::task::spawn_blocking(move || what(&app)).await;
    let unread = |error: String| Problem::internal(format!("the transcript cannot be read: {error}"));
    read.map_err(|error| unread(error.to_string()))?.map_err(|error| unread(error.to_string()))
}
