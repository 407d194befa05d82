//! `caliban daemon …`: the arguments.

use clap::Subcommand;

/// What to do about the daemon of this repo.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
#[command(after_help = "\
Examples:
  caliban daemon status
  caliban daemon restart                    # after an update, or when it does not answer
  caliban daemon logs -f")]
pub(crate) enum DaemonCommand {
    /// Show its health, process, uptime, agents and socket, and what it found when it started
    #[command(after_help = "\
Examples:
  caliban daemon status
  caliban daemon status --json | jq .agents")]
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End it when the requests in flight are answered; agents go on
    #[command(after_help = "\
Examples:
  caliban daemon stop                       # agents go on; the next command that needs a daemon starts one")]
    Stop,
    /// Replace it, whatever its version or state; agents go on and are adopted by the new one
    #[command(after_help = "\
Examples:
  caliban daemon restart                    # after an update, or when it does not answer")]
    Restart,
    /// Print its log
    #[command(after_help = "\
Examples:
  caliban daemon logs -n 50
  caliban daemon logs -f")]
    Logs {
        /// Stay and print what comes; Ctrl+C ends it
        #[arg(long, short)]
        follow: bool,
        /// Only the last lines
        #[arg(long, short = 'n', value_name = "LINES")]
        lines: Option<usize>,
    },
}
