//! Who an agent of the fleet is in a broker session.
//!
//! Registered at the agent's first start, remembered in its directory, kept over kills and resumes. An agent that has
//! ended leaves the session, so that nobody writes to it in vain; when it is resumed it registers anew, and what its
//! former mailbox still holds is delivered first.

use std::path::{Path, PathBuf};

use caliban_contract::records;
use caliban_core::{inert, spec::SpawnSpec};
use caliban_fleet::mailbox::{
    FILE, MailboxRecord, deregister, has_mark, is_of, mark, no_session, store_url, worded,
};
use caliban_store::{
    HostId, Stamp, StoreError, StoreUrl,
    broker::{
        Agent, AgentId, AgentStatus, Broker, BrokerError, Capability, IdPrefix, NewAgent, Owner, Session,
        Speaker,
    },
};

use super::{frame, limits::DESCRIPTION_CHARS};
use crate::{
    report::{Failure, Result},
    settings::Environment,
};

/// How many former mailboxes are remembered.
const FORMER: usize = 8;
/// An agent's place in the broker.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(super) url: StoreUrl,
    pub(super) session: Session,
    pub(super) me: Agent,
    pub(super) former: Vec<AgentId>,
    /// What this worker shows the store: never on disk, and of no other worker.
    speaker: Speaker,
}

impl Identity {
    /// The identity of the agent in `directory`: the one it has, or a new one. None when its spec wants none.
    pub(crate) async fn of(
        spec: &SpawnSpec,
        id: &str,
        directory: &Path,
        environment: &Environment,
    ) -> Result<Option<Self>> {
        let Some(session) = &spec.broker_session else { return Ok(None) };
        let url = store_url(environment, &spec.cwd)?;
        let speaker =
            Speaker::Worker { owner: Owner::of_directory(directory), capability: Capability::random() };
        let mut broker = Broker::open(&url, speaker).await.map_err(|error| worded(&error))?;
        let identity = join(&mut broker, url, session, spec, id, directory).await;
        broker.close().await;
        identity
    }

    /// The identity of the member of a team in whose pane this process is the first.
    pub(crate) async fn of_member(given: &str, environment: &Environment, cwd: &Path) -> Result<Self> {
        let url = store_url(environment, cwd)?;
        // It is only looked at.
        let nobody = Speaker::Only(Vec::new());
        let mut broker = Broker::open(&url, nobody).await.map_err(|error| worded(&error))?;
        let found = member_here(&mut broker, given).await;
        broker.close().await;
        let (me, session) = found?;
        let speaker = Speaker::Member(me.id);
        Ok(Self { url, session, me, former: Vec::new(), speaker })
    }

    /// The member of a team that this is, if it is one.
    pub(super) fn member(&self) -> Option<AgentId> {
        match self.speaker {
            Speaker::Member(id) => Some(id),
            Speaker::Anybody | Speaker::Only(_) | Speaker::Within(_) | Speaker::Worker { .. } => None,
        }
    }

    /// The directory of the broker's database.
    pub(crate) fn database_dir(&self) -> PathBuf {
        let StoreUrl::Sqlite(file) = &self.url;
        file.path().parent().map(Path::to_owned).unwrap_or_default()
    }

    /// The store, for this worker.
    pub(super) async fn open(&self) -> Result<Broker, StoreError> {
        Broker::open(&self.url, self.speaker.clone()).await
    }

    /// What the agent is told about its mailbox.
    pub(crate) fn instructions(&self) -> String {
        frame::instructions(&self.me, self.session.id)
    }

    /// Leaves the session. Best effort: an agent has ended whether or not the broker hears of it.
    pub(crate) async fn leave(&self) {
        let (session, me) = (self.session.id.into(), self.me.id.into());
        match deregister(&self.url, &session, &me, |_| self.speaker.clone()).await {
            Ok(()) | Err(BrokerError::AlreadyDeregistered(_)) => {}
            Err(error) => tracing::warn!(%error, "the agent is still registered with the broker"),
        }
    }
}

