//! An agent's purse: its account in the ledger that it shares with its parent and helpers.
//!
//! Reserve before a request, settle after it. Owns the clock that the ledger does not know, and what makes it stand
//! still: an agent's time counts while anything of it is at work ([`Purse::work`]); what waits for a person, or for a
//! helper that has a clock of its own, rests ([`Purse::rest`]).

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use caliban_core::{
    budget::{AccountError, Estimate, Ledger, Limits, Millis, Refused, Reservation, Spent},
    price::{MicroUsd, Price},
    usage::Usage,
};
use tokio::time::Instant;

/// Why a request may not be made.
pub type Refusal = Refused<String>;

/// An account in a shared ledger.
#[derive(Debug, Clone)]
pub struct Purse {
    book: Arc<Mutex<Book>>,
    epoch: Instant,
    account: String,
    price: Option<Price>,
}

/// What the agents of one family share.
#[derive(Debug)]
struct Book {
    ledger: Ledger<String>,
    /// For each account: what is at work less what rests.
    at_work: BTreeMap<String, i64>,
    /// For each account: what it has given away, as far as it is held back.
    handed: BTreeMap<String, Handed>,
}

/// What was given away, in tokens and millionths of a dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Handed {
    tokens: u64,
    micro_usd: u64,
}

impl Purse {
    /// A new ledger with one account, whose limits hold for everything below it too.
    pub fn new(account: &str, limits: Limits, price: Option<Price>) -> Self {
        let mut ledger = Ledger::new(Limits::NONE);
        // The ledger is empty: the account cannot exist, and it has no parent.
        let _new = ledger.open_account(account.to_owned(), None, Limits::NONE, limits);
        Self {
            book: Arc::new(Mutex::new(Book { ledger, at_work: BTreeMap::new(), handed: BTreeMap::new() })),
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
        self.lock().ledger.open_account(account.to_owned(), parent, Limits::NONE, limits)?;
        Ok(Self { account: account.to_owned(), price, ..self.clone() })
    }

    /// The same account, from now on at another price.
    pub(crate) fn priced(&self, price: Option<Price>) -> Self {
        Self { price, ..self.clone() }
    }

    /// Books what an earlier process spent in the same conversation.
    pub(crate) fn carry_over(&self, usage: Usage, cost: Option<MicroUsd>) {
        self.book_spent(Spent {
            usage,
            usd: cost.unwrap_or_default(),
            unpriced: u64::from(cost.is_none() && usage.total() > 0),
            ..Spent::default()
        });
    }

    /// Books how long an earlier process worked, helpers included.
    pub(crate) fn carry_over_time(&self, wall_ms: u64) {
        self.book_spent(Spent { wall_ms, ..Spent::default() });
    }

    fn book_spent(&self, spent: Spent) {
        let booked = self.lock().ledger.carry_over(&self.account, spent);
        debug_assert!(booked.is_ok(), "the account is open");
    }

    /// Takes half of what is left, for an agent that has a purse of its own elsewhere. Nothing where nothing is limited.
    pub(crate) fn share(&self) -> Result<Share, Refusal> {
        let mut book = self.lock();
        let now = self.now();
        let left = book.ledger.remaining(&self.account).unwrap_or(Limits::NONE);
        let tokens = left.tokens.map(|tokens| (tokens / 2).max(1));
        let usd = left.usd.map(|usd| MicroUsd((usd.0 / 2).max(1)));
        let cost = Some(usd.unwrap_or_default());
        let estimate = Estimate { tokens: tokens.unwrap_or_default(), cost, turns: 0 };
        let reservation = book.ledger.reserve(&self.account, estimate, now)?;
        let handed = book.handed.entry(self.account.clone()).or_default();
        handed.tokens += tokens.unwrap_or_default();
        handed.micro_usd += usd.unwrap_or_default().0;
        Ok(Share { limits: Limits { tokens, usd, ..Limits::NONE }, reservation })
    }

    /// Gives back what was taken for an agent that was not started. What is written down about it has to go first.
    pub(crate) fn take_back(&self, share: Share) {
        if let Some(handed) = self.lock().handed.get_mut(&self.account) {
            handed.tokens = handed.tokens.saturating_sub(share.limits.tokens.unwrap_or_default());
            let usd = share.limits.usd.unwrap_or_default().0;
            handed.micro_usd = handed.micro_usd.saturating_sub(usd);
        }
        self.release(share.reservation);
    }

    /// Holds back what `handed.jsonl` says was granted to background agents, by this process or an earlier one.
    pub(crate) fn count_grants(&self, directory: &Path) {
        match caliban_contract::grants::total(directory) {
            Ok(total) => self.count_handed(total),
            Err(error) => tracing::warn!(%error, "the grants to background agents are not known"),
        }
    }

    /// Holds back what was given away so far, in all, by an earlier process or for what a command has started; all that is
    /// left where that is less.
    fn count_handed(&self, (tokens, usd): (u64, MicroUsd)) {
        let mut book = self.lock();
        let handed = book.handed.entry(self.account.clone()).or_default();
        let (tokens, usd) = (tokens.saturating_sub(handed.tokens), usd.0.saturating_sub(handed.micro_usd));
        if (tokens, usd) == (0, 0) {
            return;
        }
        handed.tokens += tokens;
        handed.micro_usd += usd;
        let usd = MicroUsd(usd);
        let now = self.now();
        let left = book.ledger.remaining(&self.account).unwrap_or(Limits::NONE);
        let tokens = left.tokens.map_or(0, |left| tokens.min(left));
        let usd = left.usd.map_or(MicroUsd(0), |left| usd.min(left));
        let estimate = Estimate { tokens, cost: Some(usd), turns: 0 };
        if let Err(refusal) = book.ledger.reserve(&self.account, estimate, now) {
            tracing::debug!(%refusal, "nothing is left to be held back");
        }
    }

    /// Asks for a request of about `tokens`.
    pub fn reserve(&self, tokens: Estimated) -> Result<Reservation, Refusal> {
        let usage = Usage { input: tokens.prompt, output: tokens.output, ..Usage::default() };
        let estimate = Estimate { tokens: usage.total(), cost: self.cost(usage), turns: 1 };
        let now = self.now();
        self.lock().ledger.reserve(&self.account, estimate, now)
    }

    /// The request is answered.
    pub fn settle(&self, reservation: Reservation, usage: Usage) {
        let settled = self.lock().ledger.settle(reservation, usage, self.cost(usage));
        debug_assert!(settled.is_ok(), "a reservation is settled once");
    }

    /// The request was not billed.
    pub fn release(&self, reservation: Reservation) {
        let released = self.lock().ledger.release(reservation);
        debug_assert!(released.is_ok(), "a reservation is released once");
    }

    /// The agent works, and its time counts, until the answer is dropped.
    pub fn work(&self) -> AtWork {
        self.change(1);
        AtWork(self.clone())
    }

    /// Something of the agent that is at work rests until the answer is dropped. When all of it rests, its time stands
    /// still, and so does that of those above it who are not at work themselves.
    pub fn rest(&self) -> Resting {
        self.change(-1);
        Resting(self.clone())
    }

    fn change(&self, by: i64) {
        let mut book = self.lock();
        // Within the lock: nobody counts up to a later moment first.
        let now = self.now();
        let Book { ledger, at_work, .. } = &mut *book;
        let count = at_work.entry(self.account.clone()).or_default();
        *count += by;
        if *count > 0 {
            ledger.start(&self.account, now);
        } else {
            ledger.pause(&self.account, now);
        }
        if *count == 0 {
            at_work.remove(&self.account);
        }
    }

    /// How long the whole family has worked: the agent that has no parent, and all below it.
    pub fn worked_ms(&self) -> u64 {
        let mut book = self.lock();
        let now = self.now();
        book.ledger.count_time(now);
        book.ledger.pool_spent().wall_ms
    }

    /// What this agent and all below it have spent.
    pub fn spent(&self) -> Spent {
        self.lock().ledger.tree_spent(&self.account).unwrap_or_default()
    }

    /// What was spent, in micro-dollars, when all of it has a price.
    pub fn micro_usd(&self) -> Option<u64> {
        let spent = self.spent();
        (self.price.is_some() && spent.unpriced == 0).then_some(spent.usd.0)
    }

    /// Ends when the wall-time limit is reached; never without one.
    pub async fn out_of_time(&self) {
        let left = {
            let mut book = self.lock();
            let now = self.now();
            book.ledger.count_time(now);
            book.ledger.remaining(&self.account).and_then(|left| left.wall_ms)
        };
        // A request is work, so this clock and all above it run until it is answered.
        match left {
            Some(left) => tokio::time::sleep(Duration::from_millis(left)).await,
            None => std::future::pending().await,
        }
    }

    /// The refusal, when the wall-time limit is reached.
    pub fn time_is_up(&self) -> Option<Refusal> {
        let nothing = Estimate { tokens: 0, cost: Some(Default::default()), turns: 0 };
        let mut book = self.lock();
        let now = self.now();
        match book.ledger.reserve(&self.account, nothing, now) {
            Ok(reservation) => {
                let _open = book.ledger.release(reservation);
                None
            }
            Err(refusal) => Some(refusal),
        }
    }

    /// What these tokens cost, when the price is known.
    pub fn cost(&self, usage: Usage) -> Option<MicroUsd> {
        self.price.map(|price| price.cost(usage))
    }

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an agent was given of another one's purse.
#[derive(Debug)]
pub(crate) struct Share {
    /// What it may spend.
    pub(crate) limits: Limits,
    reservation: Reservation,
}

/// An agent's clock runs while there is one of these (and fewer of the others).
#[derive(Debug)]
#[must_use]
pub struct AtWork(Purse);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.change(-1);
    }
}

