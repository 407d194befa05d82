//! `caliban sessions …`: the arguments.

use std::num::NonZeroUsize;

use clap::Subcommand;

/// What to do with sessions.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
#[command(after_help = "\
Examples:
  caliban sessions list
  caliban sessions audit 1b2c               # every call: allowed by what, how long, exit code
  caliban sessions replay 1b2c --speed 4")]
pub(crate) enum SessionsCommand {
    /// List the sessions of this repo, the latest first
    #[command(after_help = "\
Examples:
  caliban sessions list
  caliban sessions list --archived --json")]
    List {
        /// Those of every repo
        #[arg(long)]
        all: bool,
        /// What is kept of background agents that were removed or respawned
        #[arg(long)]
        archived: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a session: what was asked, what came of it, what it cost
    #[command(after_help = "\
Examples:
  caliban sessions show 1b2c
  caliban sessions show auth                # a background agent, by its label")]
    Show {
        /// The session: an id or the beginning of one, or a background agent's label
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the conversation as it ran
    #[command(after_help = "\
Examples:
  caliban sessions replay 1b2c
  caliban sessions replay 1b2c --speed 10")]
    Replay {
        /// The session: an id or the beginning of one, or a background agent's label
        id: String,
        /// How fast: 1 is as it was, 10 is ten times as fast; without it nothing is waited for
        #[arg(long, value_name = "FACTOR", value_parser = speed)]
        speed: Option<f64>,
    },
    /// List every tool call with its decision, rule, duration and exit code
    #[command(after_help = "\
Examples:
  caliban sessions audit 1b2c
  caliban sessions audit 1b2c --json")]
    Audit {
        /// The session: an id or the beginning of one, or a background agent's label
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a long session shorter for the model; the transcript keeps everything
    #[command(after_help = "\
Examples:
  caliban sessions compact 1b2c")]
    Compact {
        /// The session: an id or the beginning of one, or a background agent's label
        id: String,
    },
    /// Make a copy of a session, whole or up to one of its prompts; the old one stays as it is
    #[command(after_help = "\
Examples:
  caliban sessions fork 1b2c
  caliban sessions fork 1b2c --before 3     # without the third prompt and what followed")]
    Fork {
        /// The session: an id or the beginning of one
        id: String,
        /// Leave out this prompt and what followed; 1 is the first
        #[arg(long, value_name = "N")]
        before: Option<NonZeroUsize>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Go back to before a prompt: files that tools have changed since come back, and the conversation goes on in a copy
    #[command(after_help = "\
Examples:
  caliban sessions rewind 1b2c
  caliban sessions rewind 1b2c --before 3   # to before the third prompt")]
    Rewind {
        /// The session: an id or the beginning of one
        id: String,
        /// The prompt; 1 is the first, without it the last
        #[arg(long, value_name = "N")]
        before: Option<NonZeroUsize>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove sessions, or archived agents, with everything that is kept about them
    #[command(after_help = "\
Examples:
  caliban sessions rm 1b2c 7f00")]
    Rm {
        /// The sessions: ids or beginnings of ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

fn speed(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| factor.is_finite() && *factor > 0.0);
    factor.ok_or_else(|| "expected a number above 0, such as 4".to_owned())
}
