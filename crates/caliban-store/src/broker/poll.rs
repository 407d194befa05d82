//! Reading a mailbox, at once or when a message arrives.
//!
//! Owns the order: the store's sequence, never a clock. A mailbox is read newest first; with `after` the reader walks
//! forward, oldest first. Waiting uses a bell and a slow check, which reads the mailbox only if the store has been
//! written to since; the time limit is measured on the monotonic clock.

use std::time::Duration;

use tokio::time::Instant;

use super::ids::AgentId;
use super::row::{self, packed_task_columns};
use super::types::Task;
use super::{Broker, BrokerError};
use crate::Stamp;
use crate::ask::{Ask, ReadAs};
use crate::doorbell::SLOW_CHECK;

/// Default number of messages in a page.
pub const DEFAULT_PAGE: u32 = 1_000;
/// Maximum number of messages in a page.
pub const MAX_PAGE: u32 = 10_000;

/// Which messages of a mailbox to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailboxScope {
    /// Those that are neither acknowledged nor cancelled.
    Open,
    /// All of them.
    All,
}

/// A query of a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollQuery {
    /// The owner of the mailbox.
    pub agent: AgentId,
    /// Which messages.
    pub scope: MailboxScope,
    /// Only those whose status changed at or after this time.
    pub since: Option<Stamp>,
    /// Only those after this sequence number, oldest first.
    pub after: Option<i64>,
    /// Maximum number of messages.
    pub page_size: u32,
}

/// A page of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxPage {
    /// The messages.
    pub tasks: Vec<Task>,
    /// Whether the page size cut off further messages.
    pub more: bool,
}

macro_rules! poll_sql {
    ($scope:literal, $order:literal) => {
        concat!(
            "SELECT ",
            packed_task_columns!(),
            " FROM tasks WHERE context_id = $1 AND seq > $2 AND status_timestamp >= $3 AND type = 'unicast'",
            $scope,
            " ORDER BY seq",
            $order,
            " LIMIT $4"
        )
    };
}

impl Broker {
    /// The messages that are in the mailbox now.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn poll(&mut self, query: &PollQuery) -> Result<MailboxPage, BrokerError> {
        let sql = match (query.scope, query.after) {
            (MailboxScope::Open, None) => poll_sql!(" AND status_state = 'input_required'", " DESC"),
            (MailboxScope::Open, Some(_)) => poll_sql!(" AND status_state = 'input_required'", " ASC"),
            (MailboxScope::All, None) => poll_sql!("", " DESC"),
            (MailboxScope::All, Some(_)) => poll_sql!("", " ASC"),
        };
        let limit = query.page_size.clamp(1, MAX_PAGE) as usize;
        let mut tasks = sqlx::query(sql)
            .bind(query.agent.to_string())
            .bind(query.after.unwrap_or(0))
            // Every time sorts after the empty text.
            .bind(query.since.map(|since| since.to_string()).unwrap_or_default())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
            .read_as(row::packed_task)
            .all(&mut self.db)
            .await?;
        let more = tasks.len() > limit;
        tasks.truncate(limit);
        Ok(MailboxPage { tasks, more })
    }

    /// The messages in the mailbox, or those that arrive within `limit`. Returns at once if the agent is deregistered,
    /// because its mailbox gets no more messages.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn wait(&mut self, query: &PollQuery, limit: Duration) -> Result<MailboxPage, BrokerError> {
        // Listen before the first look, so that no message can arrive unnoticed between look and sleep. Best effort:
        // without a bell the slow check remains.
        let mut bell = self.signals.listen(&query.agent.to_string()).await.ok();
        let deadline = Instant::now() + limit;
        loop {
            let version = self.data_version().await?;
            let page = self.poll(query).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !page.tasks.is_empty() || left.is_zero() || !self.is_active(query.agent).await? {
                return Ok(page);
            }
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let nap = left.min(SLOW_CHECK);
                let rung = match &mut bell {
                    Some(ear) => match tokio::time::timeout(nap, ear.rung()).await {
                        Ok(Ok(())) => true,
                        // A failed bell is not used again.
                        Ok(Err(_)) => {
                            bell = None;
                            true
                        }
                        Err(_) => false,
                    },
                    None => {
                        tokio::time::sleep(nap).await;
                        false
                    }
                };
                if rung || left.is_zero() || self.data_version().await? != version {
                    break;
                }
            }
        }
    }

    /// A number that changes whenever another connection writes to the store. Costs next to nothing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn data_version(&mut self) -> Result<i64, BrokerError> {
        Ok(sqlx::query_scalar("PRAGMA data_version").one(&mut self.db).await?)
    }

    async fn is_active(&mut self, agent: AgentId) -> Result<bool, BrokerError> {
        let found: Option<i64> =
            sqlx::query_scalar("SELECT 1 FROM agents WHERE agent_id = $1 AND status = 'active'")
                .bind(agent.to_string())
                .maybe(&mut self.db)
                .await?;
        Ok(found.is_some())
    }
}
