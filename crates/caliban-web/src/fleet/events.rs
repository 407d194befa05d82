//! `GET /api/v1/events`: server-sent events. Each reader has a cursor into the ring. Events of the transcripts that a
//! reader watches are read for that reader alone, and carry no id.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::hub::Snapshot;
use super::live::Live;
use crate::app::App;
use crate::error::Problem;
use crate::input::QueryString;

/// The interval of the stream's ping events.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Capacity of the queue to a slow reader. When it is full the writer waits, and the ring goes on.
const AHEAD: usize = 16;
/// Maximum number of transcripts that a stream may watch.
const WATCHED: usize = 16;
/// Maximum number of events in one piece.
const BATCH: usize = 256;

/// The query: where to resume, and which transcripts to watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventsQuery {
    after: Option<String>,
    watch: Option<String>,
}

pub(crate) async fn events(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    QueryString(wanted): QueryString<EventsQuery>,
) -> Result<Response, Problem> {
    let last =
        headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned).or(wanted.after);
    let watched: Vec<String> =
        wanted.watch.iter().flat_map(|all| all.split(',')).map(str::to_owned).collect();
    let watched: Vec<String> = watched.into_iter().filter(|key| !key.is_empty()).collect();
    if watched.len() > WATCHED {
        return Err(Problem::bad(format!("a stream watches at most {WATCHED} agents")));
    }
    let (pieces, reader) = mpsc::channel::<Bytes>(AHEAD);
    let writer = tokio::spawn(async move { write(&app, last.as_deref(), &watched, &pieces).await });
    let reader = EventReader { reader, writer: writer.abort_handle() };
    let stream = futures_util::stream::unfold(reader, |mut reader| async move {
        let piece = reader.reader.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(piece), reader))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, Body::from_stream(stream)).into_response())
}

/// The reader's end; dropping it aborts the writer.
struct EventReader {
    reader: mpsc::Receiver<Bytes>,
    writer: AbortHandle,
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// The reader has disconnected.
struct HungUp;

async fn write(app: &Arc<App>, last: Option<&str>, watched: &[String], pieces: &mpsc::Sender<Bytes>) {
    // The result does not matter: the reader is gone.
    let _hung_up = tell(app, last, watched, pieces).await;
}

async fn tell(
    app: &Arc<App>,
    last: Option<&str>,
    watched: &[String],
    pieces: &mpsc::Sender<Bytes>,
) -> Result<(), HungUp> {
    app.hub.settled().await;
    let mut changed = app.hub.subscribe();
    let mut cursor =
        match last.and_then(|id| app.hub.number(id)).filter(|number| app.hub.after(*number).is_some()) {
            Some(number) => number,
            None => snapshot(app, last.is_some(), pieces).await?,
        };
    let (mut live, begun) = Live::begin(app, watched).await;
    for (name, data) in begun {
        put(pieces, piece(None, name, &data.to_string())).await?;
    }
    let mut ping = tokio::time::interval(PING_EVERY);
    loop {
        // Marked as seen before reading the ring, so that an event that arrives meanwhile wakes us again.
        changed.borrow_and_update();
        cursor = catch_up(app, cursor, pieces).await?;
        tokio::select! {
            moved = changed.changed() => moved.map_err(|_| HungUp)?,
            _ = ping.tick() => put(pieces, piece(None, "ping", "{}")).await?,
            (name, data) = live.next() => put(pieces, piece(None, name, &data.to_string())).await?,
        }
    }
}

/// Sends the ring's events after the cursor, or a new snapshot if the ring no longer reaches back to it.
async fn catch_up(app: &App, cursor: u64, pieces: &mpsc::Sender<Bytes>) -> Result<u64, HungUp> {
    let Some(news) = app.hub.after(cursor) else { return snapshot(app, true, pieces).await };
    let mut cursor = cursor;
    for batch in news.chunks(BATCH) {
        let mut text = String::new();
        for event in batch {
            text.push_str(&piece(Some(&app.hub.id(event.number)), event.name, &event.data));
            cursor = event.number;
        }
        put(pieces, text).await?;
    }
    Ok(cursor)
}

async fn snapshot(app: &App, is_reset: bool, pieces: &mpsc::Sender<Bytes>) -> Result<u64, HungUp> {
    if is_reset {
        put(pieces, piece(None, "reset", "{}")).await?;
    }
    let Snapshot { number, json } = app.hub.snapshot();
    let id = app.hub.id(number);
    put(pieces, piece(Some(&id), "snapshot", &json)).await?;
    put(
        pieces,
        piece(
            Some(&id),
            "asks",
            &json!({"asks": app.hub.asks().iter().map(super::FleetQuestion::json).collect::<Vec<_>>()})
                .to_string(),
        ),
    )
    .await?;
    Ok(number)
}

/// One event in SSE format. The JSON contains no line breaks.
fn piece(id: Option<&str>, name: &str, data: &str) -> String {
    match id {
        Some(id) => format!("id: {id}\nevent: {name}\ndata: {data}\n\n"),
        None => format!("event: {name}\ndata: {data}\n\n"),
    }
}

async fn put(pieces: &mpsc::Sender<Bytes>, text: String) -> Result<(), HungUp> {
    pieces.send(Bytes::from(text)).await.map_err(|_| HungUp)
}
