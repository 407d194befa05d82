//! Limits that a person has raised at a resume. They hold for that agent from then on; its request stays as it was.
//!
//! Turns and budgets count from the agent's beginning; only an interactive agent has its turns anew with each message. So
//! a resume that could do nothing is refused here, where a person can still raise the limit.

use std::{
    num::{NonZeroU32, NonZeroU64},
    path::Path,
};

use caliban_core::{
    lifecycle::Ending,
    spec::{AfterTurn, SpawnSpec},
};
use caliban_supervisor::{protocol::AgentRow, records};
use serde::{Deserialize, Serialize};

use crate::{
    cli::{AgentFlags, fleet::ResumeArgs},
    report::Failure,
    settings::{Environment, schema::Limits, values::Usd},
};

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
        records::read(directory, records::LIMITS).unwrap_or_default()
    }

    /// With what this resume says.
    pub(super) fn with(self, args: &ResumeArgs) -> Self {
        Self {
            max_turns: args.max_turns.or(self.max_turns),
            budget_tokens: args.budget_tokens.or(self.budget_tokens),
            budget_usd: args.budget_usd.map(|usd| usd.dollars()).or(self.budget_usd),
        }
    }

    /// For the daemon, which writes down those of the resume that it accepts.
    pub(super) fn asked(args: &ResumeArgs) -> Option<serde_json::Map<String, serde_json::Value>> {
        let asked = Self::default().with(args);
        match serde_json::to_value(asked) {
            Ok(serde_json::Value::Object(limits)) if asked != Self::default() => Some(limits),
            _ => None,
        }
    }

    /// Stronger than what the agent was started with.
    pub(crate) fn apply(self, flags: &mut AgentFlags) {
        flags.max_turns = self.max_turns.or(flags.max_turns);
        flags.budget_tokens = self.budget_tokens.or(flags.budget_tokens);
        flags.budget_usd = self.budget_usd.and_then(Usd::new).or(flags.budget_usd);
    }
}

/// Refuses a resume of an ended agent that could not do a single turn. What cannot be read says nothing here: the worker
/// will.
pub(super) fn check(row: &AgentRow, before: Raised, raised: Raised) -> Result<(), Failure> {
    let spec = std::fs::read_to_string(row.dir.join(records::SPEC)).ok();
    let Some(spec) = spec.and_then(|text| SpawnSpec::from_json(&text).ok()) else { return Ok(()) };
    let mut flags = super::flags::of(&spec);
    before.apply(&mut flags);
    let old = (flags.budget_tokens, flags.budget_usd);
    raised.apply(&mut flags);
    let is_as_before = old != (None, None) && old == (flags.budget_tokens, flags.budget_usd);
    let environment: Environment =
        spec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let Ok(loaded) = crate::settings::load(&environment, &spec.cwd, flags.layer()) else { return Ok(()) };
    if raised.budget_usd.is_some() {
        super::checks::price(&loaded, &spec)?;
    }
    refusal(row, spec.after_turn, &loaded.settings.limits, is_as_before).map_or(Ok(()), Err)
}

/// Why an agent that has done and spent this much cannot go on with these limits. Pure.
fn refusal(row: &AgentRow, after_turn: AfterTurn, limits: &Limits, is_as_before: bool) -> Option<Failure> {
    let id = row.id;
    let raise = |flags: String| format!("raise it: caliban resume {id} {flags}");
    let max_turns = u64::from(limits.max_turns.get());
    if after_turn == AfterTurn::End && row.turns >= max_turns {
        let (had, limit) = (super::turns(row.turns), super::turns(max_turns));
        let text = format!("agent {id} has had {had}, and its limit is {limit}, from its beginning");
        return Some(Failure::new(text).hint(raise(format!("--max-turns {}", row.turns.saturating_mul(2)))));
    }
    let tokens = limits.budget_tokens.map(|limit| {
        let (spent, limit) = (row.usage.total(), limit.get());
        let more = spent.max(limit).saturating_mul(2);
        (
            spent >= limit,
            format!("{spent} tokens, and its budget is {limit}"),
            format!("--budget-tokens {more}"),
        )
    });
    let usd = limits.budget_usd.map(|limit| {
        let (spent, limit) = (row.micro_usd.map_or(0.0, |micro| micro.0 as f64 / 1e6), limit.dollars());
        let more = (spent.max(limit) * 200.0).ceil() / 100.0;
        (
            spent >= limit,
            format!("${spent:.4}, and its budget is ${limit}"),
            format!("--budget-usd {more:.2}"),
        )
    });
    let budgets = [tokens, usd].into_iter().flatten();
    if let Some((_, text, flag)) = budgets.clone().find(|(is_spent, ..)| *is_spent) {
        let text = format!("agent {id} has spent {text}, from its beginning");
        return Some(Failure::new(text).hint(raise(flag)));
    }
    // What was too much for the rest of a budget is so again.
    if let (true, Some(ending @ Ending::BudgetExceeded { .. })) = (is_as_before, &row.ending) {
        let flags: Vec<String> = budgets.map(|(.., flag)| flag).collect();
        return Some(Failure::new(format!("agent {id} has ended: {ending}")).hint(raise(flags.join(" "))));
    }
    None
}
