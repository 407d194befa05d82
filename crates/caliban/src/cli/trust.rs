//! `caliban trust`: shows what a repo would make run, and remembers that the user wants it.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use caliban_contract::records;
use caliban_core::inert::line as inert;
use caliban_providers::ProviderKind;
use caliban_rooted::Root;
use caliban_settings::definitions;
use caliban_worktrees::{AcceptedGit, GitOccasion, GitOptions, Repo};
use clap::{Args, Subcommand};

use tokio_util::sync::CancellationToken;

use super::config::print_json;
use crate::{
    Here,
    report::{Failure, Result},
    settings::{self, Environment, Layer, Paths, Settings},
    trust::{DefinitionKind, RepoFiles, Trust, TrustRemoval, TrustStore},
};

#[derive(Debug, Clone, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Until a repo is trusted, its .caliban/settings.toml, .caliban/settings.local.toml, .mcp.json, agent types
(.caliban/agents/*.md, .claude/agents/*.md) and commands (.caliban/commands/*.md, .claude/commands/*.md) are not even
parsed. Trust is for the content that is there now: when one of these files changes, Caliban ignores them again until you
repeat the command. AGENTS.md and CLAUDE.md are read in any case: they are only text.

Examples:
  caliban trust                             # this repo, after showing what it would make run
  caliban trust list
  caliban trust remove ../other"
)]
pub(crate) struct TrustArgs {
    /// A directory in the repo; the working directory when not given
    pub path: Option<PathBuf>,
    /// Something else than to trust.
    #[command(subcommand)]
    pub command: Option<TrustCommand>,
}

#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
pub(crate) enum TrustCommand {
    /// List the repos that you trust
    #[command(after_help = "\
Examples:
  caliban trust list")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop trusting a repo
    #[command(after_help = "\
Examples:
  caliban trust remove
  caliban trust remove ../other")]
    Remove {
        /// A directory in the repo; the working directory when not given
        path: Option<PathBuf>,
    },
}

/// Carries `caliban trust` out.
pub(crate) async fn trust(args: &TrustArgs, Here { environment, cwd, out }: Here<'_>) -> Result<()> {
    match &args.command {
        None => add(environment, &cwd.join(args.path.as_deref().unwrap_or(Path::new(""))), out).await,
        Some(TrustCommand::List { json }) => list(environment, *json, out),
        Some(TrustCommand::Remove { path }) => {
            remove(environment, &cwd.join(path.as_deref().unwrap_or(Path::new(""))), out)
        }
    }
}

async fn add(environment: &Environment, dir: &Path, out: &mut dyn Write) -> Result<()> {
    if !dir.is_dir() {
        return Err(Failure::new(format!("there is no directory {}", dir.display())));
    }
    let paths = environment.paths()?;
    let root = settings::project_root(dir)?;
    let files = RepoFiles::read(&paths, &root)?;
    let mut merged = Layer::default();
    let (layers, notes) = settings::repo_layers(&files, &root, paths.home.as_deref())?;
    layers.into_iter().for_each(|layer| merged.add(layer));
    let mut consequences = consequences(&settings::typed(&merged)?);
    consequences.extend(agent_types(&files));
    consequences.extend(notes.iter().map(|note| inert(note).into_owned()));
    TrustStore::trust(&paths, &root, &files)?;
    writeln!(out, "trusted: {}", root.display())?;
    match files.names().as_slice() {
        [] => writeln!(out, "it has no settings or agent types of its own yet")?,
        names => writeln!(out, "in use now: {}", names.join(", "))?,
    }
    consequences.extend(accept_git_places(&paths, &root)?);
    consequences.extend(accept_git_programs(&paths, &root).await?);
    for line in consequences {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Accepts the directories that git uses for this repo and that do not say so themselves; one line for each. Fences show them then.
fn accept_git_places(paths: &Paths, root: &Path) -> Result<Vec<String>> {
    let top = Root::pin(root).map_err(|error| Failure::new(format!("{}: {error}", root.display())))?;
    let places = caliban_worktrees::doubtful_places(&top);
    let base = paths.repo(root);
    if places.is_empty() && !base.join(records::GIT_PLACES).exists() {
        return Ok(Vec::new());
    }
    caliban_contract::places::private_dir(&base).map_err(|error| Failure::new(error.to_string()))?;
    AcceptedGit::write(&base, &places)
        .map_err(|error| Failure::new(format!("{}: {error}", base.display())))?;
    Ok(places
        .iter()
        .map(|place| format!("git uses: {}", inert(&place.path().display().to_string())))
        .collect())
}

/// Accepts the programs that the repo makes git run; one line for each.
async fn accept_git_programs(paths: &Paths, root: &Path) -> Result<Vec<String>> {
    if root.join(".git").symlink_metadata().is_err() {
        return Ok(Vec::new());
    }
    let cancel = CancellationToken::new();
    let worded = |error: caliban_worktrees::Error| Failure::new(error.to_string());
    let repo = Repo::open(root, GitOptions::accepting(&paths.repo(root)), &cancel).await.map_err(worded)?;
    let base = paths.repo(root);
    let mut lines = Vec::new();
    for when in [GitOccasion::Checkout, GitOccasion::Landing] {
        let programs = repo.programs(when, &cancel).await.map_err(worded)?;
        if programs.is_empty() {
            continue;
        }
        let cannot = |error: std::io::Error| Failure::new(format!("{}: {error}", base.display()));
        caliban_contract::places::private_dir(&base).map_err(|error| Failure::new(error.to_string()))?;
        programs.accept(&base, when).map_err(cannot)?;
        lines = programs.lines().iter().map(|line| format!("git runs: {}", inert(line))).collect();
    }
    Ok(lines)
}

/// What trusting these settings means, one line for each thing that can run, be reached or be allowed.
fn consequences(settings: &Settings) -> Vec<String> {
    let mut lines = Vec::new();
    for (event, hooks) in settings.hooks.by_event() {
        lines.extend(hooks.iter().map(|hook| format!("hook {event}: {}", inert(&hook.command))));
    }
    for (name, server) in &settings.mcp.servers {
        let what = match (&server.command, &server.url) {
            (Some(command), _) => format!("{command} {}", server.args.join(" ")),
            (None, url) => url.clone().unwrap_or_default(),
        };
        lines.push(format!("MCP server {name}: {}", inert(what.trim_end())));
    }
    for provider in ProviderKind::all() {
        if let Some(url) = settings.providers.api(provider).and_then(|api| api.base_url.as_ref()) {
            lines.push(format!("address of {provider}: {}", inert(url.as_str())));
        }
    }
    let rules = [("allows", &settings.permissions.allow), ("denies", &settings.permissions.deny)];
    for (word, rules) in rules {
        lines.extend(rules.iter().map(|rule| format!("{word}: {}", inert(rule))));
    }
    if let Some(setup) = &settings.worktrees.setup {
        lines.push(format!("command in new worktrees: {}", inert(setup)));
    }
    lines.extend(settings.bash.env.keys().map(|name| format!("variable for commands: {}", inert(name))));
    lines.extend(
        settings
            .permissions
            .add_dirs
            .iter()
            .map(|dir| format!("directory: {}", inert(&dir.display().to_string()))),
    );
    lines
}

/// One line for each agent type, each command and each skill, and for each file that is none.
fn agent_types(files: &RepoFiles) -> Vec<String> {
    let (definitions, problems) = definitions::parse_all(&files.definitions(DefinitionKind::Agents));
    let described = definitions.iter().map(|definition| {
        let tools =
            definition.tools.as_ref().map_or_else(|| "all tools".to_owned(), |tools| tools.join(", "));
        let model = definition.model.as_deref().unwrap_or("the caller's model");
        format!("agent type {}: {}; {}", inert(&definition.name), inert(&tools), inert(model))
    });
    let (commands, more) = crate::commands::custom::parse_all(&files.definitions(DefinitionKind::Commands));
    let commands =
        commands.into_iter().map(|command| format!("command /{}: {}", command.name, inert(&command.about)));
    let (skills, still_more) = crate::skills::parse_all(&files.definitions(DefinitionKind::Skills));
    let skills = skills.iter().map(|skill| format!("skill {}: {}", inert(&skill.name), inert(&skill.about)));
    let problems = problems.iter().chain(&more).chain(&still_more);
    let left_out = problems.map(|problem| format!("left out: {}", inert(problem)));
    described.chain(commands).chain(skills).chain(left_out).collect()
}

fn list(environment: &Environment, json: bool, out: &mut dyn Write) -> Result<()> {
    /// One line of the list.
    #[derive(serde::Serialize)]
    struct Entry {
        path: PathBuf,
        state: &'static str,
    }
    let paths = environment.paths()?;
    let store = TrustStore::read(&paths)?;
    let entries: Vec<Entry> = store
        .repos
        .iter()
        .map(|repo| Entry {
            path: repo.path.clone(),
            state: match store.judge(&paths, &repo.path) {
                _ if !repo.path.is_dir() => "gone",
                Ok(Trust::Changed(_)) => "changed since it was trusted",
                Ok(Trust::NoFiles | Trust::Trusted(_) | Trust::Untrusted(_)) => "trusted",
                Err(_) => "unreadable",
            },
        })
        .collect();
    if json {
        return print_json(out, &entries);
    }
    for entry in &entries {
        writeln!(out, "{}  # {}", entry.path.display(), entry.state)?;
    }
    Ok(())
}

fn remove(environment: &Environment, dir: &Path, out: &mut dyn Write) -> Result<()> {
    let paths = environment.paths()?;
    // A repo that is gone can still be forgotten: then its path has to be given as it was.
    let root = settings::project_root(dir).unwrap_or_else(|_| dir.to_owned());
    match TrustStore::remove(&paths, &root)? {
        TrustRemoval::Yes => writeln!(out, "no longer trusted: {}", root.display())?,
        TrustRemoval::WasNotThere => {
            return Err(Failure::new(format!("{} was not trusted", root.display()))
                .hint("`caliban trust list` shows what is"));
        }
    }
    Ok(())
}
