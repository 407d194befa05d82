//! The command line: its definition, and the verbs that need nothing but settings.
//!
//! One file for each verb. What a verb of the agent does is not here, only its arguments.

pub(crate) mod agents;
pub(crate) mod budget;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod dashboard;
pub(crate) mod doctor;
pub(crate) mod early;
pub(crate) mod fleet;
pub(crate) mod gateway;
pub(crate) mod jobs;
pub(crate) mod man;
pub(crate) mod models;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod sessions;
pub(crate) mod trust;
pub(crate) mod worktrees;

#[cfg(test)]
mod tests;

use std::{ffi::OsString, io::IsTerminal as _, mem::ManuallyDrop, path::PathBuf};

use clap::{
    CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    builder::Resettable,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

pub(crate) use self::{
    early::Early,
    run::{AgentFlags, RunFlags},
};
use crate::report::Failure;

/// What `--version` prints.
pub(crate) const VERSION: &str = concat!("caliban ", env!("CARGO_PKG_VERSION"));

/// The end of `--help`.
const AFTER_HELP: &str = "\
Exit codes:
  0    done
  1    failed
  2    the command line was wrong
  3    done, but calls were refused for want of a permission
  4    a budget or the turn limit was reached
  130  interrupted

Examples:
  caliban -p \"fix the failing test\" --permission-mode accept-edits --allow \"Bash(cargo *)\"
  git diff | caliban -p \"review this change\" --permission-mode plan
  caliban -p \"and now the docs\" --continue --output-format json
  caliban --provider ollama --model qwen3 -p \"what does this repo do?\"
  caliban --bg \"refactor the auth module\" --label auth
  caliban agents list --watch
  caliban doctor

diff, list, merge, send, spawn and wait go without `agents`, too: caliban list
A prompt that is also the name of a command goes behind -p: caliban -p doctor";

/// A coding agent that works in your repo.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "caliban",
    version,
    about,
    after_help = AFTER_HELP,
    disable_help_subcommand = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub run: RunFlags,
    #[command(flatten)]
    pub everywhere: Everywhere,
    #[command(flatten)]
    pub agent: AgentFlags,
    #[command(flatten)]
    pub task: fleet::TaskFlags,
    /// Another command than to work on a prompt.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Flags that go with every command, before or after its name.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Everywhere {
    /// Work in this directory
    #[arg(short = 'C', long = "cd", value_name = "DIR", global = true)]
    pub cd: Option<PathBuf>,
    /// Write a debug log to stderr
    #[arg(long, global = true)]
    pub debug: bool,
}

/// The other commands. The arguments of each are made when it is the one that was given: what stands here is all that the
/// list of commands needs. (So an `Args` has no doc comment: it would become the command's description in its own help.)
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// List, show, replay, audit, compact and remove sessions
    Sessions(sessions::SessionsCommand),
    /// Show the settings and where they come from
    Config(config::ConfigCommand),
    /// Check whether everything is in place, and say what to do where it is not
    Doctor(doctor::DoctorArgs),
    /// List the models that are known, what each costs, and which providers can be used
    Models(models::ModelsArgs),
    /// Trust a repo: use its settings, hooks and MCP servers
    Trust(trust::TrustArgs),
    /// Start, watch, steer, review and end agents in the background
    Agents(agents::AgentsCommand),
    /// Watch a background agent live and talk to it; Ctrl+D leaves it running
    Attach(fleet::AttachArgs),
    /// Print what a background agent did
    Logs(fleet::LogsArgs),
    /// End background agents with everything that they started
    Stop(fleet::KillArgs),
    /// The same as stop
    Kill(fleet::KillArgs),
    /// Start a background agent again from its original request, with a new id
    Respawn(fleet::RespawnArgs),
    /// Let an ended background agent go on in its conversation
    Resume(fleet::ResumeArgs),
    /// Remove stopped background agents and their worktrees
    Rm(fleet::RmArgs),
    /// List what background agents ask for
    Approvals(fleet::ApprovalsArgs),
    /// Allow what a background agent asks for
    Approve(fleet::ApproveArgs),
    /// Refuse what a background agent asks for
    Deny(fleet::DenyArgs),
    /// Look at, stop and restart the daemon that keeps this repo's background agents
    Daemon(daemon::DaemonCommand),
    /// Manage all agents in the browser: see, approve, talk, review, merge
    Dashboard(dashboard::DashboardArgs),
    /// Watch a fleet of agents at work in a scratch repo; needs no model and leaves nothing behind
    #[command(after_help = "\
