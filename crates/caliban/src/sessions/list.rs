//! `caliban sessions list`

use std::io::Write;

use caliban_agent::conversation::Conversation;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    place::{Found, Sessions},
    report::Failure,
};

/// One row; text and JSON come from it alike.
#[derive(Debug, Serialize)]
struct Row {
    id: String,
    changed: Timestamp,
    state: &'static str,
    model: String,
    turns: u32,
    tokens: u64,
    title: String,
    repo: Option<std::path::PathBuf>,
}

pub(super) fn list(repos: &[Sessions], all: bool, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut rows: Vec<Row> = Vec::new();
    for sessions in repos {
        let repo = sessions.repo();
        rows.extend(sessions.list().iter().map(|found| row(found, repo.clone())));
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.changed));
    if json {
        return crate::fleet::json_line(&rows, out);
    }
    if rows.is_empty() {
        writeln!(out, "No sessions yet.")?;
        return Ok(());
    }
    writeln!(out, "{:<8}  {:<16}  {:<15}  {:>5}  {:>9}  TITLE", "ID", "CHANGED", "STATE", "TURNS", "TOKENS")?;
    for row in rows {
        let changed =
            row.changed.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string();
        let repo = match (&row.repo, all) {
            (Some(repo), true) => format!("  [{}]", repo.display()),
            _ => String::new(),
        };
        writeln!(
            out,
            "{:<8}  {changed:<16}  {:<15}  {:>5}  {:>9}  {}{}",
            row.id,
            row.state,
            row.turns,
            row.tokens,
            row.title,
            caliban_core::inert::line(&repo)
        )?;
    }
    Ok(())
}

fn row(found: &Found, repo: Option<std::path::PathBuf>) -> Row {
    let changed = Timestamp::try_from(found.changed).unwrap_or_default();
    let records = match caliban_agent::transcript::read(&found.directory) {
        Ok(records) => records,
        Err(error) => {
            let title = format!("unreadable: {error}");
            return Row {
                id: found.id.to_string(),
                changed,
                state: "unreadable",
                model: String::new(),
                turns: 0,
                tokens: 0,
                title,
                repo,
            };
        }
    };
    let conversation = Conversation::replay(records.iter().map(|record| &record.event));
    Row {
        id: found.id.to_string(),
        changed,
        state: super::ending(&records),
        model: conversation.header().map(|header| header.model.clone()).unwrap_or_default(),
        turns: conversation.replies(),
        tokens: super::usage(found, &conversation).total(),
        title: super::title(&records),
        repo,
    }
}
