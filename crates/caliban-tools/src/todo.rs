//! The todo list that the model keeps for itself and for people who watch.

use std::sync::Arc;

use caliban_core::{access::Access, message::ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    BuiltinTool, CallContext, ToolOutput, Workspace, input,
    limits::{TODO_CHARS, TODOS},
};

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Todo {
    /// What is to be done: `Fix the parser`.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
    /// The same while it is being done: `Fixing the parser`.
    #[serde(rename = "activeForm", default, skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
}

/// How far a todo is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being done now.
    InProgress,
    /// Done.
    Completed,
}

/// The TodoWrite tool.
pub(crate) struct TodoWrite(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct TodoInput {
    #[serde(deserialize_with = "input::list")]
    todos: Vec<Todo>,
}

impl BuiltinTool for TodoWrite {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "TodoWrite".into(),
            description:
                "Replace your todo list. For work of several steps: write the steps first, keep exactly \
                one in_progress, complete each as soon as it is done."
                    .into(),
            input_schema: json!({"type": "object", "properties": {"todos": {"type": "array", "items": {
                "type": "object", "properties": {
                    "content": {"type": "string"},
                    "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                    "activeForm": {"type": "string", "description": "e.g. `Fixing the parser`"}
                }, "required": ["content", "status"]}}}, "required": ["todos"]}),
        }
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        checked(input)?;
        Ok(vec![Access::Nothing])
    }

    async fn run(&self, input: &Value, _: &CallContext<'_>) -> Result<ToolOutput, String> {
        let todos = checked(input)?;
        let line = progress(&todos);
        self.0.set_todos(todos);
        Ok(ToolOutput::text(format!("todo list kept: {line}"), line))
    }
}

fn checked(input: &Value) -> Result<Vec<Todo>, String> {
    let TodoInput { todos } = input::parse("TodoWrite", input)?;
    if todos.len() > TODOS {
        return Err(format!("TodoWrite: {} todos, at most {TODOS}", todos.len()));
    }
    if let Some(todo) = todos.iter().find(|todo| todo.content.chars().count() > TODO_CHARS) {
        let start: String = todo.content.chars().take(40).collect();
        return Err(format!("TodoWrite: `{start}…` is longer than {TODO_CHARS} characters"));
    }
    if todos.iter().any(|todo| todo.content.trim().is_empty()) {
        return Err("TodoWrite: a todo without content".into());
    }
    Ok(todos)
}

fn progress(todos: &[Todo]) -> String {
    let done = todos.iter().filter(|todo| todo.status == TodoStatus::Completed).count();
    let active = todos.iter().find(|todo| todo.status == TodoStatus::InProgress);
    match active {
        Some(todo) => {
            let what = todo.active_form.as_ref().unwrap_or(&todo.content);
            format!("{done} of {} done, now: {what}", todos.len())
        }
        None => format!("{done} of {} done", todos.len()),
    }
}
