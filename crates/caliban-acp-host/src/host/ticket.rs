//! What the host answers to whoever says something: a ticket for the end of the turn, or why not.

use std::sync::Arc;

use caliban_agent::{TurnReport, feed::Cursor, transcript::TranscriptError};
use tokio::{sync::oneshot, task::JoinHandle};

/// Why something cannot be said to the agent.
#[derive(Debug, thiserror::Error)]
pub enum Unsaid {
    /// The session is closed, or its agent has crashed.
    #[error("the session is closed")]
    Closed,
    /// It cannot be recorded.
    #[error("the transcript cannot be written: {0}")]
    Storage(#[from] TranscriptError),
}

/// Something cannot be done while the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// A turn is running.
    #[error("the agent is at work; wait for the turn to end, or cancel it")]
    Busy,
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
}

/// A turn has ended.
#[derive(Debug, Clone)]
pub struct EndedTurn {
    /// Everything that the turn has shown stands before this place in the feed.
    pub at: Cursor,
    /// What came of it.
    pub report: Arc<TurnReport>,
}

/// How a prompt was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenPrompt {
    /// It began a turn.
    Began,
    /// It goes into the turn that was running.
    Joined,
}

/// Somebody waits for the end of a turn.
#[derive(Debug)]
pub struct Ticket {
    /// How the prompt was taken.
    pub taken: TakenPrompt,
    pub(super) ended: oneshot::Receiver<EndedTurn>,
}

impl Ticket {
    /// Waits for the end of the turn; `None` when the session was closed first.
    pub async fn ended(&mut self) -> Option<EndedTurn> {
        (&mut self.ended).await.ok()
    }
}

/// What became of a prompt at once. A cancel from here on applies to it, too.
pub(crate) enum Speech {
    /// It has a turn.
    Taken(Ticket),
    /// It is being written to the disk in a task of its own: its author may leave meanwhile, and once it is on the disk
    /// the agent must hear it.
    Coming(JoinHandle<Result<Ticket, Unsaid>>),
}

impl Speech {
    /// Waits until it is on the disk, if it has to be.
    pub(crate) async fn ticket(self) -> Result<Ticket, Unsaid> {
        match self {
            Self::Taken(ticket) => Ok(ticket),
            Self::Coming(task) => task.await.unwrap_or(Err(Unsaid::Closed)),
        }
    }
}
