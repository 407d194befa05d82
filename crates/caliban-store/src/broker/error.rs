//! The refusals of the broker, as data. The binary turns each into its documented text.
//!
//! Refuses: knowing how a caller spelled an id.

use std::time::Duration;

use super::ids::{AgentId, SessionId, TaskId};
use super::limits::{BURST, EVERY, HOPS, IDENTITIES};
use super::speaker::Owner;
use super::types::TaskState;
use crate::StoreError;

/// Why the broker refused.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No session matches.
    #[error("session '{0}' not found")]
    SessionNotFound(String),
    /// The session was deleted.
    #[error("session {0} is deleted")]
    SessionDeleted(SessionId),
    /// No agent in the session matches.
    #[error("agent {agent} is not a member of session {session}")]
    NotAMember {
        /// As the caller wrote it.
        agent: String,
        /// The session that was searched.
        session: SessionId,
    },
    /// No agent matches the recipient.
    #[error("destination agent not found: {0}")]
    DestinationNotFound(String),
    /// The recipient is in another session.
    #[error("destination agent not in session: {0}")]
    DestinationNotInSession(String),
    /// The sender is unknown here, or deregistered.
    #[error("sender agent not found or not active in session: {0}")]
    SenderNotActive(String),
    /// No active agent of the session matches.
    #[error("agent {0} not found")]
    AgentNotFound(String),
    /// The agent has left already.
    #[error("agent {0} not found or already deregistered")]
    AlreadyDeregistered(AgentId),
    /// The root Director stays as long as its session.
    #[error("cannot deregister the root Director")]
    RootDirector,
    /// The Administrator stays as long as its session.
    #[error("the Administrator cannot be deregistered")]
    Administrator,
    /// The name belongs to the built-in agent.
    #[error("the name '{0}' is reserved")]
    ReservedName(String),
    /// The agent cannot have members: it has left, or is the Administrator.
    #[error("agent {0} cannot be a Director")]
    NotADirector(String),
    /// No task that the session may see matches.
    #[error("task {0} not found")]
    TaskNotFound(String),
    /// Only the recipient acknowledges.
    #[error("only the recipient can acknowledge a task")]
    NotTheRecipient,
    /// Only the sender cancels.
    #[error("only the sender can cancel a task")]
    NotTheSender,
    /// It was acknowledged or cancelled before.
    #[error("cannot acknowledge a task in state {0}")]
    CannotAck(TaskState),
    /// It was acknowledged or cancelled before.
    #[error("cannot cancel a task in state {0}")]
    CannotCancel(TaskState),
    /// The id of a retry belongs to a different message.
    #[error("task id {0} is already used by a different message")]
    IdTaken(TaskId),
    /// A process of a fleet agent acts under an identity that is not its own, or a process of unknown origin acts at
    /// all.
    #[error("that is somebody else's identity")]
    NotYours {
        /// The identity that the process claimed; none if it wanted to register a new one.
        agent: Option<AgentId>,
        /// The fleet agent that the process belongs to, if known.
        by: Option<Owner>,
        /// The identities of that fleet agent in the session, at most a handful.
        own: Vec<AgentId>,
    },
    /// A process in a pid namespace claims to be the root Director or the Administrator of a session that was made
    /// elsewhere.
    #[error("nobody can tell who stands above a process in a pid namespace: it cannot be {0}")]
    Unproven(AgentId),
    /// A process in a member's pane acts under another identity.
    #[error("the pane of member {member} cannot act as {agent}")]
    NotThisMember {
        /// The identity that the process claimed.
        agent: AgentId,
        /// The member whose pane the process is in.
        member: AgentId,
    },
    /// A process of a fleet agent reads a message that its identity neither sent nor received.
    #[error("message {0} is not yours")]
    TaskNotYours(TaskId),
    /// An agent of the session already has the name that a fleet agent wants.
    #[error("an agent of the session is called '{0}' already")]
    NameTaken(String),
    /// A fleet agent exceeds its rate limit.
    #[error(
        "nothing was sent: at most {BURST} messages at once, then one every {} s; wait {} s, and say more in fewer \
         messages",
        EVERY.as_secs(),
        .0.as_secs() + 1
    )]
    TooFast(Duration),
    /// Fleet agents have answered each other too many times in a row.
    #[error(
        "nothing was sent: {HOPS} messages of agents have answered each other, and this would be one more; it goes on \
         when a person says something"
    )]
    TooManyHops,
    /// A fleet agent has the maximum number of identities.
    #[error("an agent has at most {IDENTITIES} identities at a time")]
    TooManyIdentities,
    /// A prefix matches more than one id.
    #[error("'{given}' is ambiguous")]
    Ambiguous {
        /// As the caller wrote it.
        given: String,
        /// The candidates, at most a handful.
        candidates: Vec<String>,
    },
}
