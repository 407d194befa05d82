//! Limits that a person has raised at a resume. They hold for that agent from then on; its request stays as it was.
//!
//! Turns and budgets count from the agent's beginning; only an interactive agent has its turns anew with each message. So
//! a resume that could do nothing is refused here, where a person can still raise the limit.

use std::num::NonZeroU64;

use caliban_contract::limits::RaisedLimits;
use caliban_core::{lifecycle::Ending, spec::AfterTurn};

use caliban_contract::records::spec_of;
use caliban_settings::{Environment, schema::LimitSettings, values::Usd};

use crate::{protocol::AgentRow, refusal::Refusal, spawn_checks, words::turns};

/// What the reason of an end says that is about the limit of a day, which nobody raises for one agent.
const OF_A_DAY: &str = "for today is used up";

/// Refuses a resume of an ended agent that could not do a single turn. What cannot be read says nothing here: the worker
/// will.
pub(crate) fn check(
    row: &AgentRow,
    before: RaisedLimits,
    raised: RaisedLimits,
    in_ledger: Option<caliban_core::budget::Limits>,
) -> Result<(), Refusal> {
    let Some(spec) = spec_of(&row.dir) else { return Ok(()) };
    let mut setup = spec.setup.clone();
    before.apply(&mut setup.max_turns, &mut setup.budget);
    let old = setup.budget;
    raised.apply(&mut setup.max_turns, &mut setup.budget);
    let is_own = !matches!(&row.ending, Some(Ending::BudgetExceeded { reason }) if reason.contains(OF_A_DAY));
    let mut is_as_before = is_own && (old.tokens, old.usd) != (None, None) && old == setup.budget;
    let environment: Environment =
        spec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let Ok(loaded) = caliban_settings::load(&environment, &spec.cwd, (&setup).into()) else { return Ok(()) };
    if raised.budget_micro_usd.is_some() {
        spawn_checks::price(&loaded, &spec)?;
    }
    let mut limits = loaded.settings.limits;
    let of_settings = (limits.budget_tokens.map(NonZeroU64::get), limits.budget_usd.map(Usd::micro));
    // What a person has set in the ledger holds.
    if let Some(set) = in_ledger.filter(|set| (set.tokens, set.usd) != of_settings) {
        limits.budget_tokens = set.tokens.and_then(NonZeroU64::new);
        limits.budget_usd = set.usd.and_then(Usd::of_micro);
        is_as_before = false;
    }
    refusal(row, spec.after_turn, &limits, is_as_before).map_or(Ok(()), Err)
}

/// Why an agent that has done and spent this much cannot go on with these limits. Pure.
fn refusal(
    row: &AgentRow,
    after_turn: AfterTurn,
    limits: &LimitSettings,
    is_as_before: bool,
) -> Option<Refusal> {
    let id = row.id;
    let raise = |flags: String| format!("raise it: caliban resume {id} {flags}");
    let max_turns = u64::from(limits.max_turns.get());
    if after_turn == AfterTurn::End && row.turns >= max_turns {
        let (had, limit) = (turns(row.turns), turns(max_turns));
        let text = format!("agent {id} has had {had}, and its limit is {limit}, from its beginning");
        return Some(Refusal::new(text).hint(raise(format!("--max-turns {}", row.turns.saturating_mul(2)))));
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
        return Some(Refusal::new(text).hint(raise(flag)));
    }
    // What was too much for the rest of a budget is so again.
    if let (true, Some(ending @ Ending::BudgetExceeded { .. })) = (is_as_before, &row.ending) {
        let flags: Vec<String> = budgets.map(|(.., flag)| flag).collect();
        return Some(Refusal::new(format!("agent {id} has ended: {ending}")).hint(raise(flags.join(" "))));
    }
    None
}
