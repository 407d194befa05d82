//! `caliban agents rm`

use std::io::Write;

use caliban_core::{inert, lifecycle::State, names::Slug, review::ReviewState};
use caliban_fleet::{
    Client, ClientError,
    protocol::{AgentRow, Removed, RmRequest},
};
use caliban_worktrees::{ChangeKind, GitOptions, PathChange, Repo};
use futures_util::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::{Fleet, connections::Connections, json_line, say};
use crate::{
    cli::fleet::RmArgs,
    report::{self, Code, Failure, Result},
    settings::Layer,
};

/// Removals at once. The daemon looks after two at a time; the others have asked already when it is their turn.
const AT_ONCE: usize = 4;

pub(super) async fn rm(fleet: &Fleet<'_>, args: &RmArgs, out: &mut dyn Write) -> Result<Code> {
    let mut client = fleet.client().await?;
    // The settings of this moment, which a daemon of yesterday does not know.
    let settings = crate::settings::load(fleet.environment, &fleet.cwd, Layer::default());
    let keep = args.keep || settings.is_ok_and(|loaded| loaded.settings.worktrees.keep);
    let request = RmRequest { force: args.force, keep, purge: args.purge };
    let mut gone: Vec<Removed> = Vec::new();
    let mut failed = None;
    let ids = if args.done { finished(fleet, &mut client).await? } else { args.ids.clone() };
    // Several at once, told in the order in which they were named: most of the time is git's.
    let connections = Connections::new(&client, AT_ONCE.min(ids.len()));
    let mut removals = stream::iter(&ids).map(|id| remove(&connections, id, request)).buffered(AT_ONCE);
    while let Some(removal) = removals.next().await {
        match removal {
            Ok(removed) => {
                if !args.json {
                    writeln!(out, "{} removed", removed.id)?;
                    for line in &removed.work {
                        writeln!(out, "  {}", inert::line(line))?;
                    }
                    if removed.archived.is_some() {
                        writeln!(out, "  its transcript is kept: caliban sessions show {}", removed.id)?;
                    }
                }
                gone.push(removed);
            }
            Err(error) => Failure::from(error).keep_in(&mut failed),
        }
    }
    if args.json {
        json_line(&gone, out)?;
    }
    failed.map_or(Ok(Code::Done), Err)
}

/// Removes one agent, over a connection that no other removal uses.
async fn remove(connections: &Connections, id: &str, request: RmRequest) -> Result<Removed, ClientError> {
    let mut client = connections.take()?;
    // The mailbox is looked up while the agent is there, and closed when it is gone.
    let leaving = client.show(id).await.ok().map(|row| caliban_fleet::mailbox::leave_for_good(&row.dir));
    let removed = client.rm(id, request).await;
    connections.give_back(client);
    if let (Ok(removed), Some(leaving)) = (&removed, leaving)
        && let Err(problem) = leaving.await
    {
        report::note(&format!("{} is still registered with the broker: {problem}", removed.id));
    }
    removed
}

/// Those that have ended done and have nothing that is not on a branch of the user's; of the others it is said why they
/// stay.
async fn finished(fleet: &Fleet<'_>, client: &mut Client) -> Result<Vec<String>> {
    let rows = client.list().await?;
    let done: Vec<&AgentRow> = rows.iter().filter(|row| row.state == State::Done).collect();
    let cancel = CancellationToken::new();
    let repo = match done.iter().any(|row| row.worktree.is_some()) {
        true => Some(
            Repo::open(fleet.places().repo(), GitOptions::accepting(fleet.places().base()), &cancel).await,
        ),
        false => None,
    };
    let repo = repo.transpose()?;
    let repo = repo.as_ref();
    let mut ids = Vec::new();
    let mut looked =
        stream::iter(done).map(|row| async move { (row, unlanded(repo, row).await) }).buffered(AT_ONCE);
    while let Some((row, found)) = looked.next().await {
        match found {
            Ok(None) => ids.push(row.id.to_string()),
            Ok(Some(why)) => say(&format!("{} stays: {why}", row.id)),
            Err(failure) => say(&format!("{} stays: {}", row.id, failure.message)),
        }
    }
    if ids.is_empty() {
        say("nothing is removed: `caliban rm` without --done takes one by its name");
    }
    Ok(ids)
}

/// What of an agent's work is nowhere else, in words.
async fn unlanded(repo: Option<&Repo>, row: &AgentRow) -> Result<Option<String>> {
    let (Some(repo), Some(_)) = (repo, &row.worktree) else { return Ok(None) };
    let cancel = CancellationToken::new();
    let name = Slug::from(row.id);
    let changes = repo.changes(&name, &cancel).await?;
    // Ignored files are saved with the worktree's removal, and nobody will ever land them.
    let is_work = |change: &PathChange| change.kind != ChangeKind::Ignored;
    if !changes.uncommitted.is_empty() || changes.left.iter().any(is_work) {
        return Ok(Some("it has work that is not committed".to_owned()));
    }
    if changes.commit_count == 0 || repo.review(&changes, &cancel).await?.state == ReviewState::Merged {
        return Ok(None);
    }
    Ok(Some(format!("its commits are on no branch of yours; caliban agents merge {}", row.id)))
}
