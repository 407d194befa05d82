//! How the agents stand, live: of this repo from whichever daemon serves it, of other repos from the daemons that run.
//!
//! No daemon of another repo is started for this. Where none runs, the registry is read every few seconds.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use caliban_core::status_word::StatusGroup;
use caliban_fleet::{
    Client,
    feed::{DaemonEnd, FleetFeed, FleetNews},
    protocol::AgentRow,
};
use caliban_tui::fleet::{AgentKey, FleetEvent, FleetRow, FleetScope};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::mpsc;

use super::FleetBoard;
use crate::{
    fleet::{
        Fleet, all_repos,
        row::{self, cost},
        watch::Daemons,
    },
    report::Failure,
};

/// How often the rows are sent to the screen at most.
const EVERY: Duration = Duration::from_millis(250);
/// How often times ("waiting 3m") are counted on.
const TIMES_EVERY: Duration = Duration::from_secs(10);
/// How often other repos are looked for, and registries without a daemon are read.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Tells the screen how the agents stand; returns why that is over.
pub(super) async fn follow(
    fleet: &Fleet<'_>,
    board: &FleetBoard,
    news: &mpsc::UnboundedSender<FleetEvent>,
) -> Failure {
    tokio::select! {
        lost = own(fleet, board) => lost,
        () = others(fleet, board) => Failure::new("other repos cannot be followed"),
        () = publish(fleet, board, news) => Failure::new("the screen is gone"),
    }
}

/// Sends the rows when they have changed.
async fn publish(fleet: &Fleet<'_>, board: &FleetBoard, news: &mpsc::UnboundedSender<FleetEvent>) {
    let mut times = tokio::time::interval(TIMES_EVERY);
    loop {
        tokio::select! {
            () = board.changed.notified() => {}
            () = board.rescoped.notified() => {}
            _ = times.tick() => {}
        }
        let now = caliban_contract::wall_ms();
        let own = fleet.places().repo().to_owned();
        let scope = *board.scope.borrow();
        let rows = {
            let rows = board.rows.borrow();
            // Before the daemon has answered nothing is known.
            if !rows.contains_key(&own) {
                continue;
            }
            let shown = |repo: &&PathBuf| scope == FleetScope::All || **repo == own;
            rows.iter()
                .filter(|(repo, _)| shown(repo))
                .flat_map(|(repo, rows)| rows.iter().map(|row| shown_row(repo, row, now)))
                .collect()
        };
        if news.send(FleetEvent::Rows(rows)).is_err() {
            return;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Follows the daemon of this repo; one that dies is started again.
async fn own(fleet: &Fleet<'_>, board: &FleetBoard) -> Failure {
    let repo = fleet.places().repo().to_owned();
    let mut daemons = Daemons::new(fleet);
    let mut client = match fleet.client().await {
        Ok(client) => client,
        Err(failure) => return failure,
    };
    loop {
        let left = match FleetFeed::open(&client).await {
            Ok(feed) => listen(feed, &repo, board, || daemons.is_well()).await,
            Err(left) => left,
        };
        client = match daemons.next(left).await {
            Ok(Some(client)) => client,
            Ok(None) => return Failure::new("the daemon was stopped; agents go on"),
            Err(failure) => return failure,
        };
    }
}

/// Follows the daemons of all other repos while those are shown.
async fn others(fleet: &Fleet<'_>, board: &FleetBoard) {
    let own = fleet.places().repo().to_owned();
    loop {
        while *board.scope.borrow() == FleetScope::Repo {
            tokio::time::sleep(EVERY).await;
        }
        let mut followed: BTreeMap<PathBuf, ()> = BTreeMap::new();
        let mut listening = FuturesUnordered::new();
        let mut look = tokio::time::interval(LOOK_EVERY);
        while *board.scope.borrow() == FleetScope::All {
            tokio::select! {
                Some(gone) = listening.next(), if !listening.is_empty() => {
                    let _known = followed.remove::<PathBuf>(&gone);
                }
                _ = look.tick() => {
                    let found = all_repos::rows(fleet).await;
                    for (repo, places, rows) in found.into_iter().filter(|(repo, ..)| *repo != own) {
                        if followed.contains_key(&repo) {
                            continue;
                        }
                        board.rows.borrow_mut().insert(repo.clone(), rows);
                        board.changed.notify_one();
                        if let Some(places) = places
                            && let Ok(client) = Client::connect(&places).await
                            && let Ok(feed) = FleetFeed::open(&client).await
                        {
                            followed.insert(repo.clone(), ());
                            listening.push(async move {
                                listen(feed, &repo, board, || {}).await;
                                repo
                            });
                        }
                    }
                }
            }
        }
        board.rows.borrow_mut().retain(|repo, _| *repo == own);
        board.changed.notify_one();
    }
}

/// Takes what a daemon says until it leaves.
async fn listen(
    mut feed: FleetFeed,
    repo: &Path,
    board: &FleetBoard,
    mut is_well: impl FnMut(),
) -> DaemonEnd {
    loop {
        match feed.next().await {
            Ok(FleetNews::All(rows)) => {
                is_well();
                board.rows.borrow_mut().insert(repo.to_owned(), rows);
            }
            Ok(FleetNews::Changed(row)) => {
                put(board.rows.borrow_mut().entry(repo.to_owned()).or_default(), *row)
            }
            Ok(FleetNews::Removed(id)) => {
                if let Some(rows) = board.rows.borrow_mut().get_mut(repo) {
                    rows.retain(|row| row.id != id);
                }
            }
            Err(left) => return left,
        }
        board.changed.notify_one();
    }
}

fn put(rows: &mut Vec<AgentRow>, row: AgentRow) {
    match rows.iter_mut().find(|known| known.id == row.id) {
        Some(known) => *known = row,
        None => rows.push(row),
    }
}

/// Characters of a task that stand for the label of an agent without one.
const TITLE_CHARS: usize = 40;

/// A row of the screen.
fn shown_row(repo: &Path, row: &AgentRow, now_ms: u64) -> FleetRow {
    let status = row::status(row);
    let doing = match (status.group(), &row.last_text) {
        (StatusGroup::Finished, Some(text)) => {
            format!("{}: {}", row::with_review(row, row::ended(row)), caliban_fleet::plain(text))
        }
        _ => row::with_review(row, row::doing_within(row, now_ms)),
    };
    let since = row.asks.first().map_or(row.updated_at, |ask| ask.opened_at);
    let waiting = Duration::from_millis(now_ms.saturating_sub(since));
    let spent = match row.micro_usd {
        Some(_) => format!("{} {}", row::turns(row.turns), cost(row)),
        None => row::turns(row.turns),
    };
    FleetRow {
        key: AgentKey { repo: repo.to_owned(), id: row.id.to_string() },
        label: row::title(row).map(|title| title.chars().take(TITLE_CHARS).collect()),
        status,
        state: row.state.to_string(),
        doing,
        waiting: (status.group() == StatusGroup::NeedsYou).then(|| row::time(waiting)),
        spent,
        asks: row.asks.iter().map(|ask| ask.id.clone()).collect(),
        revision: row.updated_at,
    }
}
