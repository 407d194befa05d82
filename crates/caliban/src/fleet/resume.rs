//! `caliban agents resume`: an ended agent goes on in its conversation, with the same id.

use std::io::Write;

use caliban_supervisor::protocol::ResumeRequest;

use super::{Fleet, caller::VEILED_RESUME, json_line, limits::Raised, row::Shown, say, worded};
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
    let mut prompt = args.prompt.clone();
    if let Some(prompt) = &mut prompt {
        caller.veil(prompt, VEILED_RESUME);
    }
    let before = Raised::of(&row.dir);
    let raised = before.with(args);
    if raised != before {
        raised
            .write(&row.dir)
            .map_err(|error| Failure::new(format!("the limits cannot be written: {error}")))?;
    }
    let request =
        ResumeRequest { secrets: caller.secrets, program: Some(crate::compose::own_program()?), prompt };
    let row = client.resume(&args.agent.id, &request).await.map_err(worded)?;
    if args.json {
        json_line(&Shown::new(&row, super::row::now_ms()), out)?;
        return Ok(Code::Done);
    }
    writeln!(out, "{}", row.id)?;
    out.flush()?;
    say(&format!("goes on; watch it: caliban attach {}", row.id));
    Ok(Code::Done)
}
