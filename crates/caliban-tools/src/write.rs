//! Write: a whole file, new or over one that the agent knows as it is.

use std::{
    io::{ErrorKind, Read},
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
    error_text, file_change, full_output, input,
    known_files::{FileKnowledge, Stamp, hash},
    limits::FILE_BYTES,
    line_ends::{self, Shaped},
    replace_file::{self, Old},
};

/// The Write tool.
pub(crate) struct Write(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct WriteInput {
    file_path: String,
    content: String,
}

impl BuiltinTool for Write {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Write".into(),
            description:
                "Write a whole file, making missing directories. An existing file must have been read \
                first. To change a part, use Edit."
                    .into(),
            input_schema: json!({"type": "object", "properties": {
                "file_path": {"type": "string"}, "content": {"type": "string"}
            }, "required": ["file_path", "content"]}),
        }
    }

    fn only_writes(&self) -> bool {
        true
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let input: WriteInput = input::parse("Write", input)?;
        let path = self.0.judge(&input.file_path)?;
        Ok(vec![Access::Write(path)])
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let input: WriteInput = input::parse("Write", input)?;
        let target = self.0.claim(&input.file_path)?;
        let real = target.real(&input.file_path)?;
        let files = vec![real.clone()];
        let work = move |workspace: &Workspace, commit: &Commit| write_now(workspace, &real, &input, commit);
        file_change::run(&self.0, files, call, work).await
    }
}

fn write_now(
    workspace: &Workspace,
    real: &Path,
    input: &WriteInput,
    commit: &Commit,
) -> Result<ToolOutput, String> {
    let shown = &input.file_path;
    let (old, shaped) = match look(workspace, real).map_err(|reason| format!("{shown}: {reason}"))? {
        None => (Old::Absent, Shaped { content: input.content.as_bytes().to_vec(), notes: Vec::new() }),
        Some(now) => {
            may_replace(shown, workspace.ledger.judge(real, &now.stamp))?;
            (Old::Is(now.stamp.place()), line_ends::shaped_like(&now.content, &input.content))
        }
    };
    let saved = replace_file::replace(real, &shaped.content, old, commit)
        .map_err(|error| format!("{shown} was not written: {error}"))?;
    let notes: Vec<String> = shaped.notes.into_iter().map(str::to_owned).chain(saved.links_note()).collect();
    workspace.ledger.wrote(real, saved.stamp);
    let lines = error_text::counted(input.content.lines().count() as u64, "line", "lines");
    let verb = match old {
        Old::Absent => "created",
        Old::Is(_) => "overwrote",
    };
    let text = format!("{verb} {shown}: {lines}");
    Ok(ToolOutput::text(full_output::joined(&text, &notes.join("\n")), text))
}

/// Only what the agent knows whole can it replace as a whole.
fn may_replace(shown: &str, known: FileKnowledge) -> Result<(), String> {
    match known {
        FileKnowledge::Same => Ok(()),
        FileKnowledge::Never => {
            Err(format!("{shown} exists and you have not read it: read it first, or use Edit"))
        }
        FileKnowledge::Part => Err(format!(
            "{shown} holds more than you have seen: Read showed a part of it, or could not show all of it as it is, and \
             Write would lose the rest. Read all of it, or use Edit"
        )),
        FileKnowledge::Changed => Err(format!("{shown} changed on disk since you read it: read it again")),
    }
}

/// The file that is there now.
struct Present {
    stamp: Stamp,
    /// Empty for one that is too large.
    content: Vec<u8>,
}

fn look(workspace: &Workspace, real: &Path) -> Result<Option<Present>, String> {
    let reason = |error: std::io::Error| error_text::reason(&error);
    let mut file = match real_path::open_file(real) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(reason)?,
    };
    let meta = file.metadata().map_err(reason)?;
    if meta.is_dir() {
        return Err("it is a directory".into());
    }
    if !meta.is_file() {
        return Err("it is not a regular file".into());
    }
    if meta.len() > FILE_BYTES {
        return Ok(Some(Present { stamp: Stamp::new(&meta, None), content: Vec::new() }));
    }
    let mut content = Vec::new();
    (&mut file).take(FILE_BYTES + 1).read_to_end(&mut content).map_err(reason)?;
    if let Some(unsaved) = workspace.unsaved.text(real) {
        content = unsaved;
    }
    Ok(Some(Present { stamp: Stamp::new(&meta, Some(hash(&content))), content }))
}
