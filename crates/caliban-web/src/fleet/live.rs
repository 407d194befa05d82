//! The transcripts that a stream watches live: their files are polled, and running agents are listened to for the
//! model's partial output. No agent is woken for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use caliban_acp::v1::{AGENT_METHOD_NAMES, ContentBlock, SessionUpdate, ToolCallContent};
use caliban_acp::{ClientEvent, Link};
use caliban_contract::records::TRANSCRIPT;
use caliban_core::inert;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::app::App;
use crate::render::Terminal;
use crate::transcript::{self, Index};

/// The interval at which transcripts are polled.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Maximum number of items of one transcript that are sent at once; a page that is further behind requests the others.
const AT_ONCE: usize = 50;
/// The interval at which a failed connection to an agent is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Capacity of the queue of records. When it is full, reading the file pauses.
const RECORDS_AHEAD: usize = 8;
/// Capacity of the queue of partial output. When it is full, pieces are dropped; the record will have them all.
const AHEAD: usize = 256;

/// An event without an id.
type News = (&'static str, Value);

/// What one stream watches. Every record that was read is queued, so none is lost while the reader is busy with
/// something else.
pub(super) struct Live {
    records: mpsc::Receiver<News>,
    said: mpsc::Receiver<News>,
    is_empty: bool,
    _tasks: JoinSet<()>,
}

impl Live {
    /// Begins to watch, and returns the length at which each transcript begins; a client that has loaded less requests
    /// the rest.
    pub(super) async fn begin(app: &Arc<App>, keys: &[String]) -> (Self, Vec<News>) {
        let (sender, said) = mpsc::channel(AHEAD);
        let (teller, records) = mpsc::channel(RECORDS_AHEAD);
        let mut tasks = JoinSet::new();
        let mut begun = Vec::new();
        for key in keys {
            let Some((repo, id)) = key.split_once('/') else { continue };
            let Ok((row, _)) = app.agent(repo, id) else { continue };
            let path = row.dir.join(TRANSCRIPT);
            let (shelf, file) = (Arc::clone(app), path.clone());
            let known =
                tokio::task::spawn_blocking(move || shelf.shelf.with(&file, |index| Ok(index.follower())))
                    .await;
            let Ok(Ok(index)) = known else { continue };
            begun.push(("watched", json!({"key": key, "total": index.total()})));
            tasks.spawn(look(key.clone(), path, index, teller.clone()));
            tasks.spawn(listen(Arc::clone(app), key.clone(), sender.clone()));
        }
        (Self { records, said, is_empty: begun.is_empty(), _tasks: tasks }, begun)
    }

    /// The next event. Waits for ever if nothing is watched. Cancel-safe.
    pub(super) async fn next(&mut self) -> News {
        if self.is_empty {
            return std::future::pending().await;
        }
        tokio::select! {
            Some(news) = self.said.recv() => news,
            Some(news) = self.records.recv() => news,
            else => std::future::pending().await,
        }
    }
}

/// Polls a transcript and queues new items; waits while the queue is full.
async fn look(key: String, path: PathBuf, mut index: Index, teller: mpsc::Sender<News>) {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let file = path.clone();
        let read = tokio::task::spawn_blocking(move || {
            let items = news_of(&file, &mut index);
            (index, items)
        });
        let Ok((read, items)) = read.await else { return };
        index = read;
        let total = index.total();
        for item in items {
            if teller.send(("record", json!({"key": key, "total": total, "item": item}))).await.is_err() {
                return;
            }
        }
    }
}

/// The new and changed items; only the last `AT_ONCE` of them if there are more.
fn news_of(path: &std::path::Path, index: &mut Index) -> Vec<Value> {
    let changed = index.update(path).unwrap_or_default();
    let skip = changed.len().saturating_sub(AT_ONCE);
    let each = changed.iter().skip(skip);
    each.flat_map(|n| transcript::items(path, index, *n..n + 1).unwrap_or_default()).collect()
}

/// Listens to an agent whenever it runs.
async fn listen(app: Arc<App>, key: String, said: mpsc::Sender<News>) {
    let Some((repo, id)) = key.split_once('/').map(|(repo, id)| (repo.to_owned(), id.to_owned())) else {
        return;
    };
    loop {
        let socket = match app.agent(&repo, &id) {
            Ok((row, _)) if row.pid.is_some() && !row.hibernated => Some(row.socket),
            Ok(_) => None,
            Err(_) => return,
        };
        if let Some(socket) = socket
            && let Ok(link) = Link::open(&socket, env!("CARGO_PKG_VERSION"), None, |_| {}).await
        {
            hear(link, &key, &said).await;
        }
        if said.is_closed() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Forwards what an agent says until the connection ends.
async fn hear(mut link: Link, key: &str, said: &mpsc::Sender<News>) {
    // Joins the session without a replay of its history: the page has the transcript.
    let params = json!({"sessionId": link.session, "cwd": link.cwd, "mcpServers": []});
    let peer = link.client.peer().clone();
    let joining = async move { peer.call::<Value>(AGENT_METHOD_NAMES.session_resume, &params).await };
    tokio::pin!(joining);
    let mut has_joined = false;
    loop {
        let event = tokio::select! {
            event = link.events.next() => event,
            joined = &mut joining, if !has_joined => {
                if joined.is_err() {
                    return;
                }
                has_joined = true;
                continue;
            }
        };
        let Ok(Some(event)) = event else { return };
        // Questions are left open here: pages answer them through the daemon.
        let ClientEvent::Update(update) = event else { continue };
        let news = match update.update {
            SessionUpdate::AgentMessageChunk(chunk) => delta(key, "text", chunk.content),
            SessionUpdate::AgentThoughtChunk(chunk) => delta(key, "thinking", chunk.content),
            SessionUpdate::ToolCallUpdate(update) => output(key, &update),
            _ => None,
        };
        if let Some(news) = news {
            // A piece is dropped when the reader is too slow: the record will have it.
            let _dropped = said.try_send(news);
        }
    }
}

fn delta(key: &str, kind: &str, content: ContentBlock) -> Option<News> {
    let ContentBlock::Text(text) = content else { return None };
    Some(("delta", json!({"key": key, "kind": kind, "text": inert::block(&text.text)})))
}

/// The output of a running command so far.
fn output(key: &str, update: &caliban_acp::v1::ToolCallUpdate) -> Option<News> {
    let texts: Vec<&str> = update
        .fields
        .content
        .iter()
        .flatten()
        .filter_map(|content| match content {
            ToolCallContent::Content(content) => match &content.content {
                ContentBlock::Text(text) => Some(text.text.as_str()),
                _ => None,
            },
            _ => None,
        })
        .collect();
    if texts.is_empty() {
        return None;
    }
    let lines = Terminal::lines(&texts.join("\n"));
    Some(("output", json!({"key": key, "call": update.tool_call_id.0.as_ref(), "runs": lines})))
}
