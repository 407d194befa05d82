//! How a message ends: acknowledged by its recipient or cancelled by its sender.
//!
//! Owns the guarded update: of two concurrent requests one wins the race, and the other gets an error that names the
//! message's state.

use super::ids::{IdPrefix, SessionId};
use super::resolve::{find_agent, find_task, task_by_id};
use super::types::{Task, TaskKind, TaskState};
use super::{Broker, BrokerError, limits};
use crate::Stamp;
use crate::ask::Change;

#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskEnd {
    Ack,
    Cancel,
}

impl Broker {
    /// The recipient acknowledges a message.
    ///
    /// # Errors
    /// `NotAMember`, `NotYours`, `TaskNotFound`, `NotTheRecipient`, `CannotAck`, or a failure of the store.
    pub async fn ack(
        &mut self,
        session: SessionId,
        by: &IdPrefix,
        task: &IdPrefix,
        now: Stamp,
    ) -> Result<Task, BrokerError> {
        self.end(session, by, task, now, TaskEnd::Ack).await
    }

    /// The sender takes a message back.
    ///
    /// # Errors
    /// `NotAMember`, `NotYours`, `TaskNotFound`, `NotTheSender`, `CannotCancel`, or a failure of the store.
    pub async fn cancel(
        &mut self,
        session: SessionId,
        by: &IdPrefix,
        task: &IdPrefix,
        now: Stamp,
    ) -> Result<Task, BrokerError> {
        self.end(session, by, task, now, TaskEnd::Cancel).await
    }

    async fn end(
        &mut self,
        session: SessionId,
        by: &IdPrefix,
        given: &IdPrefix,
        now: Stamp,
        end: TaskEnd,
    ) -> Result<Task, BrokerError> {
        let speaker = self.speaker.clone();
        let mut tx = self.db.begin().await?;
        let outcome: Result<Task, BrokerError> = async {
            let tx = &mut tx;
            let found = find_agent(tx, session, by).await?;
            let by = found.one(by, || BrokerError::NotAMember { agent: by.given().to_owned(), session })?;
            speaker.check(tx, &by).await?;
            let found = find_task(tx, session, given).await?;
            let task = found.one(given, || BrokerError::TaskNotFound(given.given().to_owned()))?;
            let (allowed, refusal, state) = match end {
                TaskEnd::Ack => (task.to == Some(by.id), BrokerError::NotTheRecipient, TaskState::Completed),
                TaskEnd::Cancel => (task.from == by.id, BrokerError::NotTheSender, TaskState::Canceled),
            };
            if !allowed {
                return Err(refusal);
            }
            let changed = sqlx::query(
                "UPDATE tasks SET status_state = $1, status_timestamp = $2 \
                     WHERE task_id = $3 AND status_state = 'input_required' AND type = $4",
            )
            .bind(state.as_str())
            .bind(now.to_string())
            .bind(task.id.to_string())
            .bind(TaskKind::Unicast.as_str())
            .run(tx)
            .await?;
            let lost = |state| match end {
                TaskEnd::Ack => BrokerError::CannotAck(state),
                TaskEnd::Cancel => BrokerError::CannotCancel(state),
            };
            if changed == 0 {
                return Err(lost(task.state));
            }
            if end == TaskEnd::Ack {
                limits::heard(tx, &speaker, &task.from, task.hops).await?;
            }
            let ended = task_by_id(tx, task.id).await?;
            ended.ok_or_else(|| BrokerError::TaskNotFound(given.given().to_owned()))
        }
        .await;
        tx.finish(outcome).await
    }
}
