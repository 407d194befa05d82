//! The machine's ledger for agents of these settings: whose account, and which limits.

use std::num::NonZeroU64;

use caliban_agent::budget::{MachineLedger, OnLimit, Terms};
use caliban_contract::ancestry::{self, Ancestry};
use caliban_core::budget;

use crate::settings::{Loaded, schema::Settings};

/// The machine's ledger, for agents of these settings.
pub(crate) fn ledger(loaded: &Loaded, above: Option<&str>) -> MachineLedger {
    let budget = &loaded.settings.budget;
    MachineLedger::new(Terms {
        file: loaded.paths.data.join(caliban_store::ledger::FILE),
        repo: loaded.root.clone(),
        repo_hash: caliban_contract::repo_hash(&loaded.root),
        above: above.map(str::to_owned),
        per_agent: budget.per_agent.limits(),
        per_repo_day: budget.per_repo_day.limits(),
        per_day: budget.per_day.limits(),
        on_limit: if may_ask() { budget.on_limit } else { OnLimit::Stop },
    })
}

/// Whether a person can be the one who answers. A program that an agent's command runs is not asked about limits: the agent
/// could say yes itself.
fn may_ask() -> bool {
    match ancestry::own() {
        Ancestry::Person => true,
        Ancestry::Agents(agents) => {
            agents.first().is_some_and(|agent| agent.which == ancestry::Which::Worker)
        }
        Ancestry::Unknown => false,
    }
}

/// The account of the agent in one of whose commands this program runs: what it spends, that one spends.
pub(crate) fn account_above() -> Option<String> {
    let Ancestry::Agents(agents) = ancestry::own() else { return None };
    agents.first().filter(|above| above.which == ancestry::Which::Command)?.account()
}

pub(crate) fn budget_limits(settings: &Settings) -> budget::Limits {
    let limits = &settings.limits;
    budget::Limits {
        tokens: limits.budget_tokens.map(NonZeroU64::get),
        usd: limits.budget_usd.map(|usd| usd.micro()),
        turns: None,
        wall_ms: limits.wall_seconds.map(|seconds| seconds.get().saturating_mul(1000)),
    }
}
