//! `caliban agents respawn`: from the original request, with a new id.

use std::io::Write;

use caliban_supervisor::protocol::RespawnRequest;

use super::{Fleet, json_line, say, worded};
use crate::{
    cli::fleet::RespawnArgs,
    report::{Code, Failure},
};

pub(super) async fn respawn(
    fleet: &Fleet<'_>,
    args: &RespawnArgs,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    let mut client = fleet.client().await?;
    let row = client.show(&args.agent.id).await.map_err(worded)?;
    let mut caller = fleet.caller_for(&row)?;
    caller.keep_hidden(&row.socket);
    let request = RespawnRequest { secrets: caller.secrets, program: Some(crate::compose::own_program()?) };
    let made = client.respawn(&args.agent.id, &request).await.map_err(worded)?;
    if let Err(problem) = crate::broker::leave_for_good(&made.archived).await {
        say(&format!("{} is still registered with the broker: {problem}", made.old));
    }
    if args.json {
        json_line(&made, out)?;
        return Ok(Code::Done);
    }
    writeln!(out, "{}", made.id)?;
    out.flush()?;
    say(&format!("agent {} is gone; its transcript is in {}", made.old, made.archived.display()));
    for line in &made.work {
        say(line);
    }
    Ok(Code::Done)
}
