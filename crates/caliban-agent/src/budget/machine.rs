//! The machine's ledger as one process uses it: opened with the first request, one connection for all agents of the process.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex as Lock, OnceLock, PoisonError},
    time::Duration,
};

use caliban_core::{
    budget::{Limits, OnLimit, Spent},
    price::MicroUsd,
    usage::Usage,
    wait::Wait,
};
use caliban_store::{
    Stamp, StoreError, StoreUrl,
    ledger::{
        Account, AccountId, First, Granted, Ledger, LedgerRequest, Opening, Reservation, ReservationOwner,
    },
};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::{FamilyBudget, NotReserved, lock};

/// How often a busy ledger is asked again; each time it is waited for as long as the store waits.
pub(super) const PATIENCE: u32 = 10;

/// How long to wait before a ledger that has no room, or is not there, is tried again.
pub(crate) const LEDGER_PAUSE: Duration = Duration::from_secs(1);

/// The ledger of this machine and user. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MachineLedger(Arc<MachineInner>);

#[derive(Debug)]
struct MachineInner {
    terms: Terms,
    ledger: Mutex<Option<Ledger>>,
}

/// What a process brings to the ledger: where it is, and what the settings say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// The ledger's file.
    pub file: PathBuf,
    /// The repo that the agents work for.
    pub repo: PathBuf,
    /// Its hash.
    pub repo_hash: String,
    /// The account above this process's agents, in the ledger's words.
    pub above: Option<String>,
    /// What each agent may spend by itself.
    pub per_agent: Limits,
    /// What all agents of the repo may spend in a day.
    pub per_repo_day: Limits,
    /// What all agents may spend in a day.
    pub per_day: Limits,
    /// What is done at a limit.
    pub on_limit: OnLimit,
}

impl MachineLedger {
    /// The ledger in this file; nothing is opened before it is needed.
    pub fn new(terms: Terms) -> Self {
        Self(Arc::new(MachineInner { terms, ledger: Mutex::new(None) }))
    }

    pub(super) fn terms(&self) -> &Terms {
        &self.0.terms
    }

    pub(super) fn account(&self, name: &str, label: Option<String>, tree: Limits) -> MachineAccount {
        let terms = &self.0.terms;
        let account = Account {
            id: AccountId::new(&terms.repo_hash, name),
            parent: terms.above.as_deref().map(AccountId::from_text),
            repo: terms.repo.clone(),
            label,
            own: terms.per_agent,
            tree: without_time(tree),
        };
        MachineAccount::new(self.clone(), name, account, None)
    }

    /// The open ledger. What dead processes have left in it is booked by whoever opens it.
    pub(super) async fn open(&self) -> Result<MappedMutexGuard<'_, Ledger>, StoreError> {
        let mut guard = self.0.ledger.lock().await;
        let ledger = match guard.take() {
            Some(ledger) => ledger,
            None => {
                let mut ledger = Ledger::open(&StoreUrl::sqlite(&self.0.terms.file)).await?;
                settle_dead(&mut ledger).await?;
                ledger
            }
        };
        Ok(MutexGuard::map(guard, |slot| slot.insert(ledger)))
    }

    /// Ends the use of the ledger in a process that has nothing more to spend and is about to exit. What was acknowledged
    /// stays in the ledger's log; the next process that opens the ledger need not make the log anew.
    pub async fn leave(&self) {
        if let Some(ledger) = self.0.ledger.lock().await.take() {
            ledger.leave().await;
        }
    }
}

/// Books what processes hold that are gone.
pub async fn settle_dead(ledger: &mut Ledger) -> Result<(), StoreError> {
    let boot = caliban_process::boot_id().unwrap_or_default();
    let booked = ledger.settle_dead(|owner| is_dead(owner, &boot)).await?;
    if booked > 0 {
        tracing::info!(booked, "requests of processes that are gone count as spent");
    }
    Ok(())
}

/// Whether a process is gone. One that cannot be looked at is not.
pub(super) fn is_dead(owner: &ReservationOwner, boot: &str) -> bool {
    if boot.is_empty() || owner.boot.is_empty() {
        return false;
    }
    let is_there = |found: Option<caliban_process::Stat>| {
        found.is_some_and(|stat| stat.start_time == owner.started && !stat.is_over())
    };
    owner.boot != boot || caliban_process::try_stat(owner.pid).is_ok_and(|found| !is_there(found))
}

/// This process, as reservations name it. Looked at once: each request asks.
pub(super) fn own() -> ReservationOwner {
    static OWN: OnceLock<ReservationOwner> = OnceLock::new();
    let look = || {
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        let started = caliban_process::stat(pid).map_or(0, |stat| stat.start_time);
        ReservationOwner { boot: caliban_process::boot_id().unwrap_or_default(), pid, started }
    };
    OWN.get_or_init(look).clone()
}

/// The process itself keeps the limit of time.
fn without_time(limits: Limits) -> Limits {
    Limits { wall_ms: None, ..limits }
}

/// An account in the machine's ledger.
#[derive(Debug)]
pub(super) struct MachineAccount {
    pub(super) ledger: MachineLedger,
    /// What the family calls it.
    name: String,
    pub(super) account: Account,
    above: Option<Arc<MachineAccount>>,
    /// What it and all below it may spend: `account` has what it was made with.
    tree: Lock<Limits>,
    /// In which generation of the file the account is open, and with which limits of its tree.
    opened: Lock<Option<(u64, Limits)>>,
}

