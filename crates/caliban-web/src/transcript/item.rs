//! Builds one item from the bytes of its records.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use caliban_core::{call_text, event::EventKind, inert, kept_rules::KeptRules};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::index::{LineSpan, TranscriptEntry};
use crate::render::{self, Terminal};

/// Maximum number of bytes of a body in an item.
const BODY_CAP: usize = 256 * 1024;
/// Maximum number of lines of output in an item.
pub(crate) const OUTPUT_LINES: usize = 200;
/// Maximum number of characters in the title of a call.
const TITLE: usize = 240;

/// The item at a position.
pub(super) fn item(file: &mut File, n: u64, entry: TranscriptEntry) -> io::Result<Value> {
    let record = read(file, entry.record)?;
    let end = entry.end.map(|end| read(file, end)).transpose()?;
    let mut item = made(&record, end.as_ref(), entry.is_interrupted);
    if let Some(fields) = item.as_object_mut() {
        fields.insert("n".into(), n.into());
        fields.insert("seq".into(), entry.seq.into());
        fields.insert("at".into(), record["at"].clone());
    }
    Ok(item)
}

/// Reads a record; null if the file was changed meanwhile and it cannot be read.
pub(super) fn read(file: &File, span: LineSpan) -> io::Result<Value> {
    let mut bytes = vec![0; usize::try_from(span.bytes).unwrap_or(0)];
    match file.read_exact_at(&mut bytes, span.at) {
        Ok(()) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Value::Null),
        Err(error) => Err(error),
    }
}

fn made(record: &Value, end: Option<&Value>, is_interrupted: bool) -> Value {
    let line = |field: &str| record[field].as_str().map(|text| inert::line(text).into_owned());
    let about = || json!({"model": line("model"), "provider": line("provider"), "cwd": line("cwd")});
    let (kind, mut item) = match EventKind::of(record) {
        EventKind::Started => ("start", about()),
        EventKind::Resumed => ("resumed", about()),
        EventKind::Prompt => {
            let context = record["context"].as_u64().unwrap_or(0);
            let skip = usize::try_from(context).unwrap_or(0);
            let mut item = json!({"author": author(record), "blocks": message(record, skip, "text"), "context": context});
            // What a person has typed is shown as it was typed.
            if author(record) == "user" {
                item["typed"] = json!(typed(record, skip));
            }
            ("prompt", item)
        }
        EventKind::Queued => {
            let text = record["text"].as_str().unwrap_or_default();
            let mut item =
                json!({"author": author(record), "blocks": render::blocks(text), "heard": end.is_some()});
            if author(record) == "user" {
                item["typed"] = block(&record["text"]).into();
            }
            ("queued", item)
        }
        EventKind::Reply => {
            let thinking = message(record, 0, "thinking");
            let item = json!({
                "blocks": message(record, 0, "text"),
                "thinking": if thinking.is_empty() { Value::Null } else { thinking.into() },
                "model": line("model"),
                "ms": record["ms"],
                "usage": record["usage"],
                "stop": record["stop"],
            });
            ("reply", item)
        }
        EventKind::CallStarted | EventKind::CallRefused => ("call", call(record, end, is_interrupted)),
        EventKind::AskOpened => ("ask", ask(record, end)),
        EventKind::Summarised => {
            ("summary", json!({"blocks": render::blocks(record["summary"].as_str().unwrap_or_default())}))
        }
        EventKind::Note => ("note", json!({"text": block(&record["text"])})),
        EventKind::Background => {
            let text = block(&record["text"]);
            ("background", json!({"number": record["id"], "status": record["status"], "text": text}))
        }
        EventKind::TurnEnded => {
            let item = json!({
                "outcome": record["outcome"],
                "usage": record["usage"],
                "micro_usd": record["micro_usd"],
                "turns": record["turns"],
            });
            ("turn_end", item)
        }
        // No item begins with these.
        EventKind::Asked
        | EventKind::Counted
        | EventKind::Unanswered
        | EventKind::CallEnded
        | EventKind::AskAnswered
        | EventKind::ResultsCleared
        | EventKind::Other => ("", json!({})),
    };
    if let Some(fields) = item.as_object_mut() {
        fields.insert("kind".into(), kind.into());
    }
    item
}

fn block(value: &Value) -> String {
    inert::block(value.as_str().unwrap_or_default()).into_owned()
}

fn author(record: &Value) -> &str {
    match &record["author"] {
        Value::String(author) => author,
        Value::Object(_) => "hook",
        _ => "user",
    }
}

/// The text of a message, as it was written; none when there are pictures in it.
fn typed(record: &Value, skip: usize) -> Option<String> {
    let parts = record["message"]["blocks"].as_array()?.iter().skip(skip);
    let texts: Option<Vec<String>> =
        parts.map(|part| Some(inert::block(part["text"].as_str()?).into_owned())).collect();
    texts.map(|texts| texts.join("\n\n"))
}

