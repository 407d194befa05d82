//! An agent's purse: its account in the machine's ledger, and what its process has to know of it at any moment.
//!
//! Reserve before a request, settle after it; the one place where that is done. Limits of tokens, money and turns are the
//! machine's ledger's ([`MachineLedger`]); the process itself counts along ([`FamilyTally`]) for what is shown, and keeps the
//! limit of time. Without a machine's ledger (tests) there is no other limit. Owns the clock that the ledger does not know, and
//! what makes it stand still: an agent's time counts while anything of it is at work ([`Purse::work`]); what waits for a person,
//! or for a helper that has a clock of its own, rests ([`Purse::rest`]).

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
    budget::{AccountError, FamilyTally, Limits, Millis, NearLimit, ReserveRefused, Spent},
    price::{MicroUsd, Price},
    usage::Usage,
    wait::Wait,
};
use caliban_store::{StoreError, ledger};
use jiff::civil::Date;
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
pub struct Reserved(Option<ledger::Reservation>);

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
    tally: FamilyTally,
    /// For each account: what this process has spent on the last day on which it spent.
    today: BTreeMap<String, (Date, Spent)>,
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
    /// A purse of a family of its own, which only has a limit of time.
    pub fn new(account: &str, limit_ms: Option<u64>, price: Option<Price>) -> Self {
        let book = FamilyBudget {
            tally: FamilyTally::new(account, limit_ms),
            today: BTreeMap::new(),
            at_work: BTreeMap::new(),
            told_ms: 0,
            near: BTreeMap::new(),
            notices: Vec::new(),
        };
        Self {
            book: Arc::new(Mutex::new(book)),
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
        Self { machine: Some(machine), ..Self::new(account, limits.wall_ms, price) }
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
        let machine = self.machine.as_ref().map(|above| Arc::new(above.child(account, limits)));
        self.lock().tally.add(account, &self.account, limits.wall_ms)?;
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
        if let Some(machine) = &self.machine {
            machine.change_limits(changed);
        }
    }

    /// The same account, from now on at another price.
    pub fn priced(&self, price: Option<Price>) -> Self {
        Self { price, ..self.clone() }
    }

    /// Books what an earlier process spent in the same conversation.
    pub(crate) fn carry_over(&self, usage: Usage, cost: Option<MicroUsd>) {
        let unpriced = u64::from(cost.is_none() && usage.total() > 0);
        self.book(Spent { usage, usd: cost.unwrap_or_default(), unpriced, ..Spent::default() });
    }

    /// Books how long an earlier process worked, helpers included.
    pub(crate) fn carry_over_time(&self, wall_ms: u64) {
        self.book(Spent { wall_ms, ..Spent::default() });
    }

    fn book(&self, spent: Spent) {
        self.lock().tally.book(&self.account, spent);
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
        if let Some(refusal) = self.time_is_up() {
            return Err(AtLimit::from(refusal).into());
        }
        let Some(machine) = &self.machine else { return Ok((Reserved(None), Vec::new())) };
        let asked = machine.reserve(model, usage, cost, &self.book).await;
        // What the ledger knows of the conversation and the transcript does not (it was begun anew) counts here, too: what is
        // shown never goes down. Of time the transcript knows more.
        if let Some(known) = asked.known.filter(|_| machine.is_root()) {
            self.book(Spent { wall_ms: 0, ..known.less(self.spent()) });
        }
        let granted = asked.granted?;
        let notices = self.note_limits(machine, &granted);
        Ok((Reserved(Some(granted.reservation)), notices))
    }

    /// The request is over, and took this much. On a full disk this waits for room, and says so.
    pub async fn settle(&self, reserved: Reserved, usage: Usage, say: &(dyn Fn(Wait) + Sync)) {
        let cost = self.cost(usage);
        let unpriced = u64::from(cost.is_none());
        let spent = Spent { usage, usd: cost.unwrap_or_default(), turns: 1, wall_ms: 0, unpriced };
        self.lock().spend(&self.account, spent);
        if let (Some(machine), Some(reservation)) = (&self.machine, &reserved.0) {
            machine.settle(reservation, usage, cost, self.untold_ms(), say).await;
        }
    }

    /// The server says that the request takes more than was reserved. Counts if this process is killed now.
    pub async fn count(&self, reserved: &Reserved, usage: Usage) {
        if let (Some(machine), Some(reservation)) = (&self.machine, &reserved.0) {
            machine.count(reservation, usage, self.cost(usage)).await;
        }
    }

    /// The request was not billed.
    pub async fn release(&self, reserved: Reserved) {
        if let (Some(machine), Some(reservation)) = (&self.machine, &reserved.0) {
            machine.release(reservation).await;
        }
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
        let FamilyBudget { tally, at_work, .. } = &mut *book;
        let count = at_work.entry(self.account.clone()).or_default();
        *count += by;
        if *count > 0 {
            tally.start(&self.account, now);
        } else {
            tally.pause(&self.account, now);
        }
        if *count == 0 {
            at_work.remove(&self.account);
        }
    }

    /// How long the whole family has worked: the agent that has no parent, and all below it.
    pub fn worked_ms(&self) -> u64 {
        let mut book = self.lock();
        let now = self.now();
        book.tally.count_time(now);
        book.tally.worked_ms()
    }

    /// What this agent and all below it have spent.
    pub fn spent(&self) -> Spent {
        self.lock().tally.spent(&self.account)
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
            book.tally.count_time(now);
            book.tally.time_left(&self.account)
        };
        // A request is work, so this clock and all above it run until it is answered.
        match left {
            Some(left) => tokio::time::sleep(Duration::from_millis(left)).await,
            None => std::future::pending().await,
        }
    }

    /// The refusal, when the wall-time limit is reached.
    pub fn time_is_up(&self) -> Option<BudgetRefusal> {
        let mut book = self.lock();
        let now = self.now();
        book.tally.count_time(now);
        book.tally.time_is_up(&self.account)
    }

    /// What these tokens cost, when the price is known.
    pub fn cost(&self, usage: Usage) -> Option<MicroUsd> {
        self.price.map(|price| price.cost(usage))
    }

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, FamilyBudget> {
        lock(&self.book)
    }
}

impl FamilyBudget {
    /// This process has spent this much.
    fn spend(&mut self, account: &str, spent: Spent) {
        self.tally.book(account, spent);
        let day = caliban_contract::local_time::now().date();
        let (of, today) = self.today.entry(account.to_owned()).or_insert((day, Spent::default()));
        if *of != day {
            (*of, *today) = (day, Spent::default());
        }
        today.add(spent);
    }

    /// What an account has spent by itself, and what of it today in this process: for a ledger that does not know it.
    fn own(&self, account: &str) -> [Spent; 2] {
        let day = caliban_contract::local_time::now().date();
        let today = self.today.get(account).filter(|(of, _)| *of == day).map(|(_, spent)| *spent);
        // Time is told with each request.
        [Spent { wall_ms: 0, ..self.tally.own(account) }, today.unwrap_or_default()]
    }
}

fn lock(book: &Mutex<FamilyBudget>) -> MutexGuard<'_, FamilyBudget> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
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
