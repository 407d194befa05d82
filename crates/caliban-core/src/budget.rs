//! The ledger: what may be spent, what is spent, and what requests in flight may still cost.
//!
//! Before a request its estimate is reserved, after it what it really cost is settled. A reservation is granted
//! only when spent + reserved + estimate stays within every limit of the agent, of each tree that it belongs to,
//! and of the pool; so a budget is exceeded at most by what requests in flight cost beyond their estimates.
//! Ended agents keep counting: there is no way to remove an account.
//!
//! **Restarts.** Open reservations stay open in a snapshot and keep holding their amount. That is the safe side:
//! the request was sent and will be billed, so a crash must not hand its budget out again. The worker may have
//! outlived the daemon and settle later with the real usage; when the agent is gone, [`Ledger::end`] books what
//! it had reserved as spent.
//!
//! **Time** is working time, measured by the caller's monotonic clock and added up; the ledger never sees a date,
//! so a clock that jumps changes nothing. For a tree and the pool it is the time in which anybody of them worked:
//! two who work side by side for a minute take one minute of it, and while all of them rest it stands still.

mod meter;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

pub use meter::{Estimate, Held, Kind, Limits, Meter, NearLimit, Spent};

use crate::price::MicroUsd;
use crate::usage::Usage;

/// Milliseconds on the caller's monotonic clock; only differences within one run of the program matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// A granted reservation, to be settled or released once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reservation(u64);

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

/// A reservation that is not open: never made, or closed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this reservation is not open (any more)")]
pub struct NotOpen;

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

