//! Which process may act under which identity (a11).
//!
//! Owns the rule. An identity that a fleet agent owns may be used by that agent's processes, by its worker with the
//! capability, and by people. An identity without an owner may be used by people only. The pane of a member is that
//! member's. Who is in a pid namespace and cannot be seen to be a person is nobody whom a session made outside trusts: neither
//! its root Director nor its Administrator. Every operation checks this inside its transaction, before it writes. Refuses:
//! finding out which agent a process belongs to; whoever opens the store says so (ADR 0040 has the limits of that).

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

/// How many own identities a refusal names.
const NAMED: i64 = 5;

/// A fleet agent, by the directory that it has for life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(String);

impl Owner {
    /// The fleet agent with this directory.
    #[must_use]
    pub fn of_directory(directory: &Path) -> Self {
        Self(directory.to_string_lossy().into_owned())
    }

    /// Its short name: the fleet's id of it.
    #[must_use]
    pub fn name(&self) -> &str {
        Path::new(&self.0).file_name().and_then(|name| name.to_str()).unwrap_or(&self.0)
    }

    /// What the member `id` registers from its pane belongs to it.
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

/// A pid namespace that does not show who stands above a process. The same text is the same namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enclosure(String);

impl Enclosure {
    /// The place of sessions that are made where every process shows.
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

/// Who uses the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speaker {
    /// A person, or a program outside the fleet: may use any identity, without limits.
    Anybody,
    /// A process of these fleet agents, the innermost first: may use the identities that they own. An empty list may use
    /// none.
    Only(Vec<Owner>),
    /// A process in a pid namespace, above which nobody can look. May use identities that no fleet agent owns, but not the
    /// root Director and the Administrator of a session that was made elsewhere.
    Within(Enclosure),
    /// A process in the pane of a member: may be that member, and what it registered.
    Member(AgentId),
    /// The worker of a fleet agent: may use the identities that it has sealed.
    Worker {
        /// The agent.
        owner: Owner,
        /// What it holds.
        capability: Capability,
    },
}

impl Speaker {
    /// Whether it may act as this agent and read its mail, whatever the session.
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

    /// The fleet agent whose limits apply, if any do. Of several agents above a process it is the outermost one, so that
    /// an agent gets no further allowance by starting another agent.
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

    /// To whom belongs what it registers.
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

    /// Refuses to act as somebody else.
    pub(super) async fn check(&self, tx: &mut Tx<'_>, agent: &Agent) -> Result<(), BrokerError> {
        let judged = self.judge(tx, agent).await?;
        judged.map_or(Ok(()), Err)
    }

    /// Why it may not be this agent, if it may not.
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
    /// Refuses to read what is somebody else's.
    ///
    /// # Errors
    /// `NotYours`, or the store's.
    pub async fn check_reader(&mut self, agent: &Agent) -> Result<(), BrokerError> {
        let speaker = self.speaker.clone();
        let judged = speaker.judge(&mut self.db, agent).await?;
        judged.map_or(Ok(()), Err)
    }

    /// Whether the speaker sees what others sent each other in the session, as people do.
    ///
    /// # Errors
    /// The store's.
    pub async fn sees_all(&mut self, session: SessionId) -> Result<bool, BrokerError> {
        match self.speaker.clone() {
            Speaker::Anybody => Ok(true),
            Speaker::Within(enclosure) => Ok(is_home(&mut self.db, session, &enclosure).await?),
            Speaker::Only(_) | Speaker::Member(_) | Speaker::Worker { .. } => Ok(false),
        }
    }

    /// Says where sessions are made from now on: in the namespace with this name, or [`Enclosure::NONE`].
    pub fn is_at(&mut self, place: &str) {
        self.place = Some(place.to_owned());
    }

    /// The active member in whose pane on `host` one of these processes is the first (id, and when it started), or that
    /// has this pane: the innermost one.
    ///
    /// # Errors
    /// The store's.
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
        // What the environment says is no proof for its bearer, but it counts against.
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

    /// Acts as somebody else from now on.
    pub fn speak_as(&mut self, speaker: Speaker) {
        self.speaker = speaker;
    }

    /// Seals identities that belong to this worker's agent or to nobody: from now on no other worker can use them.
    /// Identities of another agent are left alone.
    ///
    /// # Errors
    /// The store's.
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

/// What an agent is in its session.
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

/// Whether a session was made in this namespace. Of sessions of an older version nobody knows; they are not held up.
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
