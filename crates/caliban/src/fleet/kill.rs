//! `caliban agents kill`, `caliban stop`, `caliban kill`: returns when the whole process tree is gone.

use std::io::Write;

use caliban_core::lifecycle::State;
use caliban_supervisor::protocol::{AgentRow, GRACE_CAP_MS, KillRequest};

use super::{Fleet, json_line, row, worded};
use crate::{
    cli::fleet::KillArgs,
    report::{Code, Failure},
};

pub(super) async fn kill(fleet: &Fleet<'_>, args: &KillArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let grace_ms = args.grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
    if grace_ms.is_some_and(|grace| grace > GRACE_CAP_MS) {
        return Err(Failure::usage(format!("--grace is at most {} seconds", GRACE_CAP_MS / 1000)));
    }
    let mut client = fleet.client().await?;
    let mut rows: Vec<AgentRow> = Vec::new();
    let mut failed = None;
    for id in &args.agents.ids {
        match client.kill(id, &KillRequest { grace_ms }).await {
            Ok(row) => {
                if !args.json {
                    say_ended(&row, out)?;
                }
                rows.push(row);
            }
            // The others are ended all the same.
            Err(error) => {
                let failure = worded(error);
                if let Some(earlier) = failed.replace(failure) {
                    earlier.show();
                }
            }
        }
    }
    if args.json {
        json_line(&rows, out)?;
    }
    failed.map_or(Ok(Code::Done), Err)
}

fn say_ended(row: &AgentRow, out: &mut dyn Write) -> std::io::Result<()> {
    match row.state {
        State::Killed => writeln!(out, "{} killed", row::name(row)),
        state => writeln!(out, "{} had ended already: {state} ({})", row::name(row), row::ended(row)),
    }
}
