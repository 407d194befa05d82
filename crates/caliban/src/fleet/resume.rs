//! `caliban agents resume`: an ended agent goes on in its conversation, with the same id.

use std::io::Write;

use caliban_supervisor::protocol::ResumeRequest;

use super::{Fleet, json_line, row::Shown, say, worded};
use crate::{
    cli::fleet::ResumeArgs,
    report::{Code, Failure},
};

pub(super) async fn resume(
    fleet: &Fleet<'_>,
    args: &ResumeArgs,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    let request = ResumeRequest {
        secrets: fleet.secrets()?,
        program: Some(crate::compose::own_program()?),
        prompt: args.prompt.clone(),
    };
    let row = fleet.client().await?.resume(&args.agent.id, &request).await.map_err(worded)?;
    if args.json {
        json_line(&Shown::new(&row, super::row::now_ms()), out)?;
        return Ok(Code::Done);
    }
    writeln!(out, "{}", row.id)?;
    out.flush()?;
    say(&format!("goes on; watch it: caliban attach {}", row.id));
    Ok(Code::Done)
}
