//! `caliban worktrees sweep`: every worktree that nobody works in.

use std::collections::BTreeSet;

use caliban_core::inert;
use caliban_worktrees::{RemoveOptions, SweepMode, Swept};

use super::OpenRepo;
use crate::report::{Failure, Result};

pub(super) async fn sweep(
    OpenRepo { repo, cancel, out }: OpenRepo<'_>,
    dry_run: bool,
    options: &RemoveOptions,
) -> Result<()> {
    let mode = if dry_run { SweepMode::DryRun } else { SweepMode::Remove };
    // Those that somebody works in are held by a lease, those of registered agents by their directories.
    let report = repo.sweep(&BTreeSet::new(), mode, options, &cancel).await?;
    if report.orphans.is_empty() && report.leftovers.is_empty() {
        writeln!(out, "Nothing to sweep.")?;
    }
    let mut failed = 0;
    for swept in &report.orphans {
        match swept {
            Swept::Orphan { name, needs_rescue, .. } => {
                let how = if *needs_rescue { ", its work saved under a rescue ref first" } else { "" };
                writeln!(out, "Would remove worktree {name}{how}.")?;
            }
            Swept::Done(report) => super::removed(report, out)?,
            Swept::Left { name, why } => writeln!(out, "Left worktree {name}: {}.", inert::line(why))?,
            Swept::Failed { name, error } => {
                failed += 1;
                writeln!(out, "Worktree {name} could not be removed: {}", inert::line(error))?;
            }
        }
    }
    if failed > 0 { Err(Failure::new(format!("{failed} worktrees could not be removed"))) } else { Ok(()) }
}