/// Something rests while there is one of these.
#[derive(Debug)]
#[must_use]
pub struct Resting(Purse);

impl Drop for Resting {
    fn drop(&mut self) {
        self.0.change(1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r20_shares_never_add_up_to_more_than_there_is() {
        let limits = Limits { tokens: Some(1000), usd: Some(MicroUsd(9)), ..Limits::NONE };
        let purse = Purse::new("a", limits, None);
        let mut given = 0;
        let shares: Vec<Share> = std::iter::from_fn(|| purse.share().ok()).collect();
        for share in &shares {
            given += share.limits.tokens.unwrap();
        }
        assert!(given <= 1000 && shares.len() > 2, "{shares:?}");
        for share in shares {
            purse.take_back(share);
        }
        assert_eq!(
            purse.share().unwrap().limits,
            Limits { tokens: Some(500), usd: Some(MicroUsd(4)), ..Limits::NONE }
        );
        purse.count_handed((2000, MicroUsd(1)));
        assert!(purse.share().is_err());
        // What a share took is not held back again; what was given besides is, once.
        let purse = Purse::new("c", limits, None);
        let share = purse.share().unwrap();
        for total in [500, 700, 700] {
            purse.count_handed((total, MicroUsd(4)));
        }
        let left = |purse: &Purse| purse.lock().ledger.remaining(&"c".to_owned()).unwrap().tokens;
        assert_eq!(left(&purse), Some(300));
        purse.take_back(share);
        purse.count_handed((200, MicroUsd(0)));
        assert_eq!(left(&purse), Some(800));
        let free = Purse::new("b", Limits::NONE, None);
        assert_eq!(free.share().unwrap().limits, Limits::NONE);
    }
}
