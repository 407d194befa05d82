//! Which process may act under which identity (a11).
//!
//! Owns the rule. An identity that a fleet agent owns may be used by that agent's processes, by its worker with the
//! capability, and by people. An identity without an owner may be used by people only. The pane of a member may use
//! that member's identity. A process in a pid namespace that cannot be shown to be a person's is not trusted by a
//! session made outside that namespace: it may be neither the root Director nor the Administrator. Every operation
//! checks this inside its transaction, before it writes. Refuses: finding out which agent a process belongs to; the
//! process that opens the store declares it (ADR 0040 has the limits of that).

use std::fmt;
use std::path::Path;

use caliban_core::hex;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::ids::{AgentId, SessionId};
use super::types::{Agent, AgentKind};
use super::{Broker, BrokerError};
use crate::ask::{Ask, Change, Source};
use crate::open::Tx;
use crate::{HostId, StoreError};

/// Maximum number of own identities that a refusal names.
const NAMED: i64 = 5;

/// A fleet agent, identified by its directory, which never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(String);

impl Owner {
    /// The fleet agent with this directory.
    #[must_use]
    pub fn of_directory(directory: &Path) -> Self {
        Self(directory.to_string_lossy().into_owned())
    }

    /// Its short name: its id in the fleet.
    #[must_use]
    pub fn name(&self) -> &str {
        Path::new(&self.0).file_name().and_then(|name| name.to_str()).unwrap_or(&self.0)
    }

