//! Where the agent works, and what it is told about that place before it begins.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use caliban_agent::repo_state::RepoState;
use caliban_worktrees::{GitOptions, Repo};
use tokio_util::sync::CancellationToken;

use crate::report::{Failure, Result};

/// How long the repository is looked at before the first calls run.
const GLANCE_TIME: Duration = Duration::from_millis(1_500);

/// What has changed in the repository of this tree and its last commits, for the model.
pub(super) fn repo_state(root: &Path, base: PathBuf) -> RepoState {
    let root = root.to_owned();
    RepoState::new(move || glance(root.clone(), base.clone()))
}

/// Best effort, and not for long.
async fn glance(root: PathBuf, base: PathBuf) -> Vec<String> {
    let cancel = CancellationToken::new();
    let looking = async {
        let repo = Repo::open(&root, GitOptions::accepting(&base), &cancel).await.ok()?;
        repo.glance(&cancel).await.ok()
    };
    let Some(glance) = tokio::time::timeout(GLANCE_TIME, looking).await.ok().flatten() else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    match (glance.changed.is_empty(), glance.more) {
        (true, _) => lines.push("git status: clean".to_owned()),
        (false, 0) => lines.push(format!("git status:\n{}", glance.changed.join("\n"))),
        (false, more) => lines.push(format!("git status:\n{}\n… and {more} more", glance.changed.join("\n"))),
    }
    if !glance.commits.is_empty() {
        lines.push(format!("last commits:\n{}", glance.commits.join("\n")));
    }
    lines
}

/// Instruction files of the user's own that other agents read, too.
pub(super) fn users_files(home: &Path) -> Vec<PathBuf> {
    [".claude/CLAUDE.md", ".codex/AGENTS.md"].map(|name| home.join(name)).to_vec()
}

/// Where the user stands in their tree, in this one; the nearest directory above that is in it, else its root. `missing` is
/// the part below `cwd` that only this tree may have.
pub(super) fn same_place(tree: &Path, cwd: &Path, missing: &Path, root: &Path) -> Result<PathBuf> {
    let below = canonical(cwd)?.strip_prefix(canonical(root)?).map(|below| tree.join(below));
    let places = below.ok().into_iter().flat_map(|place| [place.join(missing), place]);
    let mut places = places.filter_map(|place| place.canonicalize().ok());
    // Not through a link that leads out.
    let found = places.find(|place| place.starts_with(tree) && place.is_dir());
    Ok(found.unwrap_or_else(|| tree.to_owned()))
}

pub(super) fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| Failure::new(format!("cannot work in {}: {error}", path.display())))
}
