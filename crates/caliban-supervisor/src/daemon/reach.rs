//! Whom a caller may steer (a19): a person every agent, a command of an agent only what that agent has started, or what
//! those have, a member of a team only what members have started. It may speak to all of them.

use caliban_core::{ids::AgentId, spec::StartedBy};
use tokio::sync::mpsc;

use super::Msg;
use super::agent_client::Speaker;
use super::peer::Peer;
use crate::ancestry::{self, AgentProcess, Ancestry};
use crate::protocol::{AgentRow, ApiError, ErrorCode};

/// What the caller wants of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Steering {
    /// To start or end it.
    Lead,
    /// To say something to it: so may a command of its own.
    Tell,
    /// To have it in memory: nothing happens to one that is there.
    Wake,
}

/// The agent that a query names, when the caller may steer it. The answer is its id: what the query names can change.
pub(super) async fn steerable(
    query: String,
    steering: Steering,
    peer: Peer,
    inbox: &mpsc::Sender<Msg>,
) -> Result<String, ApiError> {
    let above = ancestry::above(peer.pid_now());
    let own = match &above {
        // The agent's own program does what a person or its own rules let it do.
        Ancestry::Person => return Ok(query),
        // A member may speak to every agent.
        Ancestry::Member if steering != Steering::Lead => return Ok(query),
        Ancestry::Agents(agents) => match agents.first() {
            Some(agent) if agent.which == AgentProcess::Worker => return Ok(query),
            Some(agent) => agent.dir.file_name().map(|name| name.to_string_lossy().into_owned()),
            None => None,
        },
        Ancestry::Member | Ancestry::Unknown => None,
    };
    let speaker = Speaker { inbox, caller: None };
    let row = speaker.show(query).await?;
    if steering == Steering::Wake && !row.hibernated {
        return Ok(row.id.to_string());
    }
    // Which member a process belongs to it does not show.
    let is_members = |row: &AgentRow| above == Ancestry::Member && row.started_by == Some(StartedBy::Member);
    let is_own = |id: AgentId| own.as_ref().is_some_and(|own| id.to_string() == *own);
    let mut is_steered = is_members(&row) || steering != Steering::Lead && is_own(row.id);
    let mut parent = row.parent;
    for _ in 0..=caliban_core::spec::MAX_DEPTH + 1 {
        let Some(id) = parent.filter(|_| !is_steered) else { break };
        let above = speaker.show(id.to_string()).await.ok();
        is_steered = is_own(id) || above.as_ref().is_some_and(is_members);
        parent = above.and_then(|row| row.parent);
    }
    if is_steered {
        return Ok(row.id.to_string());
    }
    let who = above.agent_in_words().unwrap_or_default();
    let whose = if above == Ancestry::Member { "no member has" } else { "that agent has not" };
    let text = format!("{who} cannot steer agent {}, which {whose} started", row.id);
    Err(ApiError::new(ErrorCode::Forbidden, text).hint("a person does it, in a terminal of their own"))
}
