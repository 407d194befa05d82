//! The ledger of one machine and user: what all agents may spend, have spent, and hold for requests in flight.
//!
//! A request is reserved before it is sent and settled after it; each is one transaction that is on the disk when it
//! returns. A reservation is granted only if spent + held + estimate stays within the limits of every pool that the
//! agent belongs to. So no limit is exceeded by more than what the requests in flight take beyond their estimates,
//! whichever process is killed at whatever time: a reservation counts until it is settled, and [`Ledger::settle_dead`]
//! books those of dead processes as spent. A child needs no share of its own: it spends from the pools of the trees
//! above it, and what it leaves is available to all.
//!
//! The arithmetic is in [`caliban_core::budget`]. The caller names the day: the store reads no clock.

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
pub use governor::{Admission, GovernorTicket, LEASE_MS, Lane, LaneState};
pub use history::{By, Filter, SpendingSum};
pub use pools::{Pool, PoolState, SetLimit};
pub use questions::{AskTurn, LimitAsker, QuestionEnd, Reached};
pub use reserve::First;
pub use schema::SCHEMA;

use crate::open::{Db, OpenReport};
use crate::{StoreError, StoreUrl};

/// The ledger's file, in Caliban's data directory.
pub const FILE: &str = "ledger.db";
/// The percentage of a limit from which on its agents are notified.
pub const NOTICE_PERCENT: u64 = 80;

/// An open ledger.
#[derive(Debug)]
pub struct Ledger {
    db: Db,
}

/// An account's id: the repo's hash and the agent ids from the topmost to this one, `9f…/1a2b3c4d/sub-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(String);

impl AccountId {
    /// An agent of a repo.
    #[must_use]
    pub fn new(repo_hash: &str, agent: &str) -> Self {
        Self(format!("{repo_hash}/{agent}"))
    }

    /// The account of one of its helpers.
    #[must_use]
    pub fn below(&self, agent: &str) -> Self {
        Self(format!("{}/{agent}", self.0))
    }

    /// Reads the text of [`AccountId::as_str`].
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id without the repo's hash, as people write it.
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
    /// Its id in the ledger.
    pub id: AccountId,
    /// The agent that started it.
    pub parent: Option<AccountId>,
    /// The repo that it works for.
    pub repo: PathBuf,
    /// A name for people.
    pub label: Option<String>,
    /// Its own limits.
    pub own: Limits,
    /// The limits of it and all agents below it together.
    pub tree: Limits,
}

/// The process that a reservation belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservationOwner {
    /// The boot during which it runs.
    pub boot: String,
    /// Its pid.
    pub pid: i32,
    /// When the kernel started it.
    pub started: u64,
}

/// A request that is about to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRequest<'a> {
    /// The account that it counts for, which must be open.
    pub account: &'a AccountId,
    /// The process that sends it.
    pub owner: &'a ReservationOwner,
    /// The model.
    pub model: &'a str,
    /// Its estimated usage.
    pub usage: Usage,
    /// The estimated cost, if the price is known.
    pub cost: Option<MicroUsd>,
    /// 1, or 0 if it is not a turn.
    pub turns: u64,
    /// The day that it counts in.
    pub day: Date,
    /// The settings' limit for a day of the repo.
    pub per_repo_day: Limits,
    /// The settings' limit for a day of all agents.
    pub per_day: Limits,
}

impl LedgerRequest<'_> {
    fn estimate(&self) -> Estimate {
        Estimate { usage: self.usage, cost: self.cost, turns: self.turns }
    }
}

/// A granted reservation. It is settled, or released, or counts as spent once its process is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The file that it is in ([`Ledger::generation`]).
    generation: u64,
    seq: i64,
    account: i64,
    meters: Vec<i64>,
    day: Date,
    model: String,
    held: Held,
}

/// A granted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// To be settled.
    pub reservation: Reservation,
    /// Limits that are nearly used up, each reported once.
    pub near: Vec<Near>,
    /// The limit with the largest used share, reported before or not.
    pub nearest: Option<Near>,
}

/// A limit that is nearly used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Near {
    /// The pool that it limits.
    pub scope: Scope<AccountId>,
    /// The unit that it limits.
    pub kind: Kind,
    /// The limit.
    pub limit: u64,
    /// The amount spent and held.
    pub used: u64,
}

impl Near {
    /// The used share, for comparison.
    fn share(&self) -> u128 {
        u128::from(self.used) * 1_000_000 / u128::from(self.limit.max(1))
    }
}

/// Why nothing was reserved.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A limit would be exceeded.
    #[error(transparent)]
    Refused(#[from] ReserveRefused<AccountId>),
    /// The store failed; the request must not be sent.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LedgerError {
    /// Whether another process held the write lock for too long.
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
        Ok(Self { db: Db::open(url, &SCHEMA).await?.watched() })
    }

    /// How often the file was deleted, cut or replaced since it was opened, and another one opened in its place. The
    /// accounts and reservations of an earlier file are not in it.
    ///
    /// # Errors
    /// See [`StoreError`]; above all [`StoreError::Replaced`].
    pub async fn generation(&mut self) -> Result<u64, StoreError> {
        self.db.conn().await?;
        Ok(self.db.generation())
    }

    /// What opening the store did.
    #[must_use]
    pub fn prepared(&self) -> OpenReport {
        self.db.prepared()
    }

    /// Closes the ledger in a process that lives on.
    pub async fn close(self) {
        self.db.close().await;
    }

    /// Ends the use of the ledger in a process that is about to exit.
    pub async fn leave(self) {
        self.db.leave().await;
    }
}