Examples:
  caliban demo")]
    Demo,
    /// Show what agents have spent and may spend, and set limits
    Budget(budget::BudgetCommand),
    /// Let claude, codex and other programs spend from the same budgets and wait at the same rate limits
    Gateway(gateway::GatewayArgs),
    /// List and end the commands that agents left running
    Jobs(jobs::JobsCommand),
    /// List, show, pause, run and remove schedules, which start agents by themselves
    Schedule(schedule::ScheduleCommand),
    /// List, show, remove and rescue the worktrees of sub-agents
    Worktrees(worktrees::WorktreesCommand),
    /// Serve the agent to an editor over stdin and stdout (Agent Client Protocol)
    Acp(run::AcpArgs),
    /// Print the completions for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write all of them to a directory
    Man(man::ManArgs),
}

impl Command {
    /// `caliban stop` is `caliban agents kill`: from here on there is one name for each verb.
    fn without_shorthand(self) -> Self {
        use agents::AgentsCommand;
        Self::Agents(match self {
            Self::Attach(args) => AgentsCommand::Attach(args),
            Self::Logs(args) => AgentsCommand::Logs(args),
            Self::Stop(args) | Self::Kill(args) => AgentsCommand::Kill(args),
            Self::Respawn(args) => AgentsCommand::Respawn(args),
            Self::Resume(args) => AgentsCommand::Resume(args),
            Self::Rm(args) => AgentsCommand::Rm(args),
            Self::Approvals(args) => AgentsCommand::Approvals(args),
            Self::Approve(args) => AgentsCommand::Approve(args),
            Self::Deny(args) => AgentsCommand::Deny(args),
            other => return other,
        })
    }
}

/// A group of commands is made when it is the one that was given, like the arguments of a single one. (The derived
/// `#[command(subcommand)]` would make all its commands at once.)
macro_rules! groups {
    ($($group:ty),+ $(,)?) => {$(
        impl clap::Args for $group {
            fn augment_args(command: clap::Command) -> clap::Command {
                let about = command.get_about().cloned();
                let command = Self::augment_subcommands(command);
                command.subcommand_required(true).arg_required_else_help(true).about(Resettable::from(about))
            }

            fn augment_args_for_update(command: clap::Command) -> clap::Command {
                Self::augment_subcommands_for_update(command)
            }
        }
    )+};
}

groups!(
    sessions::SessionsCommand,
    config::ConfigCommand,
    agents::AgentsCommand,
    daemon::DaemonCommand,
    budget::BudgetCommand,
    jobs::JobsCommand,
    gateway::TokenCommand,
    schedule::ScheduleCommand,
    worktrees::WorktreesCommand,
    worktrees::RescueCommand,
);

/// Everything made at once, for what looks at all of it: completions and manual pages.
pub(crate) fn whole() -> clap::Command {
    /// Behind a command's own flags, as they would be if all had been made before these were handed down.
    fn in_order(command: clap::Command) -> clap::Command {
        ["cd", "debug", "help"]
            .into_iter()
            .fold(command, |command, id| command.mut_arg(id, |arg| arg))
            .mut_subcommands(in_order)
    }
    let mut command = Cli::command();
    command.build();
    command.mut_subcommands(in_order)
}

/// The same with the verbs of `caliban agents` that go without it, for completions.
pub(crate) fn with_short_verbs() -> clap::Command {
    let whole = whole();
    let agents = whole.find_subcommand("agents").into_iter().flat_map(clap::Command::get_subcommands);
    let short: Vec<clap::Command> = agents
        .filter(|verb| AGENT_VERBS.contains(&verb.get_name()))
        .map(|verb| verb.clone().bin_name(format!("caliban {}", verb.get_name())))
        .collect();
    whole.subcommands(short)
}