    /// The owner of the identities that the member `id` registers from its pane.
    fn of_member(id: AgentId) -> Self {
        Self(format!("member:{id}"))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

/// A pid namespace that hides the ancestors of a process. Equal texts are the same namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enclosure(String);

impl Enclosure {
    /// The place of sessions that are made where every process is visible.
    pub const NONE: &'static str = "whole";

    /// The namespace with this name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// A secret that a worker keeps in memory and presents with each write. It is never stored; the store has its [`Seal`].
#[derive(Clone, PartialEq, Eq)]
pub struct Capability([Uuid; 2]);

impl Capability {
    /// A new one, from the system's random numbers.
    #[must_use]
    pub fn random() -> Self {
        Self([Uuid::new_v4(), Uuid::new_v4()])
    }

    fn seal(&self) -> Seal {
        let digest = Sha256::new().chain_update(self.0[0]).chain_update(self.0[1]).finalize();
        Seal(hex::encode(&digest))
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capability(…)")
    }
}

/// The hash of a capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal(String);

impl Seal {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

/// The kind of process that uses the store, which decides what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speaker {
    /// A person, or a program outside the fleet: may use any identity, without limits.
    Anybody,
    /// A process of these fleet agents, the innermost first: may use the identities that they own. An empty list may
    /// use none.
    Only(Vec<Owner>),
    /// A process in a pid namespace, whose ancestors outside cannot be seen. May use identities that no fleet agent
    /// owns, but not the root Director and the Administrator of a session that was made elsewhere.
    Within(Enclosure),
    /// A process in the pane of a member: may use that member's identity, and those that it registered.
    Member(AgentId),
    /// The worker of a fleet agent: may use the identities that it has sealed.
    Worker {
        /// The agent.
        owner: Owner,
        /// Its secret.
        capability: Capability,
    },
}

impl Speaker {
    /// Whether it may act as this agent and read its messages, whatever the session.
    #[must_use]
    pub fn may_be(&self, agent: &Agent) -> bool {
        match self {
            Self::Anybody => true,
            Self::Only(above) => agent.owner.as_ref().is_some_and(|owner| above.contains(owner)),
            Self::Within(_) => false,
            Self::Member(id) => agent.id == *id || agent.owner == Some(Owner::of_member(*id)),
            Self::Worker { capability, .. } => agent.seal.as_ref() == Some(&capability.seal()),
        }
    }

    /// The fleet agent whose limits apply, if any do. Of several agents above a process it is the outermost one, so
    /// that an agent gains no allowance by starting another agent.
    pub(super) fn limited(&self) -> Option<&Owner> {
        match self {
            Self::Anybody | Self::Within(_) | Self::Member(_) => None,
            Self::Only(above) => above.last(),
            Self::Worker { owner, .. } => Some(owner),
        }
    }

    pub(super) fn new_seal(&self) -> Option<Seal> {
        match self {
            Self::Anybody | Self::Only(_) | Self::Within(_) | Self::Member(_) => None,
            Self::Worker { capability, .. } => Some(capability.seal()),
        }
    }

    /// The owner of the identities that it registers.
    pub(super) fn new_owner(&self) -> Option<Owner> {
        match self {
            Self::Member(id) => Some(Owner::of_member(*id)),
            _ => self.limited().cloned(),
        }
    }

    /// Refuses to create anything for a process whose agent is unknown.
    pub(super) fn must_be_known(&self) -> Result<(), BrokerError> {
        match self {
            Self::Only(above) if above.is_empty() => {
                Err(BrokerError::NotYours { agent: None, by: None, own: Vec::new() })
            }
            _ => Ok(()),
        }
    }

    /// Refuses an identity that the speaker may not use.
    pub(super) async fn check(&self, tx: &mut Tx<'_>, agent: &Agent) -> Result<(), BrokerError> {
        let judged = self.judge(tx, agent).await?;
        judged.map_or(Ok(()), Err)
    }

    /// Why the speaker may not use this identity; `None` if it may.
    async fn judge(&self, of: &mut impl Source, agent: &Agent) -> Result<Option<BrokerError>, StoreError> {
        if self.may_be(agent) {
            return Ok(None);
        }
        match self {
            Self::Within(enclosure) if agent.owner.is_none() => {
                let is_trusted = SessionRole::of(of, agent).await? == SessionRole::Ordinary
                    || is_home(of, agent.session, enclosure).await?;
                Ok((!is_trusted).then_some(BrokerError::Unproven(agent.id)))
            }
            Self::Member(member) => Ok(Some(BrokerError::NotThisMember { agent: agent.id, member: *member })),
            _ => {
                let own = own_of(of, self, agent.session).await?;
                let by = self.limited().cloned();
                Ok(Some(BrokerError::NotYours { agent: Some(agent.id), by, own }))
            }
        }
    }
}

impl Broker {
    /// Refuses to read the messages of an identity that the speaker may not use.
    ///
    /// # Errors
    /// `NotYours`, or a failure of the store.
    pub async fn check_reader(&mut self, agent: &Agent) -> Result<(), BrokerError> {
        let speaker = self.speaker.clone();
        let judged = speaker.judge(&mut self.db, agent).await?;
        judged.map_or(Ok(()), Err)
    }

    /// Whether the speaker sees the messages between other agents of the session, as people do.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn sees_all(&mut self, session: SessionId) -> Result<bool, BrokerError> {
        match self.speaker.clone() {
            Speaker::Anybody => Ok(true),
            Speaker::Within(enclosure) => Ok(is_home(&mut self.db, session, &enclosure).await?),
            Speaker::Only(_) | Speaker::Member(_) | Speaker::Worker { .. } => Ok(false),
        }
    }

    /// Sets the place recorded for new sessions: the namespace with this name, or [`Enclosure::NONE`].
    pub fn is_at(&mut self, place: &str) {
        self.place = Some(place.to_owned());
    }

    /// The active member whose pane on `host` has one of these processes (pid and start time) as its first process, or
    /// that has this pane: the innermost one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn member_in_pane(
        &mut self,
        host: &HostId,
        processes: &[(i64, String)],
        pane: Option<(&str, &str)>,
    ) -> Result<Option<AgentId>, BrokerError> {
        type Row = (String, Option<i64>, Option<String>, Option<String>, Option<String>);
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT a.agent_id, p.tmux_pane_pid, p.tmux_pane_started, p.tmux_socket, p.tmux_pane_id \
             FROM agent_placements p JOIN agents a ON a.agent_id = p.agent_id \
             WHERE p.director_agent_id IS NOT NULL AND p.host = $1 AND a.status = 'active'",
        )
        .bind(host.as_str())
        .all(&mut self.db)
        .await?;
        let is_first = |row: &&Row, (pid, started): &(i64, String)| {
            row.1 == Some(*pid) && row.2.as_deref() == Some(started.as_str())
        };
        let above = processes.iter().find_map(|process| rows.iter().find(|row| is_first(row, process)));
        // The environment is no proof of an identity, but it can restrict the caller to one.
        let said = || {
            let (socket, id) = pane?;
            rows.iter().find(|row| row.3.as_deref() == Some(socket) && row.4.as_deref() == Some(id))
        };
        Ok(above.or_else(said).and_then(|row| AgentId::parse(&row.0)))
    }

