//! Sessions: created with their Director and Administrator, listed, soft-deleted.
//!
//! Owns the two transactions that touch several tables at once. Refuses: deleting tasks.

use serde_json::json;

use super::agents::insert_agent;
use super::ids::{AgentId, SessionId};
use super::row::{self, agent_columns, session_columns};
use super::speaker::Speaker;
use super::types::{Agent, AgentKind, AgentStatus, Placement, Session, SessionSummary};
use super::{ADMINISTRATOR, Broker, BrokerError, DIRECTOR, limits};
use crate::Stamp;
use crate::ask::{Ask, Change, ReadAs};
use crate::open::Tx;

/// What is needed to make a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSession {
    /// The label that its maker gave it.
    pub label: Option<String>,
    /// The pane of its root Director, if that has one.
    pub placement: Option<Placement>,
}

/// A session just created, with its built-in agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedSession {
    /// The session.
    pub session: Session,
    /// Its root Director.
    pub director: Agent,
    /// Its Administrator.
    pub administrator: AgentId,
}

/// The result of deleting a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedSession {
    /// The session.
    pub id: SessionId,
    /// The number of agents that were still active; 0 if it had been deleted before.
    pub deregistered: u64,
}

impl Broker {
    /// Creates a session, its root Director with its placement, and its Administrator, all or nothing. If the speaker
    /// is a fleet agent, it becomes the Director's owner.
    ///
    /// # Errors
    /// When the store fails; for processes of fleet agents also `TooManyIdentities`, `TooFast`, `NotYours`.
    pub async fn create_session(
        &mut self,
        new: &CreateSession,
        now: Stamp,
    ) -> Result<CreatedSession, BrokerError> {
        let (id, speaker, place) = (SessionId::random(), self.speaker.clone(), self.place.clone());
        speaker.must_be_known()?;
        let mut director = Agent {
            id: AgentId::random(),
            number: None,
            session: id,
            name: DIRECTOR.to_owned(),
            description: "Root Director of this session".to_owned(),
            status: AgentStatus::Active,
            kind: AgentKind::User,
            registered_at: now,
            card: json!({"name": DIRECTOR, "description": "Root Director of this session", "skills": []})
                .to_string(),
            placement: new.placement.clone(),
            owner: speaker.new_owner(),
            seal: None,
        };
        let words = "Built-in Administrator of this session";
        let administrator = Agent {
            id: AgentId::random(),
            name: ADMINISTRATOR.to_owned(),
            description: words.to_owned(),
            kind: AgentKind::Administrator,
            card: json!({
                "name": ADMINISTRATOR, "description": words, "skills": [],
                "cafleet": {"kind": AgentKind::Administrator.as_str()},
            })
            .to_string(),
            placement: None,
            // The Administrator acts for a person, whoever created the session.
            owner: None,
            ..director.clone()
        };
        let session = Session {
            id,
            label: new.label.clone(),
            created_at: now,
            deleted_at: None,
            director: Some(director.id),
        };
        let mut tx = self.db.begin().await?;
        let outcome: Result<i64, BrokerError> = async {
            let tx = &mut tx;
            limits::one_more_identity(tx, &speaker).await?;
            limits::take_one(tx, &speaker, now).await?;
            sqlx::query(
                "INSERT INTO sessions (session_id, label, created_at, pid_namespace) VALUES ($1, $2, $3, $4)",
            )
            .bind(id.to_string())
            .bind(&session.label)
            .bind(now.to_string())
            .bind(&place)
            .run(tx)
            .await?;
            let number = insert_agent(tx, &director).await?;
            insert_agent(tx, &administrator).await?;
            sqlx::query("UPDATE sessions SET director_agent_id = $1 WHERE session_id = $2")
                .bind(director.id.to_string())
                .bind(id.to_string())
                .run(tx)
                .await?;
            Ok(number)
        }
        .await;
        director.number = Some(tx.finish(outcome).await?);
        Ok(CreatedSession { session, director, administrator: administrator.id })
    }

    /// The sessions that are not deleted, oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn sessions(&mut self) -> Result<Vec<SessionSummary>, BrokerError> {
        Ok(sqlx::query(concat!(
            "SELECT ",
            session_columns!(),
            ", (SELECT COUNT(*) FROM agents a WHERE a.session_id = s.session_id AND a.status = 'active') \
             FROM sessions s WHERE s.deleted_at IS NULL ORDER BY s.seq"
        ))
        .read_as(summary)
        .all(&mut self.db)
        .await?)
    }

    /// The number of active agents of a session, deleted or not.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn active_agents(&mut self, session: SessionId) -> Result<u64, BrokerError> {
        let count: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM agents WHERE session_id = $1 AND status = 'active'")
                .bind(session.to_string())
                .one(&mut self.db)
                .await?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// Soft-deletes a session, idempotently: stamps it, deregisters its agents, deletes their placements, keeps its
    /// tasks, and wakes readers that wait in it. Allowed to every process that may act as its Director.
    ///
    /// # Errors
    /// `NotYours`, or a failure of the store.
    pub async fn delete_session(&mut self, id: SessionId, now: Stamp) -> Result<DeletedSession, BrokerError> {
        let speaker = self.speaker.clone();
        let mut tx = self.db.begin().await?;
        let outcome: Result<Vec<String>, BrokerError> = async {
            let tx = &mut tx;
            if speaker != Speaker::Anybody {
                let director = director_of(tx, id).await?;
                speaker.check(tx, &director).await?;
            }
            sqlx::query("UPDATE sessions SET deleted_at = $1 WHERE session_id = $2 AND deleted_at IS NULL")
                .bind(now.to_string())
                .bind(id.to_string())
                .run(tx)
                .await?;
            sqlx::query(
                "DELETE FROM agent_placements WHERE agent_id IN \
                     (SELECT agent_id FROM agents WHERE session_id = $1)",
            )
            .bind(id.to_string())
            .run(tx)
            .await?;
            sqlx::query_scalar(
                "UPDATE agents SET status = 'deregistered', deregistered_at = $1 \
                     WHERE session_id = $2 AND status = 'active' RETURNING agent_id",
            )
            .bind(now.to_string())
            .bind(id.to_string())
            .all(tx)
            .await
            .map_err(BrokerError::from)
        }
        .await;
        let gone: Vec<String> = tx.finish(outcome).await?;
        for agent in &gone {
            self.signals.ring(agent).await;
        }
        Ok(DeletedSession { id, deregistered: gone.len() as u64 })
    }
}

async fn director_of(tx: &mut Tx<'_>, session: SessionId) -> Result<Agent, BrokerError> {
    let found = sqlx::query(concat!(
        "SELECT ",
        agent_columns!(),
        " WHERE a.agent_id = (SELECT director_agent_id FROM sessions WHERE session_id = $1)"
    ))
    .bind(session.to_string())
    .read_as(row::agent)
    .maybe(tx)
    .await?;
    found.ok_or_else(|| BrokerError::SessionNotFound(session.to_string()))
}

fn summary(row: &sqlx::sqlite::SqliteRow) -> Result<SessionSummary, sqlx::Error> {
    use sqlx::Row;
    let count: i64 = row.try_get(5)?;
    Ok(SessionSummary { session: row::session(row)?, agent_count: u64::try_from(count).unwrap_or_default() })
}
