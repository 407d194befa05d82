//! A new agent: from an order to a request, and its registration. The command line, the agent view and pages come here.

use std::path::{Path, PathBuf};

use caliban_contract::mentions;
use caliban_core::{
    ids::AgentId,
    inert,
    names::Slug,
    setup::AgentSetup,
    spec::{AfterTurn, Isolation, SpawnSpec, SpecError, WorktreeSpec},
};
use caliban_settings::{Loaded, schema::FleetIsolation};
use caliban_worktrees::{GitOptions, Lookup};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    Client,
    caller::FleetCaller,
    caller_environment, git_programs, mailbox,
    protocol::SpawnRequest,
    refusal::{Refusal, VerbError},
    spawn_checks, words,
};

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpawnOrder {
    /// What it shall do.
    pub prompt: String,
    /// The part of it that a person typed: files that it names as `@path` go along.
    pub typed: Option<String>,
    /// How the agent is set up.
    pub setup: AgentSetup,
    /// A name for people.
    pub label: Option<String>,
    /// Where it works, when that is not what the settings say.
    pub place: Option<SpawnPlace>,
    /// What its worktree starts from.
    pub base: Option<String>,
    /// The only directories that are checked out.
    pub sparse: Vec<String>,
    /// Directories of the repo that are linked instead of being checked out.
    pub symlink: Vec<String>,
    /// Whether it stays for further messages.
    pub interactive: bool,
    /// Its broker session.
    pub session: Option<String>,
    /// It starts when these have ended.
    pub after: Vec<String>,
    /// When it starts, in milliseconds since 1970, and so many from now where that was said.
    pub start_at_ms: Option<u64>,
    /// The same from now on.
    pub start_in_ms: Option<u64>,
    /// How long it may run.
    pub timeout_ms: Option<u64>,
}

/// Where an agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnPlace {
    /// In a git worktree of its own.
    Worktree,
    /// In the caller's directory.
    Own,
}

/// What the caller gets to know; text and JSON come from it alike.
#[derive(Debug, Serialize)]
pub struct SpawnReport {
    /// Its id.
    pub id: AgentId,
    /// Its name for people.
    pub label: Option<String>,
    /// Its directory: transcript, session, logs.
    pub dir: PathBuf,
    /// The branch of its worktree.
    pub branch: Option<String>,
    /// Where it works.
    pub directory: PathBuf,
    /// The same where that is a worktree of its own.
    pub worktree: Option<PathBuf>,
    /// For whom or what, when it does not start at once.
    #[serde(skip)]
    pub waits: Option<String>,
    /// How many changes of the caller's tree are not in its worktree.
    #[serde(skip)]
    pub uncommitted: usize,
}

/// The request that an order makes, looked at as far as can be without the daemon. `loaded` is with the order's setup.
pub async fn checked(
    caller: &FleetCaller<'_>,
    loaded: &Loaded,
    order: &SpawnOrder,
) -> Result<SpawnSpec, Refusal> {
    // Said here and now, rather than by an agent that has failed when the person is gone.
    spawn_checks::provider(loaded, caller.environment).await?;
    let mut spec = spec(caller, loaded, order)?;
    spec.check().map_err(|error| {
        let refusal = Refusal::usage(error.to_string());
        match error {
            SpecError::EmptyPrompt => refusal.hint("say what to do: caliban --bg \"fix the failing test\""),
            _ => refusal,
        }
    })?;
    prepare(caller, loaded, &mut spec, order.session.as_deref()).await?;
    spawn_checks::check(caller.cwd, &spec).await?;
    git_programs::check_spawn(caller, loaded, &spec).await?;
    Ok(spec)
}

/// Puts in whom it waits for, by the ids that the daemon knows.
pub async fn follow(client: &mut Client, after: &[String], spec: &mut SpawnSpec) -> Result<(), VerbError> {
    for agent in after {
        spec.after.push(client.show(agent).await?.id);
    }
    Ok(())
}

/// Registers a request. Durable when it returns.
pub async fn spawn(
    caller: &FleetCaller<'_>,
    loaded: &Loaded,
    client: &mut Client,
    spec: SpawnSpec,
) -> Result<SpawnReport, VerbError> {
    let (label, isolation) = (spec.label.clone(), spec.isolation.clone());
    let register = client.spawn(request(caller, loaded, spec));
    let (made, uncommitted) = tokio::join!(register, spawn_checks::uncommitted(caller.cwd, &isolation));
    let made = made?;
    // It is there; who cannot be asked just now does not change that.
    let row = client.show(&made.id.to_string()).await.ok();
    let waits = row.and_then(|row| words::waits(&row, caliban_contract::wall_ms()));
    let name = Slug::from(made.id);
    let (branch, directory) = match isolation {
        Isolation::Worktree(_) => (
            Some(caliban_worktrees::branch_of(&name)),
            caller.places.repo().join(caliban_worktrees::PLACE).join(name.as_str()),
        ),
        Isolation::None => (None, caller.cwd.to_owned()),
    };
    let label = label.map(|label| label.to_string());
    let worktree = branch.is_some().then(|| directory.clone());
    Ok(SpawnReport { id: made.id, label, dir: made.dir, branch, directory, worktree, waits, uncommitted })
}

/// What every request needs before it can be registered, whoever makes it: a price where a budget in dollars counts, the
/// commit of its base, its broker session.
pub async fn prepare(
    caller: &FleetCaller<'_>,
    loaded: &Loaded,
    spec: &mut SpawnSpec,
    session: Option<&str>,
) -> Result<(), Refusal> {
    spawn_checks::price(loaded, spec)?;
    // Quiet hours are for what costs.
    spec.setup.ignores_quiet_hours |= !loaded.settings.fleet.quiet_hours.is_empty() && loaded.is_free();
    pin_base(&spec.cwd, &mut spec.isolation).await?;
    spec.broker_session = broker_session(caller, loaded, spec, session).await?;
    Ok(())
}

