//! Slash commands that the host carries out itself. Anything else that begins with a slash goes to the model.

use caliban_acp::v1::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, SessionUpdate, UnstructuredCommandInput,
};
use caliban_agent::{
    background::command::{self as bg, Done},
    event::Outcome,
};
use caliban_core::message::{Block, Message};

use crate::{host::SessionHost, render::Abilities};

/// A command with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    kind: Kind,
    arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bg,
    Compact,
    Help,
    Status,
}

/// What people are told of a command.
struct Entry {
    kind: Kind,
    name: &'static str,
    about: &'static str,
    /// What the arguments are; none for a command without arguments.
    input: Option<&'static str>,
}

const ALL: &[Entry] = &[
    Entry {
        kind: Kind::Bg,
        name: "bg",
        about: "Give a task to a background agent of this session; list, stop or clear them",
        input: Some(bg::USAGE),
    },
    Entry {
        kind: Kind::Compact,
        name: "compact",
        about: "Summarise the older part of the conversation to make room",
        input: None,
    },
    Entry { kind: Kind::Help, name: "help", about: "List the commands", input: Some("[command]") },
    Entry {
        kind: Kind::Status,
        name: "status",
        about: "Show the session, model, permission mode and what was spent",
        input: None,
    },
];

impl Command {
    /// The command that a prompt is. Text after the name of a command that takes no arguments makes it a prompt.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        let [Block::Text { text }] = message.blocks.as_slice() else { return None };
        let line = text.trim().strip_prefix('/')?;
        let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let entry = ALL.iter().find(|entry| entry.name == name)?;
        let arguments = arguments.trim().to_owned();
        (entry.input.is_some() || arguments.is_empty()).then_some(Self { kind: entry.kind, arguments })
    }

    /// Whether it changes the session or starts something, so that only a person may give it.
    pub(crate) fn changes_session(&self) -> bool {
        match self.kind {
            Kind::Bg | Kind::Compact => true,
            Kind::Help | Kind::Status => false,
        }
    }

    /// Carries it out and returns what to show. `abilities` are those of the client that gave it.
    pub(crate) async fn run(self, host: &SessionHost, abilities: Abilities) -> Result<String, String> {
        match self.kind {
            Kind::Bg => {
                let background = host.background().ok_or("this session cannot have background agents")?;
                let command = bg::Command::parse(&self.arguments)?;
                match command.run(background).await.map_err(|refusal| refusal.to_string())? {
                    // The client shows the notice about it.
                    Done::Started(_) if abilities.notices => Ok(String::new()),
                    Done::Started(id) => Ok(format!("Background agent {id} is at work.")),
                    Done::Text(text) => Ok(text),
                }
            }
            Kind::Compact => {
                let done = host.compact().map_err(|error| error.to_string())?;
                match done.await {
                    Ok(Ok(())) => Ok("The conversation is compacted.".to_owned()),
                    Ok(Err(outcome)) => Err(failed(&outcome)),
                    Err(_) => Err("the session was closed".to_owned()),
                }
            }
            Kind::Help => help(self.arguments.trim_start_matches('/')),
            Kind::Status => Ok(host.status()),
        }
    }
}

fn help(name: &str) -> Result<String, String> {
    let lines: Vec<String> = ALL
        .iter()
        .filter(|entry| name.is_empty() || entry.name == name)
        .map(|Entry { name, about, input, .. }| {
            let input = input.map(|input| format!(" {input}")).unwrap_or_default();
            format!("/{name}{input}: {about}")
        })
        .collect();
    if lines.is_empty() { Err(format!("there is no command /{name}")) } else { Ok(lines.join("\n")) }
}

/// What clients are told of.
pub(crate) fn available(has_background: bool) -> SessionUpdate {
    let offered = ALL.iter().filter(|entry| has_background || entry.kind != Kind::Bg);
    let commands = offered.map(|entry| {
        let input =
            entry.input.map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
        AvailableCommand::new(entry.name, entry.about).input(input)
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
        let of =
            |text: &str| Command::of(&Message::user(text)).map(|command| (command.kind, command.arguments));
        assert_eq!(of("/help"), Some((Kind::Help, String::new())));
        assert_eq!(of(" /help  status "), Some((Kind::Help, "status".to_owned())));
        assert_eq!(of("/status"), Some((Kind::Status, String::new())));
        assert_eq!(of("/status of the build?"), None, "it takes no arguments");
        assert_eq!(of("/helpless"), None);
        assert_eq!(of("help"), None);
    }

    #[test]
    fn help_shows_arguments_and_can_be_asked_about_one_command() {
        assert_eq!(help("help").as_deref(), Ok("/help [command]: List the commands"));
        assert_eq!(help("halp"), Err("there is no command /halp".to_owned()));
    }
}
