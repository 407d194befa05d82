//! Limits that a person has raised at a resume. They hold for that agent from then on; its request stays as it was.

use std::{
    num::{NonZeroU32, NonZeroU64},
    path::Path,
};

use caliban_supervisor::records;
use serde::{Deserialize, Serialize};

use crate::{
    cli::{AgentFlags, fleet::ResumeArgs},
    settings::values::Usd,
};

/// The file, in the agent's directory.
const FILE: &str = "limits.json";

/// What was raised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Raised {
    max_turns: Option<NonZeroU32>,
    budget_tokens: Option<NonZeroU64>,
    budget_usd: Option<f64>,
}

impl Raised {
    /// By earlier resumes of the agent in this directory.
    pub(crate) fn of(directory: &Path) -> Self {
        records::read(directory, FILE).unwrap_or_default()
    }

    /// With what this resume says.
    pub(super) fn with(self, args: &ResumeArgs) -> Self {
        Self {
            max_turns: args.max_turns.or(self.max_turns),
            budget_tokens: args.budget_tokens.or(self.budget_tokens),
            budget_usd: args.budget_usd.map(|usd| usd.dollars()).or(self.budget_usd),
        }
    }

    /// Written down for every run from now on.
    pub(super) fn write(&self, directory: &Path) -> std::io::Result<()> {
        records::write_durably(directory, FILE, self)
    }

    /// Stronger than what the agent was started with.
    pub(crate) fn apply(self, flags: &mut AgentFlags) {
        flags.max_turns = self.max_turns.or(flags.max_turns);
        flags.budget_tokens = self.budget_tokens.or(flags.budget_tokens);
        flags.budget_usd = self.budget_usd.and_then(Usd::new).or(flags.budget_usd);
    }
}
