//! What a verb works with: the settings, the global flags, and the store on request.
//!
//! Refuses: opening the store before a verb needs it, so that a command that is refused because of its environment (no
//! tmux) leaves no file behind.

use std::ffi::OsString;

use caliban_store::broker::{Agent, Broker, IdPrefix, SessionId};

use crate::args::Cli;
use crate::failure::Failure;
use crate::render::json::Style;
use crate::settings::Settings;
use crate::speaker;

/// The error of a command that needs a session and got none.
const SESSION_REQUIRED: &str = "--session-id <uuid> is required for this subcommand. Create a session with \
                                'cafleet session create' and pass its id.";

/// The context of one command.
#[derive(Debug)]
pub(crate) struct VerbContext {
    pub(crate) settings: Settings,
    /// How answers are printed.
    pub(crate) style: Style,
    /// The secrets of our environment, where the verb has to keep them to itself.
    pub(crate) secrets: Vec<(OsString, OsString)>,
    session_id: Option<String>,
    broker: Option<Broker>,
}

impl VerbContext {
    pub(crate) fn new(cli: &Cli) -> Result<Self, Failure> {
        Ok(Self {
            settings: Settings::read()?,
            style: cli.style(),
            secrets: Vec::new(),
            session_id: cli.session_id.clone(),
            broker: None,
        })
    }

    /// The store, opened on first use.
    pub(crate) async fn broker(&mut self) -> Result<&mut Broker, Failure> {
        let broker = match self.broker.take() {
            Some(broker) => broker,
            None => speaker::open(&self.settings).await?,
        };
        Ok(self.broker.insert(broker))
    }

    /// The value of `--session-id`.
    pub(crate) fn session_given(&self) -> Result<&str, Failure> {
        self.session_id.as_deref().ok_or_else(|| Failure::refused("session_required", SESSION_REQUIRED))
    }

    /// The session to act in. A whole id is not looked up here: the verb that uses it finds out whether it exists.
    pub(crate) async fn session(&mut self) -> Result<SessionId, Failure> {
        let given = self.session_given()?.to_owned();
        match SessionId::parse(&given) {
            Some(id) => Ok(id),
            None => {
                let prefix = session_prefix(&given)?;
                Ok(self.broker().await?.session(&prefix).await?.id)
            }
        }
    }

    /// The acting agent, which must belong to the session.
    pub(crate) async fn acting(&mut self, given: &str) -> Result<Agent, Failure> {
        let session = self.session().await?;
        let prefix = member_prefix(given, session)?;
        Ok(self.broker().await?.member(session, &prefix).await?)
    }

    /// The same, for reading messages: a process of a fleet agent reads its own only.
    pub(crate) async fn reading(&mut self, given: &str) -> Result<Agent, Failure> {
        let agent = self.acting(given).await?;
        self.broker().await?.check_reader(&agent).await?;
        Ok(agent)
    }

    /// Ends the use of the store.
    pub(crate) async fn leave(self) {
        if let Some(broker) = self.broker {
            broker.leave().await;
        }
    }
}

/// A session id as typed.
pub(crate) fn session_prefix(given: &str) -> Result<IdPrefix, Failure> {
    IdPrefix::parse(given)
        .map_err(|error| caliban_store::broker::BrokerError::SessionNotFound(error.0).into())
}

/// The id of an acting agent as typed.
pub(crate) fn member_prefix(given: &str, session: SessionId) -> Result<IdPrefix, Failure> {
    IdPrefix::parse(given)
        .map_err(|error| caliban_store::broker::BrokerError::NotAMember { agent: error.0, session }.into())
}
