//! `caliban jobs …`: the arguments.

use clap::Subcommand;

/// What to do about commands that agents left running.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
#[command(after_help = "\
Examples:
  caliban jobs list
  caliban jobs stop 3fa85f64
  caliban jobs stop --all")]
pub(crate) enum JobsCommand {
    /// List the commands that agents of this repo detached, and how they are
    #[command(after_help = "\
Examples:
  caliban jobs list
  caliban jobs list --json | jq '.[] | select(.state == \"running\")'")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End detached commands with everything that they started
    #[command(after_help = "\
Examples:
  caliban jobs stop 3fa85f64
  caliban jobs stop --all")]
    Stop {
        /// Their ids; the first characters are enough
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<String>,
        /// All that run
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
