//! Members: agents that a Director started in a pane.
//!
//! Owns what makes `member create` atomic. The agent is written with a pending placement and the name of the process
//! that makes it. The pane's first process claims the placement, and starts its program only if that succeeded. A
//! pending member whose maker has died is undone by the next process that sees it. So there is never a program without
//! a member, and a member without a program does not stay.

use serde_json::json;

use super::agents::{insert_agent, insert_placement};
use super::ids::{AgentId, IdPrefix, SessionId};
use super::names::refuse_reserved;
use super::resolve::{agent_by_id, find_agent, find_session};
use super::row::{self, agent_columns};
use super::types::{Agent, AgentKind, AgentStatus, PaneIdentity, Placement};
use super::{Broker, BrokerError, limits};
use crate::Stamp;
use crate::ask::{Ask, Change, ReadAs};
use crate::open::Tx;

/// What is needed to make a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMember {
    /// Its id, chosen in advance so that its prompt can name it.
    pub id: AgentId,
    /// Its session.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its placement; the pane does not exist yet.
    pub placement: Placement,
    /// The command that starts its program, for the pane and for a recovery.
    pub launch: String,
    /// The process that makes it.
    pub maker: String,
}

/// When an agent was last active.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// When it last sent a message, or one that it sent changed.
    pub sent: Option<Stamp>,
    /// When it last received a message, or one that it received changed.
    pub received: Option<Stamp>,
    /// When it last acknowledged a message.
    pub acked: Option<Stamp>,
    /// The number of messages it has not acknowledged.
    pub unread: u64,
    /// The number of those that are still to be typed into its pane.
    pub held: u64,
}

impl Broker {
    /// Writes a member whose pane does not exist yet.
    ///
    /// # Errors
    /// `SessionNotFound`, `SessionDeleted`, `ReservedName`, `SenderNotActive` when the Director may not be one, `NotYours`,
    /// or a failure of the store.
    pub async fn create_member(&mut self, new: &NewMember, now: Stamp) -> Result<Agent, BrokerError> {
        refuse_reserved(&new.name)?;
        let speaker = self.speaker.clone();
        speaker.must_be_known()?;
        let mut tx = self.db.begin().await?;
        let outcome: Result<Agent, BrokerError> = async {
            let tx = &mut tx;
            let given = IdPrefix::from(new.session);
            let found = find_session(tx, &given).await?;
            let found = found.one(&given, || BrokerError::SessionNotFound(new.session.to_string()))?;
            if found.deleted_at.is_some() {
                return Err(BrokerError::SessionDeleted(found.id));
            }
            let director = new.placement.director.ok_or(BrokerError::Administrator)?;
            let director = agent_by_id(tx, director).await?;
            let director = director
                .filter(|director| {
                    director.session == new.session
                        && director.status == AgentStatus::Active
                        && director.kind == AgentKind::User
                })
                .ok_or_else(|| {
                    BrokerError::NotADirector(
                        new.placement.director.map(|id| id.to_string()).unwrap_or_default(),
                    )
                })?;
            speaker.check(tx, &director).await?;
            limits::take_one(tx, &speaker, now).await?;
            let card = json!({"name": new.name, "description": new.description, "skills": []});
            let mut agent = Agent {
                id: new.id,
                number: None,
                session: new.session,
                name: new.name.clone(),
                description: new.description.clone(),
                status: AgentStatus::Active,
                kind: AgentKind::User,
                registered_at: now,
                card: card.to_string(),
                placement: Some(new.placement.clone()),
                owner: None,
                seal: None,
            };
            agent.number = Some(insert_agent(tx, &agent).await?);
            write_launch(tx, new.id, &new.launch, &new.maker).await?;
            Ok(agent)
        }
        .await;
        tx.finish(outcome).await
    }

