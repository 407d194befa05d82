//! Which process may act under which identity (a11).
//!
//! Owns the rule. An identity that a fleet agent owns may be used by that agent's processes, by its worker with the
//! capability, and by people. An identity without an owner may be used by people only. Every operation checks this inside
//! its transaction, before it writes. Refuses: finding out which agent a process belongs to; whoever opens the store says
//! so (ADR 0040 has the limits of that).

use std::fmt;
use std::path::Path;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::ids::{AgentId, SessionId};
use super::types::Agent;
use super::{Broker, BrokerError};
use crate::open::Tx;

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

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
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
        Seal(digest.iter().map(|byte| format!("{byte:02x}")).collect())
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
    /// The worker of a fleet agent: may use the identities that it has sealed.
    Worker {
        /// The agent.
        owner: Owner,
        /// What it holds.
        capability: Capability,
    },
}

impl Speaker {
    /// Whether it may act as this agent and read its mail.
    #[must_use]
    pub fn may_be(&self, agent: &Agent) -> bool {
        match self {
            Self::Anybody => true,
            Self::Only(above) => agent.owner.as_ref().is_some_and(|owner| above.contains(owner)),
            Self::Worker { capability, .. } => agent.seal.as_ref() == Some(&capability.seal()),
        }
    }

    /// The fleet agent whose limits apply, if any do. Of several agents above a process it is the outermost one, so that
    /// an agent gets no further allowance by starting another agent.
    pub(super) fn limited(&self) -> Option<&Owner> {
        match self {
            Self::Anybody => None,
            Self::Only(above) => above.last(),
            Self::Worker { owner, .. } => Some(owner),
        }
    }

    pub(super) fn new_seal(&self) -> Option<Seal> {
        match self {
            Self::Anybody | Self::Only(_) => None,
            Self::Worker { capability, .. } => Some(capability.seal()),
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
        if self.may_be(agent) {
            return Ok(());
        }
        let own = own_of(tx.conn(), self, agent.session).await.map_err(|e| tx.words(e))?;
        Err(self.refusal(agent, own))
    }

    fn refusal(&self, agent: &Agent, own: Vec<AgentId>) -> BrokerError {
        BrokerError::NotYours { agent: Some(agent.id), by: self.limited().cloned(), own }
    }
}

impl Broker {
    /// Refuses to read what is somebody else's.
    ///
    /// # Errors
    /// `NotYours`, or the store's.
    pub async fn check_reader(&mut self, agent: &Agent) -> Result<(), BrokerError> {
        if self.speaker.may_be(agent) {
            return Ok(());
        }
        let speaker = self.speaker.clone();
        let conn = self.db.conn().await?;
        let own = own_of(conn, &speaker, agent.session).await.map_err(|e| self.db.words(e))?;
        Err(speaker.refusal(agent, own))
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
                .execute(tx.conn())
                .await
                .map_err(|e| tx.words(e))?;
            }
            Ok(())
        }
        .await;
        tx.finish(outcome).await
    }
}

/// The active identities of a session that the speaker may act as, the latest first.
async fn own_of(
    conn: &mut sqlx::SqliteConnection,
    speaker: &Speaker,
    session: SessionId,
) -> Result<Vec<AgentId>, sqlx::Error> {
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
        .fetch_all(&mut *conn)
        .await?;
        own.extend(found.iter().filter_map(|id| AgentId::parse(id)));
    }
    Ok(own)
}