/// The blocks of those parts of a message that are of one kind.
fn message(record: &Value, skip: usize, kind: &str) -> Vec<Value> {
    let parts = record["message"]["blocks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut blocks = Vec::new();
    for part in parts.iter().skip(skip) {
        if part["type"] == kind {
            blocks.extend(render::blocks(part["text"].as_str().unwrap_or_default()));
        } else if kind == "text" && part["type"] == "image" {
            blocks.push(json!({"b": "p", "in": [["dim", "[picture]"]]}));
        }
    }
    blocks
}

fn call(record: &Value, end: Option<&Value>, is_interrupted: bool) -> Value {
    let (name, input) = (record["name"].as_str().unwrap_or_default(), &record["input"]);
    let whole = call_text::whole_call(name, input);
    let is_refused = EventKind::of(record) == EventKind::CallRefused;
    let state = match end {
        _ if is_refused => "refused",
        Some(end) if end["is_error"] == true || end["exit_code"].as_i64().is_some_and(|code| code != 0) => {
            "failed"
        }
        Some(_) => "done",
        None if is_interrupted => "interrupted",
        None => "running",
    };
    let body = match end {
        _ if is_refused => Some(output(record["message"].as_str().unwrap_or_default(), false)),
        _ => body(name, input, end),
    };
    json!({
        "id": record["id"],
        "name": inert::line(name),
        "title": title(&whole, name),
        "state": state,
        "exit_code": end.map(|end| end["exit_code"].clone()),
        "ms": end.map(|end| end["ms"].clone()),
        "summary": end.and_then(|end| end["summary"].as_str()).map(inert::line),
        "decision": {
            "verdict": record["decision"]["verdict"],
            "why": record["decision"]["why"].as_str().map(inert::line),
            "rule": record["decision"]["rule"].as_str().map(inert::line),
        },
        "input": crate::fleet::lines_of(&cut(&whole)),
        "body": body,
    })
}

fn title(whole: &str, name: &str) -> String {
    let rest = whole.strip_prefix(name).unwrap_or(whole).trim_start();
    let first = rest.lines().next().unwrap_or_default();
    // The value of the first argument alone, without its name.
    let first = ["command: ", "file_path: ", "path: ", "pattern: ", "url: ", "description: "]
        .iter()
        .find_map(|field| first.strip_prefix(field))
        .unwrap_or(first);
    let mut title: String = first.chars().take(TITLE).collect();
    if title.len() < first.len()
        || rest.lines().nth(1).is_some_and(|_| name == "Bash" && !rest.contains("\n  "))
    {
        title.push('…');
    }
    title
}

/// What a call changed or returned.
fn body(name: &str, input: &Value, end: Option<&Value>) -> Option<Value> {
    let text = |field: &str| input.get(field).and_then(Value::as_str);
    let change = match name {
        "Edit" => text("file_path").zip(text("old_string")).zip(text("new_string")),
        "Write" => text("file_path").zip(Some("")).zip(text("content")),
        _ => None,
    };
    let has_failed = end.is_some_and(|end| end["is_error"] == true);
    if let Some(((path, old), new)) = change
        && !has_failed
        && let Some(rows) = render::change(path, old, new)
    {
        return Some(json!({"is": "diff", "path": inert::line(path), "rows": rows}));
    }
    if name == "TodoWrite" {
        return Some(json!({"is": "todo", "items": todo(input.get("todos"))}));
    }
    let end = end?;
    let parts = end["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    if texts.is_empty() {
        return None;
    }
    let all = texts.join("\n");
    let is_prose = matches!(name, "AgentTool" | "Agent" | "WebFetch" | "WebSearch");
    Some(match is_prose && !has_failed {
        true => json!({"is": "blocks", "blocks": render::blocks(&all)}),
        false => output(&all, end["whole"].is_string()),
    })
}

/// The last lines of an output.
fn output(text: &str, has_whole: bool) -> Value {
    let total = text.lines().count();
    let mut lines: Vec<_> = text.lines().skip(total.saturating_sub(OUTPUT_LINES)).collect();
    let mut bytes = 0;
    let fits = lines.iter().rev().take_while(|line| {
        bytes += line.len();
        bytes <= BODY_CAP
    });
    let fits = fits.count();
    lines.drain(..lines.len() - fits);
    let shown = Terminal::lines(&lines.join("\n"));
    json!({
        "is": "output",
        "lines": shown,
        "total_lines": total,
        "cut": fits < total,
        "whole": has_whole || fits < total,
    })
}

/// A todo list.
pub(crate) fn todo(list: Option<&Value>) -> Vec<Value> {
    let all = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let one = |todo: &Value| {
        let known = |status: &&str| ["completed", "in_progress"].contains(status);
        let status = todo["status"].as_str().filter(known).unwrap_or("pending");
        json!({"text": inert::line(todo["content"].as_str().unwrap_or_default()), "status": status})
    };
    all.iter().map(one).collect()
}

fn ask(record: &Value, end: Option<&Value>) -> Value {
    let (name, input) = (record["name"].as_str().unwrap_or_default(), &record["input"]);
    let whole = call_text::whole_call(name, input);
    let (answer, reason) = match end.map(|end| &end["answer"]) {
        None => (Value::Null, Value::Null),
        Some(Value::Object(said)) => match said.get("keep").map(KeptRules::deserialize) {
            Some(kept) => ("keep".into(), kept.map(|kept| kept.words()).unwrap_or_default().into()),
            None => ("no".into(), said.get("no").cloned().unwrap_or_default()),
        },
        Some(word) => (word.clone(), Value::Null),
    };
    json!({
        "id": record["id"],
        "name": inert::line(name),
        "title": title(&whole, name),
        "by": record["agent"].as_str().map(inert::line),
        "why": record["why"].as_str().map(inert::line),
        "answer": answer,
        "reason": reason.as_str().map(inert::block),
    })
}

fn cut(text: &str) -> String {
    let at = (0..=BODY_CAP.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let shown = text.get(..at).unwrap_or_default();
    if at < text.len() {
        format!("{shown}\n[… {} bytes more …]", text.len() - at)
    } else {
        shown.to_owned()
    }
}
