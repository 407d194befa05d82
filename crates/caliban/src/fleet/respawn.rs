//! `caliban agents respawn`: from the original request, with a new id.

use std::io::Write;

use caliban_fleet::{protocol::Respawned, respawn};

use super::{Fleet, json_line, say};
use crate::{
    cli::fleet::RespawnArgs,
    report::{Code, Result},
};

pub(super) async fn respawn(fleet: &Fleet<'_>, args: &RespawnArgs, out: &mut dyn Write) -> Result<Code> {
    let mut client = fleet.client().await?.with_name(args.request_key.clone());
    let program = crate::compose::own_program()?;
    let caller = fleet.caller(&program);
    let report = respawn::respawn(&caller, &mut client, &args.agent.id, args.request_key.is_some()).await?;
    report.notes.iter().for_each(|note| say(note));
    show(&report.made, args.json, out)
}

fn show(made: &Respawned, json: bool, out: &mut dyn Write) -> Result<Code> {
    if json {
        return json_line(made, out).map(|()| Code::Done);
    }
    writeln!(out, "{}", made.id)?;
    out.flush()?;
    say(&format!("agent {0} is gone; its transcript is kept: caliban sessions show {0}", made.old));
    for line in &made.work {
        say(line);
    }
    Ok(Code::Done)
}
