//! An agent's purse: its account in the machine's ledger, and what its process has to know of it at any moment.
//!
//! Reserve before a request, settle after it; the one place where that is done. Limits of tokens, money and turns are the
//! machine's ledger's ([`MachineLedger`]); the process itself counts along, for what is shown, and keeps the limit of time.
//! Without a machine's ledger (a test, a foreign agent) the process keeps all limits. Owns the clock that the ledger does not know, and what makes it stand
//! still: an agent's time counts while anything of it is at work ([`Purse::work`]); what waits for a person, or for a
//! helper that has a clock of its own, rests ([`Purse::rest`]).

mod attempt;
mod governor;
mod limit;
mod machine;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use caliban_core::{
    budget::{AccountError, Estimate, Ledger, Limits, Millis, NearLimit, Reservation, ReserveRefused, Spent},
    price::{MicroUsd, Price},
    usage::Usage,
    wait::Wait,
};
use caliban_store::{StoreError, ledger};
use tokio::time::Instant;

pub use attempt::BudgetAttempt;
pub use limit::AtLimit;
pub(crate) use limit::Raisable;
pub(crate) use machine::LEDGER_PAUSE;
use machine::MachineAccount;
pub use machine::{MachineLedger, Terms, settle_dead};

/// Why a request may not be made.
pub type BudgetRefusal = ReserveRefused<String>;

/// An account in a shared ledger.
#[derive(Debug, Clone)]
pub struct Purse {
    book: Arc<Mutex<FamilyBudget>>,
    epoch: Instant,
    account: String,
    price: Option<Price>,
    machine: Option<Arc<MachineAccount>>,
}

/// What a request holds until it is settled.
#[derive(Debug, Clone)]
pub struct Reserved {
    here: Reservation,
    machine: Option<ledger::Reservation>,
}

