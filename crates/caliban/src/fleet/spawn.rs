//! `caliban agents spawn` and `caliban --bg`: registers an agent durably, prints its id, returns at once.

use std::{
    io::{Read as _, Write},
    path::{Path, PathBuf},
};

use caliban_agent::mentions;
use caliban_core::{
    ids::AgentId,
    inert,
    mode::Mode,
    names::Slug,
    setup::AgentSetup,
    spec::{AfterTurn, Isolation, SpawnSpec, SpecError, WorktreeSpec},
};
use caliban_fleet::{
    Client,
    protocol::{SpawnRequest, Spawned as Registered},
};
use caliban_worktrees::{GitOptions, Lookup};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{Fleet, caller_environment, json_line, row, say, spawn_checks};
use crate::{
    cli::{
        AgentFlags, Cli,
        fleet::{self, SpawnArgs, TaskFlags},
    },
    report::{self, Code, Failure, Result},
    settings::{Loaded, file::words, schema::FleetIsolation},
};

/// The longest prompt that is read from a file or stdin.
const PROMPT_CAP: u64 = caliban_core::spec::MAX_PROMPT_BYTES as u64;

/// What the caller gets to know; text and JSON come from it alike.
#[derive(Debug, Serialize)]
struct SpawnReport {
    id: AgentId,
    label: Option<String>,
    /// Its directory: transcript, session, logs.
    dir: PathBuf,
    branch: Option<String>,
    /// Where it works.
    directory: PathBuf,
    /// The same where that is a worktree of its own.
    worktree: Option<PathBuf>,
    /// For whom or what, when it does not start at once.
    #[serde(skip)]
    waits: Option<String>,
}

/// What is asked for.
struct SpawnTask<'a> {
    prompt: String,
    /// The part of it that a person typed.
    typed: Option<&'a str>,
    task: &'a TaskFlags,
    agent: &'a AgentFlags,
    append: Option<&'a str>,
    /// The caller's name for this request: two with one name are one.
    key: Option<&'a str>,
}

pub(super) async fn from_args(fleet: &Fleet<'_>, args: &SpawnArgs, out: &mut dyn Write) -> Result<Code> {
    let prompt = match (&args.prompt, &args.prompt_file) {
        (Some(prompt), _) => prompt.clone(),
        (None, Some(file)) => prompt_file(&fleet.cwd, file)?,
        (None, None) => String::new(),
    };
    let task = SpawnTask {
        prompt,
        typed: args.prompt.as_deref(),
        task: &args.task,
        agent: &args.agent,
        append: None,
        key: args.request_key.as_deref(),
    };
    spawn(fleet, &task, args.json, out).await
}

pub(super) async fn from_cli(fleet: &Fleet<'_>, cli: &Cli, out: &mut dyn Write) -> Result<Code> {
    let prompt = match &cli.run.prompt_file {
        Some(file) => prompt_file(&fleet.cwd, file)?,
        None => crate::print::with_stdin(cli.run.prompt().map(str::to_owned))?.unwrap_or_default(),
    };
    let append = cli.run.system_prompt_append.as_deref();
    let task =
        SpawnTask { prompt, typed: cli.run.prompt(), task: &cli.task, agent: &cli.agent, append, key: None };
    spawn(fleet, &task, cli.run.json, out).await
}

async fn spawn(fleet: &Fleet<'_>, task: &SpawnTask<'_>, json: bool, out: &mut dyn Write) -> Result<Code> {
    let setup = setup(fleet, task);
    let loaded = crate::settings::load(fleet.environment, &fleet.cwd, (&setup).into())?;
    for note in &loaded.notes {
        report::note(note);
    }
    if loaded.settings.permissions.mode == Mode::Unattended {
        report::note(
            "unattended: its commands run with your rights, without a fence; --permission-mode never-ask asks nothing and stays fenced",
        );
    }
    // Said here and now, rather than by an agent that has failed when the person is gone.
    crate::compose::check_provider(&loaded, fleet.environment).await?;
    let mut spec = spec(fleet, &loaded, task, setup)?;
    spec.check().map_err(|error| {
        let failure = Failure::usage(error.to_string());
        match error {
            SpecError::EmptyPrompt => failure.hint("say what to do: caliban --bg \"fix the failing test\""),
            _ => failure,
        }
    })?;
    prepare(fleet, &loaded, &mut spec, task.task.session.as_deref()).await?;
    spawn_checks::check(fleet, task.task, task.agent, &spec).await?;
    super::git_programs::check_spawn(fleet, &loaded, &spec).await?;
    let client = fleet.client_with(super::daemon_options(&loaded)).await?;
    let mut client = client.with_name(task.key.map(str::to_owned));
    for after in &task.task.after {
        spec.after.push(client.show(after).await?.id);
    }
    if let Some(every) = task.task.every.clone() {
        let what = (spec, every, task.task.overlap);
        return super::schedule::make(fleet, &loaded, &mut client, what, json, out).await;
    }
    let (label, isolation) = (spec.label.clone(), spec.isolation.clone());
    let register = register(fleet, &loaded, &mut client, spec);
    let (made, dirty) = tokio::join!(register, spawn_checks::uncommitted(fleet, &isolation));
    let made = made?;
    // It is there; who cannot be asked just now does not change that.
    let waits = client
        .show(&made.id.to_string())
        .await
        .ok()
        .and_then(|row| row::waits(&row, caliban_contract::wall_ms()));
    let name = Slug::from(made.id);
    let (branch, directory) = match isolation {
        Isolation::Worktree(_) => (
            Some(caliban_worktrees::branch_of(&name)),
            fleet.places.repo().join(caliban_worktrees::PLACE).join(name.as_str()),
        ),
        Isolation::None => (None, fleet.cwd.clone()),
    };
    let label = label.map(|label| label.to_string());
    let worktree = branch.is_some().then(|| directory.clone());
    let spawned = SpawnReport { id: made.id, label, dir: made.dir, branch, directory, worktree, waits };
    let in_own_directory = spawned.branch.is_none()
        && task.task.isolation.is_none()
        && loaded.settings.fleet.isolation == FleetIsolation::Worktree;
    if in_own_directory {
        say(&format!(
            "it works in your own directory, {}: there is no git repo with a commit to make a worktree from",
            spawned.directory.display()
        ));
    }
    let code = show(&spawned, json, out)?;
    match dirty {
        0 => {}
        1 => say("1 uncommitted change is not in it"),
        more => say(&format!("{more} uncommitted changes are not in it")),
    }
    Ok(code)
}

