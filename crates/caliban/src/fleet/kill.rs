//! `caliban agents kill`, `caliban stop`, `caliban kill`: returns when the whole process tree is gone.

use std::io::Write;

use caliban_core::lifecycle::State;
use caliban_fleet::{
    Client, ClientError,
    protocol::{AgentRow, GRACE_CAP_MS, KillRequest},
};
use futures_util::{StreamExt as _, stream};

use super::{
    Fleet,
    connections::Connections,
    json_line,
    row::{self, ShownAgent},
};
use crate::{
    cli::fleet::KillArgs,
    report::{Code, Failure, Result},
};

/// Kills at once: most of the time of each is the wait for the end of its processes.
const AT_ONCE: usize = 16;

pub(super) async fn kill(fleet: &Fleet<'_>, args: &KillArgs, out: &mut dyn Write) -> Result<Code> {
    let grace_ms = args.grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
    if grace_ms.is_some_and(|grace| grace > GRACE_CAP_MS) {
        return Err(Failure::usage(format!("--grace is at most {} seconds", GRACE_CAP_MS / 1000)));
    }
    let mut client = fleet.client().await?;
    let mut rows: Vec<AgentRow> = Vec::new();
    let mut failed = None;
    let ids = match args.all {
        true => not_ended(&mut client).await?,
        false => args.ids.clone(),
    };
    if ids.is_empty() && !args.json {
        writeln!(out, "no agent of this repo is running")?;
    }
    // Told in the order in which they were named.
    let connections = Connections::new(&client, AT_ONCE.min(ids.len()));
    let mut ends = stream::iter(&ids).map(|id| end(&connections, id, grace_ms)).buffered(AT_ONCE);
    while let Some(ended) = ends.next().await {
        match ended {
            Ok((row, was)) => {
                if !args.json {
                    say_ended(&row, was, out)?;
                }
                rows.push(row);
            }
            // The others are ended all the same.
            Err(error) => Failure::from(error).keep_in(&mut failed),
        }
    }
    if args.json {
        let now = caliban_contract::wall_ms();
        json_line(&rows.iter().map(|row| ShownAgent::new(row, now)).collect::<Vec<_>>(), out)?;
    }
    failed.map_or(Ok(Code::Done), Err)
}

/// All agents of the repo that have not ended.
async fn not_ended(client: &mut Client) -> Result<Vec<String>> {
    let rows = client.list().await?;
    Ok(rows.iter().filter(|row| !row::has_ended(row.state)).map(|row| row.id.to_string()).collect())
}

/// The agent at its end, and the state that we found it in.
async fn end(
    connections: &Connections,
    id: &str,
    grace_ms: Option<u64>,
) -> Result<(AgentRow, State), ClientError> {
    let mut client = connections.take()?;
    let ended = async {
        let before = client.show(id).await?;
        let after = client.kill(&before.id.to_string(), &KillRequest { grace_ms }).await?;
        Ok((after, before.state))
    }
    .await;
    connections.give_back(client);
    ended
}

fn say_ended(row: &AgentRow, was: State, out: &mut dyn Write) -> std::io::Result<()> {
    if row.state == State::Killed && !row::has_ended(was) {
        return writeln!(out, "{} killed", row::name(row));
    }
    writeln!(out, "{} had ended already: {} ({})", row::name(row), row.state, row::ended(row))
}
