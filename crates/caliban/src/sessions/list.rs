//! `caliban sessions list`

use std::io::Write;

use caliban_contract::{archive, records};
use caliban_core::inert;
use jiff::Timestamp;
use serde::Serialize;

use super::summary::{Summaries, Summary};
use crate::{
    report::Result,
    session_places::{FoundSession, Sessions, Shelf, label_of},
};

/// One row; text and JSON come from it alike.
#[derive(Debug, Serialize)]
struct SessionRow {
    id: String,
    changed: Timestamp,
    state: String,
    model: String,
    turns: u32,
    tokens: u64,
    title: String,
    repo: Option<std::path::PathBuf>,
    #[serde(flatten)]
    archived: Option<Archived>,
}

/// What more there is to say of an archived agent.
#[derive(Debug, Serialize)]
struct Archived {
    label: Option<String>,
    /// None when an older version has archived it.
    archived_at: Option<Timestamp>,
    why: Option<archive::ArchiveReason>,
    directory: std::path::PathBuf,
}

pub(super) fn list(
    repos: &[Sessions],
    shelf: Shelf,
    all: bool,
    json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let mut rows: Vec<SessionRow> = Vec::new();
    for sessions in repos {
        let repo = sessions.repo();
        let (present, mut summaries) = (sessions.on(shelf), Summaries::open(sessions, shelf));
        let of = |found: &FoundSession| SessionRow {
            archived: (shelf == Shelf::Archive).then(|| archived(found)),
            ..row(found, &mut summaries, repo.clone())
        };
        rows.extend(present.iter().map(of));
        summaries.keep(&present);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.changed));
    if json {
        return crate::fleet::json_line(&rows, out);
    }
    if rows.is_empty() {
        let none = if shelf == Shelf::Archive { "No archived agents." } else { "No sessions yet." };
        writeln!(out, "{none}")?;
        return Ok(());
    }
    writeln!(out, "{:<8}  {:<16}  {:<15}  {:>5}  {:>9}  TITLE", "ID", "CHANGED", "STATE", "TURNS", "TOKENS")?;
    for row in rows {
        let changed = row
            .changed
            .to_zoned(caliban_contract::local_time::time_zone())
            .strftime("%Y-%m-%d %H:%M")
            .to_string();
        let repo = match (&row.repo, all) {
            (Some(repo), true) => format!("  [{}]", repo.display()),
            _ => String::new(),
        };
        let label = row.archived.and_then(|archived| archived.label);
        let label = label.map(|label| format!("{}: ", inert::line(&label))).unwrap_or_default();
        writeln!(
            out,
            "{:<8}  {changed:<16}  {:<15}  {:>5}  {:>9}  {label}{}{}",
            row.id,
            row.state,
            row.turns,
            row.tokens,
            row.title,
            inert::line(&repo)
        )?;
    }
    Ok(())
}

fn row(found: &FoundSession, summaries: &mut Summaries, repo: Option<std::path::PathBuf>) -> SessionRow {
    let changed = Timestamp::try_from(found.changed).unwrap_or_default();
    let of = |summary: Summary| SessionRow {
        id: found.id.to_string(),
        changed,
        state: summary.state,
        model: summary.model,
        turns: summary.turns,
        tokens: summary.tokens,
        title: summary.title,
        repo,
        archived: None,
    };
    match summaries.get(found) {
        Ok(summary) => of(summary),
        Err(error) => of(Summary {
            state: "unreadable".to_owned(),
            title: format!("unreadable: {error}"),
            ..Summary::default()
        }),
    }
}

fn archived(found: &FoundSession) -> Archived {
    let record: Option<archive::Archived> = records::read(&found.directory, archive::RECORD);
    let at = record.as_ref().and_then(|record| i64::try_from(record.at).ok());
    Archived {
        label: label_of(&found.directory),
        archived_at: at.and_then(|at| Timestamp::from_millisecond(at).ok()),
        why: record.map(|record| record.why),
        directory: found.directory.clone(),
    }
}
