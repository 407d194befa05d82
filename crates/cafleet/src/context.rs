//! What a verb works with: the settings, the global flags, and the store on request.
//!
//! Refuses: opening the store before a verb needs it, so that a command that is refused because of its environment (no
//! tmux) leaves no file behind.

use std::ffi::OsString;

use caliban_store::broker::{Agent, AgentId, Broker, BrokerError, IdPrefix, SessionId};

use crate::args::Cli;
use crate::failure::{Failure, shown};
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

    /// An agent as typed: an id, the beginning of one, a number, or the name of exactly one active agent of the session.
    /// What can be an id of an agent is one, so that nobody takes another's place by a name; a name may look like an id that
    /// nobody has (`dead`). `unknown` makes the error for anything else.
    pub(crate) async fn agent_named(
        &mut self,
        session: SessionId,
        given: &str,
        unknown: impl FnOnce(String) -> Failure,
    ) -> Result<IdPrefix, Failure> {
        let parsed = IdPrefix::parse(given);
        if let (Some(_), Ok(whole)) = (AgentId::parse(given), &parsed) {
            return Ok(whole.clone());
        }
        // Whether the session exists is found out by the verb.
        let agents = self.broker().await?.agents(session).await.unwrap_or_default();
        let named: Vec<&Agent> = agents.iter().filter(|agent| agent.name == given.trim()).collect();
        let close = agents
            .iter()
            .map(|agent| (strsim::damerau_levenshtein(&agent.name, given.trim()), agent))
            .filter(|(slips, agent)| *slips <= (agent.name.chars().count() / 3).max(1))
            .min_by_key(|(slips, _)| *slips);
        let error = match (parsed, &named[..]) {
            (Ok(prefix), [one]) if !agents.iter().any(|agent| prefix.means(agent)) => {
                return Ok(IdPrefix::from(one.id));
            }
            // A name with a slip may look like an id, too.
            (Ok(prefix), _) if agents.iter().any(|agent| prefix.means(agent)) || close.is_none() => {
                return Ok(prefix);
            }
            (Ok(_), _) => given.trim().to_owned(),
            (Err(error), _) => error.0,
        };
        match named[..] {
            [] => {
                let unknown = unknown(error);
                Err(match close {
                    Some((_, agent)) => {
                        let hint = format!("did you mean {} ({})?", shown(&agent.name), agent.id.short());
                        Failure { hint_text: Some(hint), ..unknown }
                    }
                    None => unknown,
                })
            }
            [one] => Ok(IdPrefix::from(one.id)),
            _ => {
                let candidates = named.iter().map(|agent| agent.id.to_string()).collect();
                Err(BrokerError::Ambiguous { given: given.to_owned(), candidates }.into())
            }
        }
    }

    /// The id of an acting agent as typed.
    pub(crate) async fn member_prefix(
        &mut self,
        given: &str,
        session: SessionId,
    ) -> Result<IdPrefix, Failure> {
        self.agent_named(session, given, |agent| BrokerError::NotAMember { agent, session }.into()).await
    }

    /// The acting agent, which must belong to the session.
    pub(crate) async fn acting(&mut self, given: &str) -> Result<Agent, Failure> {
        let session = self.session().await?;
        let prefix = self.member_prefix(given, session).await?;
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
    IdPrefix::parse(given).map_err(|error| BrokerError::SessionNotFound(error.0).into())
}
