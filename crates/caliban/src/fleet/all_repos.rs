//! `caliban agents list --all-repos` and `caliban approvals --all-repos`: the fleets of all repos, as far as they can be told without waking any.
//!
//! A daemon that runs is asked. Where none does, its registry is read (`offline.rs`). Starts nothing and changes nothing of
//! them; a fleet that cannot be read is named and hides no other.

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anstyle::Style;
use caliban_contract::{PlaceSources, Places};
use caliban_core::inert;
use caliban_fleet::offline;
use caliban_fleet::{Client, ClientError, protocol::AgentRow};
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
use crate::report::{Code, Failure, Result};

/// How long a daemon may take to answer before its registry is read instead.
const PATIENCE: Duration = Duration::from_secs(3);
/// How the path of a repo looks.
const REPO: Style = Style::new().bold();

struct RepoFleet {
    repo: PathBuf,
    base: PathBuf,
    told_by: ToldBy,
    rows: Vec<AgentRow>,
}

/// Who says how its agents stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToldBy {
    /// Its daemon, now.
    Daemon,
    /// What it left on the disk.
    Disk,
}

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
            let daemon = *told_by == ToldBy::Daemon;
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
        let left = if *told_by == ToldBy::Disk { " (no daemon: as it was left)" } else { "" };
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
        let places = Places::of(repo.clone(), &sources).ok().filter(|_| told_by == ToldBy::Daemon);
        (repo, places, rows)
    };
    find(fleet, None, &mut say).await.unwrap_or_default().into_iter().map(with_places).collect()
}

/// Every fleet with agents, or that in this base only, by the paths of the repos. What is to be said goes to `tell`.
async fn find(
    fleet: &Fleet<'_>,
    only: Option<&Path>,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<Vec<RepoFleet>> {
    let sources = place_sources(fleet.environment)?;
    let parent = sources.data.join("repos");
    let mut found = Vec::new();
    let unread = |error| Failure::new(format!("cannot read {}: {error}", parent.display()));
    for base in offline::bases(&parent).map_err(unread)? {
        if only.is_some_and(|only| only != base) {
            continue;
        }
        let Some(repo) = offline::repo_of(&base) else {
            tell(&format!("left out: {} does not say which repo it is about", base.display()));
            continue;
        };
        match one(fleet, &sources, &base, &repo, tell).await {
            Ok((_, rows)) if rows.is_empty() => {}
            Ok((told_by, rows)) => found.push(RepoFleet { repo, base, told_by, rows }),
            Err(why) => {
                tell(&format!("left out: the agents of {} ({}): {why}", repo.display(), base.display()))
            }
        }
    }
    found.sort_by(|one, other| one.repo.cmp(&other.repo));
    Ok(found)
}

/// The agents of one fleet.
async fn one(
    fleet: &Fleet<'_>,
    sources: &PlaceSources,
    base: &Path,
    repo: &Path,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<(ToldBy, Vec<AgentRow>), String> {
    let places = Places::of(repo.to_owned(), sources).map_err(|error| error.to_string())?;
    // A directory that is not where this repo's is (a copy, say) has no daemon of its own.
    if places.base() == base {
        match tokio::time::timeout(PATIENCE, ask(&places)).await {
            Ok(Ok(rows)) => return Ok((ToldBy::Daemon, rows)),
            Ok(Err(ClientError::NotRunning(_))) => {}
            Ok(Err(error)) => tell(&format!("the daemon of {} was not asked: {error}", repo.display())),
            Err(_) => tell(&format!("the daemon of {} does not answer", repo.display())),
        }
    }
    let rows = offline::read(base, &places, fleet.places()).await?;
    Ok((ToldBy::Disk, rows))
}

async fn ask(places: &Places) -> Result<Vec<AgentRow>, ClientError> {
    Client::connect(places).await?.list().await
}
