//! `caliban config …`.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::AgentFlags;
use crate::{
    Here,
    report::{self, Failure, Result},
    settings::{
        self, Loaded,
        provider::Choice,
        show::{SettingRow, inline, rows},
    },
    trust::{RepoFile, Trust},
};

/// What to do with the settings.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
#[command(after_help = "\
Examples:
  caliban config show
  caliban config path")]
pub(crate) enum ConfigCommand {
    /// Show every effective value and where it was set; secrets are shown as `set`
    Show(Box<ShowArgs>),
    /// Show which files are read, the weakest first
    #[command(after_help = "\
Examples:
  caliban config path")]
    Path {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban config show
  caliban config show --all --json
  caliban config show --provider ollama     # with these flags")]
pub(crate) struct ShowArgs {
    /// Show also what is not set
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub agent: AgentFlags,
}

/// Carries `caliban config …` out.
pub(crate) fn config(command: &ConfigCommand, here: Here<'_>) -> Result<()> {
    match command {
        ConfigCommand::Show(args) => show(args, here),
        ConfigCommand::Path { json } => path(*json, here),
    }
}

fn show(args: &ShowArgs, Here { environment, cwd, out }: Here<'_>) -> Result<()> {
    let loaded = settings::load(environment, cwd, (&args.agent.setup(cwd)).into())?;
    let choice = match loaded.choose() {
        Ok(Choice::IfRunning(target)) => {
            report::note(&format!(
                "no provider is set: a local {} is used if it runs",
                target.provider.value
            ));
            None
        }
        Ok(choice) => Some(choice),
        Err(error) => {
            report::note(&error.to_string());
            None
        }
    };
    loaded.notes.iter().for_each(|note| report::note(note));
    let rows: Vec<SettingRow> =
        rows(&loaded, choice.as_ref()).into_iter().filter(|row| args.all || row.is_set()).collect();
    if args.json {
        return print_json(out, &rows);
    }
    let texts: Vec<String> = rows.iter().map(|row| format!("{} = {}", row.key, inline(&row.value))).collect();
    /// Longer rows do not push the sources of all others out of sight.
    const WIDEST: usize = 60;
    let width =
        texts.iter().map(|text| text.chars().count()).filter(|width| *width <= WIDEST).max().unwrap_or(0);
    for (text, row) in texts.iter().zip(&rows) {
        writeln!(out, "{text:width$}  # {}", row.source)?;
    }
    Ok(())
}

/// A file that settings are read from.
#[derive(Serialize)]
struct SettingsFile {
    path: String,
    state: &'static str,
}

fn path(json: bool, Here { environment, cwd, out }: Here<'_>) -> Result<()> {
    let loaded = settings::load(environment, cwd, settings::Layer::default())?;
    let files = files(&loaded);
    if json {
        return print_json(out, &files);
    }
    for file in &files {
        writeln!(out, "{}  # {}", file.path, file.state)?;
    }
    Ok(())
}

fn files(loaded: &Loaded) -> Vec<SettingsFile> {
    let user = loaded.paths.user_settings();
    let state = if user.exists() { "read" } else { "absent" };
    let claude = loaded.paths.claude_settings().filter(|_| loaded.claude.is_some());
    let claude = claude.map(|path| SettingsFile { path: path.display().to_string(), state: "read" });
    let user = SettingsFile { path: user.display().to_string(), state };
    let mut files: Vec<SettingsFile> = claude.into_iter().chain([user]).collect();
    for kind in RepoFile::WEAKEST_FIRST {
        let path = loaded.root.join(kind.name());
        let state = match &loaded.trust {
            Trust::Trusted(files) if files.get(kind).is_some() => "read",
            Trust::Untrusted(names) if names.iter().any(|name| name == kind.name()) => "not trusted",
            Trust::Changed(names) if names.iter().any(|name| name == kind.name()) => {
                "changed since it was trusted"
            }
            Trust::NoFiles | Trust::Trusted(_) | Trust::Untrusted(_) | Trust::Changed(_) => "absent",
        };
        // What another program might have is worth a line only where it is.
        if state != "absent" || !RepoFile::NARROWING.contains(&kind) {
            files.push(SettingsFile { path: path.display().to_string(), state });
        }
    }
    let own = loaded.paths.repo_settings(&loaded.root).display().to_string();
    files.push(SettingsFile { path: own, state: if loaded.own.is_some() { "read" } else { "absent" } });
    files
}

/// Prints a value as JSON, indented, with a line end.
pub(crate) fn print_json(out: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(error.to_string()))?;
    writeln!(out, "{text}")?;
    Ok(())
}
