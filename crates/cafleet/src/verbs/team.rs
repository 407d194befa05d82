//! Checks who may command a member: its Director, inside tmux.

use caliban_store::broker::Agent;

use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::{deliverer, own_pane};

/// How an error outside tmux names these commands.
pub(super) const MEMBER_COMMANDS: &str = "cafleet member commands";

/// A Director and one of its members.
#[derive(Debug)]
pub(super) struct Commanded {
    pub(super) director: Agent,
    pub(super) member: Agent,
}

/// The acting Director; first undoes what an interrupted command left incomplete.
pub(super) async fn director(context: &mut VerbContext, given: &str) -> Result<Agent, Failure> {
    own_pane::must_be_inside(&context.settings, MEMBER_COMMANDS)?;
    let director = context.reading(given).await?;
    deliverer::undo_unfinished(context.broker().await?, director.session).await?;
    Ok(director)
}

/// The member, if the acting agent is its Director. `instead` is added to the error for an agent that is no member.
pub(super) async fn command(
    context: &mut VerbContext,
    agent_id: &str,
    member_id: &str,
    instead: &str,
) -> Result<Commanded, Failure> {
    let director = director(context, agent_id).await?;
    let not_found = || Failure::refused("agent_not_found", format!("Agent {} not found", shown(member_id)));
    let prefix = context.agent_named(director.session, member_id, |_| not_found()).await?;
    let broker = context.broker().await?;
    let member = broker.find_member(director.session, &prefix).await?.ok_or_else(not_found)?;
    let Some(placement) = &member.placement else {
        return Err(Failure::refused(
            "no_placement",
            format!("agent {} was not spawned via `cafleet member create`{instead}.", member.id),
        ));
    };
    if placement.director != Some(director.id) {
        let owner = placement.director.map_or_else(|| "null".to_owned(), |id| id.to_string());
        return Err(Failure::refused(
            "not_your_member",
            format!("agent {} is not a member of your team (director_agent_id={owner}).", member.id),
        ));
    }
    Ok(Commanded { director, member })
}

/// The error if a member's pane does not exist yet.
pub(super) fn pending(member: &Agent, verb: &str) -> Failure {
    Failure::refused(
        "pending",
        format!("member {} has no pane yet (pending placement) — nothing to {verb}.", member.id),
    )
}

/// The pane's name, for answers.
pub(super) fn pane_of(member: &Agent) -> Option<&str> {
    member.placement.as_ref().and_then(|placement| placement.tmux_pane.as_deref())
}
