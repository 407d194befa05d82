//! A broker identity for an agent of the fleet: a mailbox in a `cafleet` session, tools to write letters, and a postman
//! who brings them.
//!
//! Owns the way between the broker's store and one conversation: [`identity`] (who the agent is there), [`frame`] (how a
//! message looks to the model), [`delivered`] (what was said and heard, folded from the transcript), [`postman`] (delivery
//! and receipts) and [`tools()`]. Refuses: keystrokes, and approvals; a message is never a permission.

mod delivered;
mod frame;
mod identity;
mod limits;
mod postman;
mod tools;

use std::path::Path;

use caliban_store::{
    StoreUrl,
    broker::{
        ADMINISTRATOR, Agent, AgentId, AgentKind, Broker, BrokerError, IdPrefix, Session, SessionId, Speaker,
        Task,
    },
};

pub(crate) use identity::{Identity, leave_for_good};
pub(crate) use postman::{Farewell, Postman, Settled};
#[cfg(test)]
pub(crate) use tools::tool_names;
pub(crate) use tools::tools;

use crate::{
    report::{Failure, Result},
    settings::Environment,
};

/// The database below the home directory when the environment names none, as `cafleet` has it.
const DEFAULT_DATABASE: &str = ".local/share/cafleet/registry.db";
const DATABASE_VARIABLE: &str = "CAFLEET_DATABASE_URL";

/// What a sender is in its session. The store says it, never the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SenderRole {
    /// The session's Administrator.
    Administrator,
    /// The session's root Director.
    Director,
    /// Everybody else.
    Agent,
}

impl SenderRole {
    fn of(id: AgentId, kind: AgentKind, session: &Session) -> Self {
        match kind {
            AgentKind::Administrator => Self::Administrator,
            AgentKind::User if session.director == Some(id) => Self::Director,
            AgentKind::User => Self::Agent,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::Director => "director",
            Self::Agent => "agent",
        }
    }
}

/// Who sent a message, if the session still knows, and what they are there.
async fn sender(
    broker: &mut Broker,
    session: &Session,
    task: &Task,
) -> Result<(Option<Agent>, SenderRole), BrokerError> {
    match broker.member(session.id, &task.from.into()).await {
        Ok(sender) => {
            let role = SenderRole::of(sender.id, sender.kind, session);
            Ok((Some(sender), role))
        }
        Err(BrokerError::NotAMember { .. }) => Ok((None, SenderRole::Agent)),
        Err(error) => Err(error),
    }
}

/// Where the broker's store is. A relative address counts from `cwd`.
pub(crate) fn store_url(environment: &Environment, cwd: &Path) -> Result<StoreUrl> {
    if let Some(url) = environment.text(DATABASE_VARIABLE)? {
        return StoreUrl::parse(url, cwd)
            .map_err(|error| Failure::new(format!("{DATABASE_VARIABLE}: {error}")));
    }
    let home = environment.paths()?.home;
    home.map(|home| StoreUrl::sqlite(home.join(DEFAULT_DATABASE)))
        .ok_or_else(|| Failure::new(format!("HOME is not set; set {DATABASE_VARIABLE}")))
}

/// The session that somebody named for an agent; it must be there and take registrations. `label` becomes the agent's
/// name in it.
pub(crate) async fn living_session(
    environment: &Environment,
    cwd: &Path,
    given: &str,
    label: Option<&str>,
) -> Result<SessionId> {
    if label.is_some_and(|label| label.eq_ignore_ascii_case(ADMINISTRATOR)) {
        return Err(Failure::usage("no agent of a broker session may be called administrator")
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
            Err(Failure::usage(format!("the broker session '{given}' is ambiguous"))
                .hint(format!("it could be: {}", candidates.join(", "))))
        }
        Err(BrokerError::Store(error)) => Err(worded(&error)),
        Err(error) => Err(no_session(&error.to_string())),
    }
}

fn no_session(problem: &str) -> Failure {
    Failure::new(format!("no broker session for the agent: {problem}"))
        .hint("`cafleet session list` shows them; `cafleet session create --no-tmux` makes one")
}

fn worded(error: &dyn std::error::Error) -> Failure {
    Failure::new(format!("the broker's store: {}", crate::compose::chain(error)))
}