/// What every request needs before it can be registered, whoever makes it: a price where a budget in dollars counts, the
/// commit of its base, its broker session.
pub(super) async fn prepare(
    fleet: &Fleet<'_>,
    loaded: &Loaded,
    spec: &mut SpawnSpec,
    session: Option<&str>,
) -> Result<()> {
    spawn_checks::price(loaded, spec)?;
    // Quiet hours are for what costs.
    spec.setup.ignores_quiet_hours |=
        !loaded.settings.fleet.quiet_hours.is_empty() && crate::compose::is_free(loaded);
    pin_base(&spec.cwd, &mut spec.isolation).await?;
    spec.broker_session = broker_session(fleet, loaded, spec, session).await?;
    Ok(())
}

/// Registers the request, with what it gets of the caller's environment. Durable when it returns.
pub(super) async fn register(
    fleet: &Fleet<'_>,
    loaded: &Loaded,
    client: &mut Client,
    mut spec: SpawnSpec,
) -> Result<Registered> {
    let mut caller = caller_environment::caller(fleet.environment, loaded);
    caller.veil_task(&mut spec.prompt);
    caller.hand_settings(loaded);
    spec.env = caller.env;
    let program = Some(crate::compose::own_program()?);
    let request = SpawnRequest { spec, secrets: caller.handover.into(), program, key: None };
    client.spawn(request).await.map_err(Failure::from)
}

/// Writes down which commit the base stands for now: the agent may start much later, when the branch has moved or another
/// one is checked out. Refuses a base that names no commit.
async fn pin_base(cwd: &Path, isolation: &mut Isolation) -> Result<()> {
    let Isolation::Worktree(wanted) = isolation else { return Ok(()) };
    let base = spawn_checks::revision(wanted);
    let lookup = Lookup::new(cwd, GitOptions::default());
    if let Some(commit) = lookup.commit(&base, &CancellationToken::new()).await? {
        wanted.base_commit = Some(commit.to_string());
        return Ok(());
    }
    Err(Failure::usage(format!("--base: {} names no commit", inert::quoted(&base)))
        .hint("head, fresh, or anything that git rev-parse takes for a commit"))
}

/// The broker session that was asked for, by its whole id.
async fn broker_session(
    fleet: &Fleet<'_>,
    loaded: &Loaded,
    spec: &SpawnSpec,
    asked: Option<&str>,
) -> Result<Option<String>> {
    let Some(given) = asked.or(loaded.settings.fleet.broker_session.as_deref()) else { return Ok(None) };
    let label = spec.label.as_ref().map(Slug::as_str);
    let session = crate::broker::living_session(fleet.environment, &fleet.cwd, given, label).await?;
    Ok(Some(session.to_string()))
}

fn show(spawned: &SpawnReport, json: bool, out: &mut dyn Write) -> Result<Code> {
    if json {
        return json_line(spawned, out).map(|()| Code::Done);
    }
    writeln!(out, "{}", spawned.id)?;
    out.flush()?;
    let place = spawned.directory.display();
    let works = match &spawned.waits {
        Some(waits) => format!("{waits}, then works"),
        None => "works".to_owned(),
    };
    match &spawned.branch {
        Some(branch) => say(&format!("{works} on branch {branch} in {place}")),
        None => say(&format!("{works} in {place}")),
    }
    say(&format!("watch it: caliban attach {}", spawned.id));
    Ok(Code::Done)
}

