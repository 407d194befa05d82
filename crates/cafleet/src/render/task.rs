//! Tasks, as text and as JSON.
//!
//! Owns the provenance line, which no body can imitate: further lines of a body are indented, and so is a first line
//! that looks like a provenance line.

use caliban_core::inert;
use caliban_store::broker::{Task, TaskKind, TaskState};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::{Value, json};

use super::{Detail, cut};

/// Whether the compact form includes the state; where a header has it already, it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateShown {
    /// The line above has it.
    No,
    /// Unless the task is open, which is the ordinary state.
    IfEnded,
}

pub(crate) fn text(task: &Task, detail: Detail, state: StateShown) -> String {
    match detail {
        Detail::Compact(limit) => compact_text(task, limit, state),
        Detail::Full => full_text(task),
    }
}

pub(crate) fn json(task: &Task, detail: Detail) -> Value {
    json!(shown(task, detail))
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
    let number = task.number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let mut lines = vec![
        format!("  id:       {}", task.id),
        format!("  state:    {}", task.state),
        format!("  from:     {}", task.from),
    ];
    lines.extend(task.to.map(|to| format!("  to:       {to}")));
    lines.push(format!("  type:     {}", task.kind));
    lines.push(format!("  text:     {}", indented(&task.text, "            ")));
    lines.push(format!("  seq:      {}", task.seq));
    lines.push(format!("  number:   {number}"));
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

/// A task as JSON, serialized without an intermediate tree: a mailbox may have ten thousand.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum TaskJson<'a> {
    Compact(CompactTask<'a>),
    Full(Box<FullTask<'a>>),
}

/// A task in short, its body with at most so many characters.
pub(crate) struct CompactTask<'a>(&'a Task, usize);

impl Serialize for CompactTask<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(task, limit) = self;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("id", &task.id.short())?;
        map.serialize_entry("from", &task.from.short())?;
        map.serialize_entry("ts", &task.status_at.to_string())?;
        map.serialize_entry("text", &cut(&task.text, *limit))?;
        if task.kind != TaskKind::Unicast {
            map.serialize_entry("kind", task.kind.as_str())?;
        }
        if let Some(origin) = task.origin {
            map.serialize_entry("origin", &origin.short())?;
        }
        map.serialize_entry("state", task.state.as_str())?;
        map.serialize_entry("seq", &task.seq)?;
        map.serialize_entry("number", &task.number)?;
        map.end()
    }
}

#[derive(Serialize)]
pub(crate) struct FullTask<'a> {
    task_id: String,
    context_id: String,
    from_agent_id: String,
    to_agent_id: String,
    r#type: &'static str,
    created_at: String,
    status_state: &'static str,
    status_timestamp: String,
    origin_task_id: Option<String>,
    text: &'a str,
    seq: i64,
    number: Option<i64>,
    delivery: DeliveryShown<'a>,
    /// Set only for messages in a chain of answers between fleet agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    hops: Option<u32>,
}

#[derive(Serialize)]
pub(crate) struct DeliveryShown<'a> {
    state: &'static str,
    note: Option<&'a str>,
}

/// The printed fields of a task.
pub(crate) fn shown(task: &Task, detail: Detail) -> TaskJson<'_> {
    match detail {
        Detail::Compact(limit) => TaskJson::Compact(CompactTask(task, limit)),
        Detail::Full => TaskJson::Full(Box::new(FullTask {
            task_id: task.id.to_string(),
            context_id: task.context.to_string(),
            from_agent_id: task.from.to_string(),
            to_agent_id: task.to.map(|to| to.to_string()).unwrap_or_default(),
            r#type: task.kind.as_str(),
            created_at: task.created_at.to_string(),
            status_state: task.state.as_str(),
            status_timestamp: task.status_at.to_string(),
            origin_task_id: task.origin.map(|origin| origin.to_string()),
            text: &task.text,
            seq: task.seq,
            number: task.number,
            delivery: delivery(task),
            hops: (task.hops > 0).then_some(task.hops),
        })),
    }
}

fn delivery(task: &Task) -> DeliveryShown<'_> {
    DeliveryShown { state: task.delivery.state.as_str(), note: task.delivery.note.as_deref() }
}

pub(crate) fn delivery_json(task: &Task) -> Value {
    json!(delivery(task))
}

/// A body with its further lines indented.
pub(crate) fn indented(body: &str, by: &str) -> String {
    inert::block(body).trim_end_matches('\n').replace('\n', &format!("\n{by}"))
}
