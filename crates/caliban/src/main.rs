//! The `caliban` program: hidden modes first, then the command line, then the verb.
//!
//! Nothing is built before it is needed: `--version` ends before the arguments are even defined, and the
//! verbs that only read settings start no runtime.

mod acp;
mod agent_types;
mod below_agent;
mod broker;
mod budget;
mod cli;
mod commands;
mod compose;
mod consent;
mod dashboard;
mod demo;
mod fleet;
mod gateway;
mod jobs;
mod keyboard;
mod mcp;
mod member;
mod print;
mod report;
mod runtime;
mod screen;
mod session_places;
mod sessions;
mod skills;
mod telemetry;
mod worker;
mod worktrees;

use std::{
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use caliban_contract::{modes, variables};
use caliban_core::redact::Redactor;
use caliban_fence::KeyNames;
use caliban_settings::{self as settings, tool_names, trust};

use runtime::{run_agents, runtime};

use crate::{
    cli::{Cli, Command, agents::AgentsCommand, daemon::DaemonCommand},
    report::{Code, Failure, Result},
    settings::{Environment, file},
};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let rest = args.get(2..).unwrap_or_default();
    let first = || rest.first().cloned().unwrap_or_default();
    match args.get(1).and_then(|arg| arg.to_str()) {
        Some(modes::REAP) => return caliban_keeper::reaper_main(),
        Some(modes::FENCE) => return caliban_fence::fence_main(rest),
        Some(modes::SHIM) => {
            caliban_fence::hide_environment();
            return caliban_supervisor::shim_main(rest.to_vec());
        }
        Some(modes::DAEMON) => return caliban_supervisor::daemon_main(rest.to_vec()),
        Some(modes::DETACHED) => return caliban_keeper::detached_main(first().as_ref()),
        Some(modes::PDF) => return caliban_tools::pdf_main(first().as_ref()),
        Some(modes::WITH_PARENT) => return gateway::with_parent_main(rest),
        Some(modes::NOTIFY) => {
            let environment = handed_environment();
            return worker::notify_main(environment);
        }
        Some(modes::WORKER) => {
            let environment = handed_environment();
            return worker::worker_main(rest, environment);
        }
        Some(cli::complete::MODE) => {
            cli::complete::print(rest);
            return ExitCode::SUCCESS;
        }
        Some("--version" | "-V") if args.len() == 2 => return finish(print_version()),
        _ => {}
    }
    let cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(early) => return ExitCode::from(early.show()),
    };
    let environment = match SecretsUse::of(&cli) {
        SecretsUse::None => {
            caliban_fence::drop_secrets(|name| name.starts_with("CALIBAN_") || name.starts_with("CAFLEET_"));
            Environment::of_process()
        }
        SecretsUse::HandsOver => {
            let environment = Environment::of_process();
            caliban_fence::keep_secrets_back(&key_names(&cli, &environment));
            environment
        }
        SecretsUse::Own => {
            let environment = Environment::of_process();
            let _held = caliban_fence::take_secrets(&key_names(&cli, &environment));
            caliban_fence::hide_environment();
            compose::hide_memory();
            environment
        }
        SecretsUse::PassesOn => {
            caliban_fence::hide_environment();
            compose::hide_memory();
            Environment::of_process()
        }
    };
    finish(run(&cli, environment))
}

/// What a daemon started this process with, keys included. Nobody else sees those, and no program inherits them.
fn handed_environment() -> Environment {
    let mut environment = Environment::of_process();
    let names = environment.take(variables::SECRET_NAMES).and_then(|names| names.into_string().ok());
    let _held = caliban_fence::take_secrets(&KeyNames::handed(&names.unwrap_or_default()));
    caliban_fence::hide_environment();
    if let Err(error) = caliban_fence::hide_kept_process() {
        tracing::warn!(%error, "other processes of this user can look into this one");
    }
    environment
}