/// How the agent is set up: the agent's flags, and those of the task that are about it.
fn setup(fleet: &Fleet<'_>, task: &SpawnTask<'_>) -> AgentSetup {
    AgentSetup {
        agent_type: task.task.agent_type.clone(),
        tools: Some(task.task.tools.clone()).filter(|tools| !tools.is_empty()),
        priority: task.task.priority,
        ignores_quiet_hours: task.task.ignore_quiet_hours,
        system_prompt_append: task.append.map(str::to_owned),
        ..task.agent.setup(&fleet.cwd)
    }
}

fn spec(fleet: &Fleet<'_>, loaded: &Loaded, task: &SpawnTask<'_>, setup: AgentSetup) -> Result<SpawnSpec> {
    let wanted = task.task;
    let mut spec = SpawnSpec { setup, ..SpawnSpec::new(task.prompt.clone(), fleet.cwd.clone()) };
    // What is no file here is a word, and stays where words are.
    let named = mentions::named(task.typed.unwrap_or_default());
    let named = named.filter(|name| mentions::path_of(&fleet.cwd, name).exists());
    spec.mentions = named.take(mentions::FILES).map(str::to_owned).collect();
    spec.label = match &wanted.label {
        Some(label) => Some(Slug::parse(label).map_err(|error| {
            Failure::usage(format!("--label: {error}"))
                .hint(format!("for example: --label {}", Slug::slugify(label)))
        })?),
        None => None,
    };
    if let Some(kind) = &wanted.agent_type {
        known_type(loaded, kind)?;
    }
    spec.isolation = isolation(fleet, loaded, wanted)?;
    spec.after_turn = if wanted.interactive { AfterTurn::Stay } else { AfterTurn::End };
    spec.start_at_ms = wanted.at.map(|at| at.at_ms);
    spec.start_in_ms = wanted.at.and_then(|at| at.in_ms);
    spec.timeout_ms = wanted.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    Ok(spec)
}

fn known_type(loaded: &Loaded, kind: &str) -> Result<()> {
    let (known, _) = caliban_settings::agent_types::known(loaded);
    if known.iter().any(|definition| definition.name == kind) {
        return Ok(());
    }
    let names: Vec<&str> = known.iter().map(|definition| definition.name.as_str()).collect();
    let failure = Failure::usage(format!("there is no agent type {}", inert::quoted(kind)));
    Err(if names.is_empty() {
        failure.hint("none is defined yet: see `caliban agents types`")
    } else {
        failure.hint(format!("known: {}", inert::line(&names.join(", "))))
    })
}

/// A worktree unless somebody says otherwise, where there is something to make one from.
fn isolation(fleet: &Fleet<'_>, loaded: &Loaded, wanted: &TaskFlags) -> Result<Isolation> {
    let spec = || WorktreeSpec {
        base_ref: wanted.base.clone().unwrap_or_else(|| WorktreeSpec::default().base_ref),
        sparse_paths: wanted.sparse.clone(),
        symlink_directories: wanted.symlink.clone(),
        ..WorktreeSpec::default()
    };
    let of_worktree = wanted.base.is_some() || !wanted.sparse.is_empty() || !wanted.symlink.is_empty();
    let asked = match wanted.isolation {
        Some(fleet::IsolationArg::None) => return Ok(Isolation::None),
        Some(fleet::IsolationArg::Worktree) => true,
        None if of_worktree => true,
        None => match loaded.settings.fleet.isolation {
            FleetIsolation::None => return Ok(Isolation::None),
            FleetIsolation::Worktree => false,
        },
    };
    let lookup = Lookup::new(&fleet.cwd, GitOptions::default());
    match lookup.has_commits() {
        true => Ok(Isolation::Worktree(spec())),
        // Among git's own files nobody works who was not told to.
        false if asked || lookup.is_in_git_dir() => Err(Failure::usage(format!(
            "{} is no git repo with a commit: there is nothing to make a worktree from",
            fleet.cwd.display()
        ))
        .hint("commit something first, or use --isolation none")),
        false => Ok(Isolation::None),
    }
}

fn prompt_file(cwd: &Path, file: &Path) -> Result<String> {
    let cannot = |error: std::io::Error| {
        Failure::usage(format!("cannot read {}: {}", file.display(), words(&error)))
            .hint("--prompt-file takes a file that has the task, or - for stdin")
    };
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().lock().take(PROMPT_CAP + 1).read_to_end(&mut bytes).map_err(cannot)?;
    } else {
        let opened = std::fs::File::open(cwd.join(file)).map_err(cannot)?;
        opened.take(PROMPT_CAP + 1).read_to_end(&mut bytes).map_err(cannot)?;
    }
    if bytes.len() as u64 > PROMPT_CAP {
        return Err(Failure::usage(format!("the prompt has more than {PROMPT_CAP} bytes"))
            .hint("name the file in a short prompt: the agent can read it"));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{} is not UTF-8 text", file.display())))
}