/// What is registered, with what it gets of the caller's environment. Whoever asks, the same order is the same request.
#[must_use]
pub fn request(caller: &FleetCaller<'_>, loaded: &Loaded, mut spec: SpawnSpec) -> SpawnRequest {
    let mut handed = caller_environment::caller(caller.environment, loaded);
    handed.veil_task(&mut spec.prompt);
    handed.hand_settings(loaded);
    spec.env = handed.env;
    let program = Some(caller.program.to_owned());
    SpawnRequest { spec, secrets: handed.handover.into(), program, key: None }
}

/// Writes down which commit the base stands for now: the agent may start much later, when the branch has moved or another
/// one is checked out. Refuses a base that names no commit.
async fn pin_base(cwd: &Path, isolation: &mut Isolation) -> Result<(), Refusal> {
    let Isolation::Worktree(wanted) = isolation else { return Ok(()) };
    let base = spawn_checks::revision(wanted);
    let lookup = Lookup::new(cwd, GitOptions::default());
    if let Some(commit) = lookup.commit(&base, &CancellationToken::new()).await? {
        wanted.base_commit = Some(commit.to_string());
        return Ok(());
    }
    Err(Refusal::usage(format!("--base: {} names no commit", inert::quoted(&base)))
        .hint("head, fresh, or anything that git rev-parse takes for a commit"))
}

/// The broker session that was asked for, by its whole id.
async fn broker_session(
    caller: &FleetCaller<'_>,
    loaded: &Loaded,
    spec: &SpawnSpec,
    asked: Option<&str>,
) -> Result<Option<String>, Refusal> {
    let Some(given) = asked.or(loaded.settings.fleet.broker_session.as_deref()) else { return Ok(None) };
    let label = spec.label.as_ref().map(Slug::as_str);
    let session = mailbox::living_session(caller.environment, caller.cwd, given, label).await?;
    Ok(Some(session.to_string()))
}

fn spec(caller: &FleetCaller<'_>, loaded: &Loaded, order: &SpawnOrder) -> Result<SpawnSpec, Refusal> {
    let mut spec = SpawnSpec {
        setup: order.setup.clone(),
        ..SpawnSpec::new(order.prompt.clone(), caller.cwd.to_owned())
    };
    // What is no file here is a word, and stays where words are.
    let named = mentions::named(order.typed.as_deref().unwrap_or_default());
    let named = named.filter(|name| mentions::path_of(caller.cwd, name).exists());
    spec.mentions = named.take(mentions::FILES).map(str::to_owned).collect();
    spec.label = match &order.label {
        Some(label) => Some(Slug::parse(label).map_err(|error| {
            Refusal::usage(format!("--label: {error}"))
                .hint(format!("for example: --label {}", Slug::slugify(label)))
        })?),
        None => None,
    };
    if let Some(kind) = &order.setup.agent_type {
        known_type(loaded, kind)?;
    }
    spec.isolation = isolation(caller.cwd, loaded, order)?;
    spec.after_turn = if order.interactive { AfterTurn::Stay } else { AfterTurn::End };
    spec.start_at_ms = order.start_at_ms;
    spec.start_in_ms = order.start_in_ms;
    spec.timeout_ms = order.timeout_ms;
    Ok(spec)
}

fn known_type(loaded: &Loaded, kind: &str) -> Result<(), Refusal> {
    let (known, _) = caliban_settings::agent_types::known(loaded);
    if known.iter().any(|definition| definition.name == kind) {
        return Ok(());
    }
    let names: Vec<&str> = known.iter().map(|definition| definition.name.as_str()).collect();
    let failure = Refusal::usage(format!("there is no agent type {}", inert::quoted(kind)));
    Err(if names.is_empty() {
        failure.hint("none is defined yet: see `caliban agents types`")
    } else {
        failure.hint(format!("known: {}", inert::line(&names.join(", "))))
    })
}

/// A worktree unless somebody says otherwise, where there is something to make one from.
fn isolation(cwd: &Path, loaded: &Loaded, wanted: &SpawnOrder) -> Result<Isolation, Refusal> {
    let spec = || WorktreeSpec {
        base_ref: wanted.base.clone().unwrap_or_else(|| WorktreeSpec::default().base_ref),
        sparse_paths: wanted.sparse.clone(),
        symlink_directories: wanted.symlink.clone(),
        ..WorktreeSpec::default()
    };
    let of_worktree = wanted.base.is_some() || !wanted.sparse.is_empty() || !wanted.symlink.is_empty();
    let asked = match wanted.place {
        Some(SpawnPlace::Own) => return Ok(Isolation::None),
        Some(SpawnPlace::Worktree) => true,
        None if of_worktree => true,
        None => match loaded.settings.fleet.isolation {
            FleetIsolation::None => return Ok(Isolation::None),
            FleetIsolation::Worktree => false,
        },
    };
    let lookup = Lookup::new(cwd, GitOptions::default());
    match lookup.has_commits() {
        true => Ok(Isolation::Worktree(spec())),
        // Among git's own files nobody works who was not told to.
        false if asked || lookup.is_in_git_dir() => Err(Refusal::usage(format!(
            "{} is no git repo with a commit: there is nothing to make a worktree from",
            cwd.display()
        ))
        .hint("commit something first, or use --isolation none")),
        false => Ok(Isolation::None),
    }
}
