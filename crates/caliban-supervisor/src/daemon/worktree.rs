//! The worktrees of agents that go: removed through caliban-worktrees, which loses no byte (r19).

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use caliban_core::ids::AgentId;
use caliban_core::names::Slug;
use caliban_core::spec::SpawnSpec;
use caliban_worktrees::{
    Error, GitOptions, IgnoredFiles, KeepWorktrees, RemoveOptions, Repo, SweepMode, Swept,
};
use tokio_util::sync::CancellationToken;

use super::phase::{Leaving, Phase};
use super::store::RegistryReader;
use super::{Msg, Owner, ReplyTo};
use crate::daemon_options::Sweep;
use crate::places::Places;
use crate::protocol::{RespawnRequest, RmRequest};

/// How long git may take for one worktree, and how long it gets to leave then.
const GIT_LIMIT: Duration = Duration::from_secs(180);
const LEAVE_LIMIT: Duration = Duration::from_secs(10);
/// After this time others have their turn as well.
const TURN: Duration = Duration::from_secs(10);
/// Worktrees that are removed at once.
static REMOVALS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);

/// Why an ended agent goes, and who is answered.
#[derive(Debug)]
pub(super) enum Purpose {
    Rm(RmRequest, ReplyTo),
    Respawn(RespawnRequest, ReplyTo),
}

impl Purpose {
    pub(super) fn into_reply(self) -> ReplyTo {
        match self {
            Self::Rm(_, reply) | Self::Respawn(_, reply) => reply,
        }
    }
}

#[derive(Debug)]
pub(super) struct Disposed {
    /// Where the agent's work is, line by line.
    pub(super) work: Vec<String>,
    /// The original request, for a respawn.
    pub(super) spec: Option<Box<SpawnSpec>>,
}

impl Owner {
    /// Takes care of the worktree of an ended agent, and goes on with `purpose` when that is done.
    pub(super) fn dispose(&mut self, id: AgentId, purpose: Purpose) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let (what, keep) = match &purpose {
            Purpose::Rm(request, _) => (Leaving::Removed, request.keep),
            Purpose::Respawn(..) => (Leaving::Respawned, false),
        };
        agent.phase = Phase::Leaving(what);
        let keep =
            if keep || self.options.keep_worktrees { KeepWorktrees::All } else { KeepWorktrees::Remove };
        let (has_worktree, places, specs) =
            (agent.about.has_worktree, self.places.clone(), self.store.reader());
        self.later(async move {
            // The request first: without it nothing may be removed for a respawn.
            let spec = match &purpose {
                Purpose::Rm(..) => Ok(None),
                Purpose::Respawn(..) => spec_of(&specs, id).await.map(|spec| Some(Box::new(spec))),
            };
            let outcome = match spec {
                Ok(spec) if has_worktree => {
                    let cancel = CancellationToken::new();
                    let removal = in_turn(remove(&places, id, keep, &cancel));
                    match (within(GIT_LIMIT, &cancel, removal).await, keep) {
                        (Some(done), _) => done.map(|work| Disposed { work, spec }),
                        // Nothing was to be done to it anyway.
                        (None, KeepWorktrees::All) => {
                            let left = "git does not answer; the worktree was left as it is".to_owned();
                            Ok(Disposed { work: vec![left], spec })
                        }
                        (None, KeepWorktrees::Remove) => {
                            Err(format!("git does not answer (waited {} s)", GIT_LIMIT.as_secs()))
                        }
                    }
                }
                Ok(spec) => Ok(Disposed { work: Vec::new(), spec }),
                Err(text) => Err(text),
            };
            Some(Msg::Disposed { id, purpose: Box::new(purpose), outcome })
        });
    }

    /// The worktree was taken care of.
    pub(super) fn disposed(&mut self, id: AgentId, purpose: Purpose, outcome: Result<Disposed, String>) {
        match purpose {
            Purpose::Rm(request, reply) => self.rm_disposed(id, request, outcome, reply),
            Purpose::Respawn(request, reply) => self.respawn_disposed(id, request, outcome, reply),
        }
    }

    /// Removes worktrees of agents that nobody knows (w06), if the settings say so.
    pub(super) fn sweep_worktrees(&mut self) {
        let keeps = self.options.sweep == Sweep::Off || self.options.keep_worktrees;
        let known: BTreeSet<Slug> = self.agents.keys().map(|id| Slug::from(*id)).collect();
        let places = self.places.clone();
        self.later(async move {
            if keeps {
                clear_leftovers(&places, &known).await;
                return None;
            }
            let (count, notes) = sweep(&places, known).await;
            Some(Msg::Swept { count, notes })
        });
    }
}

/// Few at a time: a large tree takes long, and starts wait for the same threads. But whoever takes very long, or for ever,
/// keeps nobody else.
async fn in_turn<T>(removal: impl Future<Output = T>) -> T {
    let turn = REMOVALS.acquire().await;
    tokio::pin!(removal);
    if let Ok(done) = tokio::time::timeout(TURN, removal.as_mut()).await {
        return done;
    }
    drop(turn);
    removal.await
}

