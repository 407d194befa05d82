//! `caliban agents …`: the arguments.

use clap::Subcommand;

/// What to do about agents.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AgentsCommand {
    /// List the kinds of sub-agents that this repo and you define
    Types {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
