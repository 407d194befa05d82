//! What of a request for a background agent can be seen to be wrong before it is started: said here and now, rather than by
//! an agent that has failed when the person is gone. Looked at again when it starts.

use std::{path::Path, time::Duration};

use caliban_core::{
    inert,
    price::{self, Billing},
    spec::{Isolation, SpawnSpec, WorktreeSpec},
};
use caliban_providers::ProviderKind;
use caliban_worktrees::{BaseRef, GitOptions, Lookup};
use tokio_util::sync::CancellationToken;

use caliban_settings::{
    Environment, Loaded,
    provider::{Choice, OutagePatience},
    tool_names,
};

use crate::refusal::Refusal;

type Result<T, E = Refusal> = std::result::Result<T, E>;

/// How long it is counted what is not committed.
const COUNT_LIMIT: Duration = Duration::from_secs(1);

/// Refuses what cannot work.
pub(crate) async fn check(cwd: &Path, spec: &SpawnSpec) -> Result<()> {
    added_dirs(cwd, spec)?;
    tools(spec)?;
    let Isolation::Worktree(wanted) = &spec.isolation else { return Ok(()) };
    links(cwd, wanted).await?;
    for path in &wanted.sparse_paths {
        sparse(cwd, path, wanted).await?;
    }
    Ok(())
}

/// A directory that is not there is mistyped, and would be granted without a word.
fn added_dirs(cwd: &Path, spec: &SpawnSpec) -> Result<()> {
    match spec.setup.add_dirs.iter().map(|dir| cwd.join(dir)).find(|dir| !dir.is_dir()) {
        Some(missing) => {
            let text = format!("--add-dir: there is no directory {}", missing.display());
            Err(Refusal::usage(text).hint("name one that is there, or make it first"))
        }
        None => Ok(()),
    }
}

/// Whether somebody would answer, as far as that can be told without asking them.
pub(crate) async fn provider(loaded: &Loaded, environment: &Environment) -> Result<()> {
    let target = loaded.decide().await?;
    let config = target.config(&loaded.settings, environment, OutagePatience::Short);
    caliban_providers::build(config).map(drop).map_err(Refusal::from)
}

/// A budget in dollars cannot be held where nobody knows what a model costs: its agent could not make one request.
/// `loaded` is with the flags of this spec.
pub(crate) fn price(loaded: &Loaded, spec: &SpawnSpec) -> Result<()> {
    if loaded.settings.limits.budget_usd.is_none() {
        return Ok(());
    }
    let (Choice::Use(target) | Choice::IfRunning(target)) = loaded.choose()?;
    let kind = target.provider.value;
    // On the user's own machine, or from a script: free.
    if kind == ProviderKind::Scripted || kind.how_to_start().is_some() {
        return Ok(());
    }
    let of_type = spec.setup.agent_type.as_ref().filter(|_| spec.setup.model.is_none()).and_then(|name| {
        caliban_settings::agent_types::known(loaded).0.into_iter().find(|kind| kind.name == *name)?.model
    });
    let Some(model) = of_type.or_else(|| target.model.map(|model| model.value)) else { return Ok(()) };
    if price::of(&model, Billing::Listed).is_some() {
        return Ok(());
    }
    let text =
        format!("the price of {} is not known, so a budget in dollars cannot be held", inert::quoted(&model));
    let hint = match spec.setup.budget.usd {
        None => "unset limits.budget_usd for it, and give --budget-tokens instead",
        Some(_) => "give --budget-tokens instead",
    };
    Err(Refusal::usage(text).hint(hint))
}

/// Directories that can be linked lie in the repo, without a link on the way, and are not checked out anyway.
async fn links(cwd: &Path, wanted: &WorktreeSpec) -> Result<()> {
    if wanted.symlink_directories.is_empty() {
        return Ok(());
    }
    let lookup = Lookup::new(cwd, GitOptions::default());
    let root = lookup.top(&CancellationToken::new()).await?;
    let refused = |path: &str, why: &str| {
        Refusal::usage(format!("--symlink: {}: {why}", inert::quoted(path)))
            .hint("name a directory of the repo that git does not track, from its root")
    };
    if let Err(error) = caliban_worktrees::check_links(&root, &wanted.symlink_directories) {
        return Err(match error {
            caliban_worktrees::Error::Link { path, why } => refused(&path, why),
            other => Refusal::new(other.to_string()),
        });
    }
    for link in &wanted.symlink_directories {
        if is_in(cwd, link.trim_start_matches("./"), wanted).await? {
            return Err(refused(link, "git tracks it, so the worktree has its own"));
        }
    }
    Ok(())
}

/// A mistyped name in `--tools` would leave the agent without that tool.
fn tools(spec: &SpawnSpec) -> Result<()> {
    let has_mailbox = spec.broker_session.is_some();
    let is_possible =
        |name: &str| if has_mailbox { tool_names::is_known(name) } else { tool_names::is_for_all(name) };
    match spec.setup.tools.iter().flatten().find(|name| !is_possible(name)) {
        Some(name) => Err(Refusal::usage(format!("--tools: there is no tool {}", inert::quoted(name)))
            .hint(tool_names::hint(name))),
        None => Ok(()),
    }
}

async fn sparse(cwd: &Path, path: &str, wanted: &WorktreeSpec) -> Result<()> {
    if is_in(cwd, path, wanted).await? {
        return Ok(());
    }
    let base = revision(wanted);
    Err(Refusal::usage(format!("--sparse: there is no {} in {base}", inert::quoted(path)))
        .hint("name a directory of the repo, from its root"))
}

/// The revision that the work begins from, for git.
pub(crate) fn revision(wanted: &WorktreeSpec) -> String {
    match BaseRef::from(wanted.base_ref.clone()) {
        BaseRef::Head | BaseRef::Fresh => "HEAD".to_owned(),
        BaseRef::Revision(revision) => revision,
    }
}

/// Whether the commit that the work begins from has this path.
async fn is_in(cwd: &Path, path: &str, wanted: &WorktreeSpec) -> Result<bool> {
    let commit = wanted.base_commit.as_deref().unwrap_or("HEAD");
    let lookup = Lookup::new(cwd, GitOptions::default());
    let found = lookup.has_path(commit, path.trim_end_matches('/'), &CancellationToken::new()).await;
    found.map_err(Refusal::from)
}

/// How many files of this tree differ from its last commit; none when that takes long, and for an agent that works here.
pub(crate) async fn uncommitted(cwd: &Path, isolation: &Isolation) -> usize {
    if *isolation == Isolation::None {
        return 0;
    }
    let (lookup, cancel) = (Lookup::new(cwd, GitOptions::default()), CancellationToken::new());
    match tokio::time::timeout(COUNT_LIMIT, lookup.uncommitted(&cancel)).await {
        Ok(Ok(count)) => count,
        _ => 0,
    }
}
