//! Which process types for a session. The lock is the truth; the row only names the holder.

use sqlx::Row;

use super::ids::SessionId;
use super::{Broker, BrokerError};
use crate::Stamp;
use crate::ask::{Ask, ReadAs};
use crate::signals::PaneLock;

/// The process that types for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliverer {
    /// The process, in a form that no later process with the same pid shares.
    pub process: String,
    /// Since when.
    pub since: Stamp,
}

impl Broker {
    /// Takes the lock of a session's deliverer; `None` if another process has it, or locking fails.
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

    /// Records which process is the deliverer, for people to read.
    ///
    /// # Errors
    /// When the store fails.
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

    /// The last process that was the deliverer. Only the lock shows whether it still is.
    ///
    /// # Errors
    /// When the store fails.
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
