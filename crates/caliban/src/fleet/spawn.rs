//! `caliban agents spawn` and `caliban --bg`: registers an agent durably, prints its id, returns at once.

use std::{
    io::{Read as _, Write},
    path::Path,
};

use caliban_core::{mode::Mode, setup::AgentSetup};
use caliban_fleet::spawn::{self, SpawnOrder, SpawnPlace, SpawnReport};

use super::{Fleet, json_line, say};
use crate::{
    cli::{
        AgentFlags, Cli,
        fleet::{IsolationArg, SpawnArgs, TaskFlags},
    },
    report::{self, Code, Failure, Result},
    settings::{file::words, schema::FleetIsolation},
};

/// The longest prompt that is read from a file or stdin.
const PROMPT_CAP: u64 = caliban_core::spec::MAX_PROMPT_BYTES as u64;

/// What is asked for on the command line.
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
    let order = order(fleet, task);
    let program = crate::compose::own_program()?;
    let caller = fleet.caller(&program);
    let loaded = caller.settings((&order.setup).into())?;
    for note in &loaded.notes {
        report::note(note);
    }
    if loaded.settings.permissions.mode == Mode::Unattended {
        report::note(
            "unattended: its commands run with your rights, without a fence; --permission-mode never-ask asks nothing and stays fenced",
        );
    }
    let mut spec = spawn::checked(&caller, &loaded, &order).await?;
    let client = fleet.client_with(loaded.daemon_options()).await?;
    let mut client = client.with_name(task.key.map(str::to_owned));
    spawn::follow(&mut client, &order.after, &mut spec).await?;
    if let Some(every) = task.task.every.clone() {
        let what = (spec, every, task.task.overlap);
        return super::schedule::make(fleet, &loaded, &mut client, what, json, out).await;
    }
    let spawned = spawn::spawn(&caller, &loaded, &mut client, spec).await?;
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
    match spawned.uncommitted {
        0 => {}
        1 => say("1 uncommitted change is not in it"),
        more => say(&format!("{more} uncommitted changes are not in it")),
    }
    Ok(code)
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

/// The order that the flags make: the agent's, and those of the task.
fn order(fleet: &Fleet<'_>, task: &SpawnTask<'_>) -> SpawnOrder {
    let flags = task.task;
    SpawnOrder {
        prompt: task.prompt.clone(),
        typed: task.typed.map(str::to_owned),
        setup: AgentSetup {
            agent_type: flags.agent_type.clone(),
            tools: Some(flags.tools.clone()).filter(|tools| !tools.is_empty()),
            priority: flags.priority,
            ignores_quiet_hours: flags.ignore_quiet_hours,
            system_prompt_append: task.append.map(str::to_owned),
            ..task.agent.setup(&fleet.cwd)
        },
        label: flags.label.clone(),
        place: flags.isolation.map(|place| match place {
            IsolationArg::Worktree => SpawnPlace::Worktree,
            IsolationArg::None => SpawnPlace::Own,
        }),
        base: flags.base.clone(),
        sparse: flags.sparse.clone(),
        symlink: flags.symlink.clone(),
        interactive: flags.interactive,
        session: flags.session.clone(),
        after: flags.after.clone(),
        start_at_ms: flags.at.map(|at| at.at_ms),
        start_in_ms: flags.at.and_then(|at| at.in_ms),
        timeout_ms: flags.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
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