/// The member that this process is placed as, and its session.
async fn member_here(broker: &mut Broker, given: &str) -> Result<(Agent, Session)> {
    let refused = || {
        Failure::usage("this process is not in the pane of the member that --member names")
            .hint("cafleet member create --coding-agent caliban starts it")
    };
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let boot = caliban_process::boot_id()?;
    let own = caliban_process::stat(pid).ok_or_else(refused)?.started(&boot);
    let host = HostId::of(&caliban_process::machine()?);
    let placed = broker.member_in_pane(&host, &[(i64::from(pid), own)], None).await;
    let failed = |error: BrokerError| worded(&error);
    let id = placed.map_err(failed)?.filter(|id| AgentId::parse(given) == Some(*id)).ok_or_else(refused)?;
    let me = broker.agent_of_any(id).await.map_err(failed)?.ok_or_else(refused)?;
    let session = broker.session(&me.session.into()).await.map_err(failed)?;
    Ok((me, session))
}

async fn join(
    broker: &mut Broker,
    url: StoreUrl,
    session: &str,
    spec: &SpawnSpec,
    id: &str,
    directory: &Path,
) -> Result<Option<Identity>> {
    let refused = |error: BrokerError| {
        Failure::from(match error {
            BrokerError::Store(error) => worded(&error),
            error => no_session(&error.to_string()),
        })
    };
    let prefix = IdPrefix::parse(session).map_err(|error| no_session(&error.to_string()))?;
    let session = broker.session(&prefix).await.map_err(refused)?;
    let speaker = broker.speaker().clone();
    let remembered: Option<MailboxRecord> = records::read(directory, FILE);
    let mut former: Vec<AgentId> = Vec::new();
    if let Some(it) = &remembered {
        former.extend(it.former.iter().filter_map(|id| AgentId::parse(id)));
        if let Some(known) = AgentId::parse(&it.agent) {
            match broker.member(session.id, &known.into()).await {
                // The file is the agent's to write: it says which identity, the store whose.
                Ok(me) if !is_of(&me, directory) => {}
                Ok(me) if me.status == AgentStatus::Active => {
                    return sealed(broker, Identity { url, session, me, former, speaker })
                        .await
                        .map_err(refused);
                }
                Ok(_) => former.push(known),
                Err(BrokerError::NotAMember { .. }) => {}
                Err(error) => return Err(refused(error)),
            }
        }
    }
    if remembered.is_some() && session.deleted_at.is_some() {
        // Its work goes on; only its mail has ended.
        crate::report::note(&format!(
            "{}: the agent goes on without it",
            BrokerError::SessionDeleted(session.id)
        ));
        return Ok(None);
    }
    // A worker that was killed between registering and writing the file is found by its card.
    let mark = mark(directory);
    let registered = broker.agents(session.id).await.map_err(refused)?;
    let me = match registered.into_iter().find(|agent| has_mark(agent, &mark) && is_of(agent, directory)) {
        Some(me) => me,
        None => {
            let first = spec.prompt.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
            let new = NewAgent {
                name: spec.label.as_ref().map_or_else(|| id.to_owned(), ToString::to_string),
                description: inert::line(first).chars().take(DESCRIPTION_CHARS).collect(),
                skills: vec![mark],
            };
            broker.register(&session.id.into(), &new, Stamp::now()).await.map_err(refused)?
        }
    };
    let skipped = former.len().saturating_sub(FORMER);
    former.drain(..skipped);
    let remember = MailboxRecord {
        url: url.to_string(),
        session: session.id.to_string(),
        agent: me.id.to_string(),
        former: former.iter().map(ToString::to_string).collect(),
    };
    records::write_durably(directory, FILE, &remember)
        .map_err(|error| Failure::new(format!("{}: {error}", directory.join(FILE).display())))?;
    sealed(broker, Identity { url, session, me, former, speaker }).await.map_err(refused)
}

/// Puts this worker's seal on what is its own, so that a worker of an earlier run writes no more.
async fn sealed(broker: &mut Broker, identity: Identity) -> Result<Option<Identity>, BrokerError> {
    let all: Vec<AgentId> = identity.former.iter().copied().chain([identity.me.id]).collect();
    broker.seal(&all).await?;
    Ok(Some(identity))
}
