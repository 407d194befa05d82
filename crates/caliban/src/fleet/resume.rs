//! `caliban agents resume`: an ended agent goes on in its conversation, with the same id.

use std::io::Write;

use caliban_contract::limits::RaisedLimits;
use caliban_fleet::protocol::ResumeRequest;

use super::{
    Fleet, damaged_transcript, json_line, limits,
    respawn::say_who_is_not_followed,
    row::{ShownAgent, has_ended, waits},
    say,
};
use crate::{
    cli::fleet::ResumeArgs,
    report::{Code, Failure, Result},
};

pub(super) async fn resume(fleet: &Fleet<'_>, args: &ResumeArgs, out: &mut dyn Write) -> Result<Code> {
    let mut client = fleet.client().await?.with_name(args.request_key.clone());
    let row = client.show(&args.agent.id).await?;
    let (mut caller, _) = fleet.caller_for(&row)?;
    caller.keep_hidden(&row.socket);
    let mut prompt = args.prompt.clone();
    if let Some(prompt) = &mut prompt {
        caller.veil_message(prompt);
    }
    let before = RaisedLimits::read(&row.dir);
    let asked = limits::asked(args);
    let raised = before.with(asked);
    if has_ended(row.state) {
        let in_ledger = match asked.is_none() {
            true => crate::budget::tree_limits(fleet.places(), row.id).await,
            false => None,
        };
        limits::check(&row, before, raised, in_ledger)?;
        match damaged_transcript::found(&row.dir, row.turns) {
            Some(_) if args.from_scratch => damaged_transcript::put_aside(&row)?,
            Some(what) => {
                let text = format!("agent {} cannot go on where it was: {what}", row.id);
                return Err(Failure::new(text).hint(format!(
                    "its work is in its worktree; caliban resume {} --from-scratch begins its task anew",
                    row.id
                )));
            }
            None if args.from_scratch => {
                return Err(Failure::usage(
                    "--from-scratch is for a damaged transcript, and this one is whole",
                )
                .hint(format!("caliban resume {0}, or caliban respawn {0}", row.id)));
            }
            None => {}
        }
    } else if raised != before {
        // What it runs with must not change under it, nor what its next run has.
        let text =
            format!("agent {} is {}: it has not ended, and its limits stay as they are", row.id, row.state);
        return Err(Failure::new(text).hint(format!("caliban stop {} first", row.id)));
    }
    let program = Some(crate::compose::own_program()?);
    let request = ResumeRequest { secrets: caller.handover.into(), program, prompt, limits: asked };
    let now = client.resume(&row.id.to_string(), &request).await?;
    say_who_is_not_followed(&mut client, &row, &now).await;
    let row = now;
    if args.json {
        return json_line(&ShownAgent::new(&row, caliban_contract::wall_ms()), out).map(|()| Code::Done);
    }
    writeln!(out, "{}", row.id)?;
    out.flush()?;
    let how = waits(&row, caliban_contract::wall_ms()).unwrap_or_else(|| "goes on".to_owned());
    say(&format!("{how}; watch it: caliban attach {}", row.id));
    Ok(Code::Done)
}
