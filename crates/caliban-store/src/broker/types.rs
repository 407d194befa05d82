//! The domain types of the broker's tables.
//!
//! Refuses: knowing rows (see `row`) and presentation.

use std::fmt;

use super::ids::{AgentId, SessionId, TaskId};
use super::speaker::{Owner, Seal};
use crate::{HostId, Stamp};

/// A namespace of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The label that its maker gave it.
    pub label: Option<String>,
    /// When it was made.
    pub created_at: Stamp,
    /// When it was deleted, if it was.
    pub deleted_at: Option<Stamp>,
    /// Its root Director.
    pub director: Option<AgentId>,
}

/// A session with the number of its active agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// The session.
    pub session: Session,
    /// How many agents are active in it.
    pub agent_count: u64,
}

/// A mailbox with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// Its number in the session.
    pub number: Option<i64>,
    /// The session it belongs to.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Whether it is active.
    pub status: AgentStatus,
    /// Built in, or registered.
    pub kind: AgentKind,
    /// When it was registered.
    pub registered_at: Stamp,
    /// Its card: a JSON object with name, description and skills.
    pub card: String,
    /// Its pane, if it has one.
    pub placement: Option<Placement>,
    /// The fleet agent that owns it; none if a person registered it.
    pub owner: Option<Owner>,
    /// The hash of the capability that its worker must present.
    pub seal: Option<Seal>,
}

/// The data needed to register an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAgent {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its skills, for its card.
    pub skills: Vec<serde_json::Value>,
}

/// Whether an agent is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentStatus {
    /// It sends and receives.
    Active,
    /// It has left. It may still read its messages.
    Deregistered,
}

/// The origin of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentKind {
    /// The one Administrator of a session.
    Administrator,
    /// Every other agent.
    User,
}

/// The pane in which an agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The machine that the pane is on.
    pub host: HostId,
    /// Its Director; none for the root Director.
    pub director: Option<AgentId>,
    /// Name of the tmux session.
    pub tmux_session: String,
    /// tmux's `@n`.
    pub tmux_window: String,
    /// tmux's `%n`; none until the pane exists.
    pub tmux_pane: Option<String>,
    /// The program expected in the pane: `claude` or `codex`.
    pub coding_agent: String,
    /// When it was placed.
    pub created_at: Stamp,
    /// Tells this pane from a later one with the same `%n`.
    pub identity: Option<PaneIdentity>,
}

/// Identifies a pane beyond its `%n`: its tmux server and its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaneIdentity {
    /// The tmux server's socket.
    pub socket: String,
    /// The tmux server's process.
    pub server_pid: i64,
    /// The first process of the pane.
    pub pane_pid: i64,
    /// When that process started, as the system reports it.
    pub pane_started: String,
}

/// One message to one recipient, or the summary of a broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its place in the store's order.
    pub seq: i64,
    /// Its id.
    pub id: TaskId,
    /// Its number in the session.
    pub number: Option<i64>,
    /// The owner of the mailbox it is in: the recipient, or for a summary the sender of the broadcast.
    pub context: AgentId,
    /// The sender.
    pub from: AgentId,
    /// The recipient; none for a summary.
    pub to: Option<AgentId>,
    /// Message or summary.
    pub kind: TaskKind,
    /// When it was sent.
    pub created_at: Stamp,
    /// Its state.
    pub state: TaskState,
    /// When its state last changed.
    pub status_at: Stamp,
    /// The summary of the broadcast that it belongs to.
    pub origin: Option<TaskId>,
    /// The body, never cut.
    pub text: String,
    /// The outcome of typing it into a pane.
    pub delivery: Delivery,
    /// The number of messages of fleet agents that lead to it, each answering the one before.
    pub hops: u32,
}

/// Message or summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// To one recipient.
    Unicast,
    /// The sender's record of a broadcast.
    BroadcastSummary,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Waiting for its recipient.
    InputRequired,
    /// Acknowledged.
    Completed,
    /// Cancelled by its sender.
    Canceled,
}

/// The outcome of typing a message into the recipient's pane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// How far it got.
    pub state: DeliveryState,
    /// Why it is held or failed.
    pub note: Option<String>,
}

/// The progress of delivery. In every state the message is in the recipient's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// In the queue only: there is no pane to type into, or typing was not tried yet.
    Stored,
    /// The pane could not take it; typing is tried again.
    Held,
    /// Typed and entered; not confirmed.
    Typed,
    /// Typed, and the agent was seen to receive it.
    Confirmed,
    /// Given up.
    Failed,
}

macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// The name in the database and in JSON.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            pub(crate) fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words!(AgentStatus { Active = "active", Deregistered = "deregistered" });
words!(AgentKind { Administrator = "builtin-administrator", User = "user" });
words!(TaskKind { Unicast = "unicast", BroadcastSummary = "broadcast_summary" });
words!(TaskState { InputRequired = "input_required", Completed = "completed", Canceled = "canceled" });
words!(DeliveryState {
    Stored = "stored",
    Held = "held",
    Typed = "typed",
    Confirmed = "confirmed",
    Failed = "failed",
});
