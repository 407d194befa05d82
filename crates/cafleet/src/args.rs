//! The command line as types. Only what the program accepts; no texts of answers or failures.
//!
//! Global flags come before the subcommand only; `session create|list|show` take a `--json` of their own besides.

mod member;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::member::{
    ExecRunArgs, MemberCaptureArgs, MemberCommand, MemberCreateArgs, MemberDeleteArgs, MemberExecArgs,
    MemberListArgs, MemberPingArgs, MemberRunArgs, MemberSendInputArgs, MonitorArgs, MonitorCommand,
};

use crate::input::BodySource;
use crate::render::json::Style;

/// A message broker for coding agents. Its commands work on the database directly: no server has to run.
#[derive(Debug, Parser)]
#[command(
    name = "cafleet",
    version,
    disable_help_subcommand = true,
    args_override_self = true,
    subcommand_value_name = "COMMAND",
    subcommand_help_heading = "Commands",
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        cafleet session create --label my-project\n  \
        cafleet --session-id <session-id> agent register --name reviewer --description \"Reviews changes\"\n  \
        cafleet --session-id <session-id> message send --agent-id <my-agent-id> --to <agent-id> --text \"Done?\"\n  \
        cafleet --session-id <session-id> --json message poll --agent-id <my-agent-id> --wait 60\n\n\
        Every id may be shortened to a unique prefix of at least 4 characters.\n\
        Database: $CAFLEET_DATABASE_URL, else ~/.local/share/cafleet/registry.db"
)]
pub(crate) struct Cli {
    /// Print JSON, errors too
    #[arg(long)]
    pub(crate) json: bool,
    /// Indent the JSON
    #[arg(long)]
    pub(crate) pretty: bool,
    /// The session to act in
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) session_id: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    pub(crate) fn style(&self) -> Style {
        let trailing = match &self.command {
            Command::Session(SessionCommand::Create(args)) => args.json,
            Command::Session(SessionCommand::List(args)) => args.json,
            Command::Session(SessionCommand::Show(args)) => args.json,
            Command::Monitor(MonitorArgs { command: Some(MonitorCommand::Scan(args)), .. }) => args.json,
            _ => false,
        };
        Style::choose(self.json || trailing, self.pretty)
    }
}

impl Command {
    /// Whether it becomes a member's program, or runs a command of somebody's with the environment of theirs.
    pub(crate) fn hands_on(&self) -> bool {
        match self {
            Self::MemberRun(_) | Self::ExecRun(_) => true,
            Self::Monitor(MonitorArgs { command, .. }) => command.is_some(),
            _ => false,
        }
    }