/// A snapshot that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored ledger contradicts itself: {0}")]
pub struct Corrupt(&'static str);

/// The ledger. `Id` is whatever names an agent: the fleet's ids, or a session's numbers.
#[derive(Debug, Clone)]
pub struct Ledger<Id> {
    limits: Limits,
    pool: Meter,
    accounts: BTreeMap<Id, Account<Id>>,
    open: BTreeMap<Reservation, (Id, Held)>,
    next: u64,
    running: BTreeSet<Id>,
    /// Up to here the time of those who run is counted.
    counted: Millis,
}

#[derive(Debug, Clone)]
struct Account<Id> {
    parent: Option<Id>,
    limits: Limits,
    tree_limits: Limits,
    own: Meter,
    tree: Meter,
}

/// A ledger as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot<Id> {
    limits: Limits,
    next: u64,
    accounts: Vec<StoredAccount<Id>>,
    open: Vec<StoredReservation<Id>>,
    pool_wall_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredAccount<Id> {
    id: Id,
    parent: Option<Id>,
    limits: Limits,
    tree_limits: Limits,
    spent: Spent,
    tree_wall_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredReservation<Id> {
    reservation: Reservation,
    id: Id,
    held: Held,
}

impl<Id: Ord + Clone + fmt::Display + fmt::Debug> Ledger<Id> {
    /// An empty ledger with the pool's limits.
    pub fn new(pool: Limits) -> Self {
        Self {
            limits: pool,
            pool: Meter::default(),
            accounts: BTreeMap::new(),
            open: BTreeMap::new(),
            next: 0,
            running: BTreeSet::new(),
            counted: Millis(0),
        }
    }

    /// Opens an account: limits of the agent by itself, and of all that is below it together.
    pub fn open_account(
        &mut self,
        id: Id,
        parent: Option<Id>,
        limits: Limits,
        tree_limits: Limits,
    ) -> Result<(), AccountError<Id>> {
        if self.accounts.contains_key(&id) {
            return Err(AccountError::Exists(id));
        }
        if let Some(parent) = parent.as_ref().filter(|parent| !self.accounts.contains_key(parent)) {
            return Err(AccountError::NoParent(parent.clone()));
        }
        let account = Account { parent, limits, tree_limits, own: Meter::default(), tree: Meter::default() };
        self.accounts.insert(id, account);
        Ok(())
    }

    /// The agent is at work from now on: its time counts.
    pub fn start(&mut self, id: &Id, now: Millis) {
        if self.accounts.contains_key(id) {
            self.count_time(now);
            self.running.insert(id.clone());
        }
    }

    /// The agent rests (idle, waiting for a person): its time does not count.
    pub fn pause(&mut self, id: &Id, now: Millis) {
        self.count_time(now);
        self.running.remove(id);
    }

    /// Counts the time up to now: for everybody who is at work, and once for each tree in which anybody is.
    pub fn count_time(&mut self, now: Millis) {
        let elapsed = now.0.saturating_sub(self.counted.0);
        if self.running.is_empty() {
            // Nobody's time: the clock may be another one by now (a restart).
            self.counted = now;
            return;
        }
        self.counted = now.max(self.counted);
        let trees: BTreeSet<Id> =
            self.running.iter().flat_map(|id| self.chain(id)).map(|(id, _)| id.clone()).collect();
        let add = |meter: &mut Meter| {
            meter.book(Held::default(), Spent { wall_ms: elapsed, ..Spent::default() });
        };
        for (id, account) in &mut self.accounts {
            if self.running.contains(id) {
                add(&mut account.own);
            }
            if trees.contains(id) {
                add(&mut account.tree);
            }
        }
        add(&mut self.pool);
    }

    /// The agent is gone: what it had reserved and never settled is booked as spent.
    pub fn end(&mut self, id: &Id, now: Millis) {
        self.pause(id, now);
        let left: Vec<Reservation> = self
            .open
            .iter()
            .filter(|(_, (owner, _))| owner == id)
            .map(|(reservation, _)| *reservation)
            .collect();
        for reservation in left {
            // Just listed as open.
            let _ = self.settle_unknown(reservation);
        }
    }

    /// Reserves the estimate of a request, or says which limit is in the way.
    pub fn reserve(
        &mut self,
        id: &Id,
        estimate: Estimate,
        now: Millis,
    ) -> Result<Reservation, ReserveRefused<Id>> {
        self.count_time(now);
        self.check(id, estimate)?;
        let held = Held::from(estimate);
        self.each_meter(id, |meter| meter.hold(held));
        let reservation = Reservation(self.next);
        self.next += 1;
        self.open.insert(reservation, (id.clone(), held));
        Ok(reservation)
    }

    /// Replaces a reservation with what the request really took. A cost that is not known counts as what was
    /// reserved for it.
    pub fn settle(
        &mut self,
        reservation: Reservation,
        usage: Usage,
        cost: Option<MicroUsd>,
    ) -> Result<(), NotOpen> {
        let (id, held) = self.open.remove(&reservation).ok_or(NotOpen)?;
        let spent = Spent {
            usage,
            usd: cost.unwrap_or(held.usd),
            turns: held.turns,
            wall_ms: 0,
            unpriced: u64::from(cost.is_none() && !held.priced),
        };
        self.each_meter(&id, |meter| meter.book(held, spent));
        Ok(())
    }

    /// The request was sent and its usage will never be known (a cut stream, a lost worker): all that was
    /// reserved counts as spent.
    pub fn settle_unknown(&mut self, reservation: Reservation) -> Result<(), NotOpen> {
        let held = self.open.get(&reservation).map(|(_, held)| *held).ok_or(NotOpen)?;
        // Which kind of new token it would have been is unknown; the sums are what budgets count.
        let cache_read = held.tokens.saturating_sub(held.fresh);
        self.settle(reservation, Usage { input: held.fresh, cache_read, ..Usage::default() }, None)
    }

    /// The request was not billed (refused, not sent): its reservation is given back.
    pub fn release(&mut self, reservation: Reservation) -> Result<(), NotOpen> {
        let (id, held) = self.open.remove(&reservation).ok_or(NotOpen)?;
        self.each_meter(&id, |meter| meter.drop_hold(held));
        Ok(())
    }

    /// Books what was spent where this ledger did not look: by an earlier process of the same conversation, or
    /// while no daemon ran. It is a fact, so no limit stands in its way.
    pub fn carry_over(&mut self, id: &Id, spent: Spent) -> Result<(), ReserveRefused<Id>> {
        if !self.accounts.contains_key(id) {
            return Err(ReserveRefused::NoAccount(id.clone()));
        }
        self.each_meter(id, |meter| meter.book(Held::default(), spent));
        Ok(())
    }

    /// Changes what an agent and all below it may spend, from the next request on.
    pub fn change_tree_limits(&mut self, id: &Id, change: impl FnOnce(Limits) -> Limits) {
        if let Some(account) = self.accounts.get_mut(id) {
            account.tree_limits = change(account.tree_limits);
        }
    }

    /// What an agent spent by itself.
    pub fn spent(&self, id: &Id) -> Option<Spent> {
        self.accounts.get(id).map(|account| account.own.spent)
    }

    /// What an agent and all below it spent.
    pub fn tree_spent(&self, id: &Id) -> Option<Spent> {
        self.accounts.get(id).map(|account| account.tree.spent)
    }

    /// What everybody spent.
    pub fn pool_spent(&self) -> Spent {
        self.pool.spent
    }

    /// What an agent may still reserve, the narrowest of all its limits. With it a caller can shorten the
    /// answer that it asks for instead of being refused.
    pub fn remaining(&self, id: &Id) -> Option<Limits> {
        let account = self.accounts.get(id)?;
        let start = account.own.left(account.limits).narrower(self.pool.left(self.limits));
        Some(self.chain(id).fold(start, |left, (_, above)| left.narrower(above.tree.left(above.tree_limits))))
    }

    /// The ledger as it is to be stored. Time of running agents is counted up to now.
    pub fn snapshot(&mut self, now: Millis) -> Snapshot<Id> {
        self.count_time(now);
        Snapshot {
            limits: self.limits,
            next: self.next,
            accounts: self
                .accounts
                .iter()
                .map(|(id, account)| StoredAccount {
                    id: id.clone(),
                    parent: account.parent.clone(),
                    limits: account.limits,
                    tree_limits: account.tree_limits,
                    spent: account.own.spent,
                    tree_wall_ms: account.tree.spent.wall_ms,
                })
                .collect(),
            open: self
                .open
                .iter()
                .map(|(reservation, (id, held))| StoredReservation {
                    reservation: *reservation,
                    id: id.clone(),
                    held: *held,
                })
                .collect(),
            pool_wall_ms: self.pool.spent.wall_ms,
        }
    }

    /// A ledger from what was stored. Sums over trees and the pool are made anew, so they cannot disagree; their
    /// time is no sum and is stored.
    /// Nobody is running: call [`Ledger::start`] for those who are.
    pub fn restore(snapshot: Snapshot<Id>) -> Result<Self, Corrupt> {
        let mut ledger = Self::new(snapshot.limits);
        ledger.next = snapshot.next;
        let mut spent = Vec::with_capacity(snapshot.accounts.len());
        for stored in snapshot.accounts {
            spent.push((stored.id.clone(), stored.spent, stored.tree_wall_ms));
            let account = Account {
                parent: stored.parent,
                limits: stored.limits,
                tree_limits: stored.tree_limits,
                own: Meter::default(),
                tree: Meter::default(),
            };
            if ledger.accounts.insert(stored.id, account).is_some() {
                return Err(Corrupt("an account is there twice"));
            }
        }
        ledger.check_parents()?;
        for (id, spent, _) in &spent {
            ledger.each_meter(id, |meter| meter.book(Held::default(), *spent));
        }
        for (id, _, tree_wall_ms) in spent {
            if let Some(account) = ledger.accounts.get_mut(&id) {
                account.tree.spent.wall_ms = tree_wall_ms;
            }
        }
        ledger.pool.spent.wall_ms = snapshot.pool_wall_ms;
        for StoredReservation { reservation, id, held } in snapshot.open {
            if !ledger.accounts.contains_key(&id) {
                return Err(Corrupt("a reservation has no account"));
            }
            if reservation.0 >= ledger.next {
                return Err(Corrupt("a reservation is newer than the ledger"));
            }
            ledger.each_meter(&id, |meter| meter.hold(held));
            if ledger.open.insert(reservation, (id, held)).is_some() {
                return Err(Corrupt("a reservation is there twice"));
            }
        }
        Ok(ledger)
    }

    /// Every limit in the way, the agent's first.
    fn check(&self, id: &Id, estimate: Estimate) -> Result<(), ReserveRefused<Id>> {
        let account = self.accounts.get(id).ok_or_else(|| ReserveRefused::NoAccount(id.clone()))?;
        let own = (Scope::Agent, &account.own, account.limits);
        let trees =
            self.chain(id).map(|(id, above)| (Scope::Tree(id.clone()), &above.tree, above.tree_limits));
        let pool = (Scope::Pool, &self.pool, self.limits);
        for (scope, meter, limits) in std::iter::once(own).chain(trees).chain(std::iter::once(pool)) {
            meter.check(limits, estimate, scope)?;
        }
        Ok(())
    }

    /// The agent and those above it. Parents exist before their children and never change, so this ends.
    fn chain<'a>(&'a self, id: &Id) -> impl Iterator<Item = (&'a Id, &'a Account<Id>)> {
        std::iter::successors(self.accounts.get_key_value(id), |(_, account)| {
            account.parent.as_ref().and_then(|parent| self.accounts.get_key_value(parent))
        })
    }

    /// The meters that count what an agent does: its own, each tree's above it, the pool's.
    fn each_meter(&mut self, id: &Id, mut change: impl FnMut(&mut Meter)) {
        if let Some(account) = self.accounts.get_mut(id) {
            change(&mut account.own);
        }
        let mut next = Some(id.clone());
        while let Some(account) = next.as_ref().and_then(|id| self.accounts.get_mut(id)) {
            change(&mut account.tree);
            next = account.parent.clone();
        }
        change(&mut self.pool);
    }

    /// Every parent is there and nobody is above themselves.
    fn check_parents(&self) -> Result<(), Corrupt> {
        for account in self.accounts.values() {
            let mut steps = 0;
            let mut above = account.parent.as_ref();
            while let Some(id) = above {
                let Some(parent) = self.accounts.get(id) else {
                    return Err(Corrupt("an account's parent is missing"));
                };
                steps += 1;
                // A way up without a repetition has fewer steps than there are accounts.
                if steps >= self.accounts.len() {
                    return Err(Corrupt("an account is above itself"));
                }
                above = parent.parent.as_ref();
            }
        }
        Ok(())
    }
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
