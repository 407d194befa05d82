//! Notices: reports of the broker itself, one for each subject.
//!
//! A notice is a message from the Administrator. It goes to a Director, and to the Administrator's own mailbox, where
//! the user finds it.

use super::ids::{AgentId, SessionId, TaskId};
use super::resolve::agent_by_id;
use super::send::{insert_tasks, message};
use super::types::AgentStatus;
use super::{Broker, BrokerError};
use crate::Stamp;
use crate::ask::{Ask, Change};

/// A report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The session.
    pub session: SessionId,
    /// What it is about; the same subject is reported once.
    pub subject: String,
    /// The Director that gets it.
    pub director: Option<AgentId>,
    /// Whether the user gets it, too.
    pub to_user: bool,
    /// The text.
    pub text: String,
}

impl Broker {
    /// Reports something unless it was reported before; returns whether it was new.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn notice(&mut self, notice: &Notice, now: Stamp) -> Result<bool, BrokerError> {
        let mut tx = self.db.begin().await?;
        let outcome: Result<Vec<AgentId>, BrokerError> = async {
            let tx = &mut tx;
            let new = sqlx::query(
                "INSERT INTO notices (session_id, subject, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            )
            .bind(notice.session.to_string())
            .bind(&notice.subject)
            .bind(now.to_string())
            .run(tx).await?;
            if new == 0 {
                return Ok(Vec::new());
            }
            let administrator: Option<String> = sqlx::query_scalar(
                "SELECT agent_id FROM agents WHERE session_id = $1 AND kind = 'builtin-administrator'",
            )
            .bind(notice.session.to_string())
            .maybe(tx).await?;
            let Some(administrator) = administrator.as_deref().and_then(AgentId::parse) else {
                return Ok(Vec::new());
            };
            let Some(from) = agent_by_id(tx, administrator).await? else {
                return Ok(Vec::new());
            };
            let mut told = Vec::new();
            for to in notice.director.into_iter().chain(notice.to_user.then_some(administrator)) {
                let agent = agent_by_id(tx, to).await?;
                let Some(agent) = agent.filter(|agent| agent.status == AgentStatus::Active) else { continue };
                let task = message(TaskId::random(), &from, &agent, &notice.text, None, now);
                insert_tasks(tx, vec![(agent.session, task)], Vec::new()).await?;
                told.push(to);
            }
            Ok(told)
        }
        .await;
        let told = tx.finish(outcome).await?;
        for agent in &told {
            self.signals.ring(&agent.to_string()).await;
        }
        Ok(!told.is_empty())
    }
}
