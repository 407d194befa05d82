//! `caliban agents respawn`: from the original request, with a new id.

use std::io::Write;

use caliban_fleet::{
    Client,
    protocol::{AgentRow, RespawnRequest, Respawned},
};

use super::{Fleet, json_line, say};
use crate::{
    cli::fleet::RespawnArgs,
    report::{Code, Failure, Result},
};

pub(super) async fn respawn(fleet: &Fleet<'_>, args: &RespawnArgs, out: &mut dyn Write) -> Result<Code> {
    let mut client = fleet.client().await?.with_name(args.request_key.clone());
    let row = match client.show(&args.agent.id).await {
        Ok(row) => row,
        // One that was respawned by this key before is gone; the daemon knows the answer.
        Err(_) if args.request_key.is_some() => {
            let made = client.respawn(&args.agent.id, &RespawnRequest::default()).await?;
            return show(&made, args.json, out);
        }
        Err(error) => return Err(Failure::from(error)),
    };
    let (mut caller, loaded) = fleet.caller_for(&row)?;
    caller.keep_hidden(&row.socket);
    caller.hand_settings(&loaded);
    let program = Some(crate::compose::own_program()?);
    let request = RespawnRequest { secrets: caller.handover.into(), program };
    let made = client.respawn(&args.agent.id, &request).await?;
    if let Err(problem) = crate::broker::leave_for_good(&made.archived).await {
        say(&format!("{} is still registered with the broker: {problem}", made.old));
    }
    if let Ok(now) = client.show(&made.id.to_string()).await {
        say_who_is_not_followed(&mut client, &row, &now).await;
    }
    show(&made, args.json, out)
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

/// An agent that was to start after others did not when they failed. Whoever starts it all the same is told for whom it
/// does not wait any more.
pub(super) async fn say_who_is_not_followed(client: &mut Client, before: &AgentRow, now: &AgentRow) {
    for id in before.after.iter().filter(|id| !now.after.contains(id)) {
        let how = match client.show(&id.to_string()).await {
            Ok(other) => format!("which has ended {}", other.state),
            Err(_) => "which is gone".to_owned(),
        };
        say(&format!("it was to start after {id}, {how}: it starts without it"));
    }
}
