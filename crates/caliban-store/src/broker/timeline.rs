//! A session as a page shows it: its agents, and its newest messages. Only reads.

use super::ids::{AgentId, SessionId};
use super::row::{self, agent_columns, task_columns};
use super::types::{Agent, Task};
use super::{Broker, BrokerError};
use crate::ask::{Ask, ReadAs};

/// Which messages of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// All, including the summaries of broadcasts.
    Session,
    /// Those that an agent has received.
    Inbox(AgentId),
    /// Those that an agent has sent.
    Sent(AgentId),
}

/// A message that matches a search, with its session and the sender's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundText {
    /// The message.
    pub task: Task,
    /// Its session.
    pub session: SessionId,
    /// Its sender's name.
    pub from_name: String,
}

impl Broker {
    /// The newest messages that contain a text, ignoring case.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find_text(&mut self, text: &str, limit: u32) -> Result<Vec<FoundText>, BrokerError> {
        let pattern = format!("%{}%", text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"));
        let found = |row: &sqlx::sqlite::SqliteRow| {
            Ok::<_, sqlx::Error>(FoundText {
                task: row::task(row)?,
                session: row::read(row, 15, SessionId::parse)?,
                from_name: sqlx::Row::try_get(row, 16)?,
            })
        };
        Ok(sqlx::query(concat!(
            "SELECT ",
            task_columns!(),
            ", (SELECT session_id FROM agents WHERE agent_id = context_id), \
               COALESCE((SELECT name FROM agents WHERE agent_id = from_agent_id), '') \
             FROM tasks WHERE type = 'unicast' AND text LIKE $1 ESCAPE '\\' ORDER BY seq DESC LIMIT $2"
        ))
        .bind(pattern)
        .bind(i64::from(limit))
        .read_as(found)
        .all(&mut self.db)
        .await?)
    }

    /// The active agents of a session, and those that have left but have messages. Oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn everybody(&mut self, session: SessionId) -> Result<Vec<Agent>, BrokerError> {
        Ok(sqlx::query(concat!(
            "SELECT ",
            agent_columns!(),
            " WHERE a.session_id = $1 AND (a.status = 'active' \
               OR EXISTS (SELECT 1 FROM tasks t WHERE t.context_id = a.agent_id) \
               OR EXISTS (SELECT 1 FROM tasks t WHERE t.from_agent_id = a.agent_id)) ORDER BY a.seq"
        ))
        .bind(session.to_string())
        .read_as(row::agent)
        .all(&mut self.db)
        .await?)
    }

    /// The newest messages, the newest first.
    ///
    /// # Errors
    /// When the store fails.
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
        Ok(sqlx::query(sql)
            .bind(session)
            .bind(agent)
            .bind(i64::from(limit))
            .read_as(row::task)
            .all(&mut self.db)
            .await?)
    }
}
