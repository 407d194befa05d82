//! The ledger of one machine and user: what all agents may spend, have spent, and hold for requests in flight.
//!
//! A request is reserved before it is sent and settled after it; each is one transaction that is on the disk when it
//! returns. A reservation is granted only when spent + held + estimate stays within the limits of every pool that the agent
//! belongs to. So no limit is passed by more than what requests in flight take beyond their estimates, whoever is killed
//! when: a reservation counts until it is settled, and [`Ledger::settle_dead`] books those of dead processes as spent.
//! A child needs no share of its own: it spends from the pools of the trees above it, and what it leaves is there for all.
//!
//! The arithmetic is [`caliban_core::budget`]'s. Days are the caller's: the store reads no clock.

mod accounts;
mod governor;
mod history;
mod meters;
mod pools;
mod questions;
mod reserve;
mod schema;
mod settle;

use std::fmt;
use std::path::PathBuf;

use caliban_core::budget::{Estimate, Held, Kind, Limits, ReserveRefused, Scope};
use caliban_core::price::MicroUsd;
use caliban_core::usage::Usage;
use jiff::civil::Date;

pub use accounts::{OpenedAccount, Opening};
pub use governor::{Admission, Lane, LaneState, Ticket};
pub use history::{By, Filter, SpendingSum};
pub use pools::{Pool, PoolState, SetLimit};
pub use questions::{AskTurn, LimitAsker, QuestionEnd, Reached};
pub use reserve::First;
pub use schema::SCHEMA;

use crate::open::{Db, OpenReport};
use crate::{StoreError, StoreUrl};

/// The ledger's file, in Caliban's data directory.
pub const FILE: &str = "ledger.db";
/// From this many percent of a limit on its agents are told.
pub const NOTICE_PERCENT: u64 = 80;

/// An open ledger.
#[derive(Debug)]
pub struct Ledger {
    db: Db,
}

/// Names an account: the repo's hash and the ids of the agents from the first to this one, `9f…/1a2b3c4d/sub-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(String);

impl AccountId {
    /// An agent of a repo.
    #[must_use]
    pub fn new(repo_hash: &str, agent: &str) -> Self {
        Self(format!("{repo_hash}/{agent}"))
    }

    /// One of its helpers.
    #[must_use]
    pub fn below(&self, agent: &str) -> Self {
        Self(format!("{}/{agent}", self.0))
    }

    /// As it was shown.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without the repo's hash: what a person calls the agent.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.split_once('/').map_or(self.0.as_str(), |(_, rest)| rest)
    }
}

/// The agent's own name.
impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.rsplit('/').next().unwrap_or_default())
    }
}

/// An agent as it opens its account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name in the ledger.
    pub id: AccountId,
    /// The agent that started it.
    pub parent: Option<AccountId>,
    /// The repo that it works for.
    pub repo: PathBuf,
    /// A name for people.
    pub label: Option<String>,
    /// What it may spend by itself.
    pub own: Limits,
    /// What it and all below it may spend.
    pub tree: Limits,
}

/// The process that a reservation belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservationOwner {
    /// The boot that it is of.
    pub boot: String,
    /// Its id.
    pub pid: i32,
    /// When the kernel started it.
    pub started: u64,
}

/// A request that is about to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRequest<'a> {
    /// Who asks; its account is open.
    pub account: &'a AccountId,
    /// Which process.
    pub owner: &'a ReservationOwner,
    /// The model.
    pub model: &'a str,
    /// What it takes, about.
    pub usage: Usage,
    /// What that costs, where the price is known.
    pub cost: Option<MicroUsd>,
    /// 1, or 0 for what is no turn.
    pub turns: u64,
    /// The day that it counts in.
    pub day: Date,
    /// What the settings allow the repo for a day.
    pub per_repo_day: Limits,
    /// What the settings allow all agents for a day.
    pub per_day: Limits,
}

impl LedgerRequest<'_> {
    fn estimate(&self) -> Estimate {
        Estimate { tokens: self.usage.total(), cost: self.cost, turns: self.turns }
    }
}

/// A granted reservation. It is settled, released, or counts as spent once its process is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    seq: i64,
    account: i64,
    meters: Vec<i64>,
    day: Date,
    model: String,
    held: Held,
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// To be settled.
    pub reservation: Reservation,
    /// Limits of which most is used by now, each told once.
    pub near: Vec<Near>,
    /// The one of which most is used, told or not.
    pub nearest: Option<Near>,
}

/// A limit of which most is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Near {
    /// Whose.
    pub scope: Scope<AccountId>,
    /// Of what.
    pub kind: Kind,
    /// The limit.
    pub limit: u64,
    /// What is spent and held of it.
    pub used: u64,
}

impl Near {
    /// Which part of it, for comparing.
    fn share(&self) -> u128 {
        u128::from(self.used) * 1_000_000 / u128::from(self.limit.max(1))
    }
}

/// Why nothing was reserved.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A limit is in the way.
    #[error(transparent)]
    Refused(#[from] ReserveRefused<AccountId>),
    /// The store failed; the request may not be sent.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LedgerError {
    /// Whether somebody else was writing for too long.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_busy())
    }
}

impl Ledger {
    /// Opens the ledger, and makes its tables if there are none.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self { db: Db::open(url, &SCHEMA).await? })
    }

    /// What opening had to do.
    #[must_use]
    pub fn prepared(&self) -> OpenReport {
        self.db.prepared()
    }

    /// Closes the ledger in a process that lives on.
    pub async fn close(self) {
        self.db.close().await;
    }

    /// Ends its use in a process that is about to exit.
    pub async fn leave(self) {
        self.db.leave().await;
    }
}
