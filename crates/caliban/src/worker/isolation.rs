//! The worktree of a background agent: made at its first start, found again at every other.

use std::{path::Path, time::Duration};

use caliban_contract::disk_room;
use caliban_core::{
    names::Slug,
    spec::{Isolation, SpawnSpec},
};
use caliban_fleet::git_programs;
use caliban_keeper::Variables;
use caliban_worktrees::{BaseRef, CreateRequest, GitOccasion, GitOptions, Repo, Worktree};
use tokio_util::sync::CancellationToken;

use super::status::StatusFile;
use crate::{
    compose,
    report::{Failure, Result},
    settings::{Environment, Loaded, schema::GitPrograms},
};

/// How often an agent whose worktree found no room looks how much is left.
const ROOM_LOOK: Duration = Duration::from_secs(1);
/// The longest time after which it tries again although no more is left: a quota is not seen.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// The agent's worktree, held for as long as the value lives; none when it works in the caller's directory.
pub(super) async fn worktree(
    spec: &SpawnSpec,
    directory: &Path,
    loaded: &Loaded,
    environment: &Environment,
    status: &mut StatusFile,
) -> Result<Option<Worktree>> {
    let Isolation::Worktree(wanted) = &spec.isolation else { return Ok(None) };
    let cancel = CancellationToken::new();
    let id = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = Slug::parse(id).map_err(|error| Failure::new(error.to_string()))?;
    let repo =
        Repo::open(ground(spec).0, GitOptions::accepting(&loaded.paths.repo(&loaded.root)), &cancel).await?;
    if !repo.path_of(&name).is_dir() {
        status.activity("making the worktree");
        check_programs(&repo, directory, loaded, &cancel).await?;
    }
    let variables: Variables =
        environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let fence =
        compose::program_fence(loaded, &variables, loaded.settings.fence.setup, Some(&repo.path_of(&name)))?;
    let setup = compose::setup(&loaded.settings, variables, compose::own_program()?, fence);
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
    let mut tries = FullDisk::default();
    let worktree = loop {
        match repo.take_up(request.clone(), &|_| {}, &cancel).await {
            // As with a transcript: it waits, says so, and goes on when there is room. Nothing half-made is left meanwhile.
            Err(caliban_worktrees::Error::DiskFull { .. }) => {
                status.waits_for_room(repo.root());
                tries.failed(disk_room::left(repo.root()));
                loop {
                    tokio::time::sleep(ROOM_LOOK).await;
                    if tries.is_due(disk_room::left(repo.root()), ROOM_LOOK) {
                        break;
                    }
                }
            }
            other => break other?,
        }
    };
    status.has_room();
    for text in &worktree.created.notes {
        status.note(text);
    }
    status.worktree(&worktree.created.path, &worktree.created.branch, worktree.created.base.as_str());
    Ok(Some(worktree))
}

/// Refuses to run programs of the repo's configuration that nobody has accepted; whoever asked at a terminal has done so. An
/// agent of a page or of another agent comes here without a question.
async fn check_programs(
    repo: &Repo,
    directory: &Path,
    loaded: &Loaded,
    cancel: &CancellationToken,
) -> Result<()> {
    // `…/repos/<hash>/agents/<id>`
    let Some(base) = directory.parent().and_then(Path::parent) else { return Ok(()) };
    if loaded.settings.git_programs == GitPrograms::Allow {
        return Ok(());
    }
    match repo.unaccepted(base, GitOccasion::Checkout, cancel).await? {
        Some(programs) => Err(git_programs::refused(&programs, GitOccasion::Checkout).into()),
        None => Ok(()),
    }
}

/// When a worktree that found no room is tried again. A try fills the disk for everybody and takes it all back, so it waits
/// until more is left than what was not enough.
#[derive(Debug, Default)]
struct FullDisk {
    /// What was not enough; none when the file system does not say.
    too_little: Option<u64>,
    /// How long it waits at most, and has waited.
    pause: Duration,
    waited: Duration,
}

impl FullDisk {
    /// There was no room. So much is left without what was tried.
    fn failed(&mut self, left: Option<u64>) {
        self.too_little = self.too_little.max(left);
        self.waited = Duration::ZERO;
        self.pause = (self.pause * 2).clamp(ROOM_LOOK, LONGEST_PAUSE);
    }

    /// Whether the next try begins, after another look.
    fn is_due(&mut self, left: Option<u64>, since: Duration) -> bool {
        self.waited += since;
        // What others write and delete all the time is no room.
        let enough = self.too_little.map(|bytes| bytes.saturating_add(bytes / 8));
        let has_more = left.is_some() && left > enough;
        has_more || self.waited >= self.pause
    }
}

/// The caller's directory, and the part of it that no longer exists: the user may have changed to a branch without it. An agent
/// with a worktree has its own copy.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r11_a_worktree_is_tried_again_when_more_is_left_and_otherwise_ever_more_seldom() {
        let mut tries = FullDisk::default();
        let mut looks = |left: Option<u64>, then: Option<u64>| {
            tries.failed(left);
            (1..1000).find(|_| tries.is_due(then, ROOM_LOOK))
        };
        let waits: Vec<_> = (0..11).map(|_| looks(Some(100), Some(100))).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(Some));
        // More is left than ever was too little.
        assert_eq!(looks(Some(50), Some(112)), Some(300));
        assert_eq!(looks(Some(50), Some(113)), Some(1));
        // Nobody knows.
        assert_eq!(looks(None, None), Some(300));
    }
}
