//! `caliban agents requeue`: another priority or another time for an agent that has not begun.

use std::io::Write;

use caliban_fleet::protocol::RequeueRequest;

use super::{
    Fleet, json_line,
    row::{self, ShownAgent},
};
use crate::{
    cli::fleet::RequeueArgs,
    report::{Code, Result},
};

pub(super) async fn requeue(fleet: &Fleet<'_>, args: &RequeueArgs, out: &mut dyn Write) -> Result<Code> {
    let at = args.at.map(|at| at.at_ms);
    let request = RequeueRequest {
        priority: args.priority,
        start_at_ms: at.or(args.now.then_some(0)),
        start_in_ms: args.at.and_then(|at| at.in_ms),
    };
    let mut client = fleet.client().await?;
    let row = client.requeue(&args.agent.id, request).await?;
    let now = caliban_contract::wall_ms();
    if args.json {
        json_line(&ShownAgent::new(&row, now), out)?;
    } else {
        writeln!(out, "{}: {}", row::name(&row), row::doing(&row, now))?;
    }
    Ok(Code::Done)
}
