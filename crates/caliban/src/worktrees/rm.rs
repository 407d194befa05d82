//! `caliban worktrees rm`

use caliban_core::names::Slug;
use caliban_worktrees::RemoveOptions;

use super::OpenRepo;
use crate::report::{Failure, Result};

pub(super) async fn rm(
    OpenRepo { repo, cancel, out }: OpenRepo<'_>,
    names: &[Slug],
    options: &RemoveOptions,
) -> Result<()> {
    let held = repo.list(&cancel).await?.into_iter().filter(|listed| listed.held);
    let held: Vec<Slug> = held.map(|listed| listed.name).collect();
    if let Some(name) = names.iter().find(|name| held.contains(name)) {
        return Err(Failure::new(format!("the worktree {name} belongs to a background agent"))
            .hint(format!("`caliban rm {name}` removes the agent and its worktree; its work is kept")));
    }
    for name in names {
        let report = repo.remove(name, None, options, &cancel).await?;
        super::removed(&report, out)?;
    }
    Ok(())
}
