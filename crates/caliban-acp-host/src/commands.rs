//! Slash commands: those that the host carries out itself, and those that the program adds ([`Commands`]). Anything else
//! that begins with a slash goes to the model.

use std::sync::Arc;

use caliban_acp::v1::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, SessionUpdate, UnstructuredCommandInput,
};
use caliban_agent::{
    background::command::{self as bg, CommandDone},
    event::Outcome,
};
use caliban_core::{
    BoxFuture,
    message::{Block, Message},
};

use crate::{host::SessionHost, render::Abilities};

/// Commands that the program adds to those of the host: what needs settings, files or other sessions.
pub trait Commands: Send + Sync {
    /// Which commands there are.
    fn list(&self) -> Vec<CommandInfo>;

    /// What `@server:uri` in a person's words stand for, one text for each.
    fn named_in<'a>(&'a self, words: &'a str) -> BoxFuture<'a, Vec<String>>;

    /// Carries one of them out.
    fn run<'a>(
        &'a self,
        name: &'a str,
        arguments: &'a str,
        host: &'a SessionHost,
    ) -> BoxFuture<'a, Result<CommandAnswer, String>>;
}

/// What people are told of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandInfo {
    /// Its name, without the slash.
    pub name: String,
    /// What it does.
    pub about: String,
    /// What the arguments are; none for a command without arguments.
    pub input: Option<String>,
}

/// What comes of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandAnswer {
    /// This is shown.
    Text(String),
    /// The model gets this as if the person had typed it.
    Prompt(String),
    /// The client goes on with another session.
    Load {
        /// That session.
        session: String,
        /// What the person may want to say there.
        draft: String,
        /// What is shown.
        text: String,
    },
    /// The session goes on elsewhere, and the client leaves.
    Leave {
        /// What is shown.
        text: String,
    },
}

/// A command with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlashCommand {
    kind: CommandKind,
    arguments: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CommandKind {
    Bg,
    Compact,
    Help,
    Status,
    /// One that the program has added.
    Program(String),
}

/// The host's own commands: the name, what it does, and what the arguments are for one that takes some.
const OWN: [(CommandKind, &str, &str, Option<&str>); 4] = [
    (
        CommandKind::Bg,
        "bg",
        "Give a task to a background agent of this session; list, stop or clear them",
        Some(bg::USAGE),
    ),
    (CommandKind::Compact, "compact", "Summarise the older part of the conversation to make room", None),
    (CommandKind::Help, "help", "List the commands", Some("[command]")),
    (CommandKind::Status, "status", "Show the session, model, permission mode and what was spent", None),
];

impl SlashCommand {
    /// The command that a prompt is. Text after the name of a command that takes no arguments makes it a prompt.
    pub(crate) fn of(message: &Message, added: Option<&Arc<dyn Commands>>) -> Option<Self> {
        let [Block::Text { text }] = message.blocks.as_slice() else { return None };
        let line = text.trim().strip_prefix('/')?;
        let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let arguments = arguments.trim().to_owned();
        let (kind, takes_input) = match OWN.into_iter().find(|(_, own, ..)| *own == name) {
            Some((kind, .., input)) => (kind, input.is_some()),
            None => {
                let info = added?.list().into_iter().find(|info| info.name == name)?;
                (CommandKind::Program(info.name), info.input.is_some())
            }
        };
        (takes_input || arguments.is_empty()).then_some(Self { kind, arguments })
    }

    /// Whether it changes the session or starts something, so that only a person may give it.
    pub(crate) fn changes_session(&self) -> bool {
        match self.kind {
            CommandKind::Bg | CommandKind::Compact | CommandKind::Program(_) => true,
            CommandKind::Help | CommandKind::Status => false,
        }
    }

    /// Carries it out and returns what comes of it. `abilities` are those of the client that gave it.
    pub(crate) async fn run(self, host: &SessionHost, abilities: Abilities) -> Result<CommandAnswer, String> {
        match self.kind {
            CommandKind::Bg => {
                let background = host.background().ok_or("this session cannot have background agents")?;
                let command = bg::BackgroundCommand::parse(&self.arguments)?;
                match command.run(background).await.map_err(|refusal| refusal.to_string())? {
                    // The client shows the notice about it.
                    CommandDone::Started(_) if abilities.notices => Ok(CommandAnswer::Text(String::new())),
                    CommandDone::Started(id) => {
                        Ok(CommandAnswer::Text(format!("Background agent {id} is at work.")))
                    }
                    CommandDone::Text(text) => Ok(CommandAnswer::Text(text)),
                }
            }
            CommandKind::Compact => {
                let done = host.compact().map_err(|error| error.to_string())?;
                match done.await {
                    Ok(Ok(())) => Ok(CommandAnswer::Text("The conversation is compacted.".to_owned())),
                    Ok(Err(outcome)) => Err(failed(&outcome)),
                    Err(_) => Err("the session was closed".to_owned()),
                }
            }
            CommandKind::Help => {
                help(&known(host), self.arguments.trim_start_matches('/')).map(CommandAnswer::Text)
            }
            CommandKind::Status => Ok(CommandAnswer::Text(host.status())),
            CommandKind::Program(name) => match host.commands() {
                Some(commands) => commands.run(&name, &self.arguments, host).await,
                None => Err(format!("there is no command /{name}")),
            },
        }
    }
}

/// The commands of a session.
fn known(host: &SessionHost) -> Vec<CommandInfo> {
    let own = own().filter(|info| host.background().is_some() || info.name != "bg");
    own.chain(host.commands().map(|commands| commands.list()).unwrap_or_default()).collect()
}

fn own() -> impl Iterator<Item = CommandInfo> {
    OWN.into_iter().map(|(_, name, about, input)| CommandInfo {
        name: name.to_owned(),
        about: about.to_owned(),
        input: input.map(str::to_owned),
    })
}

fn help(known: &[CommandInfo], name: &str) -> Result<String, String> {
    let lines: Vec<String> = known
        .iter()
        .filter(|info| name.is_empty() || info.name == name)
        .map(|CommandInfo { name, about, input }| {
            let input = input.as_ref().map(|input| format!(" {input}")).unwrap_or_default();
            format!("/{name}{input}: {about}")
        })
        .collect();
    if lines.is_empty() { Err(format!("there is no command /{name}")) } else { Ok(lines.join("\n")) }
}

/// What clients are told of.
pub(crate) fn available(host: &SessionHost) -> SessionUpdate {
    let commands = known(host).into_iter().map(|info| {
        let input =
            info.input.map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
        AvailableCommand::new(info.name, info.about).input(input)
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_takes_the_text_after_its_name_as_arguments() {
        let of = |text: &str| {
            SlashCommand::of(&Message::user(text), None).map(|command| (command.kind, command.arguments))
        };
        assert_eq!(of("/help"), Some((CommandKind::Help, String::new())));
        assert_eq!(of(" /help  status "), Some((CommandKind::Help, "status".to_owned())));
        assert_eq!(of("/status"), Some((CommandKind::Status, String::new())));
        assert_eq!(of("/status of the build?"), None, "it takes no arguments");
        assert_eq!(of("/helpless"), None);
        assert_eq!(of("help"), None);
    }

    #[test]
    fn help_shows_arguments_and_can_be_asked_about_one_command() {
        let own: Vec<CommandInfo> = own().collect();
        assert_eq!(help(&own, "help").as_deref(), Ok("/help [command]: List the commands"));
        assert_eq!(help(&own, "halp"), Err("there is no command /halp".to_owned()));
    }
}