/// What came of asking for a request.
pub(super) struct ReserveAnswer {
    /// What the conversation had spent when this process opened its account, by the ledger.
    pub(super) known: Option<Spent>,
    /// The request.
    pub(super) granted: Result<Granted, NotReserved>,
}

/// Runs a step of the ledger, again while others are writing.
macro_rules! patiently {
    ($self:expr, $ledger:ident, $step:expr) => {{
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut open = match $self.ledger.open().await {
                Ok(open) => open,
                Err(error) if error.is_busy() && attempts < PATIENCE => continue,
                Err(error) => break Err(error),
            };
            let $ledger = &mut *open;
            match $step.await {
                Err(error) if attempts < PATIENCE && error.is_busy() => {}
                other => break other,
            }
        }
    }};
}

pub(super) use patiently;

impl MachineAccount {
    fn new(ledger: MachineLedger, name: &str, account: Account, above: Option<Arc<Self>>) -> Self {
        let tree = Lock::new(account.tree);
        Self { ledger, name: name.to_owned(), account, above, tree, opened: Lock::default() }
    }

    /// Changes what it and all below it may spend. The ledger hears of it with the next request.
    pub(super) fn change_limits(&self, change: impl FnOnce(Limits) -> Limits) {
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        *tree = change(*tree);
    }

    pub(super) fn id(&self) -> &AccountId {
        &self.account.id
    }

    /// The first of this process that is above it, or itself.
    pub(super) fn root(&self) -> &AccountId {
        self.above.as_ref().map_or(self.id(), |above| above.root())
    }

    /// Whether no agent of this process is above it.
    pub(super) fn is_root(&self) -> bool {
        self.above.is_none()
    }

    /// An account below this one.
    pub(super) fn child(self: &Arc<Self>, name: &str, tree: Limits) -> Self {
        let short = name.strip_prefix(&self.name).map_or(name, |rest| rest.trim_start_matches('-'));
        let account = Account {
            id: self.account.id.below(if short.is_empty() { name } else { short }),
            parent: Some(self.account.id.clone()),
            label: self.account.label.clone(),
            tree: without_time(tree),
            ..self.account.clone()
        };
        Self::new(self.ledger.clone(), name, account, Some(self.clone()))
    }

    /// This account and those above it that this process has not opened yet in this file with the limits that they have,
    /// the topmost first.
    fn unopened(&self, generation: u64, book: &Lock<FamilyBudget>) -> Vec<(&Self, Account, [Spent; 2])> {
        let above = self.above.as_ref().map(|above| above.unopened(generation, book));
        let mut chain = above.unwrap_or_default();
        let tree = *self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = *self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened != Some((generation, tree)) {
            let spent = lock(book).own(&self.name);
            chain.push((self, Account { tree, ..self.account.clone() }, spent));
        }
        chain
    }

    /// Reserves a request. The first one of the process opens the account, and those above it.
    pub(super) async fn reserve(
        &self,
        model: &str,
        usage: Usage,
        cost: Option<MicroUsd>,
        book: &Lock<FamilyBudget>,
    ) -> ReserveAnswer {
        let owner = own();
        let terms = &self.ledger.0.terms;
        let first: Result<First, StoreError> = patiently!(self, ledger, async {
            let generation = ledger.generation().await?;
            let unopened = self.unopened(generation, book);
            let openings: Vec<Opening<'_>> = unopened
                .iter()
                .map(|(_, account, [earlier, today])| Opening { account, earlier: *earlier, today: *today })
                .collect();
            let request = LedgerRequest {
                account: &self.account.id,
                owner: &owner,
                model,
                usage,
                cost,
                turns: 1,
                day: caliban_contract::local_time::now().date(),
                per_repo_day: terms.per_repo_day,
                per_day: terms.per_day,
            };
            let first = ledger.open_and_reserve(&openings, &request, Stamp::now()).await?;
            for (opened, account, _) in &unopened {
                *opened.opened.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some((generation, account.tree));
            }
            Ok::<First, StoreError>(first)
        });
        match first {
            Ok(First { known, granted }) => ReserveAnswer {
                known,
                granted: granted.map_err(|refused| NotReserved::Limit(self.at_limit(refused))),
            },
            Err(error) => ReserveAnswer { known: None, granted: Err(NotReserved::Ledger(error)) },
        }
    }

    /// Waits for room on a full disk, and says so. What cannot be settled counts as it was reserved, once this process is
    /// gone.
    pub(super) async fn settle(
        &self,
        reservation: &Reservation,
        usage: Usage,
        cost: Option<MicroUsd>,
        wall_ms: u64,
        say: &(dyn Fn(Wait) + Sync),
    ) {
        loop {
            let settled: Result<(), StoreError> =
                patiently!(self, ledger, ledger.settle(reservation, usage, cost, wall_ms));
            match settled {
                Err(StoreError::Full(path)) => say(Wait::DiskFull { path }),
                // What it held went with the file; what was spent is told to the next one.
                Err(StoreError::Replaced(_)) => return,
                other => return warn(other),
            }
            tokio::time::sleep(LEDGER_PAUSE).await;
        }
    }

    pub(super) async fn count(&self, reservation: &Reservation, usage: Usage, cost: Option<MicroUsd>) {
        let counted: Result<(), StoreError> =
            patiently!(self, ledger, ledger.count(reservation, usage, cost));
        warn(counted);
    }

    pub(super) async fn release(&self, reservation: &Reservation) {
        let released: Result<(), StoreError> = patiently!(self, ledger, ledger.release(reservation));
        warn(released);
    }
}

fn warn(result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "the ledger does not know how a request ended; it counts as it was reserved");
    }
}
