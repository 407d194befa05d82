//! JSON for scripts: one object at the end, or one for each event. The field names are those that people know from
//! `claude -p`, with ours beside them.

use std::io::Write as _;

use caliban_agent::{
    Kit, TurnReport,
    event::{Event, Outcome},
    feed::FeedEntry,
};
use serde_json::{Value, json};

use super::Printer;

/// One object at the end.
pub(super) struct Json {
    session: String,
    model: String,
}

impl Json {
    pub(super) fn new(kit: &Kit) -> Self {
        Self { session: kit.wanted.session.clone(), model: kit.model.clone() }
    }
}

impl Printer for Json {
    fn entry(&mut self, _entry: &FeedEntry) -> std::io::Result<()> {
        Ok(())
    }

    fn end(&mut self, report: &TurnReport) -> std::io::Result<()> {
        line(&result(report, &self.session, &self.model))
    }
}

/// One object for each event.
pub(super) struct StreamJson {
    json: Json,
    greeting: Option<Value>,
}

impl StreamJson {
    pub(super) fn new(kit: &Kit) -> Self {
        let greeting = json!({
            "type": "system",
            "subtype": "init",
            "session_id": kit.wanted.session,
            "cwd": kit.workspace.root(),
            "provider": kit.provider.name(),
            "model": kit.model,
            "tools": kit.specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(),
        });
        Self { json: Json::new(kit), greeting: Some(greeting) }
    }

    fn greet(&mut self) -> std::io::Result<()> {
        self.greeting.take().map_or(Ok(()), |greeting| line(&greeting))
    }
}

impl Printer for StreamJson {
    fn entry(&mut self, entry: &FeedEntry) -> std::io::Result<()> {
        self.greet()?;
        event(entry, &self.json.session).map_or(Ok(()), |event| line(&event))
    }

    fn end(&mut self, report: &TurnReport) -> std::io::Result<()> {
        self.greet()?;
        self.json.end(report)
    }
}

fn event(entry: &FeedEntry, session: &str) -> Option<Value> {
    let delta = |delta: Value| {
        json!({
            "type": "stream_event",
            "session_id": session,
            "event": {"type": "content_block_delta", "delta": delta},
        })
    };
    Some(match entry {
        FeedEntry::Text(text) => delta(json!({"type": "text_delta", "text": text})),
        FeedEntry::Thinking(text) => delta(json!({"type": "thinking_delta", "thinking": text})),
        FeedEntry::ToolOutput { id, text } => {
            json!({"type": "tool_output", "session_id": session, "tool_use_id": id, "text": text})
        }
        FeedEntry::Restart { reason } => {
            json!({"type": "system", "subtype": "restart", "session_id": session, "reason": reason})
        }
        FeedEntry::Waiting(wait) => {
            let ms = wait.pause().map_or(0, |pause| pause.ms);
            let reason = wait.to_string();
            json!({"type": "system", "subtype": "waiting", "session_id": session, "reason": reason, "ms": ms})
        }
        FeedEntry::Record(record) => return recorded(&record.event, session),
        // A broken transcript ends the turn, and the result says why.
        FeedEntry::ToolUse { .. }
        | FeedEntry::SubAsked(_)
        | FeedEntry::SubAnswered { .. }
        | FeedEntry::Broken { .. } => {
            return None;
        }
    })
}

fn recorded(event: &Event, session: &str) -> Option<Value> {
    let tool_result = |id: &str, content: Value, is_error: bool| {
        json!({
            "type": "user",
            "session_id": session,
            "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error},
            ]},
        })
    };
    Some(match event {
        Event::Reply { message, usage, model, .. } => json!({
            "type": "assistant",
            "session_id": session,
            "message": {"role": "assistant", "model": model, "content": message.blocks, "usage": usage_json(usage)},
        }),
        Event::CallEnded { id, content, is_error, .. } => tool_result(id, json!(content), *is_error),
        Event::CallRefused { id, message, .. } => tool_result(id, json!(message), true),
        Event::Note { text } => {
            json!({"type": "system", "subtype": "note", "session_id": session, "text": text})
        }
        Event::Summarised { .. } | Event::ResultsCleared { .. } => {
            json!({"type": "system", "subtype": "compacted", "session_id": session})
        }
        _ => return None,
    })
}

/// The last object.
fn result(report: &TurnReport, session: &str, model: &str) -> Value {
    let (subtype, error, hint) = match &report.outcome {
        Outcome::Done => ("success", None, None),
        Outcome::Failed { error, hint } => ("error_during_execution", Some(error.clone()), hint.clone()),
        Outcome::TurnLimit { limit } => {
            ("error_max_turns", Some(format!("the limit of {limit} turns is reached")), None)
        }
        Outcome::Budget { limit } => ("error_max_budget", Some(limit.clone()), None),
        Outcome::Cancelled => ("interrupted", Some("interrupted".to_owned()), None),
    };
    let mut result = json!({
        "type": "result",
        "subtype": subtype,
        "is_error": error.is_some(),
        "result": report.text,
        "error": error,
        "hint": hint,
        "session_id": session,
        "model": model,
        "num_turns": report.turns,
        "duration_ms": u64::try_from(report.elapsed.as_millis()).unwrap_or(u64::MAX),
        "usage": usage_json(&report.usage),
        "total_cost_usd": report.micro_usd.map(|micro| micro as f64 / 1_000_000.0),
        "refused": report.refused,
    });
    if let Some(value) = &report.structured {
        result["structured_output"] = value.clone();
    }
    if !report.notes.is_empty() {
        result["notes"] = json!(report.notes);
    }
    result
}

fn usage_json(usage: &caliban_core::usage::Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    })
}

fn line(value: &Value) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}
