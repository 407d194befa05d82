//! The machine's ledger for agents of these settings: whose account, and which limits.

use std::{num::NonZeroU64, path::Path};

use caliban_agent::budget::{MachineLedger, Terms};
use caliban_contract::{
    ancestry::{self, AgentAbove, Ancestry},
    limits::RaisedLimits,
};
use caliban_core::{
    budget::{self, OnLimit},
    priority::Standing,
    setup::AgentSetup,
};

use crate::settings::{Loaded, schema::Settings};

/// The machine's ledger, for agents of these settings.
pub(crate) fn ledger(loaded: &Loaded, above: Option<&str>) -> MachineLedger {
    ledger_of(loaded, &loaded.root, above)
}

/// The same for what belongs to this repo, whatever directory the settings were found from.
pub(crate) fn ledger_of(loaded: &Loaded, repo: &Path, above: Option<&str>) -> MachineLedger {
    let budget = &loaded.settings.budget;
    MachineLedger::new(Terms {
        file: loaded.paths.data.join(caliban_store::ledger::FILE),
        repo: repo.to_owned(),
        repo_hash: caliban_contract::repo_hash(repo),
        above: above.map(str::to_owned),
        per_agent: budget.per_agent.limits(),
        per_repo_day: budget.per_repo_day.limits(),
        per_day: budget.per_day.limits(),
        on_limit: if may_ask() { budget.on_limit } else { OnLimit::Stop },
    })
}

/// Whether a person can be the one who answers. A program that an agent's command runs is not asked about limits: the agent
/// could say yes itself.
pub(super) fn may_ask() -> bool {
    match ancestry::own() {
        Ancestry::Person | Ancestry::Member => true,
        Ancestry::Agents(agents) => {
            agents.first().is_some_and(|agent| agent.which == ancestry::AgentProcess::Worker)
        }
        Ancestry::Unknown => false,
    }
}

/// The agent in one of whose commands this program runs.
pub(crate) fn agent_above() -> Option<AgentAbove> {
    let Ancestry::Agents(agents) = ancestry::own() else { return None };
    agents.into_iter().next().filter(|above| above.which == ancestry::AgentProcess::Command)
}

/// How the requests of an agent stand, and whether quiet hours hold for them: those of a process below an agent come no
/// earlier than that one's own.
pub(crate) fn standing(
    setup: &AgentSetup,
    is_of_fleet: bool,
    above: Option<&AgentAbove>,
) -> (Standing, Hours) {
    let hours = |setup: &AgentSetup| if setup.keeps_quiet_hours() { Hours::Kept } else { Hours::Ignored };
    match above {
        _ if is_of_fleet => (Standing::Background(setup.priority.unwrap_or_default()), hours(setup)),
        Some(above) => {
            // One that cannot be read has asked for nothing special.
            let mut spec = caliban_contract::records::spec_of(&above.dir).unwrap_or_default();
            RaisedLimits::read(&above.dir).apply_to(&mut spec);
            (Standing::Attended.below(spec.setup.priority.unwrap_or_default()), hours(&spec.setup))
        }
        None => (Standing::Attended, Hours::Ignored),
    }
}

/// Whether quiet hours hold for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hours {
    Kept,
    Ignored,
}

pub(crate) fn budget_limits(settings: &Settings) -> budget::Limits {
    let limits = &settings.limits;
    budget::Limits {
        tokens: limits.budget_tokens.map(NonZeroU64::get),
        fresh: None,
        usd: limits.budget_usd.map(|usd| usd.micro()),
        turns: None,
        wall_ms: limits.wall_seconds.map(|seconds| seconds.get().saturating_mul(1000)),
    }
}