    /// Marks the placement of a member that lost its pane as pending again, for a new pane. If that fails, the former
    /// placement is restored.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn place_again(&mut self, agent: AgentId, maker: &str, now: Stamp) -> Result<(), BrokerError> {
        let mut tx = self.db.begin().await?;
        let outcome: Result<(), BrokerError> = async {
            let tx = &mut tx;
            sqlx::query(
                "UPDATE members SET maker = $1, former_pane = \
                 (SELECT tmux_pane_id FROM agent_placements WHERE agent_id = $2) WHERE agent_id = $2",
            )
            .bind(maker)
            .bind(agent.to_string())
            .run(tx)
            .await?;
            sqlx::query(
                "UPDATE agent_placements SET tmux_pane_id = NULL, created_at = $1 WHERE agent_id = $2",
            )
            .bind(now.to_string())
            .bind(agent.to_string())
            .run(tx)
            .await?;
            Ok(())
        }
        .await;
        tx.finish(outcome).await
    }

    /// Moves an agent to an existing pane.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn move_to(&mut self, agent: AgentId, placement: &Placement) -> Result<(), BrokerError> {
        let mut tx = self.db.begin().await?;
        let outcome = insert_placement(&mut tx, agent, placement).await;
        tx.finish(outcome).await
    }

    /// Claims the placement for the pane's first process; returns the command that starts the program, or `None` if the
    /// member was undone or has a pane already.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim_placement(
        &mut self,
        agent: AgentId,
        pane: &str,
        window: &str,
        tmux_session: &str,
        identity: &PaneIdentity,
    ) -> Result<Option<String>, BrokerError> {
        let mut tx = self.db.begin().await?;
        let outcome: Result<Option<String>, BrokerError> = async {
            let tx = &mut tx;
            let changed = sqlx::query(
                "UPDATE agent_placements SET tmux_pane_id = $1, tmux_window_id = $2, tmux_session = $3, \
                 tmux_socket = $4, tmux_server_pid = $5, tmux_pane_pid = $6, tmux_pane_started = $7 \
                 WHERE agent_id = $8 AND tmux_pane_id IS NULL AND EXISTS \
                 (SELECT 1 FROM agents WHERE agent_id = $8 AND status = 'active')",
            )
            .bind(pane)
            .bind(window)
            .bind(tmux_session)
            .bind(&identity.socket)
            .bind(identity.server_pid)
            .bind(identity.pane_pid)
            .bind(&identity.pane_started)
            .bind(agent.to_string())
            .run(tx)
            .await?;
            if changed == 0 {
                return Ok(None);
            }
            sqlx::query_scalar("SELECT launch FROM members WHERE agent_id = $1")
                .bind(agent.to_string())
                .maybe(tx)
                .await
                .map_err(BrokerError::from)
        }
        .await;
        let launch = tx.finish(outcome).await?;
        // The maker waits for this ring.
        self.signals.ring(&agent.to_string()).await;
        Ok(launch)
    }

    /// The command that starts a member's program, and the process that made the member.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn launch(&mut self, agent: AgentId) -> Result<Option<(String, String)>, BrokerError> {
        let launch = sqlx::query_as("SELECT launch, maker FROM members WHERE agent_id = $1");
        Ok(launch.bind(agent.to_string()).maybe(&mut self.db).await?)
    }

    /// Undoes a member without a pane; `false` if it has a pane by now, or is gone. A member that was to get another
    /// pane is restored to its former one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn undo_member(&mut self, agent: AgentId, now: Stamp) -> Result<bool, BrokerError> {
        let mut tx = self.db.begin().await?;
        let outcome = undo(&mut tx, agent, now).await;
        let undone = tx.finish(outcome).await?;
        self.signals.ring(&agent.to_string()).await;
        Ok(undone)
    }

    /// Undoes a member whose program could not be started in its pane.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn unplace_member(&mut self, agent: AgentId, now: Stamp) -> Result<bool, BrokerError> {
        let mut tx = self.db.begin().await?;
        let outcome: Result<bool, BrokerError> = async {
            let tx = &mut tx;
            sqlx::query("UPDATE agent_placements SET tmux_pane_id = NULL WHERE agent_id = $1")
                .bind(agent.to_string())
                .run(tx)
                .await?;
            undo(tx, agent, now).await
        }
        .await;
        let undone = tx.finish(outcome).await?;
        self.signals.ring(&agent.to_string()).await;
        Ok(undone)
    }

    /// Deregisters a member whose pane is closed. Allowed to its Director, and to any process that may act as the
    /// Director.
    ///
    /// # Errors
    /// `NotYours`, or a failure of the store.
    pub async fn remove_member(
        &mut self,
        director: &Agent,
        member: AgentId,
        now: Stamp,
    ) -> Result<bool, BrokerError> {
        let speaker = self.speaker.clone();
        let mut tx = self.db.begin().await?;
        let outcome: Result<bool, BrokerError> = async {
            let tx = &mut tx;
            speaker.check(tx, director).await?;
            sqlx::query("DELETE FROM agent_placements WHERE agent_id = $1")
                .bind(member.to_string())
                .run(tx)
                .await?;
            sqlx::query(
                "UPDATE execs SET state = 'lost', note = 'its member was deleted', changed_at = $1 \
                 WHERE member_agent_id = $2 AND state IN ('queued', 'typed', 'running')",
            )
            .bind(now.to_string())
            .bind(member.to_string())
            .run(tx)
            .await?;
            leave(tx, member, now).await
        }
        .await;
        let removed = tx.finish(outcome).await?;
        self.signals.ring(&member.to_string()).await;
        Ok(removed)
    }

    /// The active members of a Director, oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn members(
        &mut self,
        session: SessionId,
        director: AgentId,
    ) -> Result<Vec<Agent>, BrokerError> {
        Ok(sqlx::query(concat!(
            "SELECT ",
            agent_columns!(),
            " WHERE a.session_id = $1 AND a.status = 'active' AND p.director_agent_id = $2 ORDER BY a.seq"
        ))
        .bind(session.to_string())
        .bind(director.to_string())
        .read_as(row::agent)
        .all(&mut self.db)
        .await?)
    }

    /// One active agent of a session by its whole id or a prefix; `None` when there is none.
    ///
    /// # Errors
    /// `Ambiguous`, or a failure of the store.
    pub async fn find_member(
        &mut self,
        session: SessionId,
        given: &IdPrefix,
    ) -> Result<Option<Agent>, BrokerError> {
        let found = find_agent(&mut self.db, session, given).await?;
        match found.one(given, || BrokerError::AgentNotFound(given.given().to_owned())) {
            Ok(agent) => Ok(Some(agent).filter(|agent| agent.status == AgentStatus::Active)),
            Err(BrokerError::AgentNotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// When an agent was last active.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn activity(&mut self, agent: AgentId) -> Result<Activity, BrokerError> {
        type Row = (Option<String>, Option<String>, Option<String>, i64, i64);
        let (sent, received, acked, unread, held): Row = sqlx::query_as(
            "SELECT (SELECT MAX(status_timestamp) FROM tasks WHERE from_agent_id = $1 AND type = 'unicast'), \
             (SELECT MAX(status_timestamp) FROM tasks WHERE context_id = $1 AND type = 'unicast'), \
             (SELECT MAX(status_timestamp) FROM tasks WHERE context_id = $1 AND type = 'unicast' \
              AND status_state = 'completed'), \
             (SELECT COUNT(*) FROM tasks WHERE context_id = $1 AND type = 'unicast' \
              AND status_state = 'input_required'), \
             (SELECT COUNT(*) FROM tasks WHERE context_id = $1 AND type = 'unicast' \
              AND status_state = 'input_required' AND delivery_state IN ('stored', 'held'))",
        )
        .bind(agent.to_string())
        .one(&mut self.db)
        .await?;
        let stamp = |text: Option<String>| text.and_then(|text| Stamp::parse(&text).ok());
        let count = |count: i64| u64::try_from(count).unwrap_or_default();
        Ok(Activity {
            sent: stamp(sent),
            received: stamp(received),
            acked: stamp(acked),
            unread: count(unread),
            held: count(held),
        })
    }

    /// Waits until a process rings for this agent, or until `limit` has passed.
    pub async fn listen_for(&mut self, who: &str, limit: std::time::Duration) {
        match self.signals.listen(who).await {
            // A failed bell counts as a ring: the caller looks at the store.
            Ok(mut bell) => drop(tokio::time::timeout(limit, bell.rung()).await),
            Err(_) => tokio::time::sleep(limit).await,
        }
    }
}

async fn write_launch(tx: &mut Tx<'_>, agent: AgentId, launch: &str, maker: &str) -> Result<(), BrokerError> {
    sqlx::query("INSERT OR REPLACE INTO members (agent_id, launch, maker) VALUES ($1, $2, $3)")
        .bind(agent.to_string())
        .bind(launch)
        .bind(maker)
        .run(tx)
        .await?;
    Ok(())
}

async fn undo(tx: &mut Tx<'_>, agent: AgentId, now: Stamp) -> Result<bool, BrokerError> {
    let back = sqlx::query(
        "UPDATE agent_placements SET tmux_pane_id = (SELECT former_pane FROM members WHERE agent_id = $1) \
         WHERE agent_id = $1 AND tmux_pane_id IS NULL AND EXISTS \
         (SELECT 1 FROM members WHERE agent_id = $1 AND former_pane IS NOT NULL)",
    )
    .bind(agent.to_string())
    .run(tx)
    .await?;
    if back == 1 {
        return Ok(true);
    }
    let gone = sqlx::query("DELETE FROM agent_placements WHERE agent_id = $1 AND tmux_pane_id IS NULL");
    let gone = gone.bind(agent.to_string()).run(tx).await?;
    if gone == 0 { Ok(false) } else { leave(tx, agent, now).await }
}

async fn leave(tx: &mut Tx<'_>, agent: AgentId, now: Stamp) -> Result<bool, BrokerError> {
    let changed = sqlx::query(
        "UPDATE agents SET status = 'deregistered', deregistered_at = $1 WHERE agent_id = $2 AND status = 'active'",
    )
    .bind(now.to_string())
    .bind(agent.to_string()).run(tx).await?;
    Ok(changed == 1)
}
