//! Edit: one text for another in a file, byte for byte.
//!
//! Owns the replacement and what the model is told of it. Everything outside the match stays as it is:
//! line ends, byte order mark, final newline, bytes that are no UTF-8.

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use caliban_core::{access::Access, message::ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    BoxFuture, Call, Tool, ToolOutput, Workspace, blocking,
    blocking::Commit,
    edit::replacement::{Fault, Replaced},
    full_output, input,
    ledger::{Known, Stamp, hash},
    limits::FILE_BYTES,
    save::{self, Old},
    target, words,
};

mod hint;
mod replacement;
mod shown;

/// The Edit tool.
pub(crate) struct Edit {
    workspace: Arc<Workspace>,
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Input {
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(default, deserialize_with = "input::flag")]
    replace_all: bool,
}

impl Edit {
    pub(crate) fn new(workspace: &Arc<Workspace>) -> Self {
        let spec = ToolSpec {
            name: "Edit".into(),
            description:
                "Replace text in a file. old_string must be the exact text (whitespace included, line \
                numbers of Read not) and occur once; give more context, or replace_all."
                    .into(),
            input_schema: json!({"type": "object", "properties": {
                "file_path": {"type": "string"},
                "old_string": {"type": "string"},
                "new_string": {"type": "string"},
                "replace_all": {"type": "boolean"}
            }, "required": ["file_path", "old_string", "new_string"]}),
        };
        Self { workspace: workspace.clone(), spec }
    }

    async fn edit(&self, input: &Value, call: &Call<'_>) -> Result<ToolOutput, String> {
        let input: Input = input::parse("Edit", input)?;
        let target = self.workspace.claim(&input.file_path)?;
        let real = target.real(&input.file_path)?;
        let _turn = tokio::select! {
            biased;
            turn = self.workspace.locks.lock(&real) => turn,
            () = call.cancel.cancelled() => return Err(blocking::INTERRUPTED.into()),
        };
        let workspace = self.workspace.clone();
        let work = move |commit: &Commit| {
            edit_now(&workspace, &target.path, &real, &input, commit).unwrap_or_else(ToolOutput::error)
        };
        Ok(blocking::run_change(call.cancel, work).await)
    }
}

impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let input: Input = input::parse("Edit", input)?;
        let path = self.workspace.judge(&input.file_path)?;
        Ok(vec![Access::Write(path)])
    }

    fn call<'a>(&'a self, input: Value, call: Call<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match self.edit(&input, &call).await {
                Ok(output) => output,
                Err(error) => ToolOutput::error(error),
            }
        })
    }
}

fn edit_now(
    workspace: &Workspace,
    path: &Path,
    real: &Path,
    input: &Input,
    commit: &Commit,
) -> Result<ToolOutput, String> {
    let shown = &input.file_path;
    let (content, stamp) = load(path, real, shown)?;
    if workspace.ledger.judge(real, &stamp) == Known::Changed {
        return Err(format!("{shown} changed on disk since you read it: read it again"));
    }
    let all = input.replace_all;
    let replaced = replacement::replace(&content, &input.old_string, &input.new_string, all)
        .map_err(|fault| refused(shown, &content, &input.old_string, &fault))?;
    let saved = save::replace(real, &replaced.content, Old::Is(stamp.place()), commit)
        .map_err(|error| format!("{shown} was not changed: {error}"))?;
    let note = saved.links_note();
    workspace.ledger.changed(real, saved.stamp);
    Ok(told(shown, &content, &replaced, note.as_deref()))
}

fn load(path: &Path, real: &Path, shown: &str) -> Result<(Vec<u8>, Stamp), String> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("{}; use Write for a new file", words::missing(shown, path)),
        _ => format!("{shown}: {}", words::reason(&error)),
    };
    let mut file = target::open(real).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.is_dir() {
        return Err(format!("{shown} is a directory"));
    }
    if !meta.is_file() {
        return Err(format!("{shown} is a pipe, a socket or a device, not a file"));
    }
    let mut content = Vec::new();
    (&mut file).take(FILE_BYTES + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > FILE_BYTES {
        let limit = words::bytes(FILE_BYTES);
        return Err(format!("{shown} is larger than {limit}; change it with Bash (sed, a script)"));
    }
    let stamp = Stamp::new(&meta, Some(hash(&content)));
    Ok((content, stamp))
}

fn refused(shown: &str, content: &[u8], old: &str, fault: &Fault) -> String {
    match fault {
        Fault::Empty => "old_string is empty; use Write for a new file".into(),
        Fault::Same => "old_string and new_string are the same: nothing to change".into(),
        Fault::Many { count, lines } => {
            let lines: Vec<String> = lines.iter().map(u64::to_string).collect();
            let more = if lines.len() < *count { ", …" } else { "" };
            format!(
                "old_string occurs {count} times in {shown} (lines {}{more}): give more context, or set replace_all",
                lines.join(", ")
            )
        }
        Fault::Missing => match hint::hint(content, old) {
            Some(hint) => format!("old_string was not found in {shown}: {hint}"),
            None => format!("old_string was not found in {shown}"),
        },
    }
}

fn told(shown: &str, before: &[u8], replaced: &Replaced, note: Option<&str>) -> ToolOutput {
    let change = shown::change(before, replaced);
    let summary = match replaced.places.len() {
        1 => format!("edited {shown}: +{} -{}", change.added, change.removed),
        count => format!("edited {shown}: {count} places, the first of them:"),
    };
    let text = full_output::joined(&format!("{summary}\n{}", change.text), note.unwrap_or_default());
    ToolOutput::text(text, summary.trim_end_matches(", the first of them:"))
}
