//! Typing messages into panes, and its outcome.
//!
//! Owns the claim: a message is marked before the first key is sent, so that neither a crash nor a second deliverer
//! types it twice, and a message that was acknowledged or cancelled before is never typed.

use super::ids::{AgentId, SessionId, TaskId};
use super::row::{self, task_columns};
use super::types::{Delivery, DeliveryState, Task};
use super::{Broker, BrokerError};
use crate::ask::{Ask, Change, ReadAs};

/// Maximum number of undelivered messages read at once.
const BATCH: i64 = 100;

/// Maximum number of typed messages that are looked for on a screen.
const UNCONFIRMED: i64 = 5;

/// The note of a message whose typing began, with no recorded end.
const INTERRUPTED: &str = "interrupted while typing";

/// The note of a message that was typed into a pane that is now gone. It is not typed again: the program may have
/// received it.
const END_UNSEEN: &str = "typed, and not seen to be taken before the pane was gone";

impl Broker {
    /// The messages for this agent that are still to be typed, in order. Messages of an agent to itself are not typed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn undelivered(&mut self, agent: AgentId) -> Result<Vec<Task>, BrokerError> {
        Ok(sqlx::query(concat!(
            "SELECT ",
            task_columns!(),
            " FROM tasks WHERE context_id = $1 AND status_state = 'input_required' AND type = 'unicast' \
             AND delivery_state IN ('stored', 'held') AND from_agent_id <> context_id ORDER BY seq LIMIT $2"
        ))
        .bind(agent.to_string())
        .bind(BATCH)
        .read_as(row::task)
        .all(&mut self.db)
        .await?)
    }

    /// The messages for this agent that were typed, or whose typing was interrupted, and that it has not acknowledged;
    /// the latest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn unconfirmed(&mut self, agent: AgentId) -> Result<Vec<Task>, BrokerError> {
        Ok(sqlx::query(concat!(
            "SELECT ",
            task_columns!(),
            " FROM tasks WHERE context_id = $1 AND status_state = 'input_required' AND type = 'unicast' \
             AND (delivery_state = 'typed' OR (delivery_state = 'failed' AND delivery_note = $2)) \
             ORDER BY seq DESC LIMIT $3"
        ))
        .bind(agent.to_string())
        .bind(INTERRUPTED)
        .bind(UNCONFIRMED)
        .read_as(row::task)
        .all(&mut self.db)
        .await?)
    }

    /// The member is in another pane now: messages that its former pane could not take are to be typed into the new
    /// one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn hold_again(&mut self, agent: AgentId) -> Result<(), BrokerError> {
        self.db
            .run(
                sqlx::query(
                    "UPDATE tasks SET delivery_state = 'held', delivery_note = 'its member has a new pane' \
                 WHERE context_id = $1 AND status_state = 'input_required' AND type = 'unicast' \
                 AND delivery_state = 'failed' AND delivery_note IS NOT $2 AND delivery_note IS NOT $3",
                )
                .bind(agent.to_string())
                .bind(INTERRUPTED)
                .bind(END_UNSEEN),
            )
            .await?;
        Ok(())
    }

    /// The agent's pane is gone: messages that were typed into it without confirmation have failed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn give_up_typed(&mut self, agent: AgentId) -> Result<(), BrokerError> {
        self.db
            .run(
                sqlx::query(
                    "UPDATE tasks SET delivery_state = 'failed', delivery_note = $1 WHERE context_id = $2 \
                     AND status_state = 'input_required' AND type = 'unicast' AND delivery_state = 'typed'",
                )
                .bind(END_UNSEEN)
                .bind(agent.to_string()),
            )
            .await?;
        Ok(())
    }

    /// The amount of work left for the panes of a session: messages that are not typed or not confirmed, and commands
    /// that have not ended.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn owed(&mut self, session: SessionId) -> Result<u64, BrokerError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT (SELECT COUNT(*) FROM agents a JOIN agent_placements p ON p.agent_id = a.agent_id \
             JOIN tasks t ON t.context_id = a.agent_id WHERE a.session_id = $1 AND a.status = 'active' \
             AND t.status_state = 'input_required' AND t.type = 'unicast' AND t.from_agent_id <> t.context_id \
             AND t.delivery_state IN ('stored', 'held', 'typed')) + \
             (SELECT COUNT(*) FROM execs WHERE session_id = $1 AND state IN ('queued', 'typed', 'running'))",
        )
        .bind(session.to_string())
        .one(&mut self.db).await?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// Claims a message for typing. Until [`Broker::record_delivery`] its state is failed, as interrupted. `false` if
    /// it has been acknowledged, cancelled or typed in the meantime.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim_delivery(&mut self, task: TaskId) -> Result<bool, BrokerError> {
        Ok(self
            .db
            .run(
                sqlx::query(
                    "UPDATE tasks SET delivery_state = 'failed', delivery_note = $1 WHERE task_id = $2 \
                     AND status_state = 'input_required' AND delivery_state IN ('stored', 'held')",
                )
                .bind(INTERRUPTED)
                .bind(task.to_string()),
            )
            .await?
            == 1)
    }

    /// Records the outcome of typing a claimed message.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn record_delivery(&mut self, task: TaskId, delivery: &Delivery) -> Result<(), BrokerError> {
        self.db
            .run(
                sqlx::query("UPDATE tasks SET delivery_state = $1, delivery_note = $2 WHERE task_id = $3")
                    .bind(delivery.state.as_str())
                    .bind(&delivery.note)
                    .bind(task.to_string()),
            )
            .await?;
        Ok(())
    }

    /// Records that these messages wait for a free pane, or that their pane is gone. Messages that another process has
    /// claimed are left alone.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn put_off(&mut self, tasks: &[TaskId], delivery: &Delivery) -> Result<(), BrokerError> {
        debug_assert!(matches!(delivery.state, DeliveryState::Held | DeliveryState::Failed));
        let mut tx = self.db.begin().await?;
        let outcome: Result<(), BrokerError> = async {
            let tx = &mut tx;
            for task in tasks {
                sqlx::query(
                    "UPDATE tasks SET delivery_state = $1, delivery_note = $2 WHERE task_id = $3 \
                         AND status_state = 'input_required' AND delivery_state IN ('stored', 'held')",
                )
                .bind(delivery.state.as_str())
                .bind(&delivery.note)
                .bind(task.to_string())
                .run(tx)
                .await?;
            }
            Ok(())
        }
        .await;
        tx.finish(outcome).await
    }
}
