//! `caliban worktrees list`

use caliban_worktrees::{Presence, Use};

use super::OpenRepo;
use crate::report::Result;

pub(super) async fn list(OpenRepo { repo, cancel, out }: OpenRepo<'_>, json: bool) -> Result<()> {
    let worktrees = repo.list(&cancel).await?;
    if json {
        return super::json_line(&worktrees, "created", out);
    }
    if worktrees.is_empty() {
        writeln!(out, "No worktrees.")?;
        return Ok(());
    }
    let width = worktrees.iter().map(|listed| listed.name.as_str().len()).max().unwrap_or_default().max(4);
    writeln!(out, "{:<width$}  {:<8}  {:<16}  BRANCH", "NAME", "STATE", "MADE")?;
    for listed in worktrees {
        let state = match (&listed.presence, listed.usage) {
            (Presence::Missing, _) => "missing",
            (Presence::Moved(_), _) => "moved",
            (Presence::Present, Use::InUse) => "in use",
            // Nobody is at work in it, and an agent counts on it.
            (Presence::Present, Use::Free) if listed.held => "held",
            (Presence::Present, Use::Free) => "free",
        };
        writeln!(
            out,
            "{:<width$}  {state:<8}  {:<16}  {}",
            listed.name.as_str(),
            super::time(listed.created),
            listed.branch
        )?;
    }
    Ok(())
}