/// Parses the command line.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Early> {
    // Not taken apart: that takes longer than it is worth in a process that needs it once.
    let mut command = ManuallyDrop::new(Cli::command());
    let mut args: Vec<OsString> = args.into_iter().collect();
    let at = first_word(&args);
    if let Some((word, rest)) = args.get(at..).and_then(<[_]>::split_first)
        && let Some(word) = word.to_str()
        && let Some(failure) = early::mistyped(word, rest, &names(&command))
    {
        return Err(failure.into());
    }
    in_own_words(&mut args, at);
    with_agents(&mut args, at);
    let matches = command
        .try_get_matches_from_mut(&args)
        .map_err(|error| in_words(&args, at, &error).map_or_else(|| Early::from(error), Early::from))?;
    if let Some((verb, _)) = matches.subcommand() {
        // A flag that only an agent's run knows would be ignored by the other commands: say so instead.
        if let Some(id) = given_on_line(&matches, run_flags(&command)) {
            let message = format!("{} cannot stand before `{verb}`", shown(&command, &id));
            return Err(Failure::usage(message)
                .hint(format!("see `caliban {verb} --help` for what goes behind it"))
                .into());
        }
    }
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    cli.command = cli.command.map(Command::without_shorthand);
    let conflict =
        |message: String| given(&command, &matches).clone().error(ErrorKind::ArgumentConflict, message);
    cli.run.check().map_err(conflict)?;
    if let Some(failure) = verb_for_prompt(&cli, &args, &names(&command)) {
        return Err(failure.into());
    }
    if cli.command.is_none() && cli.run.bg.is_none() {
        let background = command.get_arguments().filter(|arg| arg.get_help_heading() == Some(fleet::HEADING));
        if let Some(id) = given_on_line(&matches, background) {
            let flag = shown(&command, &id);
            let prompt = early::quoted(cli.run.prompt().unwrap_or("what to do"));
            return Err(Failure::usage(format!("{flag} is for an agent in the background"))
                .hint(format!(
                    "add --bg: caliban --bg {prompt} {flag}{}",
                    if is_switch(&command, &id) { "" } else { " …" }
                ))
                .into());
        }
    }
    cli.task_flags().check().map_err(conflict)?;
    cli.agent_flags().map_or(Ok(()), AgentFlags::check).map_err(conflict)?;
    Ok(cli)
}

impl Cli {
    /// The agent's flags, wherever the command has them.
    fn agent_flags(&self) -> Option<&AgentFlags> {
        match &self.command {
            None => Some(&self.agent),
            Some(Command::Acp(args)) => Some(&args.agent),
            Some(Command::Agents(agents::AgentsCommand::Spawn(args))) => Some(&args.agent),
            Some(Command::Doctor(args)) => Some(&args.agent),
            Some(Command::Config(config::ConfigCommand::Show(args))) => Some(&args.agent),
            Some(_) => None,
        }
    }

    /// What is said about a background agent, wherever the command has it.
    fn task_flags(&self) -> &fleet::TaskFlags {
        match &self.command {
            Some(Command::Agents(agents::AgentsCommand::Spawn(args))) => &args.task,
            _ => &self.task,
        }
    }
}

/// The command that was given, which knows its own usage.
fn given<'c>(command: &'c clap::Command, matches: &clap::ArgMatches) -> &'c clap::Command {
    let below = matches.subcommand().and_then(|(name, below)| Some((command.find_subcommand(name)?, below)));
    below.map_or(command, |(command, below)| given(command, below))
}

/// What to say about a prompt that the parser took for something else. `at` is the first word that is no flag of every
/// command.
fn in_words(args: &[OsString], at: usize, error: &clap::Error) -> Option<Failure> {
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidValue) {
        return None;
    }
    if let Some(failure) = dashed_prompt(args) {
        return Some(failure);
    }
    if let Some(ContextValue::String(stray)) = error.get(ContextKind::InvalidArg)
        && let Some(failure) = early::foreign_flag(stray)
    {
        return Some(failure);
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let words = args.get(at..).unwrap_or_default();
    let Some(ContextValue::String(stray)) = error.get(ContextKind::InvalidArg) else { return None };
    match words {
        [group, verb, ..] if group == "agents" && verb == "spawn" && !stray.starts_with('-') => {
            Some(Failure::usage(format!("found {}, expected a flag", early::quoted(stray))).hint(format!(
                "the prompt goes behind --prompt: caliban agents spawn --prompt {}",
                early::quoted(stray)
            )))
        }
        [first, ..] if Cli::command().find_subcommand(first).is_none() => early::unquoted(words),
        _ => None,
    }
}

