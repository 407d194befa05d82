//! `GET /api/v1/search`: full text search over transcripts and messages. Each request updates the index; what it cannot
//! read within the time limit is left to the next request.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use caliban_contract::records::TRANSCRIPT;
use caliban_core::event::EventKind;
use caliban_core::inert;
use caliban_store::StoreUrl;
use caliban_store::search::{MARKS, Position, SearchEntry, SearchIndex};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::app::App;
use crate::error::Problem;
use crate::input::QueryString;
use crate::render::Run;
use crate::transcript::{NewLines, ReadTo};

/// Maximum time that a request spends on the index before it answers with what the index has.
const READING: Duration = Duration::from_secs(2);
/// Maximum number of bytes of a transcript indexed in one transaction.
const CHUNK: u64 = 4 * 1024 * 1024;
/// Maximum number of bytes of one text that are indexed.
const TEXT_CAP: usize = 16 * 1024;
/// Default and maximum number of hits in an answer.
const HITS: u32 = 100;
const HITS_CAP: u32 = 500;
/// Maximum number of hits of one agent in an answer.
const PER_AGENT: usize = 3;

/// The index; opened at the first request.
pub(crate) struct Library {
    file: PathBuf,
    index: Mutex<Option<SearchIndex>>,
}

impl Library {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, index: Mutex::new(None) }
    }
}

/// The query.
#[derive(Debug, Deserialize)]
pub(crate) struct SearchQuery {
    q: String,
    limit: Option<u32>,
}

/// The route.
pub(crate) async fn search(
    State(app): State<Arc<App>>,
    QueryString(part): QueryString<SearchQuery>,
) -> Result<Json<Value>, Problem> {
    let limit = part.limit.unwrap_or(HITS).clamp(1, HITS_CAP);
    let mut held = app.library.index.lock().await;
    let index = match held.take() {
        Some(index) => held.insert(index),
        None => held.insert(open(&app.library.file).await?),
    };
    let agents: BTreeMap<String, (String, String, String)> = app
        .hub
        .agents()
        .into_iter()
        .map(|(repo, row)| {
            let name = row
                .label
                .as_deref()
                .map_or_else(|| row.id.to_string(), |label| inert::line(label).into_owned());
            let path = row.dir.join(TRANSCRIPT).to_string_lossy().into_owned();
            (path, (format!("{}/{}", repo.hash, row.id), repo.name, name))
        })
        .collect();
    let give_up = Instant::now() + READING;
    let mut is_behind = false;
    for path in agents.keys() {
        if !read(index, Path::new(path), give_up).await? {
            is_behind = true;
            break;
        }
    }
    let hits = index.search(&part.q, limit).await.map_err(failed)?;
    drop(held);
    let mut found: Vec<(String, Vec<Value>, u64)> = Vec::new();
    for hit in hits {
        let shown = json!({"seq": hit.seq, "at": hit.at, "kind": hit.kind, "runs": runs(&hit.snippet)});
        match found.iter_mut().find(|(source, ..)| *source == hit.source) {
            Some((_, shown_hits, _)) if shown_hits.len() < PER_AGENT => shown_hits.push(shown),
            Some((_, _, more)) => *more += 1,
            None => found.push((hit.source, vec![shown], 0)),
        }
    }
    let shown: Vec<Value> = found
        .into_iter()
        .filter_map(|(source, hits, more)| {
            let (key, repo_name, name) = agents.get(&source)?;
            Some(json!({"key": key, "repo_name": repo_name, "name": name, "hits": hits, "more": more}))
        })
        .collect();
    let messages = messages(&app, &part.q).await;
    Ok(Json(json!({"q": inert::line(&part.q), "agents": shown, "messages": messages, "indexing": is_behind})))
}

/// An index that cannot be opened is rebuilt: all of its content is stored elsewhere.
async fn open(file: &Path) -> Result<SearchIndex, Problem> {
    let url = StoreUrl::sqlite(file.to_owned());
    match SearchIndex::open(&url).await {
        Ok(index) => Ok(index),
        Err(_) => {
            for ending in ["", "-wal", "-shm"] {
                let mut name = file.as_os_str().to_owned();
                name.push(ending);
                let _not_there = std::fs::remove_file(PathBuf::from(name));
            }
            SearchIndex::open(&url).await.map_err(failed)
        }
    }
}

/// Indexes the new part of a transcript; `false` if time ran out before the end.
async fn read(index: &mut SearchIndex, path: &Path, give_up: Instant) -> Result<bool, Problem> {
    let source = path.to_string_lossy().into_owned();
    let mut position = index.position(&source).await.map_err(failed)?;
    loop {
        let (path, from) = (path.to_owned(), position);
        let part = tokio::task::spawn_blocking(move || texts(&path, from)).await;
        let Ok(Ok((to, entries))) = part else { return Ok(true) };
        if to == position {
            return Ok(true);
        }
        index.add(&source, to, &entries).await.map_err(failed)?;
        position = to;
        if Instant::now() > give_up {
            return Ok(false);
        }
    }
}

