//! `caliban worktrees rescue …`: work that removals saved.

use std::{io::Write, path::Path};

use caliban_core::inert;
use caliban_worktrees::{Repo, RestoreTo, Restored};
use tokio_util::sync::CancellationToken;

use crate::report::Failure;

pub(super) async fn list(
    repo: &Repo,
    json: bool,
    out: &mut dyn Write,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let rescues = repo.rescues(cancel).await.map_err(super::worded)?;
    if json {
        return super::json_line(&rescues, out);
    }
    if rescues.is_empty() {
        writeln!(out, "Nothing was saved: every worktree went without leaving work behind.")?;
        return Ok(());
    }
    for rescue in rescues {
        writeln!(out, "{}  {}  {}", inert::line(&rescue.name), super::time(rescue.saved), rescue.reference)?;
        writeln!(out, "    {}", rescue.restore)?;
    }
    Ok(())
}

pub(super) async fn restore(
    repo: &Repo,
    name: &str,
    to: Option<&Path>,
    rename: Option<&str>,
    out: &mut dyn Write,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let target = match to {
        Some(directory) => RestoreTo::Directory(directory.to_owned()),
        None => RestoreTo::Worktree(rename.map(super::slug).transpose()?),
    };
    match repo.restore(name, target, &|_| {}, cancel).await.map_err(super::worded)? {
        Restored::Directory(path) => writeln!(out, "Restored the files to {}.", path.display())?,
        Restored::Worktree(worktree) => {
            let created = &worktree.created;
            writeln!(
                out,
                "Restored worktree {} at {} on branch {}.",
                created.name,
                created.path.display(),
                created.branch
            )?;
        }
    }
    Ok(())
}
