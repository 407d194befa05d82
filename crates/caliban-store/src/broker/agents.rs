//! Agents: registered, listed, shown, deregistered.
//!
//! Owns the protection of the two built-in agents and of the Administrator's name.

use serde_json::json;

use super::ids::{AgentId, IdPrefix, SessionId};
use super::resolve::{agent_by_id, find_agent, find_session};
use super::row::{self, agent_columns};
use super::speaker::{Owner, Seal, Speaker};
use super::types::{Agent, AgentKind, AgentStatus, NewAgent, Placement};
use super::{Broker, BrokerError, limits, names};
use crate::Stamp;
use crate::ask::{Ask, Change, ReadAs};
use crate::open::Tx;

impl Broker {
    /// Registers an agent in a living session. If the speaker is a fleet agent, it becomes the owner.
    ///
    /// # Errors
    /// `SessionNotFound`, `SessionDeleted`, `ReservedName`, or a failure of the store; for processes of fleet agents also
    /// `NameTaken`, `TooManyIdentities`, `TooFast`, `NotYours`.
    pub async fn register(
        &mut self,
        session: &IdPrefix,
        new: &NewAgent,
        now: Stamp,
    ) -> Result<Agent, BrokerError> {
        names::refuse_reserved(&new.name)?;
        let (id, speaker) = (AgentId::random(), self.speaker.clone());
        speaker.must_be_known()?;
        let mut tx = self.db.begin().await?;
        let outcome: Result<Agent, BrokerError> = async {
            let tx = &mut tx;
            let found = find_session(tx, session).await?;
            let found = found.one(session, || BrokerError::SessionNotFound(session.given().to_owned()))?;
            if found.deleted_at.is_some() {
                return Err(BrokerError::SessionDeleted(found.id));
            }
            if matches!(speaker, Speaker::Only(_)) {
                refuse_taken(tx, found.id, &new.name).await?;
                limits::one_more_identity(tx, &speaker).await?;
                limits::take_one(tx, &speaker, now).await?;
            }
            let card = json!({"name": new.name, "description": new.description, "skills": new.skills});
            let mut agent = Agent {
                id,
                number: None,
                session: found.id,
                name: new.name.clone(),
                description: new.description.clone(),
                status: AgentStatus::Active,
                kind: AgentKind::User,
                registered_at: now,
                card: card.to_string(),
                placement: None,
                owner: speaker.new_owner(),
                seal: speaker.new_seal(),
            };
            agent.number = Some(insert_agent(tx, &agent).await?);
            Ok(agent)
        }
        .await;
        tx.finish(outcome).await
    }

    /// The active agents of a session, oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn agents(&mut self, session: SessionId) -> Result<Vec<Agent>, BrokerError> {
        Ok(sqlx::query(concat!(
            "SELECT ",
            agent_columns!(),
            " WHERE a.session_id = $1 AND a.status = 'active' ORDER BY a.seq"
        ))
        .bind(session.to_string())
        .read_as(row::agent)
        .all(&mut self.db)
        .await?)
    }

    /// One active agent of a session.
    ///
    /// # Errors
    /// `AgentNotFound`, `Ambiguous`, or a failure of the store.
    pub async fn agent(&mut self, session: SessionId, given: &IdPrefix) -> Result<Agent, BrokerError> {
        let not_found = || BrokerError::AgentNotFound(given.given().to_owned());
        let found = find_agent(&mut self.db, session, given).await?;
        let agent = found.one(given, not_found)?;
        if agent.status == AgentStatus::Active { Ok(agent) } else { Err(not_found()) }
    }

    /// An agent of any session, by its whole id.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn agent_of_any(&mut self, id: AgentId) -> Result<Option<Agent>, BrokerError> {
        Ok(agent_by_id(&mut self.db, id).await?)
    }

    /// Deregisters an agent. Its messages stay.
    ///
    /// # Errors
    /// `NotAMember`, `NotYours`, `RootDirector`, `Administrator`, `AlreadyDeregistered`, or a failure of the store.
    pub async fn deregister(
        &mut self,
        session: SessionId,
        given: &IdPrefix,
        now: Stamp,
    ) -> Result<AgentId, BrokerError> {
        let speaker = self.speaker.clone();
        let mut tx = self.db.begin().await?;
        let outcome: Result<AgentId, BrokerError> = async {
            let tx = &mut tx;
            let found = find_agent(tx, session, given).await?;
            let agent =
                found.one(given, || BrokerError::NotAMember { agent: given.given().to_owned(), session })?;
            speaker.check(tx, &agent).await?;
            if agent.kind == AgentKind::Administrator {
                return Err(BrokerError::Administrator);
            }
            let director: Option<i64> =
                sqlx::query_scalar("SELECT 1 FROM sessions WHERE session_id = $1 AND director_agent_id = $2")
                    .bind(session.to_string())
                    .bind(agent.id.to_string())
                    .maybe(tx)
                    .await?;
            if director.is_some() {
                return Err(BrokerError::RootDirector);
            }
            let changed = sqlx::query(
                "UPDATE agents SET status = 'deregistered', deregistered_at = $1 \
                     WHERE agent_id = $2 AND status = 'active'",
            )
            .bind(now.to_string())
            .bind(agent.id.to_string())
            .run(tx)
            .await?;
            if changed == 0 {
                return Err(BrokerError::AlreadyDeregistered(agent.id));
            }
            sqlx::query("DELETE FROM agent_placements WHERE agent_id = $1")
                .bind(agent.id.to_string())
                .run(tx)
                .await?;
            Ok(agent.id)
        }
        .await;
        tx.finish(outcome).await
    }
}

