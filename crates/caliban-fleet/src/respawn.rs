//! An agent anew from its original request, with a new id.

use crate::{
    Client,
    caller::FleetCaller,
    mailbox,
    protocol::{AgentRow, RespawnRequest, Respawned},
    refusal::VerbError,
};

/// What became of it.
#[derive(Debug)]
pub struct RespawnReport {
    /// The new agent.
    pub made: Respawned,
    /// Lines for people.
    pub notes: Vec<String>,
}

/// Starts it anew. `is_named` says that the client's request has a name: then it may have been carried out before.
pub async fn respawn(
    caller: &FleetCaller<'_>,
    client: &mut Client,
    agent: &str,
    is_named: bool,
) -> Result<RespawnReport, VerbError> {
    let row = match client.show(agent).await {
        Ok(row) => row,
        // One that was respawned by this name before is gone; the daemon knows the answer.
        Err(_) if is_named => {
            let made = client.respawn(agent, &RespawnRequest::default()).await?;
            return Ok(RespawnReport { made, notes: Vec::new() });
        }
        Err(error) => return Err(error.into()),
    };
    let (mut handed, loaded) = caller.again(&row)?;
    handed.keep_hidden(&row.socket);
    handed.hand_settings(&loaded);
    let request =
        RespawnRequest { secrets: handed.handover.into(), program: Some(caller.program.to_owned()) };
    let made = client.respawn(agent, &request).await?;
    let mut notes = Vec::new();
    if let Err(problem) = mailbox::leave_for_good(&made.archived).await {
        notes.push(format!("{} is still registered with the broker: {problem}", made.old));
    }
    if let Ok(now) = client.show(&made.id.to_string()).await {
        notes.extend(not_followed(client, &row, &now).await);
    }
    Ok(RespawnReport { made, notes })
}

/// An agent that was to start after others did not when they failed. Whoever starts it all the same is told for whom it
/// does not wait any more.
pub(crate) async fn not_followed(client: &mut Client, before: &AgentRow, now: &AgentRow) -> Vec<String> {
    let mut notes = Vec::new();
    for id in before.after.iter().filter(|id| !now.after.contains(id)) {
        let how = match client.show(&id.to_string()).await {
            Ok(other) => format!("which has ended {}", other.state),
            Err(_) => "which is gone".to_owned(),
        };
        notes.push(format!("it was to start after {id}, {how}: it starts without it"));
    }
    notes
}
