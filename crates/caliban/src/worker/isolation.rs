//! The worktree of a background agent: made at its first start, found again at every other.

use std::path::PathBuf;

use caliban_core::{
    names::Slug,
    spec::{Isolation, SpawnSpec},
};
use caliban_worktrees::{BaseRef, CreateRequest, GitOptions, Repo, Setup};
use tokio_util::sync::CancellationToken;

use super::status::Status;
use crate::{
    report::{Failure, note},
    settings::{Environment, Layer},
};

/// The agent's worktree; none when it works in the caller's directory.
pub(super) async fn worktree(
    spec: &SpawnSpec,
    id: &str,
    environment: &Environment,
    status: &mut Status,
) -> Result<Option<PathBuf>, Failure> {
    let Isolation::Worktree(wanted) = &spec.isolation else { return Ok(None) };
    let cancel = CancellationToken::new();
    let name = Slug::parse(id).map_err(|error| Failure::new(error.to_string()))?;
    let repo = Repo::open(&spec.cwd, GitOptions::default(), &cancel).await.map_err(worded)?;
    let path = repo.path_of(&name);
    if path.is_dir() {
        let found = repo.inspect(&name, &cancel).await.map_err(worded)?;
        status.worktree(&path, &found.listed.branch, found.listed.base.as_str());
        return Ok(Some(path));
    }
    status.activity("making the worktree");
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
        owner: Some(id.to_owned()),
        ..CreateRequest::new(name)
    };
    let made = repo.create(request, &|_| {}, &cancel).await.map_err(worded)?;
    for text in &made.created.notes {
        note(text);
    }
    status.worktree(&made.created.path, &made.created.branch, made.created.base.as_str());
    Ok(Some(made.created.path))
}

fn worded(error: caliban_worktrees::Error) -> Failure {
    let failure = Failure::new(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
