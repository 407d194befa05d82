//! `caliban agents resume`: an ended agent goes on in its conversation, with the same id.

use std::io::Write;

use caliban_supervisor::protocol::ResumeRequest;

use super::{
    Fleet,
    caller::VEILED_RESUME,
    json_line,
    limits::{self, Raised},
    respawn::say_who_is_not_followed,
    row::{Shown, has_ended, waits},
    say, worded,
};
use crate::{
    cli::fleet::ResumeArgs,
    report::{Code, Failure},
};

pub(super) async fn resume(
    fleet: &Fleet<'_>,
    args: &ResumeArgs,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    let mut client = fleet.client().await?;
    let row = client.show(&args.agent.id).await.map_err(worded)?;
    let mut caller = fleet.caller_for(&row)?;
    caller.keep_hidden(&row.socket);
    let mut prompt = args.prompt.clone();
    if let Some(prompt) = &mut prompt {
        caller.veil(prompt, VEILED_RESUME);
    }
    let before = Raised::of(&row.dir);
    let raised = before.with(args);
    if has_ended(row.state) {
        limits::check(&row, before, raised)?;
    } else if raised != before {
        // What it runs with must not change under it, nor what its next run has.
        let text =
            format!("agent {} is {}: it has not ended, and its limits stay as they are", row.id, row.state);
        return Err(Failure::new(text).hint(format!("caliban stop {} first", row.id)));
    }
    let program = Some(crate::compose::own_program()?);
    let limits = Raised::asked(args);
    let request = ResumeRequest { secrets: caller.secrets, program, prompt, limits };
    let now = client.resume(&row.id.to_string(), &request).await.map_err(worded)?;
    say_who_is_not_followed(&mut client, &row, &now).await;
    // A daemon of before knows nothing of limits, and the run has begun.
    if raised != before && Raised::of(&row.dir) == before {
        say("its limits are as they were: this daemon is an older one; restart it: caliban daemon restart");
    }
    let row = now;
    if args.json {
        json_line(&Shown::new(&row, super::row::now_ms()), out)?;
        return Ok(Code::Done);
    }
    writeln!(out, "{}", row.id)?;
    out.flush()?;
    let how = waits(&row).unwrap_or_else(|| "goes on".to_owned());
    say(&format!("{how}; watch it: caliban attach {}", row.id));
    Ok(Code::Done)
}
