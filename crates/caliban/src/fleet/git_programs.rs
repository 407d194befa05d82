//! The question about programs that a repo makes git run: asked at a terminal, refused elsewhere.

use std::io::{BufRead, IsTerminal};

use caliban_core::spec::{Isolation, SpawnSpec};
use caliban_fleet::git_programs;
use caliban_worktrees::{FoundPrograms, GitOccasion, GitOptions, Repo, may_run_programs};
use tokio_util::sync::CancellationToken;

use super::{Fleet, say};
use crate::{
    report::{Failure, Result},
    settings::{Loaded, schema::GitPrograms},
};

/// Before an agent gets a worktree of its own.
pub(super) async fn check_spawn(fleet: &Fleet<'_>, loaded: &Loaded, spec: &SpawnSpec) -> Result<()> {
    let Isolation::Worktree(_) = spec.isolation else { return Ok(()) };
    let store = fleet.places().repo().join(".git");
    // Nearly always there is nothing to ask, and no git is started to know that. A store that names another one is judged.
    let is_plain = store.is_dir() && store.join("commondir").symlink_metadata().is_err();
    if is_plain && !may_run_programs(&store, GitOccasion::Checkout) {
        return Ok(());
    }
    let cancel = CancellationToken::new();
    let repo =
        Repo::open(fleet.places().repo(), GitOptions::accepting(fleet.places().base()), &cancel).await?;
    check(fleet, loaded.settings.git_programs, &repo, GitOccasion::Checkout).await
}

/// Before anything of the repo's configuration runs.
pub(super) async fn check(
    fleet: &Fleet<'_>,
    setting: GitPrograms,
    repo: &Repo,
    when: GitOccasion,
) -> Result<()> {
    let base = fleet.places().base();
    let found = repo.unaccepted(base, when, &CancellationToken::new()).await;
    let Some(programs) = found? else { return Ok(()) };
    if setting == GitPrograms::Ask && !is_accepted(&programs, when) {
        return Err(Failure::from(git_programs::refused(&programs, when)));
    }
    fleet.places().prepare().map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    programs
        .accept(base, when)
        .map_err(|error| Failure::new(format!("cannot write down what you accepted: {error}")))
}

/// Whether a person at the terminal says yes.
fn is_accepted(programs: &FoundPrograms, when: GitOccasion) -> bool {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    if caliban_contract::ancestry::own().agent_in_words().is_some() {
        return false;
    }
    say(&programs.named(when));
    say("may they run, now and from now on? [y/N]");
    let mut line = String::new();
    stdin.lock().read_line(&mut line).is_ok() && matches!(line.trim(), "y" | "Y" | "yes")
}
