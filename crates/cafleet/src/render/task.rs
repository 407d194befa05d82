//! Tasks, as text and as JSON.
//!
//! Owns where provenance stands: in a line of its own, which no body can imitate. A body's further
//! lines are indented, and so is a first line that looks like such a line.

use caliban_core::inert;
use caliban_store::broker::{Task, TaskKind, TaskState};
use serde_json::{Value, json};

use super::{Detail, cut};

/// Whether the compact form says the state; where a header says it already, it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateShown {
    /// The line above has said it.
    No,
    /// Unless it is the ordinary one.
    IfEnded,
}

pub(crate) fn text(task: &Task, detail: Detail, state: StateShown) -> String {
    match detail {
        Detail::Compact(limit) => compact_text(task, limit, state),
        Detail::Full => full_text(task),
    }
}

pub(crate) fn json(task: &Task, detail: Detail) -> Value {
    match detail {
        Detail::Compact(limit) => compact_json(task, limit),
        Detail::Full => full_json(task),
    }
}

fn compact_text(task: &Task, limit: usize, state: StateShown) -> String {
    let mut line = format!("[{} | from:{} | {}", task.id.short(), task.from.short(), task.status_at);
    if task.kind != TaskKind::Unicast {
        line.push_str(&format!(" | kind:{}", task.kind));
    }
    if let Some(origin) = task.origin {
        line.push_str(&format!(" | origin:{}", origin.short()));
    }
    if state == StateShown::IfEnded
        && task.kind == TaskKind::Unicast
        && task.state != TaskState::InputRequired
    {
        line.push_str(&format!(" | state:{}", task.state));
    }
    let body = cut(&task.text, limit);
    let lead = if body.trim_start().starts_with('[') { "  " } else { "" };
    format!("{line}]\n{lead}{}", indented(&body, "  "))
}

fn full_text(task: &Task) -> String {
    let mut lines = vec![
        format!("  id:       {}", task.id),
        format!("  state:    {}", task.state),
        format!("  from:     {}", task.from),
    ];
    lines.extend(task.to.map(|to| format!("  to:       {to}")));
    lines.push(format!("  type:     {}", task.kind));
    lines.push(format!("  text:     {}", indented(&task.text, "            ")));
    lines.push(format!("  seq:      {}", task.seq));
    lines.push(format!("  created:  {}", task.created_at));
    lines.push(format!("  changed:  {}", task.status_at));
    lines.extend(task.origin.map(|origin| format!("  origin:   {origin}")));
    if task.hops > 0 {
        lines.push(format!("  hops:     {}", task.hops));
    }
    if task.kind == TaskKind::Unicast {
        let note = task.delivery.note.as_ref().map(|note| format!(" ({})", inert::line(note)));
        lines.push(format!("  delivery: {}{}", task.delivery.state, note.unwrap_or_default()));
    }
    lines.join("\n")
}

fn compact_json(task: &Task, limit: usize) -> Value {
    let mut value = json!({
        "id": task.id.short(),
        "from": task.from.short(),
        "ts": task.status_at.to_string(),
        "text": cut(&task.text, limit),
    });
    if task.kind != TaskKind::Unicast {
        value["kind"] = json!(task.kind.as_str());
    }
    if let Some(origin) = task.origin {
        value["origin"] = json!(origin.short());
    }
    value["state"] = json!(task.state.as_str());
    value["seq"] = json!(task.seq);
    value
}

fn full_json(task: &Task) -> Value {
    let mut value = json!({
        "task_id": task.id.to_string(),
        "context_id": task.context.to_string(),
        "from_agent_id": task.from.to_string(),
        "to_agent_id": task.to.map(|to| to.to_string()).unwrap_or_default(),
        "type": task.kind.as_str(),
        "created_at": task.created_at.to_string(),
        "status_state": task.state.as_str(),
        "status_timestamp": task.status_at.to_string(),
        "origin_task_id": task.origin.map(|origin| origin.to_string()),
        "text": task.text,
        "seq": task.seq,
        "delivery": delivery_json(task),
    });
    // Only what fleet agents answer each other has any.
    if task.hops > 0 {
        value["hops"] = json!(task.hops);
    }
    value
}

pub(crate) fn delivery_json(task: &Task) -> Value {
    json!({"state": task.delivery.state.as_str(), "note": task.delivery.note})
}

/// A body with its further lines moved to the right.
fn indented(body: &str, by: &str) -> String {
    inert::block(body).trim_end_matches('\n').replace('\n', &format!("\n{by}"))
}