/// A fleet agent may not take a name that is in use: other agents are addressed by it.
async fn refuse_taken(tx: &mut Tx<'_>, session: SessionId, name: &str) -> Result<(), BrokerError> {
    let taken: Vec<String> =
        sqlx::query_scalar("SELECT name FROM agents WHERE session_id = $1 AND status = 'active'")
            .bind(session.to_string())
            .all(tx)
            .await?;
    if taken.iter().any(|taken| names::alike(taken, name)) {
        Err(BrokerError::NameTaken(name.to_owned()))
    } else {
        Ok(())
    }
}

/// Inserts an agent and its placement, and assigns its number.
pub(super) async fn insert_agent(tx: &mut Tx<'_>, agent: &Agent) -> Result<i64, BrokerError> {
    let number: i64 = sqlx::query_scalar(
        "UPDATE sessions SET last_agent = last_agent + 1 WHERE session_id = $1 RETURNING last_agent",
    )
    .bind(agent.session.to_string())
    .one(tx)
    .await?;
    sqlx::query(
        "INSERT INTO agents (agent_id, session_id, name, description, status, kind, registered_at, \
         agent_card_json, owner, seal, number) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(agent.id.to_string())
    .bind(agent.session.to_string())
    .bind(&agent.name)
    .bind(&agent.description)
    .bind(agent.status.as_str())
    .bind(agent.kind.as_str())
    .bind(agent.registered_at.to_string())
    .bind(&agent.card)
    .bind(agent.owner.as_ref().map(Owner::as_str))
    .bind(agent.seal.as_ref().map(Seal::as_str))
    .bind(number)
    .run(tx)
    .await?;
    if let Some(placement) = &agent.placement {
        insert_placement(tx, agent.id, placement).await?;
    }
    Ok(number)
}

/// Inserts an agent's placement, replacing the former one.
pub(super) async fn insert_placement(
    tx: &mut Tx<'_>,
    agent: AgentId,
    placement: &Placement,
) -> Result<(), BrokerError> {
    let identity = placement.identity.as_ref();
    sqlx::query(
        "INSERT OR REPLACE INTO agent_placements (agent_id, director_agent_id, tmux_session, tmux_window_id, tmux_pane_id, \
         coding_agent, created_at, tmux_socket, tmux_server_pid, tmux_pane_pid, tmux_pane_started, host) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    )
    .bind(agent.to_string())
    .bind(placement.director.map(|id| id.to_string()))
    .bind(&placement.tmux_session)
    .bind(&placement.tmux_window)
    .bind(&placement.tmux_pane)
    .bind(&placement.coding_agent)
    .bind(placement.created_at.to_string())
    .bind(identity.map(|i| i.socket.as_str()))
    .bind(identity.map(|i| i.server_pid))
    .bind(identity.map(|i| i.pane_pid))
    .bind(identity.map(|i| i.pane_started.as_str()))
    .bind(placement.host.as_str())
    .run(tx).await?;
    Ok(())
}
