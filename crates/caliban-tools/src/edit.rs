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
use caliban_rooted::real_path;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    BuiltinTool, CallContext, ToolOutput, Workspace,
    blocking::Commit,
    edit::{replacement::Fault, small_diff::ShownChange},
    error_text, file_change, full_output, input,
    known_files::{FileKnowledge, Stamp, hash},
    limits::FILE_BYTES,
    replace_file::{self, Old},
};

mod hint;
mod replacement;
mod small_diff;

/// A longer preview is none: the arguments say it all.
const PREVIEW_BYTES: usize = 64 * 1024;

pub(crate) struct Edit(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct EditInput {
    file_path: String,
    #[serde(default)]
    old_string: Option<String>,
    #[serde(default)]
    new_string: Option<String>,
    #[serde(default, deserialize_with = "input::flag")]
    replace_all: bool,
    #[serde(default, deserialize_with = "input::list")]
    edits: Vec<One>,
}

/// One replacement.
#[derive(Deserialize)]
struct One {
    old_string: String,
    new_string: String,
    #[serde(default, deserialize_with = "input::flag")]
    replace_all: bool,
}

/// A call's file and what is to be replaced in it, in this order.
struct WantedEdit {
    file_path: String,
    edits: Vec<One>,
}

fn parse(input: &Value) -> Result<WantedEdit, String> {
    let EditInput { file_path, old_string, new_string, replace_all, mut edits } =
        input::parse("Edit", input)?;
    match (old_string, new_string) {
        (Some(old_string), Some(new_string)) => edits.insert(0, One { old_string, new_string, replace_all }),
        (Some(_), None) => return Err("Edit: missing field `new_string`".into()),
        (None, _) if edits.is_empty() => return Err("Edit: missing field `old_string`, or `edits`".into()),
        (None, _) => {}
    }
    Ok(WantedEdit { file_path, edits })
}

impl BuiltinTool for Edit {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Edit".into(),
            description:
                "Replace text in a file. old_string must be the exact text (whitespace included, line \
                numbers of Read not) and occur once; give more context, or replace_all. Several: edits, all or none."
                    .into(),
            input_schema: json!({"type": "object", "properties": {
                "file_path": {"type": "string"},
                "old_string": {"type": "string"},
                "new_string": {"type": "string"},
                "replace_all": {"type": "boolean"},
                "edits": {"type": "array", "items": {"type": "object", "properties": {
                    "old_string": {"type": "string"}, "new_string": {"type": "string"},
                    "replace_all": {"type": "boolean"}}, "required": ["old_string", "new_string"]}}
            }, "required": ["file_path"]}),
        }
    }

    fn only_writes(&self) -> bool {
        true
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let input = parse(input)?;
        let path = self.0.judge(&input.file_path)?;
        Ok(vec![Access::Write(path)])
    }

    fn preview(&self, input: &Value) -> Option<String> {
        let WantedEdit { file_path, edits } = parse(input).ok()?;
        let target = self.0.judged.see(&file_path)?;
        let (mut content, _) =
            load(&self.0, &target.path, &target.real(&file_path).ok()?, &file_path).ok()?;
        let mut shown = Vec::new();
        for One { old_string, new_string, replace_all } in &edits {
            let replaced = replacement::replace(&content, old_string, new_string, *replace_all).ok()?;
            let places = match replaced.places.len() {
                1 => String::new(),
                count => format!("in {count} places, the first of them:\n"),
            };
            shown.push(format!("{places}{}", small_diff::whole(&content, &replaced)));
            content = replaced.content;
        }
        Some(shown.join("\n  …\n")).filter(|text| text.len() <= PREVIEW_BYTES)
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let input = parse(input)?;
        let target = self.0.claim(&input.file_path)?;
        let real = target.real(&input.file_path)?;
        let files = vec![real.clone()];
        let work = move |workspace: &Workspace, commit: &Commit| {
            edit_now(workspace, &target.path, &real, &input, commit)
        };
        file_change::run(&self.0, files, call, work).await
    }
}

fn edit_now(
    workspace: &Workspace,
    path: &Path,
    real: &Path,
    input: &WantedEdit,
    commit: &Commit,
) -> Result<ToolOutput, String> {
    let shown = &input.file_path;
    let (before, stamp) = load(workspace, path, real, shown)?;
    let known = workspace.ledger.judge(real, &stamp);
    let mut content = before;
    let mut changes = Vec::new();
    for (index, edit) in input.edits.iter().enumerate() {
        let refused = |reason: String| match input.edits.len() {
            1 => reason,
            count => format!("edit {} of {count}: {reason}; nothing was changed", index + 1),
        };
        if known == FileKnowledge::Changed && edit.replace_all {
            return Err(refused(format!("{shown} changed on disk since you read it: read it again")));
        }
        let replaced = replacement::replace(&content, &edit.old_string, &edit.new_string, edit.replace_all)
            .map_err(|fault| {
            let mut reason = fault_text(shown, &content, &edit.old_string, &fault);
            if known == FileKnowledge::Changed {
                reason.push_str("\n[the file changed on disk since you read it: read it again]");
            }
            refused(reason)
        })?;
        changes.push((replaced.places.len(), small_diff::change(&content, &replaced)));
        content = replaced.content;
    }
    let saved = replace_file::replace(real, &content, Old::Is(stamp.place()), commit)
        .map_err(|error| format!("{shown} was not changed: {error}"))?;
    let mut notes: Vec<String> = saved.links_note().into_iter().collect();
    if known == FileKnowledge::Changed {
        notes
            .push("[the file had changed on disk since you read it; the edit fits what is there now]".into());
    }
    workspace.ledger.changed(real, saved.stamp, known);
    Ok(told(shown, &changes, &notes.join("\n")))
}

pub(crate) fn load(
    workspace: &Workspace,
    path: &Path,
    real: &Path,
    shown: &str,
) -> Result<(Vec<u8>, Stamp), String> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("{}; use Write for a new file", error_text::missing_here(workspace, shown, path))
        }
        _ => format!("{shown}: {}", error_text::reason(&error)),
    };
    let mut file = real_path::open_file(real).map_err(failed)?;
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
        let limit = error_text::bytes(FILE_BYTES);
        return Err(format!("{shown} is larger than {limit}; change it with Bash (sed, a script)"));
    }
    if let Some(unsaved) = workspace.unsaved.text(real) {
        content = unsaved;
    }
    let stamp = Stamp::new(&meta, Some(hash(&content)));
    Ok((content, stamp))
}

fn fault_text(shown: &str, content: &[u8], old: &str, fault: &Fault) -> String {
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

fn told(shown: &str, changes: &[(usize, ShownChange)], note: &str) -> ToolOutput {
    let (added, removed) = changes
        .iter()
        .fold((0, 0), |(added, removed), (_, change)| (added + change.added, removed + change.removed));
    let summary = match changes {
        [(1, _)] => format!("edited {shown}: +{added} -{removed}"),
        [(count, _)] => format!("edited {shown}: {count} places, the first of them:"),
        _ => format!("edited {shown}: {} edits, +{added} -{removed}", changes.len()),
    };
    let texts: Vec<&str> = changes.iter().map(|(_, change)| change.text.as_str()).collect();
    let text = full_output::joined(&format!("{summary}\n{}", texts.join("\n  …\n")), note);
    ToolOutput::text(text, summary.trim_end_matches(", the first of them:"))
}
