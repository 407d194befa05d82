//! What a page shows of a session: everybody in it, and its newest messages. Only reads.

use super::ids::{AgentId, SessionId};
use super::row::{self, agent_columns, task_columns};
use super::types::{Agent, Task};
use super::{Broker, BrokerError};

/// Which messages of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// All, the summaries of broadcasts too.
    Session,
    /// Those that an agent has got.
    Inbox(AgentId),
    /// Those that an agent has sent.
    Sent(AgentId),
}

impl Broker {
    /// The agents of a session: the active ones, and those that have left and have messages. Oldest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn everybody(&mut self, session: SessionId) -> Result<Vec<Agent>, BrokerError> {
        let rows = sqlx::query(concat!(
            "SELECT ",
            agent_columns!(),
            " WHERE a.session_id = $1 AND (a.status = 'active' \
               OR EXISTS (SELECT 1 FROM tasks t WHERE t.context_id = a.agent_id) \
               OR EXISTS (SELECT 1 FROM tasks t WHERE t.from_agent_id = a.agent_id)) ORDER BY a.seq"
        ))
        .bind(session.to_string())
        .fetch_all(self.db.conn().await?)
        .await
        .map_err(|e| self.db.words(e))?;
        rows.iter().map(|row| row::agent(row).map_err(|e| self.db.words(e).into())).collect()
    }

    /// The newest messages, the newest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn timeline(
        &mut self,
        session: SessionId,
        of: Of,
        limit: u32,
    ) -> Result<Vec<Task>, BrokerError> {
        let session = session.to_string();
        let (agent, sql) = match of {
            Of::Session => (
                String::new(),
                concat!(
                    "SELECT ",
                    task_columns!(),
                    " FROM tasks WHERE context_id IN (SELECT agent_id FROM agents WHERE session_id = $1) \
                      AND $2 = '' ORDER BY seq DESC LIMIT $3"
                ),
            ),
            Of::Inbox(agent) => (
                agent.to_string(),
                concat!(
                    "SELECT ",
                    task_columns!(),
                    " FROM tasks WHERE context_id = $2 AND type = 'unicast' \
                      AND context_id IN (SELECT agent_id FROM agents WHERE session_id = $1) ORDER BY seq DESC LIMIT $3"
                ),
            ),
            Of::Sent(agent) => (
                agent.to_string(),
                concat!(
                    "SELECT ",
                    task_columns!(),
                    " FROM tasks WHERE from_agent_id = $2 AND type = 'unicast' \
                      AND context_id IN (SELECT agent_id FROM agents WHERE session_id = $1) ORDER BY seq DESC LIMIT $3"
                ),
            ),
        };
        let rows = sqlx::query(sql)
            .bind(session)
            .bind(agent)
            .bind(i64::from(limit))
            .fetch_all(self.db.conn().await?)
            .await
            .map_err(|e| self.db.words(e))?;
        rows.iter().map(|row| row::task(row).map_err(|e| self.db.words(e).into())).collect()
    }
}
