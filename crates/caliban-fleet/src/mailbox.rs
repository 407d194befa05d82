//! The mailbox of an agent of the fleet: in which session of the broker it is, and how it leaves. Letters are the worker's.

use std::path::{Path, PathBuf};

use caliban_contract::records;
use caliban_settings::Environment;
use caliban_store::{
    Stamp, StoreUrl,
    broker::{ADMINISTRATOR, Agent, Broker, BrokerError, IdPrefix, Owner, SessionId, Speaker},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::refusal::{Refusal, chain};

/// The file in the agent's directory.
pub const FILE: &str = "broker.json";
/// The database below the home directory when the environment names none, as `cafleet` has it.
const DEFAULT_DATABASE: &str = ".local/share/cafleet/registry.db";
const DATABASE_VARIABLE: &str = "CAFLEET_DATABASE_URL";
/// Where the fleet keeps the directories of its agents, and of those that it no longer knows.
const AGENTS: &str = "agents";
const ARCHIVE: &str = "archive";
/// The key of our entry among the skills on an agent's card: which agent of which fleet it is.
const CARD_KEY: &str = "caliban_agent";

/// `broker.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MailboxRecord {
    /// Where the store is.
    pub url: String,
    /// The session.
    pub session: String,
    /// Who it is there.
    pub agent: String,
    /// Who it was before.
    #[serde(default)]
    pub former: Vec<String>,
}

/// Where the broker's store is. A relative address counts from `cwd`.
pub fn store_url(environment: &Environment, cwd: &Path) -> Result<StoreUrl, Refusal> {
    if let Some(url) = environment.text(DATABASE_VARIABLE)? {
        return StoreUrl::parse(url, cwd)
            .map_err(|error| Refusal::new(format!("{DATABASE_VARIABLE}: {error}")));
    }
    let home = environment.paths()?.home;
    home.map(|home| StoreUrl::sqlite(home.join(DEFAULT_DATABASE)))
        .ok_or_else(|| Refusal::new(format!("HOME is not set; set {DATABASE_VARIABLE}")))
}

/// The session that somebody named for an agent; it must be there and take registrations. `label` becomes the agent's
/// name in it.
pub async fn living_session(
    environment: &Environment,
    cwd: &Path,
    given: &str,
    label: Option<&str>,
) -> Result<SessionId, Refusal> {
    if label.is_some_and(|label| label.eq_ignore_ascii_case(ADMINISTRATOR)) {
        return Err(Refusal::usage("no agent of a broker session may be called administrator")
            .hint("choose another --label"));
    }
    let prefix = IdPrefix::parse(given).map_err(|error| no_session(&error.to_string()))?;
    // It is only looked at.
    let nobody = Speaker::Only(Vec::new());
    let mut broker =
        Broker::open(&store_url(environment, cwd)?, nobody).await.map_err(|error| worded(&error))?;
    let session = broker.session(&prefix).await;
    broker.close().await;
    match session {
        Ok(session) if session.deleted_at.is_some() => {
            Err(no_session(&BrokerError::SessionDeleted(session.id).to_string()))
        }
        Ok(session) => Ok(session.id),
        Err(BrokerError::Ambiguous { given, candidates }) => {
            Err(Refusal::usage(format!("the broker session '{given}' is ambiguous"))
                .hint(format!("it could be: {}", candidates.join(", "))))
        }
        Err(BrokerError::Store(error)) => Err(worded(&error)),
        Err(error) => Err(no_session(&error.to_string())),
    }
}

/// There is no such session for the agent.
pub fn no_session(problem: &str) -> Refusal {
    Refusal::new(format!("no broker session for the agent: {problem}"))
        .hint("`cafleet session list` shows them; `cafleet session create --no-tmux` makes one")
}

/// What the store says.
pub fn worded(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(format!("the broker's store: {}", chain(error)))
}

/// Takes the agent in `directory`, which is about to be removed, out of its session. Does nothing for one without.
/// The future is made before the directory goes, and awaited after.
pub fn leave_for_good(directory: &Path) -> impl Future<Output = Result<(), String>> + use<> {
    let remembered: Option<MailboxRecord> = records::read(directory, FILE);
    let home = home(directory);
    async move {
        let Some(it) = remembered else { return Ok(()) };
        let url = StoreUrl::parse(&it.url, Path::new("/")).map_err(|error| error.to_string())?;
        let (Ok(session), Ok(agent)) = (IdPrefix::parse(&it.session), IdPrefix::parse(&it.agent)) else {
            return Ok(());
        };
        // The file is the agent's to write: it must not take anybody else out.
        let speaker =
            |agent: &Agent| if is_of(agent, &home) { Speaker::Anybody } else { Speaker::Only(Vec::new()) };
        match deregister(&url, &session, &agent, speaker).await {
            Ok(())
            | Err(
                BrokerError::AlreadyDeregistered(_)
                | BrokerError::NotAMember { .. }
                | BrokerError::NotYours { .. },
            ) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Whether the identity belongs to the agent in this directory. One that was registered before there were owners is known
/// by its card.
pub fn is_of(agent: &Agent, directory: &Path) -> bool {
    match &agent.owner {
        Some(owner) => *owner == Owner::of_directory(directory),
        None => has_mark(agent, &mark(directory)),
    }
}

/// Our entry on an agent's card.
pub fn mark(directory: &Path) -> serde_json::Value {
    json!({CARD_KEY: directory.to_string_lossy()})
}

/// The directory that the agent had in its life, of one that may be archived.
fn home(directory: &Path) -> PathBuf {
    match (directory.parent(), directory.file_name()) {
        (Some(above), Some(name)) if above.ends_with(ARCHIVE) => above.with_file_name(AGENTS).join(name),
        _ => directory.to_owned(),
    }
}

/// Whether an agent's card has this entry.
pub fn has_mark(agent: &Agent, mark: &serde_json::Value) -> bool {
    let card: serde_json::Value = serde_json::from_str(&agent.card).unwrap_or_default();
    card["skills"].as_array().is_some_and(|skills| skills.contains(mark))
}

/// Takes an identity out of its session, as whoever `speaker` says for it.
pub async fn deregister(
    url: &StoreUrl,
    session: &IdPrefix,
    agent: &IdPrefix,
    speaker: impl Fn(&Agent) -> Speaker,
) -> Result<(), BrokerError> {
    let mut broker = Broker::open(url, Speaker::Only(Vec::new())).await?;
    let result = async {
        let session = broker.session(session).await?.id;
        let found = broker.member(session, agent).await?;
        broker.speak_as(speaker(&found));
        broker.deregister(session, agent, Stamp::now()).await.map(|_| ())
    }
    .await;
    broker.close().await;
    result
}
