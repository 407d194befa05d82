//! `limits.json`: limits that a person raised at a resume. They hold for that agent from then on; its request stays as it was.

use std::path::Path;

use caliban_core::budget::Limits;
use caliban_core::price::MicroUsd;
use serde::{Deserialize, Serialize};

use crate::records;

/// Limits that replace those of the request. An absent one stays as the request has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RaisedLimits {
    /// Turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u64>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_tokens: Option<u64>,
    /// Money, in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_micro_usd: Option<MicroUsd>,
}

impl RaisedLimits {
    /// Whether nothing is raised.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// By earlier resumes of the agent in this directory.
    #[must_use]
    pub fn read(directory: &Path) -> Self {
        records::read(directory, records::LIMITS).unwrap_or_default()
    }

    /// These, with those of a later resume on top.
    #[must_use]
    pub fn with(self, later: Self) -> Self {
        Self {
            max_turns: later.max_turns.or(self.max_turns),
            budget_tokens: later.budget_tokens.or(self.budget_tokens),
            budget_micro_usd: later.budget_micro_usd.or(self.budget_micro_usd),
        }
    }

    /// Puts the raised limits in place of those of a request.
    pub fn apply(self, max_turns: &mut Option<u64>, budget: &mut Limits) {
        *max_turns = self.max_turns.or(*max_turns);
        budget.tokens = self.budget_tokens.or(budget.tokens);
        budget.usd = self.budget_micro_usd.or(budget.usd);
    }
}
