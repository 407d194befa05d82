//! Tool calls as a client shows them: kind, title, places, changes, plan. Pure.

use std::path::{Path, PathBuf};

use caliban_acp::v1::{
    Diff, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, ToolCall, ToolCallContent, ToolCallLocation,
    ToolKind,
};
use serde_json::Value;

use crate::content;

/// A change with longer texts is not shown as one.
const SHOWN_DIFF_BYTES: usize = 1024 * 1024;

/// What kind of tool it is.
pub(crate) fn kind(name: &str) -> ToolKind {
    match name {
        "Read" => ToolKind::Read,
        "Edit" | "Write" => ToolKind::Edit,
        "Glob" | "Grep" => ToolKind::Search,
        "Bash" | "BashOutput" | "KillShell" => ToolKind::Execute,
        "WebFetch" => ToolKind::Fetch,
        "TodoWrite" => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

/// Whether what it gives back is output, not prose.
pub(crate) fn gives_output(name: &str) -> bool {
    matches!(kind(name), ToolKind::Read | ToolKind::Search | ToolKind::Execute)
}

/// One line that says what a call is about.
pub(crate) fn title(name: &str, input: &Value) -> String {
    match name {
        "TodoWrite" => "update the todo list".to_owned(),
        _ if input.as_object().is_none_or(serde_json::Map::is_empty) => name.to_owned(),
        _ => format!("{name}: {}", caliban_agent::describe(input)),
    }
}

/// The files that a call is about.
pub(crate) fn locations(name: &str, input: &Value, root: &Path) -> Vec<ToolCallLocation> {
    let field = match kind(name) {
        ToolKind::Read | ToolKind::Edit => "file_path",
        ToolKind::Search => "path",
        _ => return Vec::new(),
    };
    let Some(path) = input.get(field).and_then(Value::as_str) else { return Vec::new() };
    let line = input.get("offset").and_then(Value::as_u64).and_then(|line| u32::try_from(line).ok());
    vec![ToolCallLocation::new(absolute(root, path)).line(line)]
}

/// The change that a call makes, as far as its arguments tell.
pub(crate) fn change(name: &str, input: &Value, root: &Path) -> Option<ToolCallContent> {
    let text = |field: &str| input.get(field).and_then(Value::as_str);
    let path = absolute(root, text("file_path")?);
    let (old, new) = match name {
        "Edit" => (Some(text("old_string")?), text("new_string")?),
        "Write" => (None, text("content")?),
        _ => return None,
    };
    if old.map_or(0, str::len) + new.len() > SHOWN_DIFF_BYTES {
        return None;
    }
    Some(ToolCallContent::Diff(Diff::new(path, new).old_text(old.map(str::to_owned))))
}

/// The todo list of a `TodoWrite`.
pub(crate) fn plan(name: &str, input: &Value) -> Option<Plan> {
    let todos = (name == "TodoWrite").then(|| input.get("todos")?.as_array()).flatten()?;
    let entry = |todo: &Value| {
        let status = match todo.get("status").and_then(Value::as_str) {
            Some("completed") => PlanEntryStatus::Completed,
            Some("in_progress") => PlanEntryStatus::InProgress,
            _ => PlanEntryStatus::Pending,
        };
        let content = todo.get("content").and_then(Value::as_str)?;
        Some(PlanEntry::new(content, PlanEntryPriority::Medium, status))
    };
    Some(Plan::new(todos.iter().filter_map(entry).collect()))
}

/// A call as it is announced.
pub(crate) fn call(id: &str, name: &str, input: &Value, root: &Path) -> ToolCall {
    ToolCall::new(id.to_owned(), title(name, input))
        .name(name.to_owned())
        .kind(kind(name))
        .content(change(name, input, root).into_iter().collect::<Vec<_>>())
        .locations(locations(name, input, root))
        .raw_input(shortened(input))
}

/// Arguments with long texts cut: what is shown, never what is carried out.
pub(crate) fn shortened(input: &Value) -> Value {
    match input {
        Value::String(text) if text.len() > caliban_acp::cut_arguments::SHOWN_ARGUMENT_BYTES => {
            let cut = content::boundary(text, caliban_acp::cut_arguments::SHOWN_ARGUMENT_BYTES);
            Value::String(format!("{}… [{} bytes in all]", &text[..cut], text.len()))
        }
        Value::Array(items) => Value::Array(items.iter().map(shortened).collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, field)| (name.clone(), shortened(field))).collect())
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => input.clone(),
    }
}

fn absolute(root: &Path, path: &str) -> PathBuf {
    root.join(path)
}