/// The variables that the settings of the place name as keys. Where they cannot be read, the command itself says why.
fn key_names(cli: &Cli, environment: &Environment) -> KeyNames {
    let Ok(cwd) = working_directory(cli, environment) else { return KeyNames::default() };
    let loaded = settings::load(environment, &cwd, settings::Layer::default());
    loaded
        .map(|loaded| loaded.settings.providers.key_variables().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Where a command was given, and where its data goes.
pub(crate) struct Here<'a> {
    pub environment: &'a Environment,
    pub cwd: &'a Path,
    pub out: &'a mut dyn Write,
}

/// What a command does with the secrets of its environment (adr 0143).
enum SecretsUse {
    /// It stays for long and needs none: it has none.
    None,
    /// A short command, which may hand them to an agent. It is not hidden: an agent learns the secrets of whoever speaks to
    /// it, so that it can redact them. The programs that it runs do not inherit them.
    HandsOver,
    /// An agent runs here, or it needs a key for what it starts: nobody else sees them, and no program inherits them.
    Own,
    /// The same, but the program that it runs for a person gets that person's environment: git signs, and hooks of theirs run.
    PassesOn,
}

impl SecretsUse {
    fn of(cli: &Cli) -> Self {
        match &cli.command {
            None if cli.run.bg.is_some() => Self::HandsOver,
            None | Some(Command::Acp(_) | Command::Dashboard(_)) => Self::Own,
            // What is typed there may quote a secret: it is handed to the agent, which redacts it.
            Some(Command::Agents(AgentsCommand::Attach(_) | AgentsCommand::View)) => Self::Own,
            Some(Command::Gateway(_) | Command::Agents(AgentsCommand::Merge(_))) => Self::PassesOn,
            Some(Command::Agents(AgentsCommand::Approvals(args))) if args.watch => Self::None,
            Some(Command::Agents(AgentsCommand::List(args))) if args.watch => Self::None,
            Some(Command::Agents(AgentsCommand::Logs(args))) if args.follow => Self::None,
            Some(Command::Agents(AgentsCommand::Wait(_))) => Self::None,
            Some(Command::Daemon(DaemonCommand::Logs { follow: true, .. })) => Self::None,
            Some(_) => Self::HandsOver,
        }
    }
}

/// Carries a command line out.
fn run(cli: &Cli, environment: Environment) -> Result<Code> {
    let told = environment.clone();
    report::tell_panics(
        move || Redactor::new(settings::tool_environment::spoken_secrets(&told)),
        "a session is on disk up to its last step: `caliban --continue` goes on with it",
    );
    below_agent::check(cli)?;
    let cwd = working_directory(cli, &environment)?;
    if cli.everywhere.debug {
        if screen::takes_terminal(cli, &environment) {
            let path = environment.paths()?.data.join("debug.log");
            report::log_to_file(&path)?;
            report::note(&format!("the log goes to {}", path.display()));
        } else {
            report::log_to_stderr();
        }
    }
    let Some(command) = &cli.command else {
        if cli.run.bg.is_some() {
            return runtime()?.block_on(fleet::background(cli, &environment, &cwd));
        }
        if screen::is_wanted(cli, &environment) {
            if screen::starts_with_agents(cli, &environment, &cwd)? {
                return runtime()?.block_on(fleet::agent_view(&environment, &cwd));
            }
            return run_agents(screen::screen(cli, &environment, &cwd));
        }
        return run_agents(print::print(cli, &environment, &cwd));
    };
    // Not locked: an attached terminal needs it line by line.
    let mut out = anstream::stdout();
    let here = Here { environment: &environment, cwd: &cwd, out: &mut out };
    match command {
        Command::Demo => return runtime()?.block_on(demo::demo(&environment)),
        Command::Dashboard(args) => {
            return runtime()?.block_on(dashboard::dashboard(args, &environment, &cwd));
        }
        Command::Gateway(args) => return runtime()?.block_on(gateway::gateway(args, &environment, &cwd)),
        Command::Acp(args) => return run_agents(acp::acp(&args.agent, &environment)),
        Command::Doctor(args) => return cli::doctor::doctor(args, here),
        Command::Sessions(command) => return sessions::sessions(command, here),
        Command::Budget(command) => {
            return runtime()?.block_on(budget::budget(command, here));
        }
        Command::Jobs(command) => {
            return runtime()?.block_on(jobs::jobs(command, here));
        }
        Command::Config(command) => cli::config::config(command, here)?,
        Command::Models(args) => cli::models::models(args, here)?,
        Command::Trust(args) => {
            runtime()?.block_on(cli::trust::trust(args, here))?;
        }
        Command::Completions(args) => cli::completions::completions(args)?,
        Command::Man(args) => cli::man::man(args)?,
        Command::Agents(cli::agents::AgentsCommand::Types { json }) => {
            agent_types::types(*json, here)?;
        }
        Command::Worktrees(command) => {
            runtime()?.block_on(worktrees::worktrees(command, here))?;
        }
        verb => return runtime()?.block_on(fleet::fleet(verb, &environment, &cwd)),
    }
    Ok(Code::Done)
}

/// Where the agent works: `-C`, else where the program was started.
fn working_directory(cli: &Cli, environment: &Environment) -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(|error| {
        Failure::new(format!("the working directory cannot be used: {}", file::words(&error)))
            .hint("it may have been removed: change to another one")
    })?;
    let Some(dir) = &cli.everywhere.cd else { return Ok(here) };
    let dir = here.join(dir);
    let cannot = |reason: &str| Failure::usage(format!("cannot work in {}: {reason}", dir.display()));
    match dir.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(dir),
        Ok(_) => Err(cannot("it is not a directory")),
        // Agents outlive the directory of their repo: who asks for them by its path finds them.
        Err(error) if fleet::is_known(environment, &dir) => match &cli.command {
            Some(command) if fleet::is_verb(command) => Ok(dir),
            _ => Err(cannot(&file::words(&error)).hint(format!(
                "agents of that repo can still be reached: caliban -C {} agents list",
                dir.display()
            ))),
        },
        Err(error) => Err(cannot(&file::words(&error))
            .hint("-C takes a directory that is there; a relative one starts here")),
    }
}

fn print_version() -> Result<Code> {
    writeln!(std::io::stdout(), "{}", cli::VERSION)?;
    Ok(Code::Done)
}

fn finish(result: Result<Code>) -> ExitCode {
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            failure.show();
            failure.code.into()
        }
    }
}
