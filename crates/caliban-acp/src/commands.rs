//! Slash commands that this side carries out itself. Anything else that begins with a slash goes to the model.

use agent_client_protocol_schema::v1::{AvailableCommand, AvailableCommandsUpdate, SessionUpdate};
use caliban_agent::event::Outcome;
use caliban_core::message::{Block, Message};

use crate::host::SessionHost;

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Compact,
    Help,
    Status,
}

const ALL: [Command; 3] = [Command::Compact, Command::Help, Command::Status];

impl Command {
    /// The command that a prompt is.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        let [Block::Text { text }] = message.blocks.as_slice() else { return None };
        let name = text.trim().strip_prefix('/')?;
        ALL.into_iter().find(|command| command.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Help => "help",
            Self::Status => "status",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Compact => "Summarise the older part of the conversation to make room",
            Self::Help => "List the commands",
            Self::Status => "Show the session, model, permission mode and what was spent",
        }
    }

    /// Carries it out; what comes of it, in words.
    pub(crate) async fn run(self, host: &SessionHost) -> Result<String, String> {
        match self {
            Self::Compact => {
                let done = host.compact().map_err(|error| error.to_string())?;
                match done.await {
                    Ok(Ok(())) => Ok("The conversation is compacted.".to_owned()),
                    Ok(Err(outcome)) => Err(failed(&outcome)),
                    Err(_) => Err("the session was closed".to_owned()),
                }
            }
            Self::Help => {
                let lines: Vec<String> =
                    ALL.iter().map(|command| format!("/{}: {}", command.name(), command.about())).collect();
                Ok(lines.join("\n"))
            }
            Self::Status => Ok(host.status()),
        }
    }
}

/// What clients are told of.
pub(crate) fn available() -> SessionUpdate {
    let commands = ALL.iter().map(|command| AvailableCommand::new(command.name(), command.about()));
    SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands.collect()))
}

fn failed(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "nothing was done".to_owned(),
        Outcome::Failed { error, hint } => {
            let hint = hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{error}{hint}")
        }
        Outcome::TurnLimit { limit } => format!("the limit of {limit} model requests is reached"),
        Outcome::Budget { limit } => limit.clone(),
        Outcome::Cancelled => "cancelled".to_owned(),
    }
}
