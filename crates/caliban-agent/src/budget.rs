//! An agent's purse: its account in the ledger that it shares with its parent and helpers.
//!
//! Reserve before a request, settle after it. Owns the clock that the ledger does not know.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use caliban_core::{
    budget::{AccountError, Estimate, Ledger, Limits, Millis, Refused, Reservation, Spent},
    price::{MicroUsd, Price},
    usage::Usage,
};

/// Why a request may not be made.
pub type Refusal = Refused<String>;

/// An account in a shared ledger.
#[derive(Debug, Clone)]
pub struct Purse {
    ledger: Arc<Mutex<Ledger<String>>>,
    epoch: Instant,
    account: String,
    price: Option<Price>,
}

impl Purse {
    /// A new ledger with one account, whose limits hold for everything below it too.
    pub fn new(account: &str, limits: Limits, price: Option<Price>) -> Self {
        let mut ledger = Ledger::new(Limits::NONE);
        // The ledger is empty: the account cannot exist, and it has no parent.
        let _new = ledger.open_account(account.to_owned(), None, Limits::NONE, limits);
        Self {
            ledger: Arc::new(Mutex::new(ledger)),
            epoch: Instant::now(),
            account: account.to_owned(),
            price,
        }
    }

    /// An account below this one: what it spends counts here too.
    pub fn child(
        &self,
        account: &str,
        limits: Limits,
        price: Option<Price>,
    ) -> Result<Self, AccountError<String>> {
        let parent = Some(self.account.clone());
        self.lock().open_account(account.to_owned(), parent, Limits::NONE, limits)?;
        Ok(Self { account: account.to_owned(), price, ..self.clone() })
    }

    /// Books what an earlier process spent in the same conversation.
    pub fn carry_over(&self, usage: Usage) {
        self.book(usage, self.cost(usage));
    }

    /// Books what a helper spent in an earlier process; without a price of its own it is taken for one like this.
    pub(crate) fn carry_over_helper(&self, usage: Usage, micro_usd: Option<u64>) {
        self.book(usage, micro_usd.map(MicroUsd).or_else(|| self.cost(usage)));
    }

    fn book(&self, usage: Usage, cost: Option<MicroUsd>) {
        let spent = Spent {
            usage,
            usd: cost.unwrap_or_default(),
            unpriced: u64::from(cost.is_none() && usage.total() > 0),
            ..Spent::default()
        };
        let booked = self.lock().carry_over(&self.account, spent);
        debug_assert!(booked.is_ok(), "the account is open");
    }

    /// Asks for a request of about `tokens`.
    pub fn reserve(&self, tokens: Estimated) -> Result<Reservation, Refusal> {
        let usage = Usage { input: tokens.prompt, output: tokens.output, ..Usage::default() };
        let estimate = Estimate { tokens: usage.total(), cost: self.cost(usage), turns: 1 };
        let mut ledger = self.lock();
        ledger.start(&self.account, self.now());
        ledger.reserve(&self.account, estimate, self.now())
    }

    /// The request is answered.
    pub fn settle(&self, reservation: Reservation, usage: Usage) {
        let settled = self.lock().settle(reservation, usage, self.cost(usage));
        debug_assert!(settled.is_ok(), "a reservation is settled once");
    }

    /// The request was not billed.
    pub fn release(&self, reservation: Reservation) {
        let released = self.lock().release(reservation);
        debug_assert!(released.is_ok(), "a reservation is released once");
    }

    /// The request may have been billed, and nobody will tell what: its estimate counts.
    pub fn settle_unknown(&self, reservation: Reservation) {
        let settled = self.lock().settle_unknown(reservation);
        debug_assert!(settled.is_ok(), "a reservation is settled once");
    }

    /// The agent rests; its time does not count.
    pub fn pause(&self) {
        self.lock().pause(&self.account, self.now());
    }

    /// What this agent and all below it have spent.
    pub fn spent(&self) -> Spent {
        self.lock().tree_spent(&self.account).unwrap_or_default()
    }

    /// What was spent, in micro-dollars, when all of it has a price.
    pub fn micro_usd(&self) -> Option<u64> {
        let spent = self.spent();
        (self.price.is_some() && spent.unpriced == 0).then_some(spent.usd.0)
    }

    /// Ends when the wall-time limit is reached; never without one.
    pub async fn out_of_time(&self) {
        let left = self.lock().remaining(&self.account).and_then(|left| left.wall_ms);
        match left {
            Some(left) => tokio::time::sleep(Duration::from_millis(left)).await,
            None => std::future::pending().await,
        }
    }

    /// The refusal, when the wall-time limit is reached.
    pub fn time_is_up(&self) -> Option<Refusal> {
        let nothing = Estimate { tokens: 0, cost: Some(Default::default()), turns: 0 };
        let mut ledger = self.lock();
        match ledger.reserve(&self.account, nothing, self.now()) {
            Ok(reservation) => {
                let _open = ledger.release(reservation);
                None
            }
            Err(refusal) => Some(refusal),
        }
    }

    fn cost(&self, usage: Usage) -> Option<MicroUsd> {
        self.price.map(|price| price.cost(usage))
    }

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, Ledger<String>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request will take, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimated {
    /// Tokens sent.
    pub prompt: u64,
    /// Tokens answered.
    pub output: u64,
}
