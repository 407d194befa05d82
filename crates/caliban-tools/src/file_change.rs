//! A change of files: one after the other where calls change the same file, from the text that an editor has unsaved, told to the
//! editor afterwards.

use std::{path::PathBuf, sync::Arc};

use crate::{
    CallContext, ToolOutput, Workspace,
    blocking::{self, Commit},
};

/// Runs `work`, which changes these files, when it is its turn on all of them.
pub(crate) async fn run<F>(
    workspace: &Arc<Workspace>,
    mut files: Vec<PathBuf>,
    call: &CallContext<'_>,
    work: F,
) -> Result<ToolOutput, String>
where
    F: FnOnce(&Workspace, &Commit) -> Result<ToolOutput, String> + Send + 'static,
{
    // In one order, so that two calls do not wait for each other.
    files.sort();
    files.dedup();
    let mut turns = Vec::new();
    for file in &files {
        tokio::select! {
            biased;
            turn = workspace.locks.lock(file) => turns.push(turn),
            () = call.cancel.cancelled() => return Err(blocking::INTERRUPTED.into()),
        }
    }
    for file in &files {
        workspace.unsaved.ask(file).await;
    }
    let theirs = workspace.clone();
    let work = move |commit: &Commit| work(&theirs, commit).unwrap_or_else(ToolOutput::error);
    let output = blocking::run_change(call.cancel, work).await;
    if !output.is_error {
        for file in &files {
            workspace.unsaved.tell(file).await;
        }
    }
    Ok(output)
}