/// Work with git, which is cancelled after a limit; none when that does not end it either.
async fn within<T>(limit: Duration, cancel: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    if let Ok(done) = tokio::time::timeout(limit, work.as_mut()).await {
        return Some(done);
    }
    cancel.cancel();
    // What it says then is that it was cancelled; unless it was done in that very moment, nobody needs it.
    let _cancelled = tokio::time::timeout(LEAVE_LIMIT, work).await;
    None
}

/// The original request of an agent.
async fn spec_of(specs: &RegistryReader, id: AgentId) -> Result<SpawnSpec, String> {
    let text = specs.get(id).await?;
    SpawnSpec::from_json(&text).map_err(|error| error.to_string())
}

/// The repository of the fleet. A bare one may be hidden in the directory that stands for it (`project/.bare`).
async fn open(places: &Places, cancel: &CancellationToken) -> Result<Repo, Error> {
    let found = Repo::open(places.repo(), GitOptions::accepting(places.base()), cancel).await;
    if found.as_ref().is_ok_and(|repo| repo.root() == places.repo()) {
        return found;
    }
    for hidden in hidden_repos(places.repo()) {
        if let Ok(repo) = Repo::open(&hidden, GitOptions::accepting(places.base()), cancel).await
            && repo.root() == places.repo()
        {
            return Ok(repo);
        }
    }
    found
}

/// The hidden directories in a directory that look like repositories.
fn hidden_repos(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_bytes().starts_with(b"."))
        .map(|entry| entry.path())
        .filter(|path| path.join("HEAD").is_file() && path.join("objects").is_dir())
        .collect()
}

/// Removes the worktree of an agent, and says where its work is.
async fn remove(
    places: &Places,
    id: AgentId,
    keep: KeepWorktrees,
    cancel: &CancellationToken,
) -> Result<Vec<String>, String> {
    let repo = match open(places, cancel).await {
        Ok(repo) => repo,
        Err(Error::NotARepository { .. }) => {
            return Ok(vec![format!(
                "{} is no repository any more; no worktree was touched",
                places.repo().display()
            )]);
        }
        Err(error) => return Err(error.to_string()),
    };
    let options = RemoveOptions { keep, ignored: IgnoredFiles::default() };
    match repo.remove(&Slug::from(id), None, &options, cancel).await {
        Ok(report) => Ok(report.lines()),
        // It never came to have one, or somebody removed it by hand.
        Err(Error::NotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// Deletes only what killed processes left beside worktrees.
async fn clear_leftovers(places: &Places, known: &BTreeSet<Slug>) {
    if let Ok(repo) = open(places, &CancellationToken::new()).await {
        repo.clear_leftovers(known, SweepMode::Remove);
    }
}

/// Removes the worktrees that are named like agents and have none.
async fn sweep(places: &Places, known: BTreeSet<Slug>) -> (u64, Vec<String>) {
    let never = CancellationToken::new();
    let swept = async {
        let repo = open(places, &never).await?;
        // Those of sessions and people are theirs: only an agent's name makes an orphan.
        let mut live = known;
        let others = repo.list(&never).await?.into_iter().map(|listed| listed.name);
        live.extend(others.filter(|name| name.as_str().parse::<AgentId>().is_err()));
        repo.sweep(&live, SweepMode::Remove, &RemoveOptions::default(), &never).await
    };
    let report = match swept.await {
        Ok(report) => report,
        Err(Error::NotARepository { .. }) => return (0, Vec::new()),
        Err(error) => return (0, vec![format!("worktrees were not swept: {error}")]),
    };
    let (mut count, mut notes) = (0, Vec::new());
    for orphan in report.orphans {
        match orphan {
            Swept::Done(report) => {
                count += 1;
                notes.extend(report.lines());
            }
            Swept::Left { name, why } => notes.push(format!("worktree {name} stays: {why}")),
            Swept::Failed { name, error } => {
                notes.push(format!("worktree {name} could not be swept: {error}"))
            }
            Swept::Orphan { .. } => {}
        }
    }
    if count > 0 {
        tracing::info!("swept {count} worktrees: {}", notes.join("; "));
    }
    (count, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_git_that_does_not_end_is_cancelled_and_keeps_nobody_else() {
        let cancel = CancellationToken::new();
        // One ends when it is cancelled, the other not even then.
        let obeys = within(GIT_LIMIT, &cancel, in_turn(cancel.cancelled())).await;
        assert_eq!((obeys, cancel.is_cancelled()), (None, true));
        let deaf = within(GIT_LIMIT, &CancellationToken::new(), in_turn(std::future::pending::<()>())).await;
        assert_eq!(deaf, None);
        assert_eq!(within(GIT_LIMIT, &CancellationToken::new(), in_turn(async { 7 })).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn others_have_their_turn_while_some_hang() {
        let hang = || tokio::spawn(in_turn(std::future::pending::<()>()));
        let hung: Vec<_> = (0..6).map(|_| hang()).collect();
        // Each pair of them gives way after its time.
        assert_eq!(in_turn(async { 7 }).await, 7);
        hung.into_iter().for_each(|task| task.abort());
    }
}
