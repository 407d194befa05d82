//! `caliban agents resume`: an ended agent goes on in its conversation, with the same id.

use std::{io::Write, num::NonZeroU64};

use caliban_contract::limits::RaisedLimits;
use caliban_fleet::resume::{self, ResumeTask};

use super::{
    Fleet, json_line,
    row::{ShownAgent, waits},
    say,
};
use crate::{
    cli::fleet::ResumeArgs,
    report::{Code, Result},
    settings::values::Usd,
};

pub(super) async fn resume(fleet: &Fleet<'_>, args: &ResumeArgs, out: &mut dyn Write) -> Result<Code> {
    let mut client = fleet.client().await?.with_name(args.request_key.clone());
    let program = crate::compose::own_program()?;
    let order =
        ResumeTask { prompt: args.prompt.clone(), limits: raised(args), from_scratch: args.from_scratch };
    let report = resume::resume(&fleet.caller(&program), &mut client, &args.agent.id, order).await?;
    report.notes.iter().for_each(|note| say(note));
    let row = report.row;
    if args.json {
        return json_line(&ShownAgent::new(&row, caliban_contract::wall_ms()), out).map(|()| Code::Done);
    }
    writeln!(out, "{}", row.id)?;
    out.flush()?;
    let how = waits(&row, caliban_contract::wall_ms()).unwrap_or_else(|| "goes on".to_owned());
    say(&format!("{how}; watch it: caliban attach {}", row.id));
    Ok(Code::Done)
}

/// The limits that a resume raises.
fn raised(args: &ResumeArgs) -> RaisedLimits {
    RaisedLimits {
        max_turns: args.max_turns.map(|turns| u64::from(turns.get())),
        budget_tokens: args.budget_tokens.map(NonZeroU64::get),
        budget_micro_usd: args.budget_usd.map(Usd::micro),
        timeout_ms: args.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        priority: args.priority,
        start_at_ms: None,
    }
}