/// Why nothing was reserved: the request may not be sent.
#[derive(Debug, thiserror::Error)]
pub enum NotReserved {
    /// A limit is in the way.
    #[error(transparent)]
    Limit(#[from] AtLimit),
    /// The ledger cannot be written.
    #[error("what the request takes cannot be written down: {0}")]
    Ledger(#[from] StoreError),
}

impl NotReserved {
    /// What to wait for before it is tried again, if that can help.
    pub(crate) fn wait(&self) -> Option<Wait> {
        match self {
            Self::Ledger(StoreError::Full(path)) => Some(Wait::DiskFull { path: path.clone() }),
            Self::Ledger(StoreError::Replaced(path)) => Some(Wait::Ledger { path: path.clone() }),
            Self::Ledger(_) | Self::Limit(_) => None,
        }
    }
}

/// What the agents of one family share.
#[derive(Debug)]
struct FamilyBudget {
    ledger: Ledger<String>,
    /// For each account: what is at work less what rests.
    at_work: BTreeMap<String, i64>,
    /// The working time that the machine's ledger knows of.
    told_ms: u64,
    /// For each account: the limit of which most was used at its last request, when that is much.
    near: BTreeMap<String, NearLimit>,
    /// Notices of limits that nobody has taken.
    notices: Vec<String>,
}

impl Purse {
    /// A new ledger with one account, whose limits hold for everything below it too.
    pub fn new(account: &str, limits: Limits, price: Option<Price>) -> Self {
        let mut ledger = Ledger::new(Limits::NONE);
        // The ledger is empty: the account cannot exist, and it has no parent.
        let _new = ledger.open_account(account.to_owned(), None, Limits::NONE, limits);
        Self {
            book: Arc::new(Mutex::new(FamilyBudget {
                ledger,
                at_work: BTreeMap::new(),
                told_ms: 0,
                near: BTreeMap::new(),
                notices: Vec::new(),
            })),
            epoch: Instant::now(),
            account: account.to_owned(),
            price,
            machine: None,
        }
    }

    /// A purse in the machine's ledger: `limits` hold for everything below the account, in other processes too.
    pub fn in_ledger(
        ledger: &MachineLedger,
        account: &str,
        label: Option<String>,
        limits: Limits,
        price: Option<Price>,
    ) -> Self {
        let machine = Arc::new(ledger.account(account, label, limits));
        let here = Limits { wall_ms: limits.wall_ms, ..Limits::NONE };
        Self { machine: Some(machine), ..Self::new(account, here, price) }
    }

    /// The name of the account in the machine's ledger: what it starts elsewhere spends from it.
    pub fn ledger_name(&self) -> Option<String> {
        self.machine.as_ref().map(|machine| machine.id().as_str().to_owned())
    }

    /// An account below this one: what it spends counts here too.
    pub fn child(
        &self,
        account: &str,
        limits: Limits,
        price: Option<Price>,
    ) -> Result<Self, AccountError<String>> {
        let parent = Some(self.account.clone());
        let machine =
            self.machine.as_ref().map(|above| Arc::new(above.child(account, &self.account, limits)));
        let here = match &machine {
            Some(_) => Limits { wall_ms: limits.wall_ms, ..Limits::NONE },
            None => limits,
        };
        self.lock().ledger.open_account(account.to_owned(), parent, Limits::NONE, here)?;
        Ok(Self { account: account.to_owned(), price, machine, ..self.clone() })
    }

    /// Lets the account and all below it spend so many new tokens more, beyond its limit or what it has spent.
    pub(crate) fn raise_fresh(&self, more: u64) {
        self.change_fresh(|limit, spent| limit.max(spent).saturating_add(more));
    }

    /// Lets the account and all below it spend at least so many new tokens more.
    pub(crate) fn leave_fresh(&self, more: u64) {
        self.change_fresh(|limit, spent| limit.max(spent.saturating_add(more)));
    }

    fn change_fresh(&self, change: impl Fn(u64, u64) -> u64) {
        let spent = self.spent().usage.fresh();
        let changed =
            |limits: Limits| Limits { fresh: limits.fresh.map(|limit| change(limit, spent)), ..limits };
        match &self.machine {
            Some(machine) => machine.change_limits(changed),
            None => self.lock().ledger.change_tree_limits(&self.account, changed),
        }
    }

    /// The same account, from now on at another price.
    pub fn priced(&self, price: Option<Price>) -> Self {
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
        if let Some(machine) = &self.machine {
            machine.earlier(Spent { wall_ms: 0, ..spent });
        }
        self.book_here(spent);
    }

    fn book_here(&self, spent: Spent) {
        let booked = self.lock().ledger.carry_over(&self.account, spent);
        debug_assert!(booked.is_ok(), "the account is open");
    }

    /// Asks for a request of about `tokens`. When it is granted, that is on the disk; limits that are nearly reached are told
    /// once, in words.
    pub async fn reserve(
        &self,
        tokens: Estimated,
        model: &str,
    ) -> Result<(Reserved, Vec<String>), NotReserved> {
        let usage = tokens.usage();
        // A cache that has expired costs the whole price.
        let cost = self.cost(tokens.uncached());
        let estimate = Estimate { usage, cost, turns: 1 };
        let now = self.now();
        let here = self.lock().ledger.reserve(&self.account, estimate, now).map_err(AtLimit::from)?;
        let Some(machine) = &self.machine else {
            return Ok((Reserved { here, machine: None }, Vec::new()));
        };
        let asked = machine.reserve(model, usage, cost).await;
        // What the ledger knows of the conversation and the transcript does not (it was begun anew) counts here, too: what is
        // shown never goes down.
        if let Some(known) = asked.known.filter(|_| machine.is_root()) {
            self.book_here(less(known, self.spent()));
        }
        match asked.granted {
            Ok(granted) => {
                let notices = self.note_limits(machine, &granted);
                Ok((Reserved { here, machine: Some(granted.reservation) }, notices))
            }
            Err(error) => {
                self.release_here(here);
                Err(error)
            }
        }
    }

    /// The request is over, and took this much. On a full disk this waits for room, and says so.
    pub async fn settle(&self, reserved: Reserved, usage: Usage, say: &(dyn Fn(Wait) + Sync)) {
        let cost = self.cost(usage);
        let settled = self.lock().ledger.settle(reserved.here, usage, cost);
        debug_assert!(settled.is_ok(), "a reservation is settled once");
        if let (Some(machine), Some(reservation)) = (&self.machine, &reserved.machine) {
            machine.settle(reservation, usage, cost, self.untold_ms(), say).await;
        }
    }

    /// The server says that the request takes more than was reserved. Counts if this process is killed now.
    pub async fn count(&self, reserved: &Reserved, usage: Usage) {
        if let (Some(machine), Some(reservation)) = (&self.machine, &reserved.machine) {
            machine.count(reservation, usage, self.cost(usage)).await;
        }
    }

    /// The request was not billed.
    pub async fn release(&self, reserved: Reserved) {
        self.release_here(reserved.here);
        if let (Some(machine), Some(reservation)) = (&self.machine, &reserved.machine) {
            machine.release(reservation).await;
        }
    }

    fn release_here(&self, reservation: Reservation) {
        let released = self.lock().ledger.release(reservation);
        debug_assert!(released.is_ok(), "a reservation is released once");
    }

    /// How long the family has worked since this was last asked.
    fn untold_ms(&self) -> u64 {
        let worked = self.worked_ms();
        let mut book = self.lock();
        let told = std::mem::replace(&mut book.told_ms, worked);
        worked.saturating_sub(told)
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
        let FamilyBudget { ledger, at_work, .. } = &mut *book;
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
    pub fn time_is_up(&self) -> Option<BudgetRefusal> {
        let nothing = Estimate { usage: Usage::default(), cost: Some(Default::default()), turns: 0 };
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

    fn lock(&self) -> MutexGuard<'_, FamilyBudget> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one is more than the other.
fn less(one: Spent, other: Spent) -> Spent {
    Spent {
        usage: one.usage.less(other.usage),
        usd: MicroUsd(one.usd.0.saturating_sub(other.usd.0)),
        turns: one.turns.saturating_sub(other.turns),
        // The transcript knows it better.
        wall_ms: 0,
        unpriced: one.unpriced.saturating_sub(other.unpriced),
    }
}

/// Keeps the work clock running while `AtWork` guards outnumber `Resting` guards.
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
    /// Those of them that the provider has in its cache, as it seems.
    pub cached: u64,
    /// Tokens answered.
    pub output: u64,
}
