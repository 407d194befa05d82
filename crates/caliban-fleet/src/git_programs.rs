//! The question about programs that a repo makes git run: a client asks it of a person, or refuses.

use caliban_core::spec::{Isolation, SpawnSpec};
use caliban_settings::{Loaded, schema::GitPrograms};
use caliban_worktrees::{FoundPrograms, GitOccasion, GitOptions, HOW_TO_ACCEPT, Repo, may_run_programs};
use tokio_util::sync::CancellationToken;

use crate::{caller::FleetCaller, refusal::Refusal};

/// In words.
#[must_use]
pub fn refused(programs: &FoundPrograms, when: GitOccasion) -> Refusal {
    Refusal::new(programs.named(when)).hint(HOW_TO_ACCEPT)
}

/// Who is asked whether they may run.
pub type MayRun = fn(&FoundPrograms, GitOccasion) -> bool;

/// Nobody can be asked.
#[must_use]
pub fn nobody_says(_: &FoundPrograms, _: GitOccasion) -> bool {
    false
}

/// Before an agent gets a worktree of its own.
pub(crate) async fn check_spawn(
    caller: &FleetCaller<'_>,
    loaded: &Loaded,
    spec: &SpawnSpec,
) -> Result<(), Refusal> {
    let Isolation::Worktree(_) = spec.isolation else { return Ok(()) };
    let store = caller.places.repo().join(".git");
    // Nearly always there is nothing to ask, and no git is started to know that. A store that names another one is judged.
    let is_plain = store.is_dir() && store.join("commondir").symlink_metadata().is_err();
    if is_plain && !may_run_programs(&store, GitOccasion::Checkout) {
        return Ok(());
    }
    let cancel = CancellationToken::new();
    let options = GitOptions::accepting(caller.places.base());
    let repo = Repo::open(caller.places.repo(), options, &cancel).await?;
    check(caller, loaded.settings.git_programs, &repo, GitOccasion::Checkout).await
}

/// Before anything of the repo's configuration runs.
pub async fn check(
    caller: &FleetCaller<'_>,
    setting: GitPrograms,
    repo: &Repo,
    when: GitOccasion,
) -> Result<(), Refusal> {
    let base = caller.places.base();
    let found = repo.unaccepted(base, when, &CancellationToken::new()).await;
    let Some(programs) = found? else { return Ok(()) };
    if setting == GitPrograms::Ask && !(caller.may_run)(&programs, when) {
        return Err(refused(&programs, when));
    }
    caller.places.prepare().map_err(|error| Refusal::new(error.to_string()).hint(error.hint()))?;
    programs
        .accept(base, when)
        .map_err(|error| Refusal::new(format!("cannot write down what you accepted: {error}")))
}
