//! Budgets: what may be spent, what is spent, and what requests in flight may still cost.
//!
//! Before a request its estimate is reserved, after it what it really cost is settled: that is the machine's ledger
//! (`caliban-store`). Here are its terms and its arithmetic ([`Meter`]), and what the process of an agent counts along
//! ([`FamilyTally`]).

mod meter;
mod tally;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use meter::{Estimate, Held, Kind, Limits, Meter, NearLimit, Spent};
pub use tally::{FamilyTally, Millis};

/// What is done at a limit of the ledger's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// The agent ends.
    #[default]
    Stop,
    /// A person is asked whether it goes on with more.
    Ask,
}

/// Whose limit it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope<Id> {
    /// The agent's own.
    Agent,
    /// That of this agent and all below it.
    Tree(Id),
    /// That of all agents of the repo, for this day.
    RepoDay,
    /// That of all agents of the user on this machine, for this day.
    Day,
    /// That of everybody together.
    Pool,
}

/// Why nothing was reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReserveRefused<Id: fmt::Display + fmt::Debug> {
    /// A limit would be passed.
    #[error(
        "the {kind} budget of {} is used up: {}",
        in_words(scope),
        kind.sum_in_words(*limit, *spent, *reserved, *asked)
    )]
    Over {
        /// Whose.
        scope: Scope<Id>,
        /// Of what.
        kind: Kind,
        /// The limit (tokens, micro-dollars, turns or milliseconds).
        limit: u64,
        /// What is spent of it.
        spent: u64,
        /// What requests in flight hold of it.
        reserved: u64,
        /// What was asked for.
        asked: u64,
    },
    /// A limit in dollars cannot be held without a price.
    #[error("the budget of {} is in dollars, and the price of this model is not known; use a budget in tokens", in_words(.0))]
    NoPrice(Scope<Id>),
    /// Nobody of that name.
    #[error("the ledger has no account for {0}")]
    NoAccount(Id),
}

impl<Id: fmt::Display + fmt::Debug> ReserveRefused<Id> {
    /// The same with the names as they are shown.
    pub fn in_names(self) -> ReserveRefused<String> {
        let named = |scope: Scope<Id>| match scope {
            Scope::Agent => Scope::Agent,
            Scope::Tree(id) => Scope::Tree(id.to_string()),
            Scope::RepoDay => Scope::RepoDay,
            Scope::Day => Scope::Day,
            Scope::Pool => Scope::Pool,
        };
        match self {
            Self::Over { scope, kind, limit, spent, reserved, asked } => {
                ReserveRefused::Over { scope: named(scope), kind, limit, spent, reserved, asked }
            }
            Self::NoPrice(scope) => ReserveRefused::NoPrice(named(scope)),
            Self::NoAccount(id) => ReserveRefused::NoAccount(id.to_string()),
        }
    }
}

/// Whose limit it is, in words.
impl<Id: fmt::Display> fmt::Display for Scope<Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_words(self))
    }
}

/// An account that cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountError<Id: fmt::Display + fmt::Debug> {
    /// There is one.
    #[error("{0} has an account already")]
    Exists(Id),
    /// The agent above is not there.
    #[error("{0} has no account and cannot be a parent")]
    NoParent(Id),
}

fn in_words<Id: fmt::Display>(scope: &Scope<Id>) -> String {
    match scope {
        Scope::Agent => "this agent".to_owned(),
        Scope::Tree(id) => format!("{id} and those it started"),
        Scope::RepoDay => "this repo's agents for today".to_owned(),
        Scope::Day => "all agents for today".to_owned(),
        Scope::Pool => "all agents together".to_owned(),
    }
}