/// The next texts of a transcript. Blocks.
fn texts(path: &Path, from: Position) -> io::Result<(Position, Vec<SearchEntry>)> {
    // The store's numbers are signed; the bits are the same.
    let known = ReadTo { inode: from.inode.cast_unsigned(), offset: from.read_to.cast_unsigned() };
    let mut lines = NewLines::open(path, known)?;
    let start = lines.position.offset;
    let mut entries = Vec::new();
    while lines.position.offset - start < CHUNK {
        let Some(line) = lines.next_line()? else { break };
        if let Ok(record) = serde_json::from_slice::<Value>(line) {
            entries.extend(entry(&record));
        }
    }
    let ReadTo { inode, offset } = lines.position;
    Ok((Position { inode: inode.cast_signed(), read_to: offset.cast_signed() }, entries))
}

fn entry(record: &Value) -> Option<SearchEntry> {
    let (kind, text) = match EventKind::of(record) {
        EventKind::Prompt => ("prompt", said(record)),
        EventKind::Queued | EventKind::Note => ("note", record["text"].as_str()?.to_owned()),
        EventKind::Reply => ("reply", said(record)),
        EventKind::CallStarted => {
            ("call", format!("{} {}", record["name"].as_str()?, strings(&record["input"])))
        }
        EventKind::CallEnded => ("output", strings(&record["content"])),
        EventKind::Summarised => ("summary", record["summary"].as_str()?.to_owned()),
        _ => return None,
    };
    let cut = (0..=TEXT_CAP.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let text = text.get(..cut)?.to_owned();
    let seq = i64::try_from(record["seq"].as_u64()?).ok()?;
    let at = record["at"].as_str()?.to_owned();
    (!text.trim().is_empty()).then(|| SearchEntry { seq, at, kind: kind.to_owned(), text })
}

fn said(record: &Value) -> String {
    let blocks = record["message"]["blocks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let skip = record["context"].as_u64().and_then(|skip| usize::try_from(skip).ok()).unwrap_or(0);
    let texts = blocks.iter().skip(skip).filter(|block| block["type"] == "text");
    texts.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// All strings in a JSON value.
fn strings(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(strings).collect::<Vec<_>>().join("\n"),
        Value::Object(all) => {
            let texts =
                all.iter().filter(|(name, _)| !matches!(name.as_str(), "type" | "data" | "media_type"));
            texts.map(|(_, value)| strings(value)).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// A snippet as runs; matches have the class `hit`.
fn runs(snippet: &str) -> Vec<Run> {
    let mut runs = Vec::new();
    for piece in snippet.split_inclusive([MARKS.0, MARKS.1]) {
        let class = if piece.ends_with(MARKS.1) { "hit" } else { "" };
        let text = piece.trim_end_matches([MARKS.0, MARKS.1]);
        // Lines are joined into one.
        let text = text.replace(['\n', '\t', '\r'], " ");
        Run::put(&mut runs, Run::new(class, inert::line(&text)));
    }
    runs
}

async fn messages(app: &App, query: &str) -> Vec<Value> {
    let words: Vec<&str> = query.split_whitespace().map(|word| word.trim_matches('"')).collect();
    let (Ok(mut reading), Some(longest)) =
        (app.desk.read().await, words.iter().max_by_key(|word| word.len()))
    else {
        return Vec::new();
    };
    let Ok(broker) = reading.broker() else { return Vec::new() };
    let found = broker.find_text(longest, HITS).await.unwrap_or_default();
    let has_all = |text: &str| {
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(&word.to_lowercase()))
    };
    found
        .into_iter()
        .filter(|found| has_all(&found.task.text))
        .map(|found| {
            let text: String = found.task.text.chars().take(300).collect();
            json!({
                "session": found.session.to_string(),
                "task_id": found.task.id.to_string(),
                "at": found.task.created_at.to_string(),
                "from_name": inert::line(&found.from_name),
                "runs": [Run::new("", inert::line(&text.replace(['\n', '\t', '\r'], " ")))],
            })
        })
        .collect()
}

fn failed(error: caliban_store::StoreError) -> Problem {
    Problem::internal(format!("the search index cannot be used: {}", inert::line(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_marked() {
        let run = |class: &str, text: &str| Run::new(class, text);
        assert_eq!(
            runs("the \u{1}quick\u{2} brown \u{1}fox\u{2}"),
            [run("", "the "), run("hit", "quick"), run("", " brown "), run("hit", "fox")]
        );
        assert_eq!(runs("plain"), [run("", "plain")]);
    }
}
