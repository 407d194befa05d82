//! `caliban agents wait`: until agents have ended; the exit code tells how.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
};

use caliban_core::{
    ids::AgentId,
    lifecycle::{Ending, State},
};
use caliban_fleet::{
    Client,
    feed::{DaemonEnd, FleetFeed, FleetNews},
    protocol::{AgentRow, ErrorCode},
};
use serde::Serialize;

use super::{Fleet, json_line, row, say, watch::Daemons};
use crate::{
    cli::fleet::WaitArgs,
    report::{Code, Failure, Result},
};

/// What came of one; text and JSON come from it alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct WaitOutcome {
    id: AgentId,
    label: Option<String>,
    /// None when it was removed while we waited.
    state: Option<State>,
    ending: Option<Ending>,
    /// The same in words.
    how: String,
}

pub(super) async fn wait(fleet: &Fleet<'_>, args: &WaitArgs, out: &mut dyn Write) -> Result<Code> {
    let mut client = fleet.client().await?;
    let mut rows = Vec::new();
    for id in &args.agents.ids {
        rows.push(client.show(id).await?);
    }
    drop(client);
    let waiting = rows.iter().map(|row| row.id).collect();
    let mut seen =
        WaitState { waiting, ended: BTreeMap::new(), told: BTreeSet::new(), labels: BTreeMap::new() };
    // Before the time runs: who has ended has ended, however little time is given.
    rows.iter().for_each(|row| seen.look(row));
    let all = async {
        if seen.is_over(args.any) {
            return Ok::<(), Failure>(());
        }
        let (mut client, mut daemons) = (fleet.client().await?, Daemons::new(fleet));
        loop {
            let left = follow(client, &mut daemons, &mut seen, args.any).await?;
            if seen.is_over(args.any) {
                return Ok(());
            }
            client = daemons.next(left).await?.ok_or_else(|| {
                Failure::new("the daemon was stopped while we waited; agents that run go on")
                    .hint("wait again: that starts the next daemon")
            })?;
        }
    };
    let in_time = match args.timeout {
        Some(limit) => match tokio::time::timeout(limit, all).await {
            Ok(ended) => ended.map(|()| true)?,
            Err(_) => false,
        },
        None => all.await.map(|()| true)?,
    };
    // In the order in which they were asked for.
    let outcomes: Vec<WaitOutcome> = rows.iter().filter_map(|row| seen.ended.remove(&row.id)).collect();
    if args.json {
        json_line(&outcomes, out)?;
    } else {
        for outcome in &outcomes {
            let state = outcome.state.map_or_else(|| "removed".to_owned(), |state| state.to_string());
            writeln!(out, "{}  {state}  {}", outcome.id, outcome.how)?;
        }
    }
    if !in_time {
        let names: Vec<String> = seen.waiting.iter().map(ToString::to_string).collect();
        say(&format!("the time is up; still at work: {}", names.join(", ")));
        return Ok(Code::Timeout);
    }
    Ok(code(&outcomes))
}

/// Watches until it is over, or until the daemon leaves.
async fn follow(
    mut client: Client,
    daemons: &mut Daemons<'_>,
    seen: &mut WaitState,
    any: bool,
) -> Result<DaemonEnd> {
    let mut feed = FleetFeed::of(client.events().await?);
    loop {
        match feed.next().await {
            Ok(FleetNews::All(rows)) => {
                daemons.is_well();
                for row in &rows {
                    seen.look(row);
                    if seen.is_over(any) {
                        return Ok(DaemonEnd::Gone);
                    }
                }
                for id in seen.waiting.clone() {
                    if !rows.iter().any(|row| row.id == id) {
                        seen.gone(&mut client, id).await?;
                    }
                }
            }
            Ok(FleetNews::Changed(row)) => seen.look(&row),
            Ok(FleetNews::Removed(id)) => seen.removed(id),
            Err(left) => return Ok(left),
        }
        if seen.is_over(any) {
            return Ok(DaemonEnd::Gone);
        }
    }
}

