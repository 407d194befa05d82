//! apply_patch: several changes of several files in the patch format of the GPT family. All files are looked at before the
//! first is written; a patch that does not fit changes nothing.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use caliban_core::{access::Access, message::ToolSpec};
use caliban_rooted::real_path;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    BuiltinTool, CallContext, ToolOutput, Workspace,
    blocking::{self, Commit},
    edit, error_text, file_change, input,
    known_files::{FileKnowledge, Stamp},
    patch::parse::PatchChange,
    replace_file::{self, Old},
};

mod apply;
mod parse;

/// The name that the models know.
pub const NAME: &str = "apply_patch";

pub(crate) struct ApplyPatch(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct PatchInput {
    #[serde(alias = "patch")]
    input: String,
}

/// What is to be done with one path, when all fit.
enum PatchStep {
    Write { shown: String, real: PathBuf, content: Vec<u8>, old: Option<(Stamp, FileKnowledge)> },
    Remove { shown: String, real: PathBuf },
}

impl BuiltinTool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.into(),
            description: "Change files with a patch:\n*** Begin Patch\n*** Update File: PATH (or Add File, Delete File)\n\
                *** Move to: PATH (optional)\n@@ a line above, where needed\n context\n-old\n+new\n*** End Patch"
                .into(),
            input_schema: json!({"type": "object", "properties": {"input": {"type": "string"}},
                "required": ["input"]}),
        }
    }

    fn only_writes(&self) -> bool {
        true
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let changes = changes(input)?;
        paths(&changes).map(|path| Ok(Access::Write(self.0.judge(path)?))).collect()
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let changes = changes(input)?;
        let mut targets = Vec::new();
        for path in paths(&changes) {
            let target = self.0.claim(path)?;
            targets.push((path.to_owned(), target.path.clone(), target.real(path)?));
        }
        let files = targets.iter().map(|(.., real)| real.clone()).collect();
        let work =
            move |workspace: &Workspace, commit: &Commit| patch_now(workspace, &changes, &targets, commit);
        file_change::run(&self.0, files, call, work).await
    }
}

fn changes(input: &Value) -> Result<Vec<PatchChange>, String> {
    let PatchInput { input } = input::parse(NAME, input)?;
    let changes = parse::parse(&input).map_err(|why| format!("{NAME}: {why}"))?;
    let mut paths: Vec<&str> = paths(&changes).collect();
    paths.sort_unstable();
    match paths.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{NAME}: {} is named twice; one patch changes a file once", pair[0])),
        None => Ok(changes),
    }
}

/// All paths that are touched, in the order of the patch.
fn paths(changes: &[PatchChange]) -> impl Iterator<Item = &str> {
    changes.iter().flat_map(|change| {
        let to = match change {
            PatchChange::Update { to, .. } => to.as_deref(),
            PatchChange::Add { .. } | PatchChange::Delete { .. } => None,
        };
        [Some(change.path()), to].into_iter().flatten()
    })
}

type Targets = [(String, PathBuf, PathBuf)];

fn patch_now(
    workspace: &Workspace,
    changes: &[PatchChange],
    targets: &Targets,
    commit: &Commit,
) -> Result<ToolOutput, String> {
    let mut steps = Vec::new();
    for change in changes {
        let planned = plan(workspace, change, targets);
        steps.extend(planned.map_err(|why| format!("{why}\n[nothing was changed]"))?);
    }
    if !commit.take() {
        return Err(blocking::INTERRUPTED.into());
    }
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    for step in &steps {
        match carry_out(workspace, step) {
            Ok((line, note)) => {
                lines.push(line);
                notes.extend(note);
            }
            Err(why) => {
                let done = if lines.is_empty() { "nothing was changed".into() } else { lines.join(", ") };
                return Err(format!("{why}\n[before that: {done}]"));
            }
        }
    }
    let summary = lines.join(", ");
    lines.extend(notes);
    Ok(ToolOutput::text(lines.join("\n"), summary))
}

/// What a change comes to; nothing is written.
fn plan(workspace: &Workspace, change: &PatchChange, targets: &Targets) -> Result<Vec<PatchStep>, String> {
    let target = |path: &str| {
        targets.iter().find(|(shown, ..)| shown == path).ok_or_else(|| format!("{path} was not judged"))
    };
    let (shown, path, real) = target(change.path())?;
    let absent = |shown: &str, real: &Path| match real_path::stat(real) {
        Ok(Some(_)) => Err(format!("{shown} exists already; use `*** Update File`")),
        Ok(None) | Err(_) => Ok(()),
    };
    match change {
        PatchChange::Add { content, .. } => {
            absent(shown, real)?;
            let content = content.as_bytes().to_vec();
            Ok(vec![PatchStep::Write { shown: shown.clone(), real: real.clone(), content, old: None }])
        }
        PatchChange::Delete { .. } => {
            edit::load(workspace, path, real, shown)?;
            Ok(vec![PatchStep::Remove { shown: shown.clone(), real: real.clone() }])
        }
        PatchChange::Update { to, pieces, .. } => {
            let (before, stamp) = edit::load(workspace, path, real, shown)?;
            let known = workspace.ledger.judge(real, &stamp);
            let content = apply::apply(&before, pieces).map_err(|why| format!("{shown}: {why}"))?;
            let Some(to) = to else {
                let (shown, real) = (shown.clone(), real.clone());
                return Ok(vec![PatchStep::Write { shown, real, content, old: Some((stamp, known)) }]);
            };
            let (moved, _, new) = target(to)?;
            absent(moved, new)?;
            Ok(vec![
                PatchStep::Write { shown: moved.clone(), real: new.clone(), content, old: None },
                PatchStep::Remove { shown: shown.clone(), real: real.clone() },
            ])
        }
    }
}

fn carry_out(workspace: &Workspace, step: &PatchStep) -> Result<(String, Option<String>), String> {
    match step {
        PatchStep::Write { shown, real, content, old } => {
            let before = old.as_ref().map_or(Old::Absent, |(stamp, _)| Old::Is(stamp.place()));
            let saved = replace_file::replace(real, content, before, &Commit::default())
                .map_err(|error| format!("{shown} was not changed: {error}"))?;
            let note = saved.links_note();
            match old {
                Some((_, known)) => workspace.ledger.changed(real, saved.stamp, *known),
                None => workspace.ledger.wrote(real, saved.stamp),
            }
            let verb = if old.is_some() { "updated" } else { "added" };
            Ok((format!("{verb} {shown}"), note))
        }
        PatchStep::Remove { shown, real } => {
            let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
                return Err(format!("{shown} cannot be removed"));
            };
            let removed = real_path::make_dir(parent)
                .and_then(|dir| Ok(rustix::fs::unlinkat(dir, name, rustix::fs::AtFlags::empty())?));
            removed.map_err(|error| format!("{shown} was not removed: {}", error_text::reason(&error)))?;
            Ok((format!("removed {shown}"), None))
        }
    }
}