    /// Whether it stays for long and starts nothing that needs a key.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Monitor(MonitorArgs { command, .. }) => command.is_none(),
            Self::DeliverRun => true,
            Self::Message(MessageCommand::Deliver(args)) => args.wait.is_some(),
            Self::Message(MessageCommand::Poll(args)) => args.wait.is_some(),
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make, list, show and delete sessions
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:\n  cafleet session create --label my-project\n  cafleet session list"
    )]
    Session(SessionCommand),
    /// Register, list, show and deregister agents
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:\n  cafleet --session-id <session-id> agent register --name reviewer --description \"Reviews changes\"\n  \
            cafleet --session-id <session-id> agent list --agent-id <my-agent-id>"
    )]
    Agent(AgentCommand),
    /// Send, broadcast, read, acknowledge and cancel messages
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:\n  cafleet --session-id <session-id> message send --agent-id <my-agent-id> --to <agent-id> --text \"Done?\"\n  \
            cafleet --session-id <session-id> message poll --agent-id <my-agent-id>"
    )]
    Message(MessageCommand),
    /// Start, list, watch, answer and end the coding agents of a Director
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:\n  cafleet --session-id <session-id> member create --agent-id <director-id> --name reviewer --description \"Reviews\" -- \"Review what I send you\"\n  \
            cafleet --session-id <session-id> member list --agent-id <director-id> --activity"
    )]
    Member(MemberCommand),
    /// Watch the members on one screen, and deliver what is held
    #[command(after_help = "Examples:\n  cafleet monitor\n  cafleet monitor scan --json")]
    Monitor(MonitorArgs),
    /// Serve the dashboard: sessions, agents, messages and the fleets, in the browser
    #[command(
        after_help = "Prints a link that signs one browser in, once. Where it runs already, it prints another link.\n\n\
        Examples:\n  cafleet server\n  cafleet --json server --port 0\n  \
        cafleet server --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --token-file ~/.cafleet-token"
    )]
    Server(ServerArgs),
    /// Run a command that a Director stored
    #[command(hide = true)]
    ExecRun(ExecRunArgs),
    /// Become the program of a member in its new pane
    #[command(hide = true)]
    MemberRun(MemberRunArgs),
    /// Type what is owed in a session until there is no more use for it
    #[command(hide = true)]
    DeliverRun,
    /// Look after the database
    #[command(subcommand, arg_required_else_help = true, after_help = "Examples:\n  cafleet db init")]
    Db(DbCommand),
    /// Print the identity of the tmux pane this runs in
    #[command(after_help = "Examples:\n  cafleet doctor\n  cafleet --json doctor")]
    Doctor,
    /// Install the skills and rules that claude and codex need to use cafleet unasked
    #[command(
        after_help = "Without --claude or --codex: for those that are on this machine. What you changed is left alone, or \
        kept as a copy beside the new file.\n\n\
        Examples:\n  cafleet setup\n  cafleet setup --check\n  cafleet --json setup --check --claude"
    )]
    Setup(SetupArgs),
    /// Print the manual page
    #[command(
        after_help = "Examples:\n  cafleet man | man -l -\n  cafleet man --dir ~/.local/share/man/man1"
    )]
    Man(ManArgs),
    /// Print the completions for a shell
    #[command(after_help = "Examples:\n  source <(cafleet completions bash)\n  \
                            cafleet completions fish > ~/.config/fish/completions/cafleet.fish")]
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The address to listen on ($CAFLEET_BROKER_HOST, else 127.0.0.1)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<std::net::IpAddr>,
    /// The port ($CAFLEET_BROKER_PORT, else 8000); 0 takes any that is free
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Show the link as a QR code, too, for the camera of a phone
    #[arg(long)]
    pub(crate) qr: bool,
    /// A file, readable by you alone, with the token of scripts
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<std::path::PathBuf>,
    /// The certificates for TLS (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<std::path::PathBuf>,
    /// The key for TLS (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<std::path::PathBuf>,
    /// A proxy in front does TLS: the address that browsers use
    #[arg(long, value_name = "URL")]
    pub(crate) behind_proxy: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Make a session with its root Director and its Administrator
    #[command(after_help = "Prints two lines: the session id and the root Director's id.\n\n\
        Examples:\n  cafleet session create --label my-project\n  cafleet session create --no-tmux --json")]
    Create(SessionCreateArgs),
    /// List the sessions that are not deleted
    #[command(after_help = "Examples:\n  \
        cafleet session list\n  \
        cafleet session list --json")]
    List(SessionListArgs),
    /// Show one session, deleted or not
    #[command(after_help = "Examples:\n  \
        cafleet session show <session-id>")]
    Show(SessionShowArgs),
    /// Delete a session softly: its agents leave, its messages stay
    #[command(after_help = "First stop whatever polls in a loop, then delete the session.\n\n\
        Examples:\n  cafleet session delete <session-id>\n  cafleet session delete <session-id> --with-members")]
    Delete(SessionDeleteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionCreateArgs {
    /// What to call it
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) label: Option<String>,
    /// The program that runs as the root Director in this pane
    #[arg(long, value_enum, default_value_t = CodingAgent::Claude)]
    pub(crate) coding_agent: CodingAgent,
    /// Make a session outside tmux: its Director has no pane and reads its messages by polling
    #[arg(long)]
    pub(crate) no_tmux: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print everything known about it
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CodingAgent {
    Claude,
    Codex,
    Caliban,
    Gemini,
    Opencode,
}

impl CodingAgent {
    /// Its name in the table of backends.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Caliban => "caliban",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SessionListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SessionShowArgs {
    /// The session
    #[arg(value_name = "SESSION_ID")]
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SessionDeleteArgs {
    /// The session
    #[arg(value_name = "SESSION_ID")]
    pub(crate) id: String,
    /// End its members first: they are asked to leave, and their panes are closed after some seconds
    #[arg(long)]
    pub(crate) with_members: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Register an agent and print its id
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> agent register --name \"Code Review Agent\" --description \"Reviews pull requests\"")]
    Register(AgentRegisterArgs),
    /// List the agents of the session
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> agent list --agent-id <my-agent-id>")]
    List(AgentListArgs),
    /// Show one agent of the session
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> agent show --agent-id <my-agent-id> --id <agent-id>")]
    Show(AgentShowArgs),
    /// Leave the session
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> agent deregister --agent-id <my-agent-id>")]
    Deregister(AgentDeregisterArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentRegisterArgs {
    /// A short name
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) name: String,
    /// What the agent is for, in one sentence
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) description: String,
    /// A JSON list of skills for its card
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) skills: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AgentListArgs {
    /// The acting agent
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// Print everything known about each
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AgentShowArgs {
    /// The acting agent
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The agent to show
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) id: String,
    /// Print everything known about it
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AgentDeregisterArgs {
    /// The agent that leaves
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MessageCommand {
    /// Send a message to one agent
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> message send --agent-id <my-agent-id> --to <agent-id> --text \"Please review\"\n  \
        git diff | cafleet --session-id <session-id> message send --agent-id <my-agent-id> --to <agent-id> --text-file -\n\n\
        A retry with the same --id is safe: it is one message.")]
    Send(MessageSendArgs),
    /// Send a message to every other agent of the session
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> message broadcast --agent-id <my-agent-id> --text \"The build is green\"")]
    Broadcast(MessageBroadcastArgs),
    /// Read the messages that are not yet acknowledged, newest first
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> message poll --agent-id <my-agent-id>\n  \
        cafleet --session-id <session-id> --json message poll --agent-id <my-agent-id> --after 41 --wait 60")]
    Poll(MessagePollArgs),
    /// Acknowledge a message; only its recipient can
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> message ack --agent-id <my-agent-id> --task-id <task-id>")]
    Ack(MessageAckArgs),
    /// Take a message back that is not yet acknowledged; only its sender can
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> message cancel --agent-id <my-agent-id> --task-id <task-id>")]
    Cancel(MessageCancelArgs),
    /// Show a message
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> message show --agent-id <my-agent-id> --task-id <task-id>")]
    Show(MessageShowArgs),
    /// Type messages that were held into their panes, where these are free now
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> message deliver --agent-id <my-agent-id> --wait 300")]
    Deliver(MessageDeliverArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TextArgs {
    /// The body
    #[arg(long, value_name = "BODY", allow_hyphen_values = true, conflicts_with = "text_file")]
    text: Option<String>,
    /// The body from a file, or from standard input with '-'
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_hint = clap::ValueHint::FilePath)]
    text_file: Option<String>,
}

