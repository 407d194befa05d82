//! Usage errors in the texts and the form that scripts know: a usage line, where to find help, and one `Error:` line;
//! exit code 2.
//!
//! Owns the translation of the parser's errors. Refuses: suggestions and colours.

use std::error::Error as _;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory, Parser};

use crate::answer;
use crate::args::Cli;
use crate::failure::{Failure, shown};
use crate::render::json::Style;

/// The command line ended the program before a verb ran.
#[derive(Debug)]
pub(crate) enum Early {
    /// `--help`, `--version`.
    Said(String),
    /// A command group without a subcommand: its help, as an error.
    Help(String),
    /// A usage error.
    Wrong(Failure, Style),
}

impl Early {
    pub(crate) fn finish(&self) -> ExitCode {
        match self {
            Self::Said(text) => {
                // Best effort: if the pipe is closed, nobody reads the help.
                let _ = std::io::stdout().lock().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Self::Help(text) => {
                answer::talk(text);
                ExitCode::from(2)
            }
            Self::Wrong(failure, style) => answer::report(failure, *style),
        }
    }
}

/// Reads the command line.
pub(crate) fn parse(argv: &[OsString]) -> Result<Cli, Early> {
    let cli = match Cli::try_parse_from(argv) {
        Ok(cli) => cli,
        Err(error) => return Err(translate(argv, &error)),
    };
    match missing_text(&cli) {
        true => Err(wrong(argv, "Missing option '--text'.".to_owned())),
        false => Ok(cli),
    }
}

/// A usage error that only a verb can find.
pub(crate) fn invalid_value(path: &[&str], option: &str, why: &str) -> Failure {
    wrong_use(path, format!("Invalid value for '{option}': {}", shown(why)))
}

/// An argument that is missing because none of the flags that replace it was given.
pub(crate) fn missing_argument(path: &[&str], name: &str) -> Failure {
    wrong_use(path, format!("Missing argument '{name}'."))
}

fn wrong_use(path: &[&str], message: String) -> Failure {
    let root = Cli::command();
    let mut command = &root;
    for name in path {
        match command.find_subcommand(name) {
            Some(found) => command = found,
            None => break,
        }
    }
    let words = std::iter::once("cafleet").chain(path.iter().copied()).collect::<Vec<_>>().join(" ");
    Failure::usage(banner(&words, command), message)
}

/// The parser cannot express "one of two" in the documented words.
fn missing_text(cli: &Cli) -> bool {
    use crate::args::{Command, MessageCommand};
    match &cli.command {
        Command::Message(MessageCommand::Send(args)) => args.text.body().is_none(),
        Command::Message(MessageCommand::Broadcast(args)) => args.text.body().is_none(),
        _ => false,
    }
}

fn translate(argv: &[OsString], error: &clap::Error) -> Early {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Early::Said(error.render().to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Early::Help(error.render().to_string()),
        _ => wrong(argv, message(error)),
    }
}

fn message(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.first().cloned().unwrap_or_default(),
        _ => String::new(),
    };
    let argument = text(ContextKind::InvalidArg);
    // The parser names them "--agent-id <uuid>" and "<SESSION_ID>".
    let option = shown(argument.split([' ', '=']).next().unwrap_or_default());
    let value = shown(&text(ContextKind::InvalidValue));
    match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with('-') => format!("No such option: {option}"),
        ErrorKind::UnknownArgument => format!("Got unexpected extra argument ({})", shown(&argument)),
        ErrorKind::InvalidSubcommand => {
            format!("No such command '{}'.", shown(&text(ContextKind::InvalidSubcommand)))
        }
        ErrorKind::MissingSubcommand => "Missing command.".to_owned(),
        ErrorKind::MissingRequiredArgument if option.starts_with('-') => {
            format!("Missing option '{option}'.")
        }
        ErrorKind::MissingRequiredArgument => {
            format!("Missing argument '{}'.", option.trim_matches(['<', '>']))
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("Option '{option}' requires an argument."),
        ErrorKind::InvalidValue => {
            let choices = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(choices)) => choices.clone(),
                _ => Vec::new(),
            };
            let choices: Vec<String> = choices.iter().map(|choice| format!("'{choice}'")).collect();
            let option = option.trim_matches(['<', '>']);
            format!("Invalid value for '{option}': '{value}' is not one of {}.", choices.join(", "))
        }
        ErrorKind::ValueValidation => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            format!("Invalid value for '{option}': '{value}': {}.", shown(&why))
        }
        ErrorKind::ArgumentConflict => {
            let other = text(ContextKind::PriorArg);
            let other = shown(other.split([' ', '=']).next().unwrap_or_default());
            format!("'{option}' cannot be used with '{other}'.")
        }
        _ => {
            let said = error.render().to_string();
            let line = said.lines().next().unwrap_or_default();
            shown(line.strip_prefix("error: ").unwrap_or(line))
        }
    }
}

fn wrong(argv: &[OsString], message: String) -> Early {
    let place = ErrorPlace::find(argv);
    Early::Wrong(Failure::usage(place.banner, message), Style::choose(place.json, place.pretty))
}

/// The subcommand that an error belongs to, and the style to print it in.
struct ErrorPlace {
    banner: String,
    json: bool,
    pretty: bool,
}

impl ErrorPlace {
    /// Follows the subcommands as far as the arguments are valid.
    fn find(argv: &[OsString]) -> Self {
        let root = Cli::command();
        let mut command = &root;
        let mut path = "cafleet".to_owned();
        let (mut json, mut pretty) = (false, false);
        let mut words = argv.iter().skip(1).map(|word| word.to_string_lossy());
        while let Some(word) = words.next() {
            if let Some(name) = word.strip_prefix("--") {
                let (name, inline) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
                let known = command.get_arguments().find(|arg| arg.get_long() == Some(name));
                match known {
                    None => break,
                    Some(arg) if takes_value(arg) && !inline => drop(words.next()),
                    Some(_) => {}
                }
                json |= name == "json";
                pretty |= name == "pretty";
            } else if let Some(found) = command.find_subcommand(word.as_ref()) {
                path = format!("{path} {word}");
                command = found;
            } else if command.has_subcommands() {
                break;
            }
        }
        Self { banner: banner(&path, command), json, pretty }
    }
}

fn banner(path: &str, command: &Command) -> String {
    let mut usage = format!("Usage: {path} [OPTIONS]");
    if command.has_subcommands() {
        usage.push_str(" COMMAND [ARGS]...");
    }
    for positional in command.get_positionals() {
        let name = positional.get_value_names().and_then(|names| names.first());
        usage.push(' ');
        usage.push_str(name.map_or("ARG", |name| name.as_str()));
    }
    format!("{usage}\nTry '{path} --help' for help.\n\n")
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}
