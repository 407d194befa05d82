//! The live transcripts that a stream watches: their files are looked at, and agents at work are listened to for what the model is
//! just saying. Nobody is woken for it.

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

/// How often transcripts are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many items of one transcript are told at once; a page that is further behind asks for them.
const AT_ONCE: usize = 50;
/// How often an agent that cannot be listened to is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How many records wait for the reader. Then the file waits.
const RECORDS_AHEAD: usize = 8;
/// How many pieces of what is said wait for the reader; more are dropped, the record has them all.
const AHEAD: usize = 256;

/// An event without an id.
type News = (&'static str, Value);

/// What one stream watches. What it has read of a transcript is told: nothing is lost when its reader does something else meanwhile.
pub(super) struct Live {
    records: mpsc::Receiver<News>,
    said: mpsc::Receiver<News>,
    is_empty: bool,
    _tasks: JoinSet<()>,
}

impl Live {
    /// Begins, and says from where on each transcript is told: who has asked for less of it asks again.
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

    /// What is new. Waits for ever when nothing is watched. Safe to drop while it waits.
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

/// Tells what is new in a transcript, as fast as it is taken.
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

/// The items that are new or have changed; the last ones, when there are many.
fn news_of(path: &std::path::Path, index: &mut Index) -> Vec<Value> {
    let changed = index.update(path).unwrap_or_default();
    let skip = changed.len().saturating_sub(AT_ONCE);
    let each = changed.iter().skip(skip);
    each.flat_map(|n| transcript::items(path, index, *n..n + 1).unwrap_or_default()).collect()
}

/// Listens to an agent whenever it is at work.
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

/// Passes on what an agent says until it hangs up.
async fn hear(mut link: Link, key: &str, said: &mpsc::Sender<News>) {
    // To take part without being told everything that was: the page has the transcript.
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
        // A question stays open: pages answer through the daemon.
        let ClientEvent::Update(update) = event else { continue };
        let news = match update.update {
            SessionUpdate::AgentMessageChunk(chunk) => delta(key, "text", chunk.content),
            SessionUpdate::AgentThoughtChunk(chunk) => delta(key, "thinking", chunk.content),
            SessionUpdate::ToolCallUpdate(update) => output(key, &update),
            _ => None,
        };
        if let Some(news) = news {
            // A reader that is too slow gets the record.
            let _dropped = said.try_send(news);
        }
    }
}

fn delta(key: &str, kind: &str, content: ContentBlock) -> Option<News> {
    let ContentBlock::Text(text) = content else { return None };
    Some(("delta", json!({"key": key, "kind": kind, "text": inert::block(&text.text)})))
}

/// What a running command has printed so far.
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
