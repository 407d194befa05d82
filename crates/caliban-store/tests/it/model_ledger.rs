//! The ledger in memory: what the ledger on disk must do, as plainly as it can be said. The oracle of `ledger_model`.

use std::collections::BTreeMap;

use caliban_core::budget::{Estimate, Held, Limits, Meter, ReserveRefused, Scope, Spent};
use caliban_core::price::MicroUsd;
use caliban_core::usage::Usage;

/// A granted reservation, to be settled or released once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ModelReservation(u64);

/// Agents by their names.
#[derive(Debug)]
pub(crate) struct ModelLedger {
    limits: Limits,
    pool: Meter,
    accounts: BTreeMap<String, ModelAccount>,
    open: BTreeMap<ModelReservation, (String, Held)>,
    next: u64,
}

#[derive(Debug)]
struct ModelAccount {
    parent: Option<String>,
    tree_limits: Limits,
    own: Meter,
    tree: Meter,
}

impl ModelLedger {
    /// An empty ledger with the pool's limits.
    pub(crate) fn new(pool: Limits) -> Self {
        Self {
            limits: pool,
            pool: Meter::default(),
            accounts: BTreeMap::new(),
            open: BTreeMap::new(),
            next: 0,
        }
    }

    /// Opens an account with limits of all that is below it together. Its parent is there.
    pub(crate) fn open_account(&mut self, id: String, parent: Option<String>, tree_limits: Limits) {
        assert!(parent.as_ref().is_none_or(|parent| self.accounts.contains_key(parent)));
        let account = ModelAccount { parent, tree_limits, own: Meter::default(), tree: Meter::default() };
        self.accounts.insert(id, account);
    }

    /// Reserves the estimate of a request, or says which limit is in the way.
    pub(crate) fn reserve(
        &mut self,
        id: &str,
        estimate: Estimate,
    ) -> Result<ModelReservation, ReserveRefused<String>> {
        let trees = self.chain(id).into_iter().map(|id| {
            let account = &self.accounts[&id];
            (Scope::Tree(id), &account.tree, account.tree_limits)
        });
        for (scope, meter, limits) in trees.chain([(Scope::Pool, &self.pool, self.limits)]) {
            meter.check(limits, estimate, scope)?;
        }
        let held = Held::from(estimate);
        self.each_meter(id, |meter| meter.hold(held));
        let reservation = ModelReservation(self.next);
        self.next += 1;
        self.open.insert(reservation, (id.to_owned(), held));
        Ok(reservation)
    }

    /// Replaces a reservation with what the request really took. A cost that is not known counts as what was reserved for it.
    pub(crate) fn settle(&mut self, reservation: ModelReservation, usage: Usage, cost: Option<MicroUsd>) {
        let (id, held) = self.open.remove(&reservation).expect("open");
        let spent = Spent {
            usage,
            usd: cost.unwrap_or(held.usd),
            turns: held.turns,
            wall_ms: 0,
            unpriced: u64::from(cost.is_none() && !held.priced),
        };
        self.each_meter(&id, |meter| meter.book(held, spent));
    }

    /// The request was sent and its usage will never be known: all that was reserved counts as spent.
    pub(crate) fn settle_unknown(&mut self, reservation: ModelReservation) {
        let held = self.open[&reservation].1;
        // Which kind of new token it would have been is unknown; the sums are what budgets count.
        let cache_read = held.tokens.saturating_sub(held.fresh);
        self.settle(reservation, Usage { input: held.fresh, cache_read, ..Usage::default() }, None);
    }

    /// The request was not billed: its reservation is given back.
    pub(crate) fn release(&mut self, reservation: ModelReservation) {
        let (id, held) = self.open.remove(&reservation).expect("open");
        self.each_meter(&id, |meter| meter.book(held, Spent::default()));
    }

    /// What an agent spent by itself.
    pub(crate) fn spent(&self, id: &str) -> Spent {
        self.accounts[id].own.spent
    }

    /// What an agent and all below it spent.
    pub(crate) fn tree_spent(&self, id: &str) -> Spent {
        self.accounts[id].tree.spent
    }

    /// What everybody spent.
    pub(crate) fn pool_spent(&self) -> Spent {
        self.pool.spent
    }

    /// The agent and those above it.
    fn chain(&self, id: &str) -> Vec<String> {
        std::iter::successors(Some(id.to_owned()), |id| self.accounts[id].parent.clone()).collect()
    }

    /// The meters that count what an agent does: its own, each tree's above it, the pool's.
    fn each_meter(&mut self, id: &str, mut change: impl FnMut(&mut Meter)) {
        for above in self.chain(id) {
            change(&mut self.accounts.get_mut(&above).expect("it is there").tree);
        }
        change(&mut self.accounts.get_mut(id).expect("it is there").own);
        change(&mut self.pool);
    }
}
