//! A broker identity for an agent of the fleet: a mailbox in a `cafleet` session, tools to write letters, and a postman
//! who brings them.
//!
//! Owns the way between the broker's store and one conversation: [`identity`] (who the agent is there), [`frame`] (how a
//! message looks to the model), [`delivered`] (what was said and heard, folded from the transcript), [`postman`] (delivery
//! and receipts) and [`tools()`]. Refuses: keystrokes, and approvals; a message is never a permission.

mod delivered;
mod frame;
mod identity;
mod limits;
mod postman;
mod tools;

use caliban_store::broker::{Agent, AgentId, AgentKind, Broker, BrokerError, Session, Task};

pub(crate) use identity::Identity;
pub(crate) use postman::{Farewell, Postman, Settled};
#[cfg(test)]
pub(crate) use tools::tool_names;
pub(crate) use tools::tools;

/// What a sender is in its session. The store says it, never the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SenderRole {
    /// The session's Administrator.
    Administrator,
    /// The session's root Director.
    Director,
    /// Everybody else.
    Agent,
}

impl SenderRole {
    fn of(id: AgentId, kind: AgentKind, session: &Session) -> Self {
        match kind {
            AgentKind::Administrator => Self::Administrator,
            AgentKind::User if session.director == Some(id) => Self::Director,
            AgentKind::User => Self::Agent,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::Director => "director",
            Self::Agent => "agent",
        }
    }
}

/// Who sent a message, if the session still knows, and what they are there.
async fn sender(
    broker: &mut Broker,
    session: &Session,
    task: &Task,
) -> Result<(Option<Agent>, SenderRole), BrokerError> {
    match broker.member(session.id, &task.from.into()).await {
        Ok(sender) => {
            let role = SenderRole::of(sender.id, sender.kind, session);
            Ok((Some(sender), role))
        }
        Err(BrokerError::NotAMember { .. }) => Ok((None, SenderRole::Agent)),
        Err(error) => Err(error),
    }
}
