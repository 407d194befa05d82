//! The worktree of a background agent: made at its first start, found again at every other.

use std::path::Path;

use caliban_core::{
    names::Slug,
    spec::{Isolation, SpawnSpec},
};
use caliban_worktrees::{BaseRef, CreateRequest, GitOptions, Repo, Setup, Worktree};
use tokio_util::sync::CancellationToken;

use super::status::Status;
use crate::{
    report::{Failure, note},
    settings::{Environment, Layer},
};

/// The agent's worktree, held for as long as the value lives; none when it works in the caller's directory.
pub(super) async fn worktree(
    spec: &SpawnSpec,
    directory: &Path,
    environment: &Environment,
    status: &mut Status,
) -> Result<Option<Worktree>, Failure> {
    let Isolation::Worktree(wanted) = &spec.isolation else { return Ok(None) };
    let cancel = CancellationToken::new();
    let id = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = Slug::parse(id).map_err(|error| Failure::new(error.to_string()))?;
    let repo = Repo::open(&spec.cwd, GitOptions::default(), &cancel).await.map_err(worded)?;
    if !repo.path_of(&name).is_dir() {
        status.activity("making the worktree");
    }
    let settings = crate::settings::load(environment, &spec.cwd, Layer::default())?.settings;
    let setup = settings
        .worktrees
        .setup
        .map(|command| Setup { command, timeout_seconds: settings.worktrees.setup_timeout.get().into() });
    let request = CreateRequest {
        base_ref: BaseRef::from(wanted.base_ref.clone()),
        sparse_paths: wanted.sparse_paths.clone(),
        symlink_directories: wanted.symlink_directories.clone(),
        setup,
        owner: Some(format!("agent {id}")),
        holder: Some(directory.to_owned()),
        ..CreateRequest::new(name)
    };
    let worktree = repo.take_up(request, &|_| {}, &cancel).await.map_err(worded)?;
    for text in &worktree.created.notes {
        note(text);
    }
    status.worktree(&worktree.created.path, &worktree.created.branch, worktree.created.base.as_str());
    Ok(Some(worktree))
}

fn worded(error: caliban_worktrees::Error) -> Failure {
    let failure = Failure::new(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
