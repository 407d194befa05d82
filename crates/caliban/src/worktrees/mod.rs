//! `caliban worktrees …`: what agents left, what was saved of it, and how to get it back. One file for each verb.

mod list;
mod rescue;
mod rm;
mod show;
mod sweep;

use std::{io::Write, path::Path};

use caliban_core::names::Slug;
use caliban_worktrees::{GitOptions, KeepWorktrees, RemoveOptions, RemoveReport, Repo};
use tokio_util::sync::CancellationToken;

use crate::{
    Here,
    cli::worktrees::{RescueCommand, WorktreesCommand},
    fleet::json::with_instants,
    report::{self, Failure, Result},
    settings::{Environment, Layer, project_root},
};

/// Carries a verb out.
pub(crate) async fn worktrees(
    command: &WorktreesCommand,
    Here { environment, cwd, out }: Here<'_>,
) -> Result<()> {
    let cancel = CancellationToken::new();
    let base = environment.paths()?.repo(&project_root(cwd)?);
    let repo = Repo::open(cwd, GitOptions::accepting(&base), &cancel).await?;
    let at = OpenRepo { repo, cancel, out };
    match command {
        WorktreesCommand::List { json } => list::list(at, *json).await,
        WorktreesCommand::Show { name, json } => show::show(at, &slug(name)?, *json).await,
        WorktreesCommand::Rm { names } => {
            let names = names.iter().map(|name| slug(name)).collect::<Result<Vec<_>, _>>()?;
            rm::rm(at, &names, &options(environment, cwd)?).await
        }
        WorktreesCommand::Sweep { dry_run } => sweep::sweep(at, *dry_run, &options(environment, cwd)?).await,
        WorktreesCommand::Rescue(RescueCommand::List { json }) => rescue::list(at, *json).await,
        WorktreesCommand::Rescue(RescueCommand::Rm { names, json }) => rescue::rm(at, names, *json).await,
        WorktreesCommand::Rescue(RescueCommand::Restore { name, to, rename }) => {
            rescue::restore(at, name, to.as_deref(), rename.as_deref()).await
        }
    }
}

/// What the verbs work on.
struct OpenRepo<'a> {
    repo: Repo,
    cancel: CancellationToken,
    out: &'a mut dyn Write,
}

/// `CALIBAN_KEEP_WORKTREES` and the setting hold for removals by hand too.
fn options(environment: &Environment, cwd: &Path) -> Result<RemoveOptions> {
    let loaded = crate::settings::load(environment, cwd, Layer::default())?;
    for note in &loaded.notes {
        report::note(note);
    }
    let keep = if loaded.settings.worktrees.keep { KeepWorktrees::All } else { KeepWorktrees::Remove };
    Ok(RemoveOptions { keep, ..RemoveOptions::default() })
}

fn slug(name: &str) -> Result<Slug> {
    // People see the branch in `git branch`, and may give that.
    let name = name.strip_prefix(caliban_worktrees::BRANCH_PREFIX).unwrap_or(name);
    Slug::parse(name).map_err(|error| Failure::usage(error.to_string()))
}

impl From<caliban_worktrees::Error> for Failure {
    fn from(error: caliban_worktrees::Error) -> Self {
        Self::hinted(error.to_string(), error.hint())
    }
}

/// What a removal did, in words.
fn removed(report: &RemoveReport, out: &mut dyn Write) -> std::io::Result<()> {
    use caliban_worktrees::{BranchFate, RemovalOutcome};
    match report.outcome {
        RemovalOutcome::Removed => writeln!(out, "Removed worktree {}.", report.name)?,
        RemovalOutcome::Kept => {
            writeln!(
                out,
                "Kept worktree {} at {} (worktrees are set to be kept).",
                report.name,
                report.path.display()
            )?;
        }
    }
    match &report.branch_fate {
        BranchFate::DeletedEmpty => {
            writeln!(out, "  branch {} had no commits and is deleted", report.branch)?
        }
        BranchFate::DeletedMerged => writeln!(out, "  branch {} is merged and deleted", report.branch)?,
        BranchFate::DeletedHeld { by } => {
            writeln!(out, "  branch {} is deleted: {by} has all its commits", report.branch)?
        }
        BranchFate::DeletedSquashed { tip, landed } => writeln!(
            out,
            "  branch {} landed as {} and is deleted; it was at {}",
            report.branch,
            landed.short(),
            tip.short()
        )?,
        BranchFate::Kept { ahead, .. } => {
            writeln!(out, "  branch {} stays: {ahead} commits that are nowhere else", report.branch)?;
        }
        BranchFate::Absent => {}
    }
    if let Some(rescue) = &report.rescue {
        writeln!(out, "  uncommitted work is saved under {}", rescue.reference)?;
        writeln!(out, "  get it back: {}", rescue.restore)?;
    }
    for note in &report.notes {
        writeln!(out, "  note: {}", caliban_core::inert::line(note))?;
    }
    Ok(())
}

/// One line; `time` is the field that has seconds since 1970, and is told as the instant `<time>_at`.
fn json_line(value: &impl serde::Serialize, time: &str, out: &mut dyn Write) -> Result<()> {
    let told = with_instants(value, time, &format!("{time}_at")).map_err(std::io::Error::from)?;
    crate::fleet::json_line(&told, out)
}

/// Seconds since 1970 as people read them.
fn time(seconds: u64) -> String {
    let stamp = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    stamp.map_or_else(String::new, |stamp| {
        stamp.to_zoned(caliban_contract::local_time::time_zone()).strftime("%Y-%m-%d %H:%M").to_string()
    })
}
