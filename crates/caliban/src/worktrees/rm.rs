//! `caliban worktrees rm`

use std::io::Write;

use caliban_core::names::Slug;
use caliban_worktrees::{RemoveOptions, Repo};
use tokio_util::sync::CancellationToken;

use crate::report::{Failure, Result};

pub(super) async fn rm(
    repo: &Repo,
    names: &[Slug],
    options: &RemoveOptions,
    out: &mut dyn Write,
    cancel: &CancellationToken,
) -> Result<()> {
    let held = repo.list(cancel).await?.into_iter().filter(|listed| listed.held);
    let held: Vec<Slug> = held.map(|listed| listed.name).collect();
    if let Some(name) = names.iter().find(|name| held.contains(name)) {
        return Err(Failure::new(format!("the worktree {name} belongs to a background agent"))
            .hint(format!("`caliban rm {name}` removes the agent and its worktree; its work is kept")));
    }
    for name in names {
        let report = repo.remove(name, None, options, cancel).await?;
        super::removed(&report, out)?;
    }
    Ok(())
}
