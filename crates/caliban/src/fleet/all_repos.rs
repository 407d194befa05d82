//! `caliban agents list --all-repos` and `caliban approvals --all-repos`: the fleets of all repos, as far as they can be told without waking any.
//!
//! A daemon that runs is asked. Where none does, its registry is read (`offline.rs`). Starts nothing and changes nothing of
//! them; a fleet that cannot be read is named and hides no other.

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
};

use anstyle::Style;
use caliban_contract::Places;
use caliban_core::inert;
use caliban_fleet::{
    all_repos::{self, FleetSource, RepoFleet},
    protocol::AgentRow,
};
use serde::Serialize;

use super::{
    Fleet,
    approval_numbers::{self, Numbered, Showing},
    approvals, json_line,
    list::{self, NEEDS_YOU},
    place_sources,
    row::{self, ShownAgent},
    say,
};
use crate::report::{Code, Result};

/// How the path of a repo looks.
const REPO: Style = Style::new().bold();

/// An agent with where it is; text and JSON come from it alike.
#[derive(Serialize)]
struct There<'a> {
    repo: &'a Path,
    /// Whether a daemon says so. Else it is what was last recorded.
    daemon: bool,
    #[serde(flatten)]
    agent: ShownAgent<'a>,
}

pub(super) async fn list(fleet: &Fleet<'_>, json: bool, out: &mut dyn Write) -> Result<Code> {
    let fleets = find(fleet, None, &mut say).await?;
    let now = caliban_contract::wall_ms();
    if json {
        let mut all = Vec::new();
        for RepoFleet { repo, told_by, rows, .. } in &fleets {
            let daemon = *told_by == FleetSource::Daemon;
            all.extend(rows.iter().map(|row| There { repo, daemon, agent: ShownAgent::new(row, now) }));
        }
        return json_line(&all, out).map(|()| Code::Done);
    }
    for line in lines(&fleets, now, list::width()) {
        writeln!(out, "{line}")?;
    }
    Ok(Code::Done)
}

/// A question with where it is asked.
#[derive(Serialize)]
struct AskedThere<'a> {
    repo: &'a Path,
    #[serde(flatten)]
    asked: &'a Numbered,
}

/// What the agents of all repos ask. The numbers are those of each repo.
pub(super) async fn approvals(fleet: &Fleet<'_>, json: bool, out: &mut dyn Write) -> Result<Code> {
    let asked = open_in(find(fleet, None, &mut say).await?);
    if json {
        let all: Vec<AskedThere<'_>> = asked
            .iter()
            .flat_map(|(repo, open)| open.iter().map(move |asked| AskedThere { repo, asked }))
            .collect();
        return json_line(&all, out).map(|()| Code::Done);
    }
    if asked.is_empty() {
        writeln!(out, "Nobody asks anything.")?;
        return Ok(Code::Done);
    }
    for (repo, open) in &asked {
        writeln!(out, "{REPO}{}{REPO:#}", inert::line(&repo.to_string_lossy()))?;
        approvals::print(open, out)?;
    }
    say("answer with: caliban -C REPO approve N, caliban -C REPO deny N");
    Ok(Code::Done)
}

/// The same for who looks again and again: of this base or of all. What cannot be read is told once.
pub(super) async fn questions(
    fleet: &Fleet<'_>,
    only: Option<&Path>,
    told: &mut BTreeSet<String>,
) -> Result<Vec<(PathBuf, Vec<Numbered>)>> {
    let mut tell = |line: &str| {
        if told.insert(line.to_owned()) {
            say(line);
        }
    };
    Ok(open_in(find(fleet, only, &mut tell).await?))
}

fn open_in(fleets: Vec<RepoFleet>) -> Vec<(PathBuf, Vec<Numbered>)> {
    let numbered = |found: RepoFleet| {
        let open = approval_numbers::number(&found.base, &found.rows, Showing::All).open;
        (found.repo, open)
    };
    fleets.into_iter().map(numbered).filter(|(_, open)| !open.is_empty()).collect()
}

/// The list: each repo with its agents below it, and how many of all need a person.
fn lines(fleets: &[RepoFleet], now: u64, width: Option<usize>) -> Vec<String> {
    if fleets.is_empty() {
        return vec!["No agents in any repo. Start one: caliban --bg \"<task>\"".to_owned()];
    }
    let mut lines = Vec::new();
    for RepoFleet { repo, told_by, rows, .. } in fleets {
        let repo = inert::line(&repo.to_string_lossy()).into_owned();
        let left = if *told_by == FleetSource::Disk { " (no daemon: as it was left)" } else { "" };
        lines.push(format!("{REPO}{repo}{REPO:#}{left}"));
        lines.extend(list::agents(rows, now, width));
    }
    let waiting = fleets.iter().flat_map(|found| &found.rows).filter(|row| row::needs_you(row)).count();
    let who = match waiting {
        0 => return lines,
        1 => "1 agent needs you:".to_owned(),
        _ => format!("{waiting} agents need you:"),
    };
    lines.push(format!("{NEEDS_YOU}{who}{NEEDS_YOU:#} caliban -C REPO approvals, or attach ID there"));
    lines
}

/// The agents of all repos, with the places of those whose daemon runs. For the agent view.
pub(super) async fn rows(fleet: &Fleet<'_>) -> Vec<(PathBuf, Option<Places>, Vec<AgentRow>)> {
    let Ok(sources) = place_sources(fleet.environment) else { return Vec::new() };
    let with_places = |RepoFleet { repo, told_by, rows, .. }: RepoFleet| {
        let places = Places::of(repo.clone(), &sources).ok().filter(|_| told_by == FleetSource::Daemon);
        (repo, places, rows)
    };
    find(fleet, None, &mut say).await.unwrap_or_default().into_iter().map(with_places).collect()
}

/// Every fleet with agents, or that in this base only. What is to be said goes to `tell`.
async fn find(
    fleet: &Fleet<'_>,
    only: Option<&Path>,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<Vec<RepoFleet>> {
    let sources = place_sources(fleet.environment)?;
    Ok(all_repos::find(&sources, fleet.places(), only, tell).await?)
}