    /// Who uses the store.
    #[must_use]
    pub fn speaker(&self) -> &Speaker {
        &self.speaker
    }

    /// Changes the speaker from now on.
    pub fn speak_as(&mut self, speaker: Speaker) {
        self.speaker = speaker;
    }

    /// Seals identities that belong to this worker's agent or to no owner: from now on no other worker can use them.
    /// Identities of another agent are left alone.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn seal(&mut self, agents: &[AgentId]) -> Result<(), BrokerError> {
        let Speaker::Worker { owner, capability } = self.speaker.clone() else { return Ok(()) };
        let seal = capability.seal();
        let mut tx = self.db.begin().await?;
        let outcome: Result<(), BrokerError> = async {
            let tx = &mut tx;
            for agent in agents {
                sqlx::query(
                    "UPDATE agents SET owner = $1, seal = $2 WHERE agent_id = $3 AND (owner IS NULL OR owner = $1)",
                )
                .bind(owner.as_str())
                .bind(seal.as_str())
                .bind(agent.to_string())
                .run(tx).await?;
            }
            Ok(())
        }
        .await;
        tx.finish(outcome).await
    }
}

/// The role of an agent in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionRole {
    /// The root Director or the Administrator.
    Trusted,
    Ordinary,
}

impl SessionRole {
    async fn of(of: &mut impl Source, agent: &Agent) -> Result<Self, StoreError> {
        let director: Option<String> =
            sqlx::query_scalar("SELECT director_agent_id FROM sessions WHERE session_id = $1")
                .bind(agent.session.to_string())
                .maybe(of)
                .await?
                .flatten();
        let is_trusted =
            agent.kind == AgentKind::Administrator || director.is_none_or(|id| id == agent.id.to_string());
        Ok(if is_trusted { Self::Trusted } else { Self::Ordinary })
    }
}

/// Whether a session was made in this namespace. For sessions of an older version that is unknown; they are not
/// restricted.
async fn is_home(
    of: &mut impl Source,
    session: SessionId,
    enclosure: &Enclosure,
) -> Result<bool, StoreError> {
    let place: Option<Option<String>> =
        sqlx::query_scalar("SELECT pid_namespace FROM sessions WHERE session_id = $1")
            .bind(session.to_string())
            .maybe(of)
            .await?;
    Ok(place.is_some_and(|place| place.is_none_or(|place| place == enclosure.0)))
}

/// The active identities of a session that the speaker may act as, the latest first.
async fn own_of(
    of: &mut impl Source,
    speaker: &Speaker,
    session: SessionId,
) -> Result<Vec<AgentId>, StoreError> {
    let Speaker::Only(above) = speaker else { return Ok(Vec::new()) };
    let mut own = Vec::new();
    for owner in above {
        let found: Vec<String> = sqlx::query_scalar(
            "SELECT agent_id FROM agents WHERE owner = $1 AND session_id = $2 AND status = 'active' \
             ORDER BY seq DESC LIMIT $3",
        )
        .bind(owner.as_str())
        .bind(session.to_string())
        .bind(NAMED)
        .all(of)
        .await?;
        own.extend(found.iter().filter_map(|id| AgentId::parse(id)));
    }
    Ok(own)
}
