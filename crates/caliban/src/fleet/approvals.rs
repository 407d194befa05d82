//! `caliban approvals`: what agents ask, with the numbers that `approve` and `deny` take.

use std::{io::Write, time::Duration};

use caliban_core::inert;

use super::{
    Fleet, json_line,
    numbers::{self, Numbered},
    row, worded,
};
use crate::{
    cli::fleet::ApprovalsArgs,
    report::{Code, Failure},
};

pub(super) async fn approvals(
    fleet: &Fleet<'_>,
    args: &ApprovalsArgs,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    let open = open(fleet).await?;
    if args.json {
        json_line(&open, out)?;
        return Ok(Code::Done);
    }
    if open.is_empty() {
        writeln!(out, "Nobody asks anything.")?;
        return Ok(Code::Done);
    }
    let now = row::now_ms();
    for asked in &open {
        let age = Duration::from_millis(now.saturating_sub(asked.ask.opened_at));
        writeln!(out, "{}  {}  {} ago", asked.number, who(asked), row::time(age))?;
        writeln!(out, "   {}", what(asked))?;
        if let Some(why) = &asked.ask.why {
            writeln!(out, "   {}", inert::line(why))?;
        }
        if !asked.ask.suggestions.is_empty() {
            writeln!(out, "   --always would allow {}", inert::line(&asked.ask.suggestions.join(", ")))?;
        }
    }
    super::say("answer with: caliban approve N, caliban approve N --always, caliban deny N --reason \"…\"");
    Ok(Code::Done)
}

/// All open questions of this repo's agents.
pub(super) async fn open(fleet: &Fleet<'_>) -> Result<Vec<Numbered>, Failure> {
    let rows = fleet.client().await?.list().await.map_err(worded)?;
    let base = fleet.places().base();
    numbers::number(base, &rows)
        .map_err(|error| Failure::new(format!("cannot keep the numbers in {}: {error}", base.display())))
}

/// Who asks.
pub(super) fn who(asked: &Numbered) -> String {
    match &asked.label {
        Some(label) => format!("{} ({})", asked.agent, inert::line(label)),
        None => asked.agent.to_string(),
    }
}

/// The exact call. It may have lines of its own; they are shown, not hidden.
pub(super) fn what(asked: &Numbered) -> String {
    inert::line(&asked.ask.what).into_owned()
}
