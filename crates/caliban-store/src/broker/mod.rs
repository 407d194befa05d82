//! The message broker's store: sessions, agents, placements, tasks.
//!
//! Owns the broker's rules as guarded writes: who may acknowledge, cancel and send; what a broadcast is; what a
//! repeated id means; under which identity a process may act ([`Speaker`]). Each operation is one transaction. A
//! message is committed before its bell is rung, and before it is typed into a pane.
//!
//! Refuses: texts for people (the binary has them), tmux, the clock.

mod agents;
mod deliverer;
mod delivery;
mod error;
mod execs;
mod group;
mod ids;
mod limits;
mod members;
mod names;
mod notices;
mod poll;
mod resolve;
mod row;
mod schema;
mod send;
mod sessions;
mod speaker;
mod tasks;
mod timeline;
mod types;

pub use deliverer::Deliverer;
pub use error::BrokerError;
pub use execs::{Exec, ExecEnd, ExecState, NewExec};
pub use ids::{AgentId, ExecId, IdPrefix, IdPrefixError, SessionId, TaskId};
pub use limits::{BURST, EVERY, HOPS, IDENTITIES};
pub use members::{Activity, NewMember};
pub use notices::Notice;
pub use poll::{DEFAULT_PAGE, MAX_PAGE, MailboxPage, MailboxScope, PollQuery};
pub use schema::SCHEMA;
pub use send::{Broadcast, Freshness, NewBroadcast, NewMessage, SentMessage};
pub use sessions::{CreateSession, CreatedSession, DeletedSession};
pub use speaker::{Capability, Enclosure, Owner, Seal, Speaker};
pub use timeline::{FoundText, Of};
pub use types::{
    Agent, AgentKind, AgentStatus, Delivery, DeliveryState, NewAgent, PaneIdentity, Placement, Session,
    SessionSummary, Task, TaskKind, TaskState,
};

use std::time::Duration;

use tokio::time::Instant;

use crate::open::{Db, OpenReport};
use crate::signals::{self, PaneLock, Signals};
use crate::{StoreError, StoreUrl};

/// The name of the built-in agent, which no other agent may have.
pub const ADMINISTRATOR: &str = "Administrator";
/// The root Director's name.
pub const DIRECTOR: &str = "Director";

/// The interval at which a locked pane is tried again.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// An open broker store.
#[derive(Debug)]
pub struct Broker {
    db: Db,
    signals: Box<dyn Signals>,
    speaker: Speaker,
    /// The place recorded for new sessions, for [`Speaker::Within`].
    place: Option<String>,
}

impl Broker {
    /// Opens the store for `speaker`, and makes the tables if there are none.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open(url: &StoreUrl, speaker: Speaker) -> Result<Self, StoreError> {
        Self::open_with(url, speaker, signals::of(url)).await
    }

    /// Like [`Broker::open`], with other signals.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open_with(
        url: &StoreUrl,
        speaker: Speaker,
        signals: Box<dyn Signals>,
    ) -> Result<Self, StoreError> {
        Ok(Self { db: Db::open(url, &SCHEMA).await?.watched(), signals, speaker, place: None })
    }

    /// What opening the store did.
    #[must_use]
    pub fn prepared(&self) -> OpenReport {
        self.db.prepared()
    }

    /// Takes the lock for typing into a pane, which is given by a unique name; waits up to `limit` for the present
    /// holder. `None` if the lock cannot be had: then the caller must not type.
    pub async fn lock_pane(&self, pane: &str, limit: Duration) -> Option<PaneLock> {
        let (who, give_up) = (pane, Instant::now() + limit);
        loop {
            match self.signals.try_lock_pane(who).await {
                Ok(Some(lock)) => return Some(lock),
                Ok(None) if Instant::now() < give_up => tokio::time::sleep(LOCK_INTERVAL).await,
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Ends the use of the store in a process that has given its answer and is about to exit.
    pub async fn leave(self) {
        self.db.leave().await;
    }

    /// Closes the store in a process that lives on.
    pub async fn close(self) {
        self.db.close().await;
    }
}
