//! `setup`: installs skills and rules for claude and codex; with `--check` only checks them.

use std::path::{Path, PathBuf};

use caliban_store::StoreUrl;
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::SetupArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::settings::Settings;
use crate::setup::{self, FileState, Places, RuleEffect, SetupClient, SetupDone, SetupItem, SetupReport};

pub(crate) fn run(context: &VerbContext, args: &SetupArgs) -> Result<VerbAnswer, Failure> {
    let places = places(&context.settings)?;
    let clients: Vec<SetupClient> = match (args.claude, args.codex) {
        (false, false) => present(&context.settings, &places),
        (claude, codex) => {
            let asked = [(claude, SetupClient::Claude), (codex, SetupClient::Codex)];
            asked.into_iter().filter(|(asked, _)| *asked).map(|(_, client)| client).collect()
        }
    };
    if clients.is_empty() {
        return Err(Failure::refused("no_client", "neither claude nor codex was found on this machine")
            .hint("'cafleet setup --claude' or 'cafleet setup --codex' installs the files anyway"));
    }
    let report = if args.check { setup::check(&places, &clients) } else { setup::install(&places, &clients) };
    let failed = report.items.iter().find_map(|item| match &item.done {
        Some(SetupDone::Failed(why)) => Some((item.file.clone(), why.clone())),
        _ => None,
    });
    if let Some((file, why)) = failed {
        let words = format!("cannot set up {}: {}", shown(&file.display().to_string()), shown(&why));
        return Err(Failure::refused("setup", words)
            .hint("repair the file, or add the rules by hand: docs/reference/broker.md has them"));
    }
    let json = json!({"ok": report.is_good(), "items": report.items, "obstacles": report.obstacles});
    Ok(VerbAnswer::new(text(&report), json))
}

/// The report for `doctor`; `None` if neither client is used.
pub(crate) fn looked(settings: &Settings) -> Option<SetupReport> {
    let places = places(settings).ok()?;
    let used = used(&places);
    (!used.is_empty()).then(|| setup::check(&places, &used))
}

/// Remarks for people: what is missing or outdated, and what prevents it from working.
pub(crate) fn remarks(report: &SetupReport) -> Vec<String> {
    let items =
        report.items.iter().filter(|item| !matches!(item.state, FileState::Current | FileState::Changed));
    let items = items.map(|item| {
        format!(
            "{}: {} {}: {}; 'cafleet setup' installs it",
            item.client.name(),
            item.what,
            state_in_words(&item.state),
            shown(&item.file.display().to_string())
        )
    });
    items.chain(obstacles(report)).collect()
}

/// The remark of `session create` and other commands, only if something is outdated.
pub(crate) fn old(settings: &Settings) -> Option<String> {
    looked(settings)?.old_in_words()
}

fn obstacles(report: &SetupReport) -> impl Iterator<Item = String> + '_ {
    report.obstacles.iter().map(|it| {
        let effect = match it.effect {
            RuleEffect::Denies => "denies",
            RuleEffect::Asks => "asks",
        };
        format!(
            "{} {effect}: {}: {} ({})",
            it.client.name(),
            shown(&it.file.display().to_string()),
            shown(&it.rule),
            shown(&it.why)
        )
    })
}

fn text(report: &SetupReport) -> String {
    let mut lines: Vec<String> = report.items.iter().map(line).collect();
    lines.extend(obstacles(report));
    if report.is_good() {
        lines.push("Literal calls of cafleet pass unasked.".to_owned());
    }
    lines.join("\n")
}

fn line(item: &SetupItem) -> String {
    let word = match &item.done {
        Some(SetupDone::Installed) => "installed".to_owned(),
        Some(SetupDone::Updated) => "updated".to_owned(),
        Some(SetupDone::Replaced(copy)) => {
            format!("updated; your version is kept as {}", shown(&copy.display().to_string()))
        }
        Some(SetupDone::Left) => "left alone: you changed it".to_owned(),
        Some(SetupDone::Nothing | SetupDone::Failed(_)) | None => state_in_words(&item.state),
    };
    format!("{:6} {:14} {}: {word}", item.client.name(), item.what, shown(&item.file.display().to_string()))
}

fn state_in_words(state: &FileState) -> String {
    match state {
        FileState::Current => "current".to_owned(),
        FileState::Missing => "missing".to_owned(),
        FileState::Old => "old".to_owned(),
        FileState::Changed => "current, changed by you".to_owned(),
        FileState::ChangedOld => "old, changed by you".to_owned(),
        FileState::Unreadable(why) => format!("unreadable ({})", shown(why)),
    }
}

/// The clients whose directory exists.
fn used(places: &Places) -> Vec<SetupClient> {
    let dir = |client: &SetupClient| match client {
        SetupClient::Claude => &places.claude,
        SetupClient::Codex => &places.codex,
    };
    SetupClient::ALL.into_iter().filter(|client| dir(client).is_dir()).collect()
}

/// The clients whose directory or program exists.
fn present(settings: &Settings, places: &Places) -> Vec<SetupClient> {
    let used = used(places);
    let is_program = |client: &SetupClient| {
        std::env::split_paths(settings.path.as_deref().unwrap_or_default())
            .any(|dir| dir.is_absolute() && dir.join(client.name()).is_file())
    };
    SetupClient::ALL.into_iter().filter(|client| used.contains(client) || is_program(client)).collect()
}

fn places(settings: &Settings) -> Result<Places, Failure> {
    let homeless = || Failure::refused("settings", "HOME is not set; set CLAUDE_CONFIG_DIR and CODEX_HOME");
    let StoreUrl::Sqlite(database) = settings.database()?;
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    // The project is the enclosing git repository, else the directory itself.
    let project = here.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(&here).to_owned();
    Ok(Places {
        claude: settings.claude_dir.clone().ok_or_else(homeless)?,
        claude_state: settings.claude_state.clone().ok_or_else(homeless)?,
        codex: settings.codex_dir.clone().ok_or_else(homeless)?,
        etc: Path::new("/etc").to_owned(),
        project,
        database: database.path().to_owned(),
    })
}