struct WaitState {
    waiting: BTreeSet<AgentId>,
    ended: BTreeMap<AgentId, WaitOutcome>,
    /// Those whose person was told that they are needed.
    told: BTreeSet<AgentId>,
    labels: BTreeMap<AgentId, Option<String>>,
}

impl WaitState {
    fn is_over(&self, any: bool) -> bool {
        self.waiting.is_empty() || (any && !self.ended.is_empty())
    }

    fn look(&mut self, row: &AgentRow) {
        if !self.waiting.contains(&row.id) {
            return;
        }
        self.labels.insert(row.id, row.label.clone());
        // An idle agent has ended its turn; it will not end by itself.
        if row::has_ended(row.state) || row.state == State::Idle {
            self.waiting.remove(&row.id);
            self.ended.insert(
                row.id,
                WaitOutcome {
                    id: row.id,
                    label: row.label.clone(),
                    state: Some(row.state),
                    ending: row.ending.clone(),
                    how: row::doing(row, caliban_contract::wall_ms()),
                },
            );
        } else if row::needs_you(row) {
            if self.told.insert(row.id) {
                say(&format!(
                    "{} needs you: {}",
                    row::name(row),
                    row::doing(row, caliban_contract::wall_ms())
                ));
            }
        } else {
            self.told.remove(&row.id);
        }
    }

    fn removed(&mut self, id: AgentId) {
        if self.waiting.remove(&id) {
            let label = self.labels.remove(&id).flatten();
            let how = "removed while we waited".to_owned();
            self.ended.insert(id, WaitOutcome { id, label, state: None, ending: None, how });
        }
    }

    /// One that the daemon did not name: asked for once more before it is called removed.
    async fn gone(&mut self, client: &mut Client, id: AgentId) -> Result<()> {
        use caliban_fleet::ClientError;
        match client.show(&id.to_string()).await {
            Ok(row) => self.look(&row),
            Err(ClientError::Refused(error)) if error.code == ErrorCode::NotFound => self.removed(id),
            Err(error) => return Err(Failure::from(error)),
        }
        Ok(())
    }
}

/// The worst of them.
fn code(outcomes: &[WaitOutcome]) -> Code {
    let is_limit = |outcome: &WaitOutcome| {
        matches!(
            outcome.ending,
            Some(Ending::TurnLimit { .. } | Ending::BudgetExceeded { .. } | Ending::TimedOut { .. })
        )
    };
    let is_well = |outcome: &WaitOutcome| matches!(outcome.state, Some(State::Done | State::Idle));
    if outcomes.iter().any(|outcome| !is_well(outcome) && !is_limit(outcome)) {
        Code::Failed
    } else if outcomes.iter().any(|outcome| !is_well(outcome)) {
        Code::Limit
    } else {
        Code::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_outcome_is_the_exit_code() {
        let of = |state, ending| WaitOutcome {
            id: "a3f8b2c1".parse().unwrap(),
            label: None,
            state,
            ending,
            how: String::new(),
        };
        let done = of(Some(State::Done), Some(Ending::Finished));
        let idle = of(Some(State::Idle), None);
        let limit = of(Some(State::Failed), Some(Ending::TurnLimit { limit: 3 }));
        let budget = of(Some(State::Failed), Some(Ending::BudgetExceeded { reason: "x".into() }));
        let failed = of(Some(State::Failed), Some(Ending::Error { text: "x".into() }));
        let killed = of(Some(State::Killed), Some(Ending::Stopped));
        let removed = of(None, None);
        let cases = [
            (vec![done.clone(), idle], Code::Done),
            (vec![done.clone(), limit.clone()], Code::Limit),
            (vec![budget], Code::Limit),
            (vec![limit, failed], Code::Failed),
            (vec![done, killed], Code::Failed),
            (vec![removed], Code::Failed),
        ];
        for (outcomes, expected) in cases {
            assert_eq!(code(&outcomes), expected, "{outcomes:?}");
        }
    }
}
