//! The message broker's store: sessions, agents, placements, tasks.
//!
//! Owns the broker's rules as guarded writes: who may acknowledge, cancel, send; what a broadcast
//! is; what a repeated id means; whose words a process may say ([`Speaker`]). Each operation is one transaction. A message is committed before
//! its bell is rung, and before anybody types it anywhere.
//!
//! Refuses: words for people (the binary has them), tmux, the clock.

mod agents;
mod delivery;
mod error;
mod ids;
mod limits;
mod poll;
mod resolve;
mod row;
mod schema;
mod send;
mod sessions;
mod speaker;
mod tasks;
mod types;

pub use error::BrokerError;
pub use ids::{AgentId, IdPrefix, IdPrefixError, SessionId, TaskId};
pub use limits::{BURST, EVERY, HOPS, IDENTITIES};
pub use poll::{DEFAULT_PAGE, MAX_PAGE, Page, PollQuery, Scope};
pub use schema::SCHEMA;
pub use send::{Broadcast, Freshness, NewBroadcast, NewMessage, Sent};
pub use sessions::{Created, DeletedSession, NewSession};
pub use speaker::{Capability, Owner, Seal, Speaker};
pub use types::{
    Agent, AgentKind, AgentStatus, Delivery, DeliveryState, NewAgent, PaneIdentity, Placement, Session,
    SessionSummary, Task, TaskKind, TaskState,
};

use crate::doorbell::Bells;
use crate::open::{Db, Prepared};
use crate::{StoreError, StoreUrl};

/// The built-in agent's name, which nobody else may have.
pub const ADMINISTRATOR: &str = "Administrator";
/// The root Director's name.
pub const DIRECTOR: &str = "Director";

/// An open broker store.
#[derive(Debug)]
pub struct Broker {
    db: Db,
    bells: Bells,
    speaker: Speaker,
}

impl Broker {
    /// Opens the store for whoever `speaker` is, making or upgrading the schema if need be.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open(url: &StoreUrl, speaker: Speaker) -> Result<Self, StoreError> {
        let db = Db::open(url, &SCHEMA).await?;
        Ok(Self { db, bells: Bells::at(url.bells_dir()), speaker })
    }

    /// What opening had to do.
    #[must_use]
    pub fn prepared(&self) -> Prepared {
        self.db.prepared()
    }

    /// Where the store is.
    #[must_use]
    pub fn url(&self) -> &StoreUrl {
        self.db.url()
    }

    /// Ends the use of the store in a process that has answered and is about to exit.
    pub async fn leave(self) {
        self.db.leave().await;
    }

    /// Closes the store in a process that lives on.
    pub async fn close(self) {
        self.db.close().await;
    }
}
