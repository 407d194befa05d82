//! BashInput: types into a command that runs in a terminal, and shows what it says to that.

use std::{sync::Arc, time::Duration};

use caliban_core::{access::Access, message::ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::output;
use crate::{BuiltinTool, CallContext, ToolOutput, Workspace, blocking, input, limits::COMMAND_BYTES};

/// How long the command's answer is waited for when the call names no time.
const WAIT_MS: u64 = 5_000;
/// The longest wait in one call.
const WAIT_MAX_MS: u64 = 600_000;

pub(crate) struct BashInput(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct KeysInput {
    bash_id: String,
    text: String,
    /// In milliseconds.
    #[serde(default, deserialize_with = "input::number")]
    wait_ms: Option<u64>,
}

fn checked(input: &Value) -> Result<KeysInput, String> {
    let input: KeysInput = input::parse("BashInput", input)?;
    if input.text.len() > COMMAND_BYTES {
        return Err(format!("BashInput: the text has {} bytes, at most {COMMAND_BYTES}", input.text.len()));
    }
    Ok(input)
}

impl BuiltinTool for BashInput {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "BashInput".into(),
            description: "Type into a command that was started with tty, and get its answer. \\n is Enter, \\u0003 Ctrl-C."
                .into(),
            input_schema: json!({"type": "object", "properties": {
                "bash_id": {"type": "string"},
                "text": {"type": "string"},
                "wait_ms": {"type": "integer", "description": format!("for an answer, default {WAIT_MS}")}
            }, "required": ["bash_id", "text"]}),
        }
    }

    /// What is typed may be a command: it is judged like one, with what stands on its line already. Keys without text
    /// (Enter, Ctrl-C) touch nothing but what runs.
    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let input = checked(input)?;
        let job = self.0.jobs.find(&input.bash_id)?;
        let line = format!("{}{}", job.typed_line(), input.text);
        if line.chars().all(|c| c.is_control() || c.is_whitespace()) {
            return Ok(vec![Access::Nothing]);
        }
        // A program that runs without a fence makes none for what is typed into it.
        let outside = (!job.is_fenced).then(|| "it is typed into a command that runs without one".to_owned());
        Ok(vec![Access::Command { line, cwd: self.0.cwd(), outside }])
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let KeysInput { bash_id, text, wait_ms } = checked(input)?;
        let job = self.0.jobs.find(&bash_id)?;
        let Some(keyboard) = &job.keyboard else {
            return Err(format!("{bash_id} has no terminal; start the command with tty to type into it"));
        };
        if job.state.borrow().is_ended() {
            let ended = output::report(&self.0, &bash_id, &job, None);
            return Err(format!("{bash_id} has ended: nothing was typed\n{}", ended.joined_text()));
        }
        let listening = job.listen();
        // What the Enter key sends.
        let keys = text.replace("\r\n", "\r").replace('\n', "\r");
        keyboard.send(keys.into_bytes()).await.map_err(|_| format!("{bash_id} takes no input any more"))?;
        job.note_typed(&text);
        let limit = Duration::from_millis(wait_ms.unwrap_or(WAIT_MS).min(WAIT_MAX_MS));
        tokio::select! {
            biased;
            () = job.settled(listening, limit) => {}
            () = call.cancel.cancelled() => return Err(blocking::INTERRUPTED.into()),
        }
        Ok(output::report(&self.0, &bash_id, &job, None))
    }
}

/// The line that stands unfinished after this was typed behind `before`.
pub(super) fn unfinished(before: &str, text: &str) -> String {
    match text.rfind(|c: char| c.is_control()) {
        Some(end) => text[end..].chars().filter(|c| !c.is_control()).collect(),
        None => format!("{before}{text}"),
    }
}
