//! The worktree of a background agent: made at its first start, found again at every other.

use std::{path::Path, time::Duration};

use caliban_core::{
    names::Slug,
    spec::{Isolation, SpawnSpec},
};
use caliban_worktrees::{BaseRef, CreateRequest, GitOptions, Repo, Worktree};
use tokio_util::sync::CancellationToken;

use super::status::Status;
use crate::{
    compose,
    report::Failure,
    settings::{Environment, Settings},
};

/// How often a worktree that finds no room is tried again.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);

/// The agent's worktree, held for as long as the value lives; none when it works in the caller's directory.
pub(super) async fn worktree(
    spec: &SpawnSpec,
    directory: &Path,
    settings: &Settings,
    environment: &Environment,
    status: &mut Status,
) -> Result<Option<Worktree>, Failure> {
    let Isolation::Worktree(wanted) = &spec.isolation else { return Ok(None) };
    let cancel = CancellationToken::new();
    let id = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = Slug::parse(id).map_err(|error| Failure::new(error.to_string()))?;
    let repo = Repo::open(ground(spec).0, GitOptions::default(), &cancel).await.map_err(worded)?;
    if !repo.path_of(&name).is_dir() {
        status.activity("making the worktree");
    }
    let variables = environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let setup = compose::setup(settings, variables, compose::own_program()?);
    let request = CreateRequest {
        base_ref: BaseRef::from(wanted.base_ref.clone()),
        base_commit: wanted.base_commit.clone(),
        sparse_paths: wanted.sparse_paths.clone(),
        symlink_directories: wanted.symlink_directories.clone(),
        setup,
        owner: Some(format!("agent {id}")),
        holder: Some(directory.to_owned()),
        ..CreateRequest::new(name)
    };
    let worktree = loop {
        match repo.take_up(request.clone(), &|_| {}, &cancel).await {
            // As with a transcript: it waits, says so, and goes on when there is room. Nothing half-made is left meanwhile.
            Err(caliban_worktrees::Error::DiskFull { .. }) => {
                status.waits_for_room(repo.root());
                tokio::time::sleep(FULL_DISK_PAUSE).await;
            }
            other => break other.map_err(worded)?,
        }
    };
    status.has_room();
    for text in &worktree.created.notes {
        status.note(text);
    }
    status.worktree(&worktree.created.path, &worktree.created.branch, worktree.created.base.as_str());
    Ok(Some(worktree))
}

/// Where the caller stood, and what of it is not there any more: the user may have changed to a branch without it, and who
/// has a worktree of its own has its own of it.
pub(super) fn ground(spec: &SpawnSpec) -> (&Path, &Path) {
    let whole = (spec.cwd.as_path(), Path::new(""));
    match &spec.isolation {
        Isolation::None => whole,
        Isolation::Worktree(_) => {
            let nearest = spec.cwd.ancestors().find(|dir| dir.is_dir());
            nearest.and_then(|dir| Some((dir, spec.cwd.strip_prefix(dir).ok()?))).unwrap_or(whole)
        }
    }
}

fn worded(error: caliban_worktrees::Error) -> Failure {
    let failure = Failure::new(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