/// A prompt that was taken for flags, as a list in Markdown is.
fn dashed_prompt(args: &[OsString]) -> Option<Failure> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let (flag, prompt) = args.windows(2).find_map(|pair| match pair {
        [flag @ ("--bg" | "-p" | "--print" | "--prompt"), prompt]
            if prompt.starts_with('-') && prompt.contains(char::is_whitespace) =>
        {
            Some((*flag, *prompt))
        }
        _ => None,
    })?;
    let flag = if flag == "-p" { "--print" } else { flag };
    let first = prompt.lines().next().unwrap_or_default();
    Some(
        Failure::usage(format!("the prompt {} was taken for flags", early::quoted(first)))
            .hint(format!("a prompt that begins with a dash goes behind an equals sign: {flag}=\"{first}\"")),
    )
}

/// Verbs of `caliban agents` that go without it. They are not in the list of commands: it is long enough.
const AGENT_VERBS: [&str; 6] = ["diff", "list", "merge", "send", "spawn", "wait"];

/// Where the first word is that is neither the program nor a flag of every command.
fn first_word(args: &[OsString]) -> usize {
    let mut at = 1;
    while let Some(word) = args.get(at).and_then(|arg| arg.to_str()) {
        at += match word {
            "-C" | "--cd" => 2,
            "--debug" => 1,
            _ if word.starts_with("-C") || word.starts_with("--cd=") => 1,
            _ => break,
        };
    }
    at
}

/// Puts our own name of a command in place of another tool's: `ps` is `list`, `help merge` is `merge --help`.
fn in_own_words(args: &mut Vec<OsString>, at: usize) {
    match args.get(at).and_then(|arg| arg.to_str()) {
        Some("help") => {
            args.remove(at);
            args.push("--help".into());
        }
        Some(word) => {
            if let Some(command) = early::alias(word) {
                args[at] = command.into();
            }
        }
        None => {}
    }
}

/// Puts `agents` before a verb that stands without it; `at` is the first word.
fn with_agents(args: &mut Vec<OsString>, at: usize) {
    match args.get(at).and_then(|arg| arg.to_str()) {
        // On a terminal the bare word opens the agent view.
        Some("agents") if at + 1 == args.len() && has_terminal() => args.push("view".into()),
        Some(word) if AGENT_VERBS.contains(&word) => args.insert(at, "agents".into()),
        _ => {}
    }
}

fn has_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// What to say about a verb, or nearly one, that stands where only a prompt can, behind a flag of a run. What stands behind `-p`,
/// `--bg` or `--` is meant.
fn verb_for_prompt(cli: &Cli, args: &[OsString], commands: &[&str]) -> Option<Failure> {
    let is_meant = cli.run.print.is_some()
        || cli.run.bg.is_some()
        || args.len().checked_sub(2).and_then(|at| args.get(at)).is_some_and(|before| before == "--");
    let word = cli.run.prompt.as_deref().filter(|_| !is_meant)?;
    if AGENT_VERBS.contains(&word) || early::is_alias(word) {
        let failure = Failure::usage(format!("flags of a run cannot stand before `{word}`"));
        return Some(failure.hint(format!("caliban {word} …; a prompt of this one word goes behind -p")));
    }
    early::mistyped(word, &[], commands)
}

/// The names of all commands.
fn names(command: &clap::Command) -> Vec<&str> {
    command.get_subcommands().map(clap::Command::get_name).chain(AGENT_VERBS).collect()
}

/// The flags that belong to a run.
fn run_flags(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    let run = command.get_arguments().filter(|arg| !arg.is_global_set());
    run.filter(|arg| arg.get_id() != "help" && arg.get_id() != "version")
}

/// The first of these that was given on the command line.
fn given_on_line<'c>(
    matches: &clap::ArgMatches,
    mut args: impl Iterator<Item = &'c clap::Arg>,
) -> Option<String> {
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    args.find(|arg| given(arg.get_id().as_str())).map(|arg| arg.get_id().to_string())
}

/// Whether a flag takes no value.
fn is_switch(command: &clap::Command, id: &str) -> bool {
    let mut args = command.get_arguments();
    args.any(|arg| arg.get_id() == id && !arg.get_action().takes_values())
}

/// A flag as people type it.
fn shown(command: &clap::Command, id: &str) -> String {
    let arg = command.get_arguments().find(|arg| arg.get_id() == id);
    match arg.and_then(|arg| arg.get_long()) {
        Some(long) => format!("--{long}"),
        None => "a prompt".to_owned(),
    }
}
