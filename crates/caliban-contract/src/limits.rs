//! `limits.json`: what a person changed after the request, at a resume or while the agent was queued. It holds for that agent
//! from then on; the request stays as it was.

use std::path::Path;

use caliban_core::budget::Limits;
use caliban_core::price::MicroUsd;
use caliban_core::priority::Priority;
use caliban_core::spec::SpawnSpec;
use serde::{Deserialize, Serialize};

use crate::records;

/// What replaces parts of the request. An absent part stays as the request has it.
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
    /// How long it may run, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Who comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// When it starts, in milliseconds since 1970; 0 is at once.
    #[serde(
        rename = "start_at",
        with = "caliban_core::instant::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub start_at_ms: Option<u64>,
}

impl RaisedLimits {
    /// Whether nothing is changed.
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
            timeout_ms: later.timeout_ms.or(self.timeout_ms),
            priority: later.priority.or(self.priority),
            start_at_ms: later.start_at_ms.or(self.start_at_ms),
        }
    }

    /// Puts all of it in place of what a request has.
    pub fn apply_to(self, spec: &mut SpawnSpec) {
        self.apply(&mut spec.setup.max_turns, &mut spec.setup.budget);
        spec.timeout_ms = self.timeout_ms.or(spec.timeout_ms);
        spec.setup.priority = self.priority.or(spec.setup.priority);
        spec.start_at_ms = self.start_at_ms.or(spec.start_at_ms);
    }

    /// Puts the raised limits in place of those of a request.
    pub fn apply(self, max_turns: &mut Option<u64>, budget: &mut Limits) {
        *max_turns = self.max_turns.or(*max_turns);
        budget.tokens = self.budget_tokens.or(budget.tokens);
        budget.usd = self.budget_micro_usd.or(budget.usd);
    }
}
