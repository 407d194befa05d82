//! `caliban budget …`: the arguments.

use std::num::{NonZeroU32, NonZeroU64};

use clap::{Subcommand, ValueEnum};

use super::run::dollars;
use crate::settings::values::Usd;

/// What to do about what agents may spend.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
#[command(after_help = "\
Examples:
  caliban budget show
  caliban budget set day --usd 20
  caliban budget history --by day,model")]
pub(crate) enum BudgetCommand {
    /// Show what was spent today, by whom, and which limits hold
    #[command(after_help = "\
Examples:
  caliban budget show
  caliban budget show 3fa85f64
  caliban budget show --json")]
    Show {
        /// An agent, by id, the beginning of it, or label: what it and all that it started have spent
        #[arg(value_name = "AGENT")]
        agent: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Set a limit, for agents that run too: it holds from their next request on
    #[command(after_help = "\
Examples:
  caliban budget set day --usd 20
  caliban budget set repo --tokens 2000000
  caliban budget set 3fa85f64 --usd 5
  caliban budget set day --unset")]
    Set {
        /// `day` (all agents, each day), `repo` (those of this repo, each day), or an agent (with all that it started)
        #[arg(value_name = "WHOSE")]
        whose: String,
        /// Tokens, cache reads and writes included
        #[arg(long, value_name = "N")]
        tokens: Option<NonZeroU64>,
        /// US dollars
        #[arg(long, value_name = "AMOUNT", value_parser = dollars)]
        usd: Option<Usd>,
        /// Take the limit away; for a day, the settings hold again
        #[arg(long, conflicts_with_all = ["tokens", "usd"], required_unless_present_any = ["tokens", "usd"])]
        unset: bool,
    },
    /// Show what was spent, added up
    #[command(after_help = "\
Examples:
  caliban budget history
  caliban budget history --by repo,model --days 7
  caliban budget history --by label --here --json")]
    History {
        /// What to add up by; several are separated by commas
        #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Column::Day])]
        by: Vec<Column>,
        /// So many days back, today included
        #[arg(long, value_name = "N", default_value = "30")]
        days: NonZeroU32,
        /// Only this repo
        #[arg(long)]
        here: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// What history is added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// The day
    Day,
    /// The repo
    Repo,
    /// The model
    Model,
    /// The agent's label
    Label,
    /// The agent
    Agent,
}
