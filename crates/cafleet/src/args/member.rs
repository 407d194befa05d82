//! The command line of members and of the monitor.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Start a coding agent in a pane beside its Director's
    #[command(
        after_help = "The prompt may name {session_id}, {agent_id} and {director_agent_id}; a literal brace is doubled.\n\n\
        Examples:\n  \
        cafleet --session-id <session-id> member create --agent-id <director-id> --name reviewer --description \"Reviews\" -- \"Review what I send you\"\n  \
        cafleet --session-id <session-id> member create --agent-id <director-id> --name tests --description \"Tests\" --coding-agent codex --worktree\n  \
        cafleet --session-id <session-id> member create --agent-id <director-id> --recover <member-id>"
    )]
    Create(MemberCreateArgs),
    /// Ask a member to leave, and deregister it when its pane is closed
    #[command(after_help = "Exits with 2 when the pane is still open after 15 seconds.\n\n\
        Examples:\n  \
        cafleet --session-id <session-id> member delete --agent-id <director-id> --member-id <member-id>\n  \
        cafleet --session-id <session-id> member delete --agent-id <director-id> --member-id <member-id> --force")]
    Delete(MemberDeleteArgs),
    /// List the members of a Director
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> member list --agent-id <director-id> --activity")]
    List(MemberListArgs),
    /// Print the last lines of a member's pane
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> member capture --agent-id <director-id> --member-id <member-id> --lines 40")]
    Capture(MemberCaptureArgs),
    /// Answer the question that a member's pane shows
    #[command(after_help = "Refused when the pane shows no question.\n\n\
        Examples:\n  \
        cafleet --session-id <session-id> member send-input --agent-id <director-id> --member-id <member-id> --choice 2\n  \
        cafleet --session-id <session-id> member send-input --agent-id <director-id> --member-id <member-id> --freetext \"Use the second one\"")]
    SendInput(MemberSendInputArgs),
    /// Have a member run a shell command, and record its exit code and output
    #[command(after_help = "Examples:\n  \
        cafleet --session-id <session-id> member exec --agent-id <director-id> --member-id <member-id> \"git status\" --wait\n  \
        cafleet --session-id <session-id> member exec --agent-id <director-id> --member-id <member-id> --file setup.sh\n  \
        cafleet --session-id <session-id> member exec --agent-id <director-id> --member-id <member-id> --result <exec-id>")]
    Exec(MemberExecArgs),
    /// Have a member look into its mailbox
    #[command(after_help = "A member that is not free is left alone; the answer says why.\n\n\
        Examples:\n  \
        cafleet --session-id <session-id> member ping --agent-id <director-id> --member-id <member-id>")]
    Ping(MemberPingArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MemberCreateArgs {
    /// The Director
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The member's name
    #[arg(long, allow_hyphen_values = true, required_unless_present = "recover")]
    pub(crate) name: Option<String>,
    /// What the member is for, in one sentence
    #[arg(long, allow_hyphen_values = true, required_unless_present = "recover")]
    pub(crate) description: Option<String>,
    /// claude, codex, caliban, gemini, opencode or command:"…"; the Director's own unless given
    #[arg(long, value_name = "AGENT", conflicts_with = "recover")]
    pub(crate) coding_agent: Option<String>,
    /// The model, in the coding agent's own words
    #[arg(long, conflicts_with = "recover")]
    pub(crate) model: Option<String>,
    /// How hard it thinks, in the coding agent's own words
    #[arg(long, conflicts_with = "recover")]
    pub(crate) effort: Option<String>,
    /// The prompt from a file, by its absolute path
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "recover"])]
    pub(crate) prompt_file: Option<String>,
    /// The directory that it works in; the current one unless given
    #[arg(long, value_name = "DIR", conflicts_with = "recover")]
    pub(crate) cwd: Option<String>,
    /// Work in a git worktree of its own, on the branch caliban/NAME
    #[arg(long, conflicts_with = "recover")]
    pub(crate) worktree: bool,
    /// Bring back a member that lost its pane, with its mailbox
    #[arg(long, value_name = "uuid", conflicts_with_all = ["name", "description", "prompt"])]
    pub(crate) recover: Option<String>,
    /// Print everything known about it
    #[arg(long)]
    pub(crate) full: bool,
    /// The prompt
    #[arg(value_name = "PROMPT", last = true)]
    pub(crate) prompt: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MemberDeleteArgs {
    /// The Director
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The member
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) member_id: String,
    /// Close its pane at once, whatever it does
    #[arg(long, short)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MemberListArgs {
    /// The Director
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// When each last sent, received and acknowledged something
    #[arg(long)]
    pub(crate) activity: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MemberCaptureArgs {
    /// The Director
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The member
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) member_id: String,
    /// How many lines
    #[arg(long, alias = "tail", value_name = "N", default_value_t = 30, allow_negative_numbers = true)]
    pub(crate) lines: i64,
    /// Keep colours
    #[arg(long, overrides_with = "no_ansi")]
    pub(crate) ansi: bool,
    /// Leave colours out, which is the default
    #[arg(long)]
    pub(crate) no_ansi: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MemberSendInputArgs {
    /// The Director
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The member
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) member_id: String,
    /// The number of a choice
    #[arg(long, value_name = "N", required_unless_present = "freetext", conflicts_with = "freetext",
        value_parser = clap::value_parser!(u32).range(1..=3))]
    pub(crate) choice: Option<u32>,
    /// An answer in words
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) freetext: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MemberExecArgs {
    /// The Director
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The member
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) member_id: String,
    /// The command, from a file, or from standard input with '-'; it may have several lines
    #[arg(long, value_name = "FILE", conflicts_with = "command", allow_hyphen_values = true)]
    pub(crate) file: Option<String>,
    /// Wait for its end and print its output
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait at most so many seconds
    #[arg(long, value_name = "SECS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) timeout: u32,
    /// Show what became of an earlier command
    #[arg(long, value_name = "uuid", conflicts_with_all = ["command", "file"])]
    pub(crate) result: Option<String>,
    /// The command
    #[arg(value_name = "COMMAND", allow_hyphen_values = true)]
    pub(crate) command: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MemberPingArgs {
    /// The Director
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) agent_id: String,
    /// The member
    #[arg(long, value_name = "uuid", allow_hyphen_values = true)]
    pub(crate) member_id: String,
    /// Print only the first 8 characters of the member's id
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MonitorArgs {
    /// Draw the screen once and leave
    #[arg(long)]
    pub(crate) once: bool,
    #[command(subcommand)]
    pub(crate) command: Option<MonitorCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MonitorCommand {
    /// Look at every pane once: its state, and a hash of what it shows
    #[command(after_help = "Examples:\n  cafleet monitor scan --json")]
    Scan(MonitorScanArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MonitorScanArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecRunArgs {
    /// The command
    #[arg(value_name = "EXEC_ID")]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct MemberRunArgs {
    /// The member
    #[arg(value_name = "MEMBER_ID")]
    pub(crate) id: String,
}