impl TextArgs {
    /// The source of the body; none if neither flag was given.
    pub(crate) fn body(&self) -> Option<BodySource> {
        match (&self.text, &self.text_file) {
            (Some(text), _) => Some(BodySource::Text(text.clone())),
            (None, Some(file)) => Some(BodySource::File(file.clone())),
            (None, None) => None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct MessageSendArgs {
    /// The sender
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The recipient
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    /// The message's id, chosen by the sender; the same id twice is one message
    #[arg(long, value_name = "uuid")]
    pub(crate) id: Option<String>,
    /// Do not cut the body; print every field
    #[arg(long)]
    pub(crate) full: bool,
    /// Print only the first 8 characters of the id
    #[arg(long, conflicts_with = "full")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MessageBroadcastArgs {
    /// The sender
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    /// The broadcast's id, chosen by the sender; the same id twice is one broadcast
    #[arg(long, value_name = "uuid")]
    pub(crate) id: Option<String>,
    /// Print every field
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MessagePollArgs {
    /// Whose messages
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// Acknowledged and cancelled ones too
    #[arg(long)]
    pub(crate) all: bool,
    /// Only those whose state changed at or after this time
    #[arg(long, value_name = "iso8601", allow_hyphen_values = true)]
    pub(crate) since: Option<String>,
    /// Only those after this place in the order, oldest first ("seq" in JSON and --full)
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) after: Option<i64>,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(caliban_store::broker::MAX_PAGE)))]
    pub(crate) page_size: Option<u32>,
    /// Wait up to so many seconds for a message if there is none
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub(crate) wait: Option<u32>,
    /// Do not cut bodies; print every field
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MessageAckArgs {
    /// The recipient
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The message
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) task_id: String,
    /// Do not cut the body; print every field
    #[arg(long)]
    pub(crate) full: bool,
    /// Print only the first 8 characters of the id
    #[arg(long, conflicts_with = "full")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MessageCancelArgs {
    /// The sender
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The message
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) task_id: String,
    /// Do not cut the body; print every field
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MessageShowArgs {
    /// The acting agent
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The message
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) task_id: String,
    /// Do not cut the body; print every field
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MessageDeliverArgs {
    /// The acting agent
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// Go on trying for so many seconds while something is held
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub(crate) wait: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Make the database or bring it to the current schema; other commands do that by themselves
    #[command(after_help = "Examples:\n  \
        cafleet db init")]
    Init,
}

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// For Claude Code
    #[arg(long)]
    pub(crate) claude: bool,
    /// For Codex
    #[arg(long)]
    pub(crate) codex: bool,
    /// Only say what is missing, old or in the way
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) dir: Option<std::path::PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: CompletionShell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::Cli;

    #[test]
    fn a12_what_stays_for_long_is_known_and_so_keeps_no_key() {
        let waits = |line: &str| {
            let words = std::iter::once("cafleet").chain(line.split_whitespace());
            Cli::try_parse_from(words).unwrap().command.waits()
        };
        for line in [
            "monitor",
            "deliver-run",
            "message poll --agent-id x --wait 60",
            "message deliver --agent-id x --wait 60",
        ] {
            assert!(waits(line), "{line}");
        }
        // A server needs keys for what it starts; the others end at once.
        for line in
            ["server", "monitor scan", "message poll --agent-id x", "message deliver --agent-id x", "doctor"]
        {
            assert!(!waits(line), "{line}");
        }
    }
}
