//! Which process types for a session. The lock is the truth; the row says who has it.

use sqlx::Row;

use super::ids::SessionId;
use super::{Broker, BrokerError};
use crate::Stamp;
use crate::ask::{Ask, ReadAs};
use crate::signals::PaneLock;

/// The process that types for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliverer {
    /// The process, in a form that names it and no later one.
    pub process: String,
    /// Since when.
    pub since: Stamp,
}

impl Broker {
    /// Takes the right to be the deliverer of a session; `None` when another process has it, or nobody can.
    pub async fn lock_deliverer(&self, session: SessionId) -> Option<PaneLock> {
        self.signals.try_lock_pane(&bell_of(session)).await.ok().flatten()
    }

    /// Wakes the deliverer of a session.
    pub async fn wake_deliverer(&self, session: SessionId) {
        self.signals.ring(&bell_of(session)).await;
    }

    /// Starts to listen for [`Broker::wake_deliverer`].
    pub async fn deliverer_bell(&self, session: SessionId) -> Option<Box<dyn crate::signals::Bell>> {
        self.signals.listen(&bell_of(session)).await.ok()
    }

    /// Writes down who the deliverer is, for people.
    ///
    /// # Errors
    /// The store's.
    pub async fn record_deliverer(
        &mut self,
        session: SessionId,
        process: &str,
        now: Stamp,
    ) -> Result<(), BrokerError> {
        self.db
            .run(
                sqlx::query(
                    "INSERT OR REPLACE INTO deliverers (session_id, process, since) VALUES ($1, $2, $3)",
                )
                .bind(session.to_string())
                .bind(process)
                .bind(now.to_string()),
            )
            .await?;
        Ok(())
    }

    /// The last process that was the deliverer; whether it still is, the lock says.
    ///
    /// # Errors
    /// The store's.
    pub async fn deliverer(&mut self, session: SessionId) -> Result<Option<Deliverer>, BrokerError> {
        let read = |row: &sqlx::sqlite::SqliteRow| -> Result<Deliverer, sqlx::Error> {
            let since: String = row.try_get(1)?;
            Ok(Deliverer {
                process: row.try_get(0)?,
                since: Stamp::parse(&since).unwrap_or_else(|_| Stamp::from_micros(0)),
            })
        };
        let deliverer = sqlx::query("SELECT process, since FROM deliverers WHERE session_id = $1");
        Ok(deliverer.bind(session.to_string()).read_as(read).maybe(&mut self.db).await?)
    }
}

fn bell_of(session: SessionId) -> String {
    format!("deliverer-{session}")
}
