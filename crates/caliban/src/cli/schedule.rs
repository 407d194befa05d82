//! `caliban schedule …`: the arguments.

use clap::{Args, Subcommand};

/// What to do about schedules, which start an agent each time that they are due.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
#[command(after_help = "\
Examples:
  caliban --bg \"update the dependencies\" --label deps --every \"mon 07:00\"
  caliban schedule list
  caliban schedule run deps")]
pub(crate) enum ScheduleCommand {
    /// List all schedules of this repo, and the agents that start at a time
    #[command(after_help = "\
Examples:
  caliban schedule list
  caliban schedule list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one schedule: its task, when it runs, what became of its last run
    Show(NameArg),
    /// Remove a schedule; the agents that it started stay
    Rm(NameArg),
    /// Start nothing until it goes on
    Pause(NameArg),
    /// Let a paused one go on, with the next time that it is due
    #[command(name = "continue")]
    Continue(NameArg),
    /// Start an agent of it now, beside its times
    Run(NameArg),
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban schedule show deps
  caliban schedule pause deps
  caliban schedule continue deps
  caliban schedule run deps
  caliban schedule rm deps")]
pub(crate) struct NameArg {
    /// Its name
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
