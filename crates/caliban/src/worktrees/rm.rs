//! `caliban worktrees rm`

use std::io::Write;

use caliban_core::names::Slug;
use caliban_worktrees::{RemoveOptions, Repo};
use tokio_util::sync::CancellationToken;

use crate::report::Failure;

pub(super) async fn rm(
    repo: &Repo,
    names: &[Slug],
    options: &RemoveOptions,
    out: &mut dyn Write,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    for name in names {
        let report = repo.remove(name, None, options, cancel).await.map_err(super::worded)?;
        super::removed(&report, out)?;
    }
    Ok(())
}
